"""When a target is asked about a doubt: at once, seldomer with each look, and anew where there is news."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from agent_run_ledger.runs.effect_looks import Looks


@dataclass(frozen=True)
class Doubt:
    action_id: bytes = b"one"
    drain: bytes | None = None


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def until_due(looks: Looks, clock: Clock, doubt: Doubt) -> float:
    """Return after how many seconds the next look is due, a quarter of a second being the step."""
    began = clock.now_s
    while looks.enough(cast("Any", doubt)):
        clock.now_s += 0.25
    return clock.now_s - began


def test_looks_become_seldomer_up_to_a_limit() -> None:
    clock, pauses = Clock(), list[float]()
    looks = Looks(clock)
    for _ in range(8):
        pauses.append(until_due(looks, clock, Doubt()))
        looks.note()
    assert pauses == [0, 1, 2, 4, 8, 15, 15, 15]


def test_a_pause_begins_when_the_look_has_ended() -> None:
    clock = Clock()
    looks = Looks(clock)
    assert until_due(looks, clock, Doubt()) == 0
    clock.now_s += 60  # the probe took that long
    looks.note()
    assert until_due(looks, clock, Doubt()) == 1


def test_what_the_look_itself_put_on_record_is_no_news_and_a_later_drain_is() -> None:
    clock = Clock()
    looks = Looks(clock)
    assert until_due(looks, clock, Doubt()) == 0
    looks.note()
    drained = Doubt(drain=b"by the look")
    assert until_due(looks, clock, drained) == 1
    looks.note()
    assert looks.enough(cast("Any", drained))
    assert until_due(looks, clock, Doubt(drain=b"by people")) == 0
    looks.note()
    assert until_due(looks, clock, Doubt(drain=b"by people")) == 1


def test_the_doubt_of_a_successor_is_asked_about_at_once() -> None:
    clock = Clock()
    looks = Looks(clock)
    for _ in range(5):
        until_due(looks, clock, Doubt())
        looks.note()
    assert until_due(looks, clock, Doubt()) == 15
    looks.note()
    assert looks.enough(cast("Any", Doubt()))
    assert until_due(looks, clock, Doubt(b"two")) == 0
    looks.note()
    assert until_due(looks, clock, Doubt(b"two")) == 1
