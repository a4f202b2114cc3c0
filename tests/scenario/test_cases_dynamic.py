"""Faults from public bug reports that concern agents, as scenarios of our own; approvals and effects come later."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import Budget, Diverged, Pending, RunLedger, RunQuarantined, RunState, report_usage
from agent_run_ledger.testing import BodyCounter, Exit, check_ledger, recorded_calls, run_scenario, start_scenario
from tests.scenario.programs import agents, held

PROGRAM = Path(agents.__file__).resolve()

CASES = {
    "RES-02": "test_a_call_of_another_step_is_refused_and_names_it_and_the_old_one_never_runs",
    "RES-04": "test_calls_of_one_step_keep_their_own_records_when_reordered",
    "RES-06": "test_a_run_within_a_run_goes_on_where_it_was_suspended",
    "RES-07": "test_every_tool_call_has_one_result_before_the_next_question",
    "RES-08": "test_an_unknown_outcome_is_neither_a_success_nor_a_cancellation",
    "RES-09": "test_an_agent_frozen_and_killed_inside_a_tool_goes_on_and_later_starts_are_no_ops",
    "RES-11": "test_a_run_that_waits_for_a_decision_needs_no_process",
    "DUP-01": "test_a_tool_beside_one_that_waits_runs_once",
    "DUP-04": "test_an_order_that_was_cut_off_is_not_placed_twice_and_a_reading_is_read_again",
    "DUP-05": "test_a_job_that_took_too_long_is_started_once",
    "DUP-06": "test_the_same_call_id_is_one_call_and_another_one_is_a_second_call",
    "DUP-08": "test_a_key_is_answered_from_its_record_and_never_confused_with_other_arguments",
    "REC-02": "test_a_stream_that_the_client_left_is_asked_for_once_more_and_recorded_once",
    "REC-03": "test_tools_that_are_listed_from_a_cold_cache_make_the_same_calls",
    "LOOP-07": "test_a_budget_of_tokens_stops_before_the_call_that_would_exceed_it",
    "LOOP-08": "test_tokens_are_spent_once_over_two_lives",
}


class Crash(BaseException):
    """The process ends here."""


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Path]:
    """A ledger's path; whatever a test did, the ledger must hold."""
    path = tmp_path / "ledger.db"
    yield path
    if path.exists():
        check_ledger(path)


@pytest.fixture
def bodies() -> Counter[str]:
    return Counter()


def test_a_call_of_another_step_is_refused_and_names_it_and_the_old_one_never_runs(
    db: Path, bodies: Counter[str]
) -> None:
    """RES-02, as an agent: a renamed step is a new one, a changed argument is refused; the old graph never goes on."""

    def agent(analyst: str, adds: int, *, crash: bool) -> object:
        with RunLedger("r1", db) as ledger:
            load = ledger.step(lambda: bodies.update(["load"]) or 5, name="load")
            work = ledger.step(lambda n, adds: bodies.update([analyst]) or n + adds, name=analyst)
            with ledger.run():
                loaded = load()
                if crash:
                    raise Crash
                return work(loaded, adds)

    with pytest.raises(Crash):
        agent("analyst_old", 1, crash=True)
    assert agent("analyst_new", 100, crash=False) == 105
    assert bodies == {"load": 1, "analyst_new": 1}


def test_calls_of_one_step_keep_their_own_records_when_reordered(db: Path) -> None:
    ran: list[int] = []

    def agent(order: list[int], *, crash: bool) -> dict[int, str]:
        with RunLedger("r1", db) as ledger:

            @ledger.step(on_change="rerun")
            def summarise(doc: int) -> str:
                ran.append(doc)
                return f"S{doc}"

            said: dict[int, str] = {}
            with ledger.run():
                for doc in order:
                    said[doc] = summarise(doc)
                    if crash:
                        raise Crash
            return said

    with pytest.raises(Crash):
        agent([1, 2], crash=True)
    assert agent([2, 1], crash=False) == {1: "S1", 2: "S2"}
    assert ran == [1, 2]


def test_a_reordered_call_is_refused_where_nothing_else_is_said(db: Path) -> None:
    def agent(order: list[int]) -> None:
        with RunLedger("r1", db) as ledger, ledger.run():
            summarise = ledger.step(lambda doc: doc, name="summarise")
            for doc in order:
                summarise(doc)
                raise Crash

    with pytest.raises(Crash):
        agent([1, 2])
    with pytest.raises(Diverged, match=r"summarise.*doc"):
        agent([2, 1])


def test_a_run_within_a_run_goes_on_where_it_was_suspended(db: Path, tmp_path: Path, bodies: Counter[str]) -> None:
    """RES-06; a Pending until a file is there stands for the approval."""
    granted = tmp_path / "granted"

    def agent() -> list[str]:
        with RunLedger("r1", db) as ledger:

            def step(name: str) -> Callable[[], str]:
                return ledger.step(lambda: bodies.update([name]) or name, name=name)

            @ledger.tool
            def approve() -> str:
                if not granted.exists():
                    raise Pending("nobody has decided")
                bodies["approve"] += 1
                return "granted"

            with ledger.run():
                said = [step("prep")()]
                with ledger.run():
                    said += [step("c1")(), approve(), step("c3")()]
                return [*said, step("post")()]

    for _ in range(2):
        with pytest.raises(Pending):
            agent()
    with RunLedger("r1", db) as ledger:
        assert ledger.bind("r1").state is RunState.SUSPENDED
    granted.touch()
    assert agent() == agent() == ["prep", "c1", "granted", "c3", "post"]
    assert bodies == {"prep": 1, "c1": 1, "approve": 1, "c3": 1, "post": 1}


@pytest.mark.parametrize("safe", ["safe", "unsafe"])
def test_every_tool_call_has_one_result_before_the_next_question(tmp_path: Path, safe: str) -> None:
    """RES-07: killed in the second of two calls of one answer."""
    killed = run_scenario(f"{PROGRAM}:fetching", tmp_path, env={"SAFE": safe})
    assert killed.exit is Exit.KILLED, killed.describe()
    resumed = run_scenario(f"{PROGRAM}:fetching", tmp_path, life=2, env={"SAFE": safe})
    assert resumed.exit is Exit.OK, resumed.describe()
    assert [message["id"] for message in resumed.result if message["role"] == "tool"] == ["c1", "c2"]
    second = resumed.result[2]["content"]
    assert second == "page c2" if safe == "safe" else second["outcome"] == "unknown"
    ran = BodyCounter(tmp_path / "bodies.log").count()
    assert ran == {"ask": 2, "fetch c1": 1, "fetch c2": 2 if safe == "safe" else 1}
    check_ledger(tmp_path / "ledger.db")


def test_an_unknown_outcome_is_neither_a_success_nor_a_cancellation(tmp_path: Path) -> None:
    """RES-08, as far as tools go: what the model reads. The state of an effect comes later."""
    run_scenario(f"{PROGRAM}:fetching", tmp_path, env={"SAFE": "unsafe"})
    resumed = run_scenario(f"{PROGRAM}:fetching", tmp_path, life=2, env={"SAFE": "unsafe"})
    text = json.dumps(resumed.result[2]["content"]).lower()
    assert "unknown" in text
    assert not any(word in text for word in ("cancelled", "success"))
    assert BodyCounter(tmp_path / "bodies.log").count()["fetch c2"] == 1


def test_an_agent_frozen_and_killed_inside_a_tool_goes_on_and_later_starts_are_no_ops(tmp_path: Path) -> None:
    entered, _ = held.Gate(tmp_path / held.ENTERED), held.Gate(tmp_path / held.GO_ON)
    with start_scenario(f"{PROGRAM}:frozen", tmp_path) as frozen:
        entered.wait()
        frozen.send(signal.SIGKILL)
        assert frozen.wait().signal == signal.SIGKILL
    resumed = run_scenario(f"{PROGRAM}:frozen", tmp_path, life=2)
    again = run_scenario(f"{PROGRAM}:frozen", tmp_path, life=3)
    assert resumed.result == again.result == ["t1", "t2", "t3"], resumed.describe() + again.describe()
    bodies = BodyCounter(tmp_path / "bodies.log")
    assert bodies.count() == {"t1": 1, "t2": 2, "t3": 1}
    assert bodies.count(life=3) == {}
    check_ledger(tmp_path / "ledger.db")


def test_a_run_that_waits_for_a_decision_needs_no_process(db: Path, tmp_path: Path, bodies: Counter[str]) -> None:
    """RES-11; a decision is a file here, approvals come later."""
    decision = tmp_path / "decision"

    def agent() -> str:
        with RunLedger("r1", db) as ledger:

            @ledger.step
            def draft(comment: str) -> str:
                bodies["draft"] += 1
                return f"draft {comment}".strip()

            @ledger.step
            def decided(number: int) -> str:
                said = decision.read_text().splitlines() if decision.exists() else []
                if len(said) <= number:
                    raise Pending("nobody has decided")
                return said[number]

            @ledger.tool
            def publish(text: str) -> str:
                bodies["publish"] += 1
                return f"published {text}"

            with ledger.run():
                text, number = draft(""), 0
                while (said := decided(number)) != "approve":
                    text, number = draft(said), number + 1
                return publish(text)

    def waits() -> None:
        with pytest.raises(Pending):
            agent()
        with RunLedger("r1", db) as ledger:
            assert ledger.bind("r1").state is RunState.SUSPENDED

    waits()
    decision.write_text("shorter\n")
    waits()
    decision.write_text("shorter\napprove\n")
    assert agent() == agent() == "published draft shorter"
    assert bodies == {"draft": 2, "publish": 1}


def test_a_tool_beside_one_that_waits_runs_once(db: Path, tmp_path: Path, bodies: Counter[str]) -> None:
    granted = tmp_path / "granted"

    def agent() -> list[str]:
        with RunLedger("r1", db) as ledger:
            send_email = ledger.tool(lambda: bodies.update(["send_email"]) or "sent", name="send_email")

            @ledger.tool
            def ask_human() -> str:
                if not granted.exists():
                    raise Pending("nobody has answered")
                bodies["ask_human"] += 1
                return "yes"

            with ledger.run() as run:
                said: list[str] = run.gather(send_email, ask_human)
                return said

    with pytest.raises(Pending):
        agent()
    granted.touch()
    assert agent() == ["sent", "yes"]
    assert bodies == {"send_email": 1, "ask_human": 1}


@pytest.mark.parametrize(("safe", "calls"), [(False, 1), (True, 2)])
def test_an_order_that_was_cut_off_is_not_placed_twice_and_a_reading_is_read_again(
    db: Path, bodies: Counter[str], safe: bool, calls: int
) -> None:
    """DUP-04, as far as the agent's side goes: the transport's own part comes later."""

    def agent() -> Any:
        with RunLedger("r1", db) as ledger:

            @ledger.tool(safe=safe)
            def upstream() -> str:
                bodies["upstream"] += 1
                if bodies["upstream"] == 1:
                    raise Crash
                return "done"

            with ledger.run():
                return upstream()

    with pytest.raises(Crash):
        agent()
    said = agent()
    assert said == "done" if safe else said["outcome"] == "unknown"
    assert bodies["upstream"] == calls


def test_a_job_that_took_too_long_is_started_once(db: Path, bodies: Counter[str]) -> None:
    """DUP-05, as far as the agent's side goes: an error of an unsafe tool is raised again, whoever asks again."""

    def agent() -> Any:
        with RunLedger("r1", db) as ledger:

            @ledger.tool(key="job-7")
            def start_job() -> None:
                bodies["jobs"] += 1
                raise TimeoutError("the proxy gave up")

            with ledger.run():
                for _ in range(3):
                    with pytest.raises(TimeoutError):
                        start_job()

    agent()
    agent()
    assert bodies == {"jobs": 1}


def test_the_same_call_id_is_one_call_and_another_one_is_a_second_call(db: Path, bodies: Counter[str]) -> None:
    """DUP-06; that the second one needs its own approval comes later."""
    with RunLedger("r1", db) as ledger:

        @ledger.tool(key="{call_id}")
        def create_site(order: int, call_id: str) -> int:
            bodies["create_site"] += 1
            return bodies["create_site"]

        with ledger.run():
            assert [create_site(7, "a"), create_site(7, "a"), create_site(7, "b")] == [1, 1, 2]


def test_a_key_is_answered_from_its_record_and_never_confused_with_other_arguments(
    db: Path, bodies: Counter[str]
) -> None:
    """DUP-08: the fingerprint stays in the key, so other arguments are another call. Effects refuse it."""
    with RunLedger("r1", db) as ledger:

        @ledger.tool(key="{key}")
        def build(key: str, wall: int) -> int:
            bodies[str(wall)] += 1
            return wall

        with ledger.run():
            assert [build("k1", 1), build("k1", 1), build("k1", 2)] == [1, 1, 2]
    assert bodies == {"1": 1, "2": 1}


def test_a_stream_that_the_client_left_is_asked_for_once_more_and_recorded_once(db: Path, bodies: Counter[str]) -> None:
    def agent() -> tuple[str, list[str]]:
        with RunLedger("r1", db) as ledger:

            @ledger.step
            def stream(prompt: str) -> Iterator[str]:
                bodies["upstream"] += 1
                yield f"{prompt} one"
                yield f"{prompt} two"

            with ledger.run():
                left = stream("p")
                first = next(left)
                left.close()
                return first, list(stream("p"))

    assert agent() == agent() == ("p one", ["p one", "p two"])
    assert bodies == {"upstream": 2}
    assert [call.kind.name for call in recorded_calls(db)] == ["ABANDONED", "RESULT"]


def test_tools_that_are_listed_from_a_cold_cache_make_the_same_calls(tmp_path: Path) -> None:
    killed = run_scenario(f"{PROGRAM}:listing", tmp_path, env={"CACHE": "warm", "PYTHONHASHSEED": "1"})
    assert killed.exit is Exit.KILLED, killed.describe()
    resumed = run_scenario(f"{PROGRAM}:listing", tmp_path, life=2, env={"CACHE": "cold", "PYTHONHASHSEED": "2"})
    assert resumed.result == "answer", resumed.describe()
    assert BodyCounter(tmp_path / "bodies.log").count() == {"ask": 1, "act": 2}
    check_ledger(tmp_path / "ledger.db")


def test_tokens_are_spent_once_over_two_lives(db: Path) -> None:
    def agent(asks: int) -> None:
        with RunLedger("r1", db) as ledger:

            @ledger.step
            def ask(n: int) -> str:
                report_usage(model="m", input_tokens=60, output_tokens=40)
                return f"answer {n}"

            with ledger.run():
                for n in range(asks):
                    ask(n)
                if asks < 3:
                    raise Crash

    with pytest.raises(Crash):
        agent(2)
    agent(3)
    with RunLedger("r1", db) as ledger:
        account = ledger.bind("r1").usage(by=None)
    assert account is not None
    spent, restored = account.total.spent, account.total.restored
    assert (spent.input_tokens, spent.output_tokens) == (180, 120)
    assert (restored.input_tokens, restored.output_tokens) == (120, 80)


def test_a_budget_of_tokens_stops_before_the_call_that_would_exceed_it(db: Path, bodies: Counter[str]) -> None:
    with RunLedger("r1", db, budget=Budget(max_tokens=100_000)) as ledger:

        @ledger.step
        def ask(n: int) -> int:
            bodies["ask"] += 1
            report_usage(model="m", input_tokens=20_000, output_tokens=5_000)
            return n

        def agent() -> None:
            with ledger.run():
                for n in range(19):
                    ask(n)

        for _ in range(2):
            with pytest.raises(RunQuarantined):
                agent()
        bound = ledger.bind("r1")
        budget = bound.budget()
        assert (bodies["ask"], bound.state) == (4, RunState.QUARANTINED)
        assert budget is not None
        assert (budget.tokens, budget.tokens_left) == (100_000, 0)


def test_every_assigned_case_is_a_test_of_this_file() -> None:
    tests = {name for name in globals() if name.startswith("test_")}
    assert set(CASES.values()) <= tests


def test_every_case_is_a_shared_one(shared: Path) -> None:
    lines = (shared / "cases" / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    assert set(CASES) <= {case["id"] for case in map(json.loads, lines)}
