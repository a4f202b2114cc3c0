"""Pure values of the effect ledger: the time of a decision, plain forms, records of transitions, permits."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, get_args

import orjson
import pytest

from agent_run_ledger.kernel.effects import Event, LedgerState, TargetClass
from agent_run_ledger.kernel.effects.action import Action, Now, Standing
from agent_run_ledger.kernel.effects.commands import BY_NAME, Actor, Command, DoubtBy
from agent_run_ledger.kernel.effects.evidence import Drain, DrainKind, FenceAnswer, Found, Observation, Receipt
from agent_run_ledger.kernel.effects.permit import permit_of
from agent_run_ledger.kernel.effects.plain import KIND, from_plain, name_of, to_plain
from agent_run_ledger.kernel.effects.reading import LEAP_MS, Sample, read_time
from agent_run_ledger.kernel.effects.record import (
    Transition,
    change_of,
    transition_bytes,
    transition_from,
    transition_mac,
)
from tests.unit.effects.examples import DRAIN, LEDGER, PERMIT_END_MS, SEEN, SHA, TERMS, A, example, row

# Time

MARK = Sample(wall_ms=1_000_000, uptime_ms=50_000, boot="one")


def _sample(wall: int, uptime: int, boot: str = "one") -> Sample:
    return Sample(wall_ms=MARK.wall_ms + wall, uptime_ms=MARK.uptime_ms + uptime, boot=boot)


def test_the_first_look_is_believed() -> None:
    reading = read_time(None, MARK)
    assert (reading.now, reading.trusted, reading.mark) == (Now(1_000_000, 1_000_000), True, MARK)


BELIEVED = {
    "the same moment": _sample(0, 0),
    "time that passed": _sample(70, 70),
    "a correction forward": _sample(LEAP_MS, 0),
    "just below a leap": _sample(LEAP_MS + 70, 70),
    "any leap over a start": _sample(100 * LEAP_MS, -49_999, "two"),
}


@pytest.mark.parametrize("name", BELIEVED)
def test_a_clock_that_may_be_right_is_believed_and_kept(name: str) -> None:
    sample = BELIEVED[name]
    reading = read_time(MARK, sample)
    ahead_ms = 0 if sample.boot != MARK.boot else sample.wall_ms - MARK.wall_ms - (sample.uptime_ms - MARK.uptime_ms)
    kept = replace(sample, uptime_ms=sample.uptime_ms + ahead_ms)
    assert (reading.now, reading.trusted, reading.mark) == (Now(sample.wall_ms, sample.wall_ms), True, kept)


def test_small_leaps_do_not_add_up() -> None:
    mark, step_ms = MARK, LEAP_MS // 4
    for number in range(1, 5):
        reading = read_time(mark, _sample(number * step_ms, 0))
        assert reading.trusted
        mark = reading.mark
    assert not read_time(mark, _sample(5 * step_ms, 0)).trusted
    assert read_time(mark, _sample(5 * step_ms, step_ms)).trusted


def test_a_clock_that_was_behind_may_go_no_further_ahead_than_it_was_before_and_a_leap() -> None:
    slow = read_time(MARK, _sample(10, 1_000)).mark
    assert slow.uptime_ms - MARK.uptime_ms == 1_000
    assert read_time(slow, _sample(10 + LEAP_MS, 1_000)).trusted
    assert not read_time(slow, _sample(11 + LEAP_MS, 1_000)).trusted


DOUBTED = {
    "back": _sample(-1, 70),
    "a leap": _sample(LEAP_MS + 71, 70),
    "back over a start": _sample(-1, -49_999, "two"),
}


@pytest.mark.parametrize("name", DOUBTED)
def test_a_clock_that_went_back_or_leapt_is_a_span_and_moves_no_mark(name: str) -> None:
    sample = DOUBTED[name]
    reading = read_time(MARK, sample)
    span = Now(min(sample.wall_ms, MARK.wall_ms), max(sample.wall_ms, MARK.wall_ms))
    assert (reading.now, reading.trusted, reading.mark) == (span, False, MARK)


# Plain forms


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    kind: str
    count: int = 3


@dataclass(frozen=True)
class Other:
    kind: str


@dataclass(frozen=True)
class Whole:
    raw: bytes
    colour: Colour
    pairs: tuple[tuple[str, int], ...]
    names: frozenset[str]
    maybe: bytes | None
    one: Inner | Other
    sure: bool


WHOLE = Whole(b"\x00\xff", Colour.RED, (("a", 1), ("b", 2)), frozenset({"y", "x"}), None, Inner("k", 4), True)
PLAIN: dict[str, Any] = {
    KIND: "Whole", "raw": "00ff", "colour": "red", "pairs": [["a", 1], ["b", 2]], "names": ["x", "y"], "maybe": None,
    "one": {KIND: "Inner", "kind": "k", "count": 4}, "sure": True,
}  # fmt: skip


def test_a_value_has_one_plain_form_and_comes_back_from_it() -> None:
    assert to_plain(WHOLE) == PLAIN
    assert from_plain(Whole, PLAIN) == WHOLE
    assert type(from_plain(Whole, PLAIN).colour) is Colour
    other = replace(WHOLE, one=Other("k"), maybe=b"")
    assert from_plain(Whole, to_plain(other)) == other


def test_what_has_its_default_is_left_out_in_every_form() -> None:
    assert to_plain(Inner("k")) == {KIND: "Inner", "kind": "k"}
    assert from_plain(Inner, {KIND: "Inner", "kind": "k"}) == Inner("k")
    with pytest.raises(ValueError, match="default"):
        from_plain(Inner, {KIND: "Inner", "kind": "k", "count": 3})


def test_a_set_is_written_in_one_order() -> None:
    many = frozenset(f"name {number}" for number in range(50))
    assert to_plain(many) == sorted(many)
    assert to_plain(frozenset({b"b", b"a"})) == ["61", "62"]


@pytest.mark.parametrize("value", [1.5, [1], {"a": 1}, object(), bytearray(b"x")])
def test_what_has_no_exact_form_has_none(value: object) -> None:
    with pytest.raises(TypeError, match="no plain form"):
        to_plain(value)


WRONG: list[Any] = [
    {},
    [],
    None,
    {**PLAIN, KIND: "Inner"},
    {**PLAIN, "more": 1},
    {name: value for name, value in PLAIN.items() if name != "raw"},
    {**PLAIN, "raw": 7},
    {**PLAIN, "raw": "0g"},
    {**PLAIN, "colour": "blue"},
    {**PLAIN, "pairs": [["a", 1, 2]]},
    {**PLAIN, "pairs": [["a"]]},
    {**PLAIN, "pairs": {"a": 1}},
    {**PLAIN, "pairs": [["a", True]]},
    {**PLAIN, "names": "xy"},
    {**PLAIN, "names": [1]},
    {**PLAIN, "sure": 1},
    {**PLAIN, "one": {KIND: "Whole"}},
    {**PLAIN, "one": "Inner"},
    {**PLAIN, "one": None},
]


@pytest.mark.parametrize("plain", WRONG)
def test_any_other_form_is_refused(plain: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_plain(Whole, plain)


def test_no_value_of_the_rules_has_a_field_where_its_class_stands() -> None:
    kinds = (Action, Standing, Actor, *get_args(Command), Receipt, FenceAnswer, Observation, Drain)
    assert all(KIND not in kind.__dataclass_fields__ for kind in kinds)
    assert name_of(to_plain(DRAIN)) == "Drain"
    assert (name_of([]), name_of({}), name_of(None)) == ("", "", "")


# Records


def _transition(event: Event = Event.CLAIM) -> Transition:
    asked = example(event)
    old = "" if not asked.members else str(asked.members[-1].state)
    return Transition(command=asked.command, ledger=asked.ledger, old=old, row=asked.accepted().rows[-1])


@pytest.mark.parametrize("event", [event for event in Event if event is not Event.ADMIT])
def test_a_record_comes_back_as_it_was(event: Event) -> None:
    transition = _transition(event)
    payload = transition_bytes(transition)
    assert transition_from(payload) == transition
    tree = orjson.loads(payload)
    assert (tree["v"], sorted(tree)) == (1, ["command", "ledger", "old", "row", "v"])


def test_a_record_keeps_every_part_of_a_row() -> None:
    full = row(
        A.UNRESOLVED, replaces=b"r" * 16, drain=DRAIN, observation=SEEN, fenced_mark=3, evidence=(b"e" * 16,),
        demoted_epoch=1, handed_out=True, revoked=True,
    )  # fmt: skip
    ledger = replace(LEDGER, state=LedgerState.HELD, closed_audiences=frozenset({"b", "a"}), origin_frozen=False)
    ledger = replace(ledger, clock_doubted=True)
    transition = replace(_transition(), row=full, ledger=ledger)
    assert transition_from(transition_bytes(transition)) == transition


def _changed(**changes: Any) -> bytes:
    tree = orjson.loads(transition_bytes(_transition()))
    return orjson.dumps({**tree, **changes}, option=orjson.OPT_SORT_KEYS)


OTHER_BYTES: dict[str, bytes] = {
    "another version": _changed(v=2),
    "a field more": _changed(why="because"),
    "another order": orjson.dumps(dict(reversed(orjson.loads(transition_bytes(_transition())).items()))),
    "a space more": transition_bytes(_transition()).replace(b":", b": ", 1),
    "no object": b"[]",
    "no command": _changed(command={KIND: "Nothing"}),
    "no row": _changed(row=None),
    "no text": _changed(old=1),
    "no JSON": b"{",
}


@pytest.mark.parametrize("name", OTHER_BYTES)
def test_other_bytes_are_no_record(name: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        transition_from(OTHER_BYTES[name])


def test_the_mac_is_over_the_domain_and_the_payload_with_the_salt_as_its_key() -> None:
    payload = transition_bytes(_transition())
    expected = hmac.digest(b"s" * 32, b"agent-run-ledger/effect/v1\n" + payload, "sha256")
    assert transition_mac(b"s" * 32, payload) == expected
    assert transition_mac(b"t" * 32, payload) != expected


def test_the_line_of_the_leaf_says_what_happened_to_which_member() -> None:
    claimed = change_of(_transition(), b"m" * 32)
    assert (claimed.type, claimed.id, claimed.old, claimed.new) == ("action", b"first member", "available", "claimed")
    assert (claimed.generation, claimed.mac) == (1, b"m" * 32)
    proposed = change_of(_transition(Event.PROPOSE), b"m" * 32)
    assert (proposed.old, proposed.new, proposed.generation) == ("", "proposed", 0)


def test_each_command_is_found_by_its_name() -> None:
    assert {kind.event for kind in BY_NAME.values()} == set(Event)
    assert from_plain(DoubtBy, "expiry") is DoubtBy.EXPIRY
    assert from_plain(Found, "nothing") is Found.NOTHING
    assert from_plain(DrainKind, "expiry") is DrainKind.EXPIRY
    assert from_plain(TargetClass, "f") is TargetClass.F


# Permits


def test_a_permit_says_exactly_what_was_prepared() -> None:
    permit = permit_of(LEDGER, row(A.PREPARED))
    assert permit.iss == (b"l" * 16).hex()
    assert (permit.aud, permit.sub, permit.jti, permit.act) == (TERMS.audience, "exe", b"claim".hex(), "refund:17")
    assert (permit.gen, permit.ep, permit.req, permit.pre) == (1, 0, SHA.hex(), (("uid", "7"),))
    assert (permit.nbf, permit.exp) == (TERMS.not_before_ms, PERMIT_END_MS)
    later = permit_of(replace(LEDGER, epoch=9), row(A.PREPARED, epoch=4))
    assert later.ep == 4, "the epoch is that of the claim"


@pytest.mark.parametrize("missing", ["generation", "claim_id", "permit_expires_ms"])
def test_what_was_not_prepared_has_no_permit(missing: str) -> None:
    with pytest.raises(ValueError, match="never prepared"):
        permit_of(LEDGER, row(A.PREPARED, **{missing: None}))
