"""Forks: what they refer to, what they run, which inputs they take, and what refuses one."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest

from agent_run_ledger import InputsChanged, Misuse, Pending, Refused, RunLedger, RunState, Tampered, Unstorable, codecs
from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.states import RunEvent
from agent_run_ledger.runs.attempt import Context
from agent_run_ledger.runs.fork import dependants_of, fork_run
from agent_run_ledger.runs.inherited import prefix_of
from agent_run_ledger.runs.leaf_check import load_value
from agent_run_ledger.runs.operate import decide
from agent_run_ledger.runs.pipeline import Pipeline
from agent_run_ledger.testing import LedgerBroken, check_ledger
from tests.contract.fork_kit import Program, exists, result_ids
from tests.contract.run_kit import leaves_of, records_of, report_of, row_of, store_exists, store_of

Make = Callable[..., Program]


@pytest.fixture
def make(db: pathlib.Path) -> Iterator[Make]:
    """Return a maker of programs on one store; at the end all are closed and the store is checked."""
    made: list[Program] = []

    def build(**settings: Any) -> Program:
        made.append(Program(db, **settings))
        return made[-1]

    yield build
    for program in made:
        program.ledger.close()
    if store_exists(db):
        check_ledger(db)


def start_of(ledger: RunLedger, run_id: str) -> dict[str, Any]:
    record = records_of(ledger, RecordKind.START, run_id=run_id)[0]
    content = codecs.unpack(record.encoding, record.payload)
    assert isinstance(content, dict)
    return content


def fail() -> None:
    raise ValueError("model is down")


def interrupt() -> None:
    raise KeyboardInterrupt


def pend() -> None:
    raise Pending("waiting for a person")


# -- what is recorded --------------------------------------------------------------------------------------------------


def test_a_fork_is_one_leaf_with_a_start_that_names_its_prefix_and_runs_nothing(make: Make) -> None:
    program = make()
    program.run()
    program.ran_since()
    before = len(leaves_of(program.ledger))
    fork = program.ledger.fork("a", from_step="judge", new_run_id="b")
    assert leaves_of(program.ledger)[before:] == [[("run", "none", "running"), ("run", "running", "suspended")]]
    parent, row = row_of(program.ledger, "a"), row_of(program.ledger, "b")
    ids = result_ids(program.ledger, "a")
    start = start_of(program.ledger, "b")
    assert start["fork"] == {
        "run_id": "a",
        "run_uid": parent.run_uid.hex(),
        "from_step": "judge",
        "records": {name: ids[name] for name in ("fetch", "aside", "review")},
    }
    assert start["steps"] == start_of(program.ledger, "a")["steps"]
    assert (row.forked_from_row_id, row.attempt, row.generation) == (parent.row_id, 1, 1)
    assert (fork.run_id, fork.state) == ("b", RunState.SUSPENDED)
    assert row.reason == "forked from 'a' at step 'judge'; not executed yet"
    assert program.ran_since() == []
    assert report_of(program.ledger).problems == ()


def test_a_fork_restores_its_prefix_and_runs_the_step_and_what_depends_on_it(make: Make) -> None:
    make().run()
    program = make(say="no")
    fork = program.ledger.fork("a", from_step="judge", new_run_id="b")
    assert fork.execute(company="acme", year=2025) == "no to v1 on acme in 2026"
    assert program.ran_since() == ["judge", "publish"]
    assert row_of(program.ledger, "b").attempt == 2
    assert sorted(result_ids(program.ledger, "b")) == ["judge", "publish"], "nothing is copied"
    end = records_of(program.ledger, RecordKind.END, run_id="b")[-1]
    used = codecs.unpack(end.encoding, end.payload)["used"]  # type: ignore[index]
    ids = result_ids(program.ledger, "a")
    assert {ids["fetch"], ids["aside"], ids["review"]} <= set(used)
    assert program.run() == "yes to v1 on acme in 2026", "the other run is what it was"
    assert make(say="third").run("b") == "no to v1 on acme in 2026"


def test_a_fork_whose_result_is_another_runs_record_returns_it(make: Make, db: pathlib.Path) -> None:
    """The terminal step can be in the prefix, where another terminal step is the one to run again."""
    ran: list[str] = []
    with RunLedger("a", db) as ledger:
        ledger.step(name="left")(lambda: ran.append("left"))
        ledger.step(name="right")(lambda: len(ran))
        whole = ledger.execute()
        fork = ledger.fork("a", from_step="right", new_run_id="b")
        assert fork.execute() == whole
        assert fork.execute() == whole
    assert ran == ["left"]


def test_the_step_itself_can_be_given_and_the_run_id_be_made(make: Make) -> None:
    program = make()
    program.run()
    judge = next(step for step in program.ledger.steps if step.name == "judge")
    fork = program.ledger.fork("a", from_step=judge)
    assert len(bytes.fromhex(fork.run_id)) == 16
    assert fork.execute(company="acme", year=2025) == "yes to v1 on acme in 2026"


@pytest.mark.parametrize(
    ("step", "found"),
    [("a", "abcde"), ("b", "bd"), ("c", "cde"), ("d", "d"), ("e", "e"), ("f", "f")],
)
def test_what_depends_on_a_step_is_found_through_others_and_in_any_order(step: str, found: str) -> None:
    graph = {"e": ["c"], "d": ["b", "c"], "b": ["a"], "c": ["a"], "a": [], "f": []}
    assert dependants_of(step, graph) == set(found)


# -- in every state of the other run -----------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["completed", "failed", "suspended", "dead", "quarantined", "cancelled"])
def test_a_run_in_any_state_can_be_forked_and_stays_as_it_is(make: Make, state: str) -> None:
    ends = {"failed": fail, "suspended": pend, "dead": interrupt, "quarantined": fail, "cancelled": fail}.get(state)
    first = make(ends=ends)
    first.run()
    if state in ("quarantined", "cancelled"):
        event = RunEvent.QUARANTINE if state == "quarantined" else RunEvent.CANCEL
        decide(first.ledger._opened.context(), "a", event, reason="because", actor="op")
    before = row_of(first.ledger, "a")
    program = make()
    fork = program.ledger.fork("a", from_step="judge", new_run_id="b")
    assert fork.execute(company="acme", year=2025) == "yes to v1 on acme in 2026"
    assert program.ran_since() == ["judge", "publish"]
    assert row_of(program.ledger, "a") == before


def test_a_live_run_is_forked_with_what_it_has_committed_and_completes(make: Make) -> None:
    seen: list[object] = []

    def fork_meanwhile() -> None:
        other = make()
        fork = other.ledger.fork("a", from_step="review", new_run_id="b")
        seen.extend([fork.execute(company="acme", year=2025), other.ran_since()])

    program = make(ends=fork_meanwhile)
    assert program.run() == "yes to v1 on acme in 2026"
    assert seen == ["yes to v1 on acme in 2026", ["review", "judge", "publish"]]


def test_a_step_that_was_not_recorded_runs_in_the_fork(make: Make) -> None:
    make(ends=fail).run()
    program = make()
    fork = program.ledger.fork("a", from_step="publish", new_run_id="b")
    assert fork.execute(company="acme", year=2025) == "yes to v1 on acme in 2026"
    assert program.ran_since() == ["judge", "publish"]


def test_the_record_that_the_last_attempt_used_is_referenced_not_a_later_one(make: Make) -> None:
    make(prompt="v1", ends=fail).run()
    make(prompt="v2", ends=fail).run()
    last = make(prompt="v1")
    assert last.run() == "yes to v1 on acme in 2026"
    last.ran_since()
    fork = last.ledger.fork("a", from_step="judge", new_run_id="b")
    fork.execute(company="acme", year=2025)
    assert last.ran_since() == ["judge", "publish"], "review v2 is the later record, and v1 was used"


# -- forks of forks ----------------------------------------------------------------------------------------------------


def test_a_fork_of_a_fork_refers_to_the_records_themselves(make: Make) -> None:
    program = make()
    program.run()
    ids = result_ids(program.ledger, "a")
    program.ledger.fork("a", from_step="judge", new_run_id="b").execute(company="acme", year=2025)
    own = result_ids(program.ledger, "b")
    program.ledger.fork("b", from_step="publish", new_run_id="c")
    program.ran_since()
    records = start_of(program.ledger, "c")["fork"]["records"]
    assert records == {"fetch": ids["fetch"], "aside": ids["aside"], "review": ids["review"], "judge": own["judge"]}
    assert program.run("c") == "yes to v1 on acme in 2026"
    assert program.ran_since() == ["publish"]


def test_a_fork_of_a_fork_that_never_ran_has_its_prefix_too(make: Make) -> None:
    program = make()
    program.run()
    program.ledger.fork("a", from_step="publish", new_run_id="b")
    program.ledger.fork("b", from_step="judge", new_run_id="c")
    program.ran_since()
    assert program.run("c") == "yes to v1 on acme in 2026"
    assert program.ran_since() == ["judge", "publish"]


def test_a_fork_of_a_fork_that_died_prefers_what_that_fork_recorded_itself(make: Make) -> None:
    """It has no END that says what it used: then its own later record counts, not the one that it refers to."""
    make(prompt="v1").run()
    dies = make(prompt="v2", ends=interrupt)
    dies.ledger.fork("a", from_step="publish", new_run_id="b")
    assert isinstance(dies.run("b"), KeyboardInterrupt)
    program = make(prompt="v2")
    program.ledger.fork("b", from_step="judge", new_run_id="c")
    assert program.run("c") == "yes to v2 on acme in 2026"
    assert program.ran_since() == ["judge", "publish"]


def test_explain_says_which_run_recorded_what_is_restored_and_through_which_fork(make: Make) -> None:
    program = make()
    program.run()
    program.ledger.fork("a", from_step="judge", new_run_id="b").execute(company="acme", year=2025)
    fork = program.ledger.fork("b", from_step="publish", new_run_id="c")
    said = {one.name: str(one.origin) for one in fork.explain(company="acme", year=2025) if one.origin}
    assert said["fetch"] == "recorded in 'a', referenced by 'b'"
    assert said["judge"] == "recorded in 'b'"
    assert "publish" not in said


# -- inputs ------------------------------------------------------------------------------------------------------------


def test_a_fork_belongs_to_the_inputs_of_the_other_run(make: Make) -> None:
    program = make()
    program.run()
    fork = program.ledger.fork("a", from_step="judge", new_run_id="b")
    with pytest.raises(InputsChanged, match=r"inputs\.company"):
        fork.execute(company="other", year=2025)
    with pytest.raises(InputsChanged, match=r"inputs\.more \(new\)"):
        fork.execute(company="acme", year=2025, more=1)
    assert fork.execute(company="acme", year=2025) == "yes to v1 on acme in 2026"


def test_with_other_inputs_only_the_steps_that_take_a_changed_one_run_again(make: Make) -> None:
    program = make()
    program.run()
    program.ran_since()
    inputs = {"company": "acme", "year": 1999}
    fork = program.ledger.fork("a", from_step="publish", new_run_id="b", inputs=inputs)
    told = {one.name: (str(one.verdict), one.because) for one in fork.explain(**inputs)}
    assert told["aside"] == ("runs", ("arguments.year",))
    assert told["judge"] == ("restored", ())
    assert fork.execute(**inputs) == "yes to v1 on acme in 2000"
    assert program.ran_since() == ["aside", "publish"]
    with pytest.raises(InputsChanged):
        fork.execute(company="acme", year=2025)


def test_a_changed_environment_runs_a_step_of_the_prefix_again_and_says_so(make: Make) -> None:
    make().run()
    program = make(prompt="v2")
    fork = program.ledger.fork("a", from_step="publish", new_run_id="b")
    told = {one.name: (str(one.verdict), one.because) for one in fork.explain(company="acme", year=2025)}
    assert told["review"] == ("runs", ("environment.prompt",))
    assert fork.execute(company="acme", year=2025) == "yes to v2 on acme in 2026"
    assert program.ran_since() == ["review", "judge", "publish"]
    because = [orjson.loads(r.inputs).get("because") for r in records_of(program.ledger, RecordKind.RESULT, run_id="b")]
    assert because == [["environment.prompt"], ["arguments.note"], None]


def test_on_change_refuse_compares_with_referenced_records_too(make: Make) -> None:
    make().run()
    program = make(prompt="v2", on_change="refuse")
    fork = program.ledger.fork("a", from_step="publish", new_run_id="b")
    with pytest.raises(Refused, match=r"environment\.prompt") as raised:
        fork.execute(company="acme", year=2025)
    assert raised.value.code == "diverged"
    assert program.ran_since() == []


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        ({"run_id": "nobody", "from_step": "judge"}, "no_run", "there is no run 'nobody'"),
        ({"from_step": "jury"}, "no_step", "run 'a' has no step 'jury'"),
        ({"from_step": "judge", "new_run_id": "taken"}, "run_exists", "already a run 'taken'"),
        ({"from_step": "judge", "new_run_id": "a"}, "run_exists", "already a run 'a'"),
    ],
)
def test_what_cannot_be_forked_is_refused_and_writes_nothing(
    make: Make, settings: dict[str, Any], code: str, words: str
) -> None:
    program = make()
    program.run()
    program.run("taken")
    before = leaves_of(program.ledger)
    given = {"new_run_id": "b"} | settings
    run_id = given.pop("run_id", "a")
    with pytest.raises(Refused, match=words) as raised:
        program.ledger.fork(run_id, **given)
    assert raised.value.code == code
    hints = {"no_step": "fetch, aside, review, judge, publish", "run_exists": "another run id", "no_run": "runs list"}
    assert hints[code] in raised.value.hint
    assert leaves_of(program.ledger) == before


def test_forking_on_a_store_that_does_not_exist_makes_none(make: Make, db: pathlib.Path) -> None:
    with pytest.raises(Refused) as raised:
        make().ledger.fork("a", from_step="judge")
    assert raised.value.code == "no_run"
    assert not store_exists(db)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"new_run_id": ""}, Misuse),
        ({"inputs": {"x": float("nan")}}, Misuse),
        ({"inputs": {"x": object()}}, Unstorable),
    ],
)
def test_what_a_fork_is_given_is_looked_at_first(make: Make, settings: Any, error: type[Exception]) -> None:
    program = make()
    program.run()
    with pytest.raises(error):
        program.ledger.fork("a", from_step="judge", **settings)


# -- records of other runs --------------------------------------------------------------------------------------------


def test_only_what_the_start_of_the_fork_lists_is_read_from_another_run(make: Make) -> None:
    program = make()
    program.run()
    program.ledger.fork("a", from_step="judge", new_run_id="b")
    store, row, ids = store_of(program.ledger), row_of(program.ledger, "b"), result_ids(program.ledger, "a")
    prefix = prefix_of(store, row)
    assert prefix is not None
    assert load_value(store, "b", ids["aside"], run_uid=row.run_uid, referenced=prefix.record_ids) == 2026
    with pytest.raises(Tampered, match="belongs to another run"):
        load_value(store, "b", ids["judge"], run_uid=row.run_uid, referenced=prefix.record_ids)


def test_an_end_that_names_a_result_which_the_fork_does_not_refer_to_is_never_believed(
    unchecked: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All MACs are right here: somebody wrote a false END through the ledger's own doors."""
    program = unchecked
    program.run()
    program.ledger.fork("a", from_step="judge", new_run_id="b")
    foreign = result_ids(program.ledger, "a")["publish"]
    whole = Pipeline._end_content

    def false(self: Pipeline, *args: Any) -> dict[str, object]:
        return whole(self, *args) | {"results": {"publish": foreign}}

    monkeypatch.setattr(Pipeline, "_end_content", false)
    program.run("b")
    program.ran_since()
    again = program.run("b")
    assert isinstance(again, Tampered)
    assert program.ran_since() == []
    program.ledger.close()
    with pytest.raises(LedgerBroken, match="which it is not"):
        check_ledger(program.ledger.db_path)


# -- erased records ----------------------------------------------------------------------------------------------------


def erase(ledger: RunLedger, run_id: str, *record_ids: int) -> None:
    """Erase records of a run as the store can, with a leaf of some sort."""
    row = row_of(ledger, run_id)

    def write(tx: Any) -> None:
        if tx.erase_records(row.row_id, record_ids):
            log_id = store_of(ledger).log_id
            tx.add_change(Change(type="store", id=log_id, old="runs_only", new="runs_only", generation=0))

    store_of(ledger).transact(SystemEntropy().uuid7(), write)


@pytest.fixture
def unchecked(db: pathlib.Path) -> Iterator[Program]:
    """A program whose store is not checked at the end: the leaf of `erase` is none that an auditor knows."""
    program = Program(db)
    yield program
    program.ledger.close()


@pytest.mark.parametrize("when", ["before the fork", "after the fork"])
def test_a_call_that_falls_on_an_erased_record_of_the_prefix_is_refused_and_never_run(
    unchecked: Program, when: str
) -> None:
    program = unchecked
    program.run()
    program.ran_since()
    review = result_ids(program.ledger, "a")["review"]
    if when == "before the fork":
        erase(program.ledger, "a", review)
    program.ledger.fork("a", from_step="judge", new_run_id="b")
    if when == "after the fork":
        erase(program.ledger, "a", review)
    refused = program.run("b")
    assert isinstance(refused, Refused)
    assert refused.code == "erased"
    assert program.ran_since() == []
    program.ledger.fork("b", from_step="review", new_run_id="c")
    assert program.run("c") == "yes to v1 on acme in 2026", "a fork from that step is a choice to run it"
    assert program.ran_since() == ["review", "judge", "publish"]


def test_a_run_whose_start_is_erased_cannot_be_forked(unchecked: Program) -> None:
    program = unchecked
    program.run()
    erase(program.ledger, "a", row_of(program.ledger, "a").start_record_id or 0)
    with pytest.raises(Refused) as raised:
        program.ledger.fork("a", from_step="judge", new_run_id="b")
    assert raised.value.code == "erased"
    assert not exists(program.ledger, "b")


def test_a_run_that_is_erased_while_it_is_forked_leaves_no_digest_of_its_inputs(unchecked: Program) -> None:
    program = unchecked
    program.run()
    context = program.ledger._opened.context()
    start = row_of(program.ledger, "a").start_record_id or 0

    class Late:
        """Randomness that is asked for once the other run was read, and lets an erasure come in between."""

        def __getattr__(self, name: str) -> Any:
            return getattr(context.entropy, name)

        def uuid7(self) -> bytes:
            erase(program.ledger, "a", start)
            return context.entropy.uuid7()

    raced = Context(store=context.store, clock=context.clock, entropy=Late(), limit_bytes=context.limit_bytes)  # type: ignore[arg-type]
    with pytest.raises(Refused) as raised:
        fork_run(raced, "a", from_step="judge", new_run_id="b", inputs=None)
    assert raised.value.code == "erased"
    assert not exists(program.ledger, "b")
