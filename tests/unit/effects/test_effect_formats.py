"""Records of transitions, permits and statements: what an earlier version wrote is what this one writes and reads."""

from __future__ import annotations

import json

import orjson
import pytest

from agent_run_ledger.kernel.effects.record import transition_bytes, transition_from, transition_mac
from tests.unit.effects.format_examples import story, written
from tests.unit.kernel_formats import golden, worked_example

STORY = story()


@pytest.mark.parametrize("name", ["effect", "permit", "approval"])
def test_what_was_written_once_is_written_now(name: str) -> None:
    assert written()[name] == golden(name)


@pytest.mark.parametrize("number", range(len(STORY)), ids=[str(one.command.event) for one in STORY])
def test_a_transition_comes_back_as_the_value_that_it_was(number: int) -> None:
    case = golden("effect")[number]
    payload = case["payload"].encode()
    assert transition_from(payload) == STORY[number]
    assert transition_bytes(transition_from(payload)) == payload
    assert transition_mac(bytes.fromhex(case["salt_hex"]), payload).hex() == case["change"]["mac"]


def test_the_pages_example_is_the_first_golden_one() -> None:
    assert worked_example("effect") == golden("effect")[0]


def _forged() -> dict[str, bytes]:
    payload = golden("effect")[0]["payload"].encode()
    tree = json.loads(payload)
    without = {name: tree[name] for name in tree if name != "old"}
    return {
        "no JSON": b"{",
        "no object": b"[1]",
        "another version": payload.replace(b'"v":1', b'"v":2'),
        "a part less": orjson.dumps(without, option=orjson.OPT_SORT_KEYS),
        "a part more": orjson.dumps({**tree, "zzz": 1}, option=orjson.OPT_SORT_KEYS),
        "spaces": payload.replace(b",", b", ", 1),
        "no command": payload.replace(b'"class":"Propose"', b'"class":"Proposal"'),
    }


@pytest.mark.parametrize("how", _forged())
def test_other_bytes_are_no_record(how: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        transition_from(_forged()[how])
