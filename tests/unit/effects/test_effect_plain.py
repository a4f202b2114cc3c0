"""Values of the rules as plain JSON: what was put in comes out, whichever class it is of."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from agent_run_ledger.kernel.effects.commands import BY_NAME
from agent_run_ledger.kernel.effects.evidence import Covers, Drain, DrainKind
from agent_run_ledger.kernel.effects.plain import KIND, from_plain, to_plain

DRAIN = Drain(
    evidence_id=b"d",
    action_key="k",
    epoch=0,
    observer="olga",
    kind=DrainKind.PATH_DEAD,
    covers=Covers.WORKER,
)


def test_a_drain_comes_back_although_it_has_a_kind_of_its_own() -> None:
    plain = json.loads(json.dumps(to_plain(DRAIN)))
    assert (plain[KIND], plain["kind"]) == ("Drain", "path_dead")
    assert from_plain(Drain, plain) == DRAIN


@pytest.mark.parametrize("command", BY_NAME.values(), ids=BY_NAME)
def test_no_command_has_a_field_of_the_name_that_says_its_class(command: type) -> None:
    assert KIND not in {field.name for field in fields(command)}
