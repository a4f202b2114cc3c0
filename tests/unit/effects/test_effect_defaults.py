"""What has its default stands in no record, and a record in which it stands is none."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields, replace
from typing import Any

import orjson
import pytest

from agent_run_ledger.kernel.effects import ActionState, Event, Standing
from agent_run_ledger.kernel.effects.action import Action
from agent_run_ledger.kernel.effects.plain import KIND, from_plain, to_plain
from agent_run_ledger.kernel.effects.record import Transition, transition_bytes, transition_from
from tests.unit.effects import examples


def _transition() -> Transition:
    command = examples.example(Event.PREPARE).command
    row = examples.row(ActionState.PREPARED)
    return Transition(command=command, ledger=examples.LEDGER, old="claimed", row=row)


def test_a_record_comes_back_whole_and_holds_nothing_that_has_its_default() -> None:
    transition = _transition()
    payload = transition_bytes(transition)
    row = json.loads(payload)["row"]
    default = {field.name for field in fields(Action) if getattr(transition.row, field.name) == field.default}
    assert default
    assert not default & row.keys()
    assert transition_from(payload) == transition


@pytest.mark.parametrize("name", [field.name for field in fields(Standing) if field.default is not MISSING])
def test_a_default_that_is_written_down_is_no_record(name: str) -> None:
    plain = to_plain(Standing(ledger_id=b"l" * 16))
    default = next(field.default for field in fields(Standing) if field.name == name)
    assert plain == {KIND: "Standing", "ledger_id": (b"l" * 16).hex()}
    with pytest.raises(ValueError, match="which is left out"):
        from_plain(Standing, {**plain, name: to_plain(default)})


def test_an_integer_that_equals_a_boolean_default_is_not_left_out() -> None:
    row: Any = replace(_transition().row, handed_out=0)
    assert to_plain(row)["handed_out"] == 0
    with pytest.raises(ValueError, match="int instead of bool"):
        from_plain(Action, to_plain(row))


def test_a_boolean_that_equals_the_default_of_an_integer_is_not_left_out() -> None:
    row: Any = replace(_transition().row, drain_corrections=False)
    assert to_plain(row)["drain_corrections"] is False
    with pytest.raises(ValueError, match="bool instead of int"):
        from_plain(Action, to_plain(row))


def test_a_record_that_lacks_what_has_no_default_is_none() -> None:
    tree = orjson.loads(transition_bytes(_transition()))
    del tree["row"]["requester"]
    with pytest.raises(ValueError, match="this is no Action"):
        transition_from(orjson.dumps(tree, option=orjson.OPT_SORT_KEYS))
