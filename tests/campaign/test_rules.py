"""Each rule of the campaign bites: a life that is forged in one place is complained of, and an honest one is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.campaign.meter import Event, Line
from tests.campaign.programs import Node, Program, digest_of
from tests.campaign.reference import Reference
from tests.campaign.rules import Ended, RunLife, complaints
from tests.campaign.seen import NOTHING, Call, Mark, Seen
from tests.campaign.stories import Worker

PROGRAM = Program(
    nodes=(
        Node(name="a", takes_input=True),
        Node(name="b", takes=("a",), retries=1, fails_first=1),
        Node(name="c", waits=("b",)),
    )
)
X, PID = 7, 100
EXPECTED = Reference(x=X).expect(PROGRAM)
WORKER = Worker(runs=("r",))


def _line(name: str, event: Event, tries: int = 1, pid: int = PID) -> Line:
    return Line(life=2, pid=pid, run="r", name=name, key=EXPECTED.keys[name], event=event, tries=tries)


def _call(leaf: int, kind: str, name: str, attempt: int, tries: int = 1) -> Call:
    result = kind == "RESULT"
    return Call(
        record_id=leaf << 16,
        kind=kind,
        name=name,
        attempt=attempt,
        tries=tries,
        fingerprint=f"fingerprint of {name}",
        key=EXPECTED.keys[name] if result else "",
        digest=digest_of(EXPECTED.values[name]) if result else "",
    )


BEFORE = Seen(
    state="running",
    attempt=1,
    generation=1,
    starts=((1, 50),),
    calls=(_call(2, "RESULT", "a", 1),),
    marks=frozenset({Mark(name="b", attempt=1, tries=1, fingerprint="fingerprint of b")}),
    decisions=0,
)
AFTER = Seen(
    state="completed",
    attempt=2,
    generation=2,
    starts=((1, 50), (3, PID)),
    calls=(
        *BEFORE.calls,
        _call(3, "ABANDONED", "b", 1),
        _call(4, "ERROR", "b", 2),
        _call(5, "RESULT", "b", 2, tries=2),
        _call(6, "RESULT", "c", 2),
    ),
    marks=frozenset(),
    decisions=0,
)
HONEST = RunLife(
    program=PROGRAM,
    before=BEFORE,
    after=AFTER,
    lines=[
        _line("b", Event.BEGAN),
        _line("b", Event.RAISED),
        _line("b", Event.BEGAN, tries=2),
        _line("b", Event.RETURNED, tries=2),
        _line("c", Event.BEGAN),
        _line("c", Event.RETURNED),
    ],
    ended=[Ended(worker=WORKER, pid=PID, end=f"result {digest_of(EXPECTED.result)}")],
)


def _complaints(life: RunLife) -> list[str]:
    return complaints(life, Reference(x=X, state="open", recorded={("a", EXPECTED.keys["a"])}))


def _after(**changes: object) -> RunLife:
    return replace(HONEST, after=replace(AFTER, **changes))  # type: ignore[arg-type]


def _calls(change: Callable[[Call], Call | None]) -> RunLife:
    return _after(calls=tuple(new for call in AFTER.calls if (new := change(call)) is not None))


def _ended(end: str | None, **worker: object) -> RunLife:
    return replace(HONEST, ended=[Ended(worker=replace(WORKER, **worker), pid=PID, end=end)])  # type: ignore[arg-type]


FORGED = {
    "lost": _calls(lambda call: None if call.attempt == 1 and call.kind == "RESULT" else call),
    "changed": _calls(lambda call: replace(call, digest="other") if call.name == "a" else call),
    "an earlier START": _after(starts=((9, 50), (3, PID))),
    "recorded before this life": replace(HONEST, lines=[*HONEST.lines, _line("a", Event.BEGAN)]),
    "recorded before its attempt": _after(starts=((1, 50), (7, PID))),
    "ran again in the same attempt": replace(HONEST, lines=[*HONEST.lines, _line("c", Event.BEGAN, tries=2)]),
    "began for the 1. time, as try 2": replace(HONEST, lines=HONEST.lines[2:]),
    "no START": replace(HONEST, lines=[*HONEST.lines, _line("c", Event.BEGAN, pid=999)]),
    "the ledger knows nothing": _calls(lambda call: None if call.kind == "ERROR" else call),
    "no body returned": replace(HONEST, lines=HONEST.lines[:-1]),
    "should not have been called with": _calls(lambda call: replace(call, key="other") if call.name == "c" else call),
    "not what its body returned": _calls(lambda call: replace(call, digest="other") if call.name == "c" else call),
    "no body raised": replace(HONEST, lines=[line for line in HONEST.lines if line.event is not Event.RAISED]),
    "was rescued": _after(calls=(*AFTER.calls, _call(7, "RESCUED", "c", 2))),
    "is not on record": _calls(lambda call: None if call.name == "b" and call.kind == "RESULT" else call),
    "recorded as abandoned: []": _calls(lambda call: None if call.kind == "ABANDONED" else call),
    "no attempt began": _after(starts=BEFORE.starts),
    "one key": _calls(lambda call: replace(call, fingerprint="other") if call.kind == "ERROR" else call),
    "one fingerprint": _after(
        calls=(*AFTER.calls, replace(_call(7, "RESULT", "c", 2), key="other")),
    ),
    "ended with 'result other'": _ended("result other"),
    "ended with 'RunBusy run_busy'": _ended("RunBusy run_busy"),
    "ended with 'Superseded attempt_superseded'": _ended("Superseded attempt_superseded"),
    "is completed without ['c']": _calls(lambda call: None if call.name == "c" else call),
    "and is failed, not completed": _after(state="failed"),
}


def test_an_honest_life_is_not_complained_of() -> None:
    assert _complaints(HONEST) == []


@pytest.mark.parametrize("words", FORGED)
def test_a_life_that_is_forged_in_one_place_is_complained_of(words: str) -> None:
    assert words in "\n".join(_complaints(FORGED[words]))


@pytest.mark.parametrize("state", ["quarantined", "cancelled", "completed"])
def test_a_run_that_is_stopped_or_over_must_be_left_alone(state: str) -> None:
    reference = Reference(x=X, state=state, recorded=set(), result=EXPECTED.result)
    assert "the run was to be left alone" in "\n".join(complaints(HONEST, reference))
    still = replace(AFTER, state=state)
    end = {"quarantined": "RunQuarantined x", "cancelled": "RunCancelled x"}.get(state, HONEST.ended[0].end)
    quiet = replace(HONEST, before=still, after=still, lines=[], ended=[Ended(worker=WORKER, pid=PID, end=end)])
    assert complaints(quiet, reference) == []


def test_where_two_are_told_to_one_may_be_told_no_but_not_both() -> None:
    other = Ended(worker=WORKER, pid=101, end="RunBusy run_busy")
    assert _complaints(replace(HONEST, ended=[*HONEST.ended, other])) == []
    assert "nobody got anywhere" in "\n".join(_complaints(replace(HONEST, ended=[other, other])))
    patient = replace(other, worker=replace(WORKER, manner="wait"))
    assert "ended with 'RunBusy" in "\n".join(_complaints(replace(HONEST, ended=[*HONEST.ended, patient])))


def test_a_process_that_was_killed_need_not_say_anything() -> None:
    assert _complaints(_ended(None)) == []


# The reference


def test_a_change_runs_a_step_again_with_what_takes_it_and_nothing_else() -> None:
    reference = Reference(x=X, state="open", recorded=set(EXPECTED.keys.items()))
    assert reference.expect(PROGRAM).restored == {"a", "b", "c"}
    changed = replace(PROGRAM, nodes=(replace(PROGRAM.nodes[0], version="2"), *PROGRAM.nodes[1:]))
    expected = reference.expect(changed)
    again = {name for name, key in expected.keys.items() if (name, key) not in reference.recorded}
    assert again == {"a", "b"}, "c only waits for b"
    assert expected.ends == {"result"}
    assert reference.expect(replace(changed, on_change="refuse")).ends == {"Diverged"}
    assert reference.expect(replace(changed, on_change="refuse")).silent


def test_a_refusal_that_shows_only_in_the_run_is_one_of_its_possible_ends() -> None:
    reference = Reference(x=X, state="open", recorded=set(EXPECTED.keys.items()))
    nodes = (replace(PROGRAM.nodes[0], version="2"), replace(PROGRAM.nodes[1], on_change="refuse"), PROGRAM.nodes[2])
    expected = reference.expect(replace(PROGRAM, nodes=nodes))
    assert (expected.ends, expected.silent) == ({"Diverged"}, False)
    broken = (replace(nodes[0], broken=True), *nodes[1:])
    assert reference.expect(replace(PROGRAM, nodes=broken)).ends == {"raised a"}


def test_a_step_that_raises_for_good_raises_only_where_it_is_not_recorded() -> None:
    nodes = (*PROGRAM.nodes[:2], replace(PROGRAM.nodes[2], broken=True))
    program = replace(PROGRAM, nodes=nodes)
    assert Reference(x=X).expect(program).ends == {"raised c"}
    assert Reference(x=X, recorded={("c", EXPECTED.keys["c"])}).expect(program).ends == {"result"}


def test_a_completed_run_returns_its_result_whatever_changed() -> None:
    reference = Reference(x=X)
    reference.lived(set(EXPECTED.keys.items()), "completed", EXPECTED)
    changed = replace(PROGRAM, nodes=PROGRAM.nodes[:1])
    assert reference.expect(changed).result == EXPECTED.result
    assert reference.expect(changed).silent


def test_the_reference_is_small_enough_to_be_read() -> None:
    text = Path(__file__).with_name("reference.py").read_text(encoding="utf-8")
    assert text.count("\n") <= 80


def test_nothing_is_seen_of_a_run_that_never_began() -> None:
    quiet = RunLife(program=PROGRAM, before=NOTHING, after=NOTHING, lines=[], ended=[])
    assert [said for said in complaints(quiet, Reference(x=X)) if "nobody" not in said] == []
