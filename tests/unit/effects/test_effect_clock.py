"""The rule of the clock correction, case by case, and its record: what was written once is written now."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import orjson
import pytest

from agent_run_ledger.kernel.effects import LedgerState, Rejected, Role
from agent_run_ledger.kernel.effects.clock import (
    CorrectClock,
    Correction,
    change_of_correction,
    correct,
    correction_bytes,
    correction_from,
    correction_mac,
    is_correction,
)
from agent_run_ledger.kernel.effects.reading import LEAP_MS, Sample
from tests.unit.effects.clock_examples import CORRECTION, written
from tests.unit.effects.examples import actor
from tests.unit.kernel_formats import golden

OLD, LEDGER = CORRECTION.old, CORRECTION.ledger
OPEN, UNTRUSTED = LedgerState.OPEN, LedgerState.TIME_UNTRUSTED


def asked(new: Sample | None = None, *, ledger: dict[str, Any] | None = None, **command: Any) -> Correction:
    """The correction of the example with changes."""
    return replace(
        CORRECTION,
        new=new or CORRECTION.new,
        ledger=replace(LEDGER, **(ledger or {})),
        command=replace(CORRECTION.command, **command),
    )


def moved(wall_ms: int, uptime_ms: int = 0, boot: str = OLD.boot) -> Sample:
    """A sample this much after the old mark."""
    return Sample(wall_ms=OLD.wall_ms + wall_ms, uptime_ms=OLD.uptime_ms + uptime_ms, boot=boot)


def test_a_corrected_clock_is_not_doubted() -> None:
    corrected = correct(asked(ledger={"clock_doubted": True}))
    assert not isinstance(corrected, Rejected)
    assert corrected.clock_trusted


REFUSED: list[tuple[str, str, Correction]] = [
    ("a requester", "wrong_role", asked(actor=actor("olga", Role.REQUESTER))),
    ("an operator", "wrong_role", asked(actor=actor("olga", Role.OPERATOR, Role.RECONCILER))),
    ("a role before a state", "wrong_role", asked(ledger={"state": OPEN}, actor=actor("olga"))),
    ("an open ledger", "time_trusted", asked(ledger={"state": OPEN})),
    ("held", "ledger_held", asked(ledger={"state": LedgerState.HELD})),
    ("recovery", "ledger_recovery", asked(ledger={"state": LedgerState.RECOVERY})),
    ("frozen", "ledger_frozen", asked(ledger={"state": LedgerState.FROZEN})),
    ("the same clock", "time_trusted", asked(OLD)),
    ("a clock that went on", "time_trusted", asked(moved(1, 1))),
    ("the longest leap that is believed", "time_trusted", asked(moved(LEAP_MS))),
    ("another start of the machine", "time_trusted", asked(moved(30 * LEAP_MS, boot="another"))),
    ("one officer of two", "few_officers", asked(people=frozenset())),
    ("one officer twice", "few_officers", asked(people=frozenset({"olga"}))),
    ("two of three", "few_officers", asked(ledger={"officers_needed": 3})),
]


@pytest.mark.parametrize(("code", "question"), [pytest.param(code, one, id=name) for name, code, one in REFUSED])
def test_what_is_no_correction_is_refused_by_its_code(code: str, question: Correction) -> None:
    decided = correct(question)
    assert isinstance(decided, Rejected)
    assert decided.code == code
    assert decided.words


ACCEPTED: list[tuple[str, Correction]] = [
    ("two officers", asked()),
    ("a clock that went back by the least", asked(moved(-1))),
    ("the least leap that is not believed", asked(moved(LEAP_MS + 1))),
    ("back, on another start of the machine", asked(moved(-1, boot="another"))),
    ("one where one is enough", asked(ledger={"officers_needed": 1}, people=frozenset())),
    ("more than are needed", asked(people=frozenset({"otto", "ole"}))),
    ("an officer with other roles", asked(actor=actor("olga", Role.OFFICER, Role.EXECUTOR))),
]


@pytest.mark.parametrize("question", [pytest.param(one, id=name) for name, one in ACCEPTED])
def test_a_correction_opens_the_ledger_and_changes_nothing_else_of_it(question: Correction) -> None:
    after, before = correct(question), question.ledger
    assert not isinstance(after, Rejected)
    assert (after.state, after.corrections) == (OPEN, before.corrections + 1)
    kept = {"state": before.state, "corrections": before.corrections, "corrected_ms": before.corrected_ms}
    assert replace(after, **kept) == before  # type: ignore[arg-type]


@pytest.mark.parametrize(("ms", "before_ms"), [(-5_000, 0), (2 * LEAP_MS, 0), (-5_000, OLD.wall_ms + 7)])
def test_the_latest_time_of_all_corrections_is_kept(ms: int, before_ms: int) -> None:
    question = asked(moved(ms), ledger={"corrections": 3, "corrected_ms": before_ms})
    after = correct(question)
    assert not isinstance(after, Rejected)
    assert (after.corrections, after.corrected_ms) == (4, max(OLD.wall_ms, OLD.wall_ms + ms, before_ms))
    assert question.later_ms == max(OLD.wall_ms, OLD.wall_ms + ms)


# The record


def test_the_record_that_was_written_once_is_written_now() -> None:
    assert written() == golden("clock")


def test_a_correction_comes_back_as_the_value_that_it_was() -> None:
    (case,) = golden("clock")
    payload = case["payload"].encode()
    assert correction_from(payload) == CORRECTION
    assert correction_bytes(CORRECTION) == payload
    assert correction_mac(bytes.fromhex(case["salt_hex"]), payload).hex() == case["change"]["mac"]


def test_the_line_of_a_correction_is_one_of_the_store() -> None:
    change = change_of_correction(CORRECTION, b"m" * 32)
    assert (change.type, change.id, change.generation) == ("store", LEDGER.ledger_id, 0)
    assert (change.old, change.new, change.mac) == ("time_untrusted", "time_corrected", b"m" * 32)
    assert is_correction({"type": "store", "new": "time_corrected"})
    assert not is_correction({"type": "action", "new": "time_corrected"})
    assert not is_correction({"type": "store", "new": "authority"})


def _forged() -> dict[str, bytes]:
    payload = golden("clock")[0]["payload"].encode()
    tree = json.loads(payload)
    without = {name: tree[name] for name in tree if name != "old"}
    return {
        "no JSON": b"{",
        "no object": b"[1]",
        "another version": payload.replace(b'"v":1', b'"v":2'),
        "a part less": orjson.dumps(without, option=orjson.OPT_SORT_KEYS),
        "a part more": orjson.dumps({**tree, "zzz": 1}, option=orjson.OPT_SORT_KEYS),
        "spaces": payload.replace(b",", b", ", 1),
        "another command": payload.replace(b'"class":"CorrectClock"', b'"class":"Revoke"'),
        "no mark": orjson.dumps({**tree, "old": None}, option=orjson.OPT_SORT_KEYS),
    }


@pytest.mark.parametrize("how", _forged())
def test_other_bytes_are_no_record(how: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        correction_from(_forged()[how])


def test_people_are_written_in_one_order() -> None:
    many = frozenset({"otto", "ole", "oda", "olaf"})
    payload = correction_bytes(replace(CORRECTION, command=CorrectClock(actor=CORRECTION.command.actor, people=many)))
    assert b'"people":["oda","olaf","ole","otto"]' in payload
