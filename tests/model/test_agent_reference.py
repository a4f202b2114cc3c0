"""The reference model of agents by itself: traces that it follows, and lines in them that it must not accept."""

from __future__ import annotations

import pytest

from tests.simulation.generator import story_of
from tests.simulation.memory import BEGUN, NONE, Key, Memory, RunMemory, Status, enclosing, siblings
from tests.simulation.model import TOP, Complaint, Reference
from tests.simulation.syntax import Block, Call, Program, StepSpec, Stream, Try, Value
from tests.simulation.trace import Event, by_path

STEPS = (
    StepSpec(name="a", takes=0),
    StepSpec(name="b", takes=0),
    StepSpec(name="u", takes=0, tool="unsafe"),
    StepSpec(name="s", takes=0, shape="generator", items=2),
)
A, B = Key((), "a", (), 0), Key((), "b", (), 0)


def followed(
    memory: Memory, block: Block, *lines: str, end: str | None = None, life: int = 1, asynchronous: bool = False
) -> Reference:
    """Follow a life given as "path what text" lines. Its run was entered; with `end` it says so and was left."""
    whole = ["- call", "- entered", *lines, *(["- left"] if end == "completed" else [])]
    events: list[Event] = []
    for number, line in enumerate(whole):
        path, what, *text = line.split(" ", 2)
        path = "" if path == "-" else path
        body = f"{text[0].partition('#')[0].partition('!')[0].strip(chr(39))}" if what in ("began", "ended") else ""
        events.append(Event(at=1000 * life + number, life=life, path=path, what=what, text="".join(text), body=body))
    reference = Reference(Program(steps=STEPS, block=block, asynchronous=asynchronous), memory, by_path(events, life))
    reference.follow(end)
    return reference


def test_a_death_in_a_body_leaves_the_call_begun_and_after_it_two_possibilities() -> None:
    memory = Memory()
    followed(memory, (Call(step="a"),), "/0 call", "/0 began a()")
    assert memory.run(TOP).statuses(A) == {BEGUN}
    followed(memory, (Call(step="a"),), "/0 call", "/0 began a()", "/0 ended a()#1", life=2)
    assert memory.run(TOP).statuses(A) == {BEGUN, Status("result", "a()#1")}
    followed(memory, (Call(step="a"),), "/0 call", "/0 returned a()#1", life=3)
    assert memory.run(TOP).statuses(A) == {Status("result", "a()#1")}


ONE_RESULT = ("/0 call", "/0 began a()", "/0 ended a()#1", "/0 returned a()#1")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("/0 call", "/0 returned a()#2"), "without a body"),
        (("/0 call", "/0 began a()"), "the body of a"),
        (("/0 call", "/0 raised a()!1"), "raised"),
        (("/0 call", "/0 returned {'outcome': 'unknown', 'tool': 'a'}"), "without a body"),
    ],
)
def test_what_was_returned_is_restored_exactly_and_does_not_run(lines: tuple[str, ...], words: str) -> None:
    memory = Memory()
    followed(memory, (Call(step="a"),), *ONE_RESULT)
    with pytest.raises(Complaint, match=words):
        followed(memory, (Call(step="a"),), *lines, life=2)


def test_a_result_is_what_the_body_gave() -> None:
    with pytest.raises(Complaint, match="the agent got"):
        followed(Memory(), (Call(step="a"),), "/0 call", "/0 began a()", "/0 ended a()#1", "/0 returned a()#2")


def test_equal_calls_are_told_apart_by_their_number() -> None:
    memory, twice = Memory(), (Call(step="a"), Call(step="a"))
    second = ("/1 call", "/1 began a()", "/1 ended a()#2", "/1 returned a()#2")
    followed(memory, twice, *ONE_RESULT, *second)
    with pytest.raises(Complaint, match="without a body"):
        followed(memory, twice, "/0 call", "/0 returned a()#2", life=2)


FAILED = ("/0/0 call", "/0/0 began a()", "/0/0 failed a()!1", "/0/0 raised a()!1")
HANDLED: Block = (Try(block=(Call(step="a"),)), Call(step="b"))


def test_an_error_that_the_agent_went_on_from_is_raised_again() -> None:
    memory = Memory()
    followed(memory, HANDLED, *FAILED, "/1 call", "/1 began b()")
    followed(memory, HANDLED, "/0/0 call", "/0/0 raised a()!1", life=2)
    with pytest.raises(Complaint, match="the body of a"):
        followed(memory, HANDLED, "/0/0 call", "/0/0 began a()", life=3)


def test_an_error_that_nobody_went_on_from_is_tried_again() -> None:
    memory = Memory()
    followed(memory, HANDLED, *FAILED)
    with pytest.raises(Complaint, match="again"):
        followed(memory, HANDLED, "/0/0 call", "/0/0 raised a()!1", life=2)


def test_where_nobody_knows_whether_it_went_on_both_may_be() -> None:
    for line in ("/0/0 raised a()!1", "/0/0 began a()"):
        memory = Memory()
        followed(memory, HANDLED, *FAILED, "/1 call")
        followed(memory, HANDLED, "/0/0 call", line, life=2)


def test_an_unsafe_tool_runs_once_and_its_unknown_outcome_stays_the_same() -> None:
    memory, block = Memory(), (Call(step="u"),)
    followed(memory, block, "/0 call", "/0 began u()")
    with pytest.raises(Complaint, match="the body of u"):
        followed(memory, block, "/0 call", "/0 began u()", life=2)
    followed(memory, block, "/0 call", "/0 returned {'outcome': 'unknown', 'tool': 'u', 'call': '7'}", life=3)
    with pytest.raises(Complaint, match="without a body"):
        followed(memory, block, "/0 call", "/0 returned {'outcome': 'unknown', 'tool': 'u', 'call': '8'}", life=4)


def test_only_a_changed_program_diverges_and_then_it_must() -> None:
    memory = Memory()
    followed(memory, (Call(step="a"),), *ONE_RESULT)
    two: Block = (Stream(step="s"), Call(step="a"))
    with pytest.raises(Complaint, match="nothing called for it"):
        followed(memory, two, "/0 call", "/0 refused diverged", "- refused diverged", end="diverged", life=2)
    memory.run(TOP).cells[Key((), "s", (1,), 0)] = frozenset({Status("result", "['x']")})
    with pytest.raises(Complaint, match="the body of s"):
        followed(memory, two, "/0 call", "/0 began s()", life=3)
    followed(memory, two, "/0 call", "/0 refused diverged", "- refused diverged", end="diverged", life=4)


def test_a_value_is_the_same_for_ever() -> None:
    memory, block = Memory(), (Value(kind="random"),)
    followed(memory, block, "/0 call", "/0 returned 0.5")
    with pytest.raises(Complaint, match=r"run\.random"):
        followed(memory, block, "/0 call", "/0 returned 0.6", life=2)


def test_nothing_runs_in_a_completed_run() -> None:
    memory = Memory()
    followed(memory, (), end="completed")
    with pytest.raises(Complaint, match="the body of a"):
        followed(memory, (Call(step="a"),), "/0 call", "/0 began a()", life=2)


def test_an_end_that_is_not_the_models_is_no_end() -> None:
    with pytest.raises(Complaint, match="by the model with None"):
        followed(Memory(), (Call(step="a"),), "/0 call", end="completed")


def test_the_log_has_what_must_be_there_and_nothing_else() -> None:
    run = RunMemory(cells={A: frozenset({Status("result", "x")}), B: frozenset({BEGUN, Status("result", "y")})})
    memory = Memory(runs={TOP: run})
    assert any("lost" in words for words in memory.compare([], set()))
    assert list(memory.compare(["x", "y"], set())) == []
    assert run.statuses(B) == {Status("result", "y")}, "the log says which of two it is"
    assert any("nobody can have recorded" in words for words in memory.compare(["x", "y", "z"], set()))
    run.cells[A] = frozenset({Status("error", "x")})
    assert any("lost" in words for words in memory.compare(["y"], set()))


NOW: Block = (Value(kind="now", to="x"), Value(kind="now", to="y"), Call(step="a"))
FIRST, SECOND = Key((), "run.now", (), 0), Key((), "run.now", (), 1)


def test_two_moments_that_are_the_same_are_told_apart_by_how_many_are_on_record() -> None:
    """On a loop both were handed out in one millisecond, and the process died when one of them was on record."""
    memory = Memory()
    followed(memory, NOW, "/0 call now", "/0 returned 7", "/1 call now", "/1 returned 7", "/2 call", asynchronous=True)
    assert list(memory.compare(["7"], set())) == []
    for key in (FIRST, SECOND):
        assert memory.run(TOP).statuses(key) == {NONE, Status("result", "7")}
    lines = ("/0 call now", "/0 returned 7", "/1 call now", "/1 returned 8", "/2 call", "/2 began a()")
    followed(memory, NOW, *lines, asynchronous=True, life=2)
    assert any("lost: run.now" in words for words in memory.compare(["8"], set())), "the first one was restored"
    assert list(memory.compare(["7", "8"], set())) == []


def test_two_moments_that_are_the_same_are_both_believed_where_both_are_on_record() -> None:
    memory = Memory()
    followed(memory, NOW, "/0 call now", "/0 returned 7", "/1 call now", "/1 returned 7", asynchronous=True)
    assert list(memory.compare(["7", "7"], set())) == []
    assert memory.run(TOP).statuses(SECOND) == {Status("result", "7")}
    with pytest.raises(Complaint, match="recorded was"):
        followed(memory, NOW, "/0 call now", "/0 returned 7", "/1 call now", "/1 returned 8", life=2)
    assert any("2 calls had the result 7" in words for words in memory.compare(["7"], set()))


def test_a_moment_that_nobody_saw_may_be_the_one_on_record() -> None:
    result = Status("result", "7")
    run = RunMemory(cells={FIRST: frozenset({NONE, Status("result")}), SECOND: frozenset({NONE, result})})
    assert list(Memory(runs={TOP: run}).compare(["7"], set())) == []
    assert run.statuses(SECOND) == {NONE, result}


def test_a_refusal_of_which_two_calls_may_have_the_record_is_believed_of_none() -> None:
    refused = Status("error", "refused diverged", since=3)
    run = RunMemory(cells={A: frozenset({BEGUN, refused}), B: frozenset({BEGUN, refused})})
    assert list(Memory(runs={TOP: run}).compare([], {"refused diverged"})) == []
    assert run.statuses(A) == run.statuses(B) == {BEGUN, refused}


def test_scopes_end_at_the_body_and_branches_of_one_group_are_beside_each_other() -> None:
    body = (("call", "n", (), 0),)
    one, other, later = (("branch", 0, 0),), (("branch", 0, 1),), (("branch", 1, 0),)
    assert enclosing((*body, *one)) == body
    assert enclosing(one) == ()
    assert siblings((*body, *one), (*body, *other))
    assert not siblings(one, later)
    assert not siblings((), one)


def test_a_call_that_nobody_made_has_no_record() -> None:
    assert RunMemory().statuses(A) == {NONE}


def test_a_story_is_the_same_each_time() -> None:
    assert story_of(17) == story_of(17)
    assert story_of(17) != story_of(18)
