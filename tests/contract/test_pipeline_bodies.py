"""How bodies run: shapes, parallel branches, retries, timeouts, failures, values that cannot be kept."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import pytest

from agent_run_ledger import From, Misuse, RunLedger, RunState, Step, StepTimeout, Unavailable, Unstorable
from agent_run_ledger.kernel.record import RecordKind
from tests.contract.run_kit import until

New = Callable[..., RunLedger]


def kinds(ledger: RunLedger, run_id: str = "r1") -> list[tuple[str, str, int]]:
    """Return (kind, step, tries) of everything recorded for the run except START and END."""
    reader = ledger._opened.context().store.reader()
    row = reader.find_run(run_id)
    assert row is not None
    wanted = [RecordKind.RESULT, RecordKind.ERROR, RecordKind.ABANDONED, RecordKind.RESCUED]
    return [(r.record.kind.name, r.record.name, r.record.tries) for r in reader.records(row.row_id, kinds=wanted)]


@pytest.mark.parametrize("how", ["execute", "aexecute"])
def test_sync_async_and_generator_steps_mix(new_ledger: New, how: str) -> None:
    def build(ran: list[str]) -> RunLedger:
        ledger = new_ledger()

        @ledger.step
        def plain(n: int) -> int:
            ran.append("plain")
            return n + 1

        @ledger.step(depends_on=[plain])
        async def waits(plain: int) -> int:
            ran.append("waits")
            await asyncio.sleep(0)
            return plain * 2

        @ledger.step(depends_on=["plain"])
        def items(plain: int) -> Iterator[int]:
            ran.append("items")
            yield from range(plain)

        @ledger.step(depends_on=["plain"])
        async def ticks(plain: int) -> AsyncIterator[str]:
            ran.append("ticks")
            for n in range(plain):
                yield str(n)

        @ledger.step(depends_on=["waits", "items", "ticks"])
        def end(waits: int, items: list[int], ticks: list[str]) -> tuple[int, list[int], list[str]]:
            ran.append("end")
            return waits, items, ticks

        return ledger

    def run(ledger: RunLedger) -> Any:
        return ledger.execute(n=2) if how == "execute" else asyncio.run(ledger.aexecute(n=2))

    ran: list[str] = []
    assert run(build(ran)) == (6, [0, 1, 2], ["0", "1", "2"])
    assert sorted(ran) == ["end", "items", "plain", "ticks", "waits"]
    assert run(build(ran)) == (6, [0, 1, 2], ["0", "1", "2"])
    assert len(ran) == 5


def test_independent_branches_run_at_once_up_to_the_bound(new_ledger: New) -> None:
    ledger = new_ledger(max_parallel=3)
    together, lock = threading.Barrier(3), threading.Lock()
    now = peak = 0

    def branch() -> str:
        nonlocal now, peak
        with lock:
            now += 1
            peak = max(peak, now)
        together.wait(30)
        with lock:
            now -= 1
        return threading.current_thread().name

    for n in range(9):
        ledger.add(Step(branch, name=f"b{n}"))
    result = ledger.execute()
    assert sorted(result) == [f"b{n}" for n in range(9)]
    assert peak == 3


def test_async_branches_run_at_once_up_to_the_bound(new_ledger: New) -> None:
    ledger = new_ledger(max_parallel=2)
    now = peak = 0

    async def branch() -> int:
        nonlocal now, peak
        now += 1
        peak = max(peak, now)
        for _ in range(5):
            await asyncio.sleep(0)
        now -= 1
        return 1

    for n in range(6):
        ledger.add(Step(branch, name=f"b{n}"))
    asyncio.run(ledger.aexecute())
    assert peak == 2


def test_a_lone_step_runs_in_the_calling_thread(new_ledger: New) -> None:
    ledger = new_ledger()
    ledger.add(Step(lambda: threading.get_ident(), name="who"))
    assert ledger.execute() == threading.get_ident()


def test_bodies_in_threads_see_the_callers_context(new_ledger: New) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    ledger = new_ledger()
    for name in ("a", "b"):
        ledger.add(Step(lambda: variable.get(), name=name))
    variable.set("set")
    assert ledger.execute() == {"a": "set", "b": "set"}


def test_a_consumer_that_changes_its_argument_changes_nobody_elses(new_ledger: New) -> None:
    def build(fail: bool) -> RunLedger:
        ledger = new_ledger()

        @ledger.step
        def source(given: list[int]) -> list[int]:
            given.append(99)
            return [1]

        @ledger.step(depends_on=["source"])
        def first(source: list[int]) -> list[int]:
            source.append(2)
            return source

        @ledger.step(depends_on=["source", "first"])
        def second(source: list[int], first: list[int], given: list[int]) -> list[int]:
            if fail:
                raise RuntimeError("later")
            return [*source, *first, *given]

        return ledger

    given = [7]
    with pytest.raises(RuntimeError):
        build(True).execute(given=given)
    assert given == [7]
    assert build(False).execute(given=given) == [1, 1, 2, 7]


def test_retries_then_success_and_every_try_is_recorded(new_ledger: New) -> None:
    ledger, tries = new_ledger(), []

    @ledger.step(retries=2, retry_base_s=0)
    def flaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError(f"try {len(tries)}")
        return "ok"

    assert ledger.execute() == "ok"
    assert kinds(ledger) == [("ERROR", "flaky", 1), ("ERROR", "flaky", 2), ("RESULT", "flaky", 3)]


def test_retries_exhausted_raises_the_steps_own_exception(new_ledger: New) -> None:
    ledger, tries = new_ledger(), []

    @ledger.step(retries=2, retry_base_s=0)
    def flaky() -> str:
        tries.append(1)
        raise ConnectionError(f"try {len(tries)}")

    with pytest.raises(ConnectionError, match="try 3"):
        ledger.execute()
    assert len(tries) == 3
    assert ledger.bind("r1").state is RunState.FAILED


def test_our_own_errors_are_not_tried_again(new_ledger: New) -> None:
    ledger, tries = new_ledger(), []

    @ledger.step(retries=5, retry_base_s=0)
    def bad() -> object:
        tries.append(1)
        return object()

    with pytest.raises(Unstorable):
        ledger.execute()
    assert tries == [1]


@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_timeout_raises_and_the_late_result_is_discarded(new_ledger: New, how: str) -> None:
    ledger, release = new_ledger(), threading.Event()

    def slow() -> str:
        release.wait(30)
        return "late"

    async def aslow() -> str:
        await asyncio.Event().wait()
        return "late"

    ledger.add(Step(slow if how == "sync" else aslow, name="slow", timeout_s=0.05))
    try:
        with pytest.raises(StepTimeout, match="slow"):
            ledger.execute()
    finally:
        release.set()
    assert kinds(ledger) == [("ERROR", "slow", 1)]
    assert ledger.bind("r1").state is RunState.FAILED


def test_siblings_finish_and_are_recorded_when_one_fails(new_ledger: New) -> None:
    ledger, ran = new_ledger(), list[str]()

    @ledger.step
    def bad() -> int:
        raise ValueError("bad")

    @ledger.step
    def good() -> int:
        until(lambda: ("ERROR", "bad", 1) in kinds(ledger))
        ran.append("good")
        return 5

    @ledger.step(depends_on=["good"])
    def later(good: int) -> int:
        ran.append("later")
        return good

    with pytest.raises(ValueError, match="bad"):
        ledger.execute()
    assert ran == ["good"]
    assert {(kind, name) for kind, name, _ in kinds(ledger)} == {("ERROR", "bad"), ("RESULT", "good")}


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError, GeneratorExit])
def test_what_ends_a_program_is_never_recorded(new_ledger: New, error: type[BaseException]) -> None:
    ledger = new_ledger()

    @ledger.step
    def stops() -> int:
        raise error

    with pytest.raises(error):
        ledger.execute()
    assert kinds(ledger) == []
    assert ledger.bind("r1").state is RunState.RUNNING


def test_cancelling_aexecute_records_nothing_of_the_body_and_goes_on_later(new_ledger: New) -> None:
    ledger = new_ledger()
    lives: list[str] = []

    @ledger.step
    async def waits() -> str:
        lives.append("x")
        if len(lives) == 1:
            await asyncio.Event().wait()
        return "ok"

    async def main() -> Any:
        task = asyncio.create_task(ledger.aexecute())
        while not lives:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert kinds(ledger) == []
        return await ledger.aexecute()

    assert asyncio.run(main()) == "ok"
    assert kinds(ledger) == [("ABANDONED", "waits", 1), ("RESULT", "waits", 1)]


def test_execute_with_async_steps_on_a_running_loop_is_misuse(new_ledger: New) -> None:
    ledger = new_ledger()

    @ledger.step
    async def waits() -> int:
        return 1

    async def main() -> None:
        with pytest.raises(Misuse, match="aexecute"):
            ledger.execute()

    asyncio.run(main())


def test_an_unstorable_paid_result_is_kept_readable_and_fails_the_run(new_ledger: New) -> None:
    ledger = new_ledger()

    @ledger.step
    def paid() -> dict[str, Any]:
        return {"text": "an expensive answer", "client": threading.Lock()}

    with pytest.raises(Unstorable, match=r"step 'paid'.*client") as caught:
        ledger.execute()
    assert "lock" in caught.value.type_name.lower()
    assert kinds(ledger) == [("RESCUED", "paid", 1)]
    reader = ledger._opened.context().store.reader()
    row = reader.find_run("r1")
    assert row is not None
    (rescued,) = reader.records(row.row_id, kinds=[RecordKind.RESCUED])
    assert b"an expensive answer" in rescued.record.payload


def test_an_oversized_result_names_the_sizes_and_is_not_tried_again(new_ledger: New) -> None:
    ledger, tries = new_ledger(max_payload_bytes=1000), []

    @ledger.step(retries=3, retry_base_s=0)
    def big() -> str:
        tries.append(1)
        return "x" * 2000

    with pytest.raises(Unstorable, match=r"1,?000") as caught:
        ledger.execute()
    assert caught.value.code == "too_large"
    assert tries == [1]


def test_an_input_that_cannot_be_stored_is_named_before_anything_runs(new_ledger: New) -> None:
    ledger = new_ledger()

    @ledger.step
    def use(client: object) -> int:
        pytest.fail("must not run")

    with pytest.raises(Unstorable, match="client"):
        ledger.execute(client={"inner": [object()]})
    assert ledger.bind("r1").state is None


def test_nan_as_an_input_is_refused_with_its_path(new_ledger: New) -> None:
    ledger = new_ledger()

    @ledger.step
    def use(numbers: list[float]) -> int:
        pytest.fail("must not run")

    with pytest.raises(Misuse, match=r"numbers.*\[1\]"):
        ledger.execute(numbers=[1.0, float("nan")])


def test_nan_in_a_result_is_stored_and_refused_as_an_argument(new_ledger: New) -> None:
    def build(with_consumer: bool) -> RunLedger:
        ledger = new_ledger()

        @ledger.step
        def measure() -> dict[str, float]:
            return {"loss": float("nan")}

        if with_consumer:

            @ledger.step(depends_on=["measure"])
            def use(measure: dict[str, float]) -> int:
                pytest.fail("must not run")

        return ledger

    with pytest.raises(Misuse, match=r"'use'.*'measure'.*loss"):
        build(True).execute()
    result = build(False).execute()
    assert str(result["loss"]) == "nan"


def test_a_return_annotation_that_cannot_be_stored_is_refused_at_registration(new_ledger: New) -> None:
    ledger = new_ledger()
    with pytest.raises(Misuse, match="'lock'"):

        @ledger.step
        def lock() -> threading.Lock:
            return threading.Lock()


@dataclasses.dataclass(frozen=True)
class Report:
    title: str
    pages: tuple[int, ...]


def test_results_keep_their_exact_types_over_a_restart(new_ledger: New) -> None:
    for _ in range(2):
        ledger = new_ledger()
        ledger.add(Step(lambda: Report("t", (1, 2)), name="report"))
        ledger.add(Step(lambda: {1: {2.0}, "b": b"x"}, name="other"))
        result = ledger.execute()
        assert result == {"report": Report("t", (1, 2)), "other": {1: {2.0}, "b": b"x"}}
        assert type(result["report"].pages) is tuple


def test_from_names_the_source_explicitly(new_ledger: New) -> None:
    ledger = new_ledger()

    @ledger.step(name="numbers")
    def make() -> int:
        return 4

    @ledger.step
    def use(value: Annotated[int, From("numbers")]) -> int:
        return value + 1

    assert ledger.execute() == 5


def test_an_input_nobody_takes_is_warned_of(new_ledger: New, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "agent_run_ledger")
    ledger = new_ledger()
    ledger.add(Step(lambda: 1, name="one"))
    assert ledger.execute(compnay="acme") == 1
    assert "compnay" in caplog.text


def test_calling_a_step_by_hand_is_misuse_and_plain_is_not(new_ledger: New) -> None:
    ledger = new_ledger()

    @ledger.step
    def add(a: int, b: int) -> int:
        return a + b

    with pytest.raises(Misuse, match="plain"):
        add(1, 2)
    assert add.plain(1, 2) == 3


@pytest.mark.parametrize(
    "settings",
    [
        {"retries": -1},
        {"retries": True},
        {"timeout_s": 0},
        {"name": ""},
        {"name": "a\nb"},
        {"version": 2},
        {"depends_on": "fetch"},
        {"on_change": "maybe"},
        {"retry_base_s": 5, "retry_cap_s": 1},
    ],
)
def test_bad_settings_are_misuse_at_registration(settings: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        Step(lambda: 1, **settings)


def test_self_is_a_fine_name_for_an_input(new_ledger: New) -> None:
    ledger = new_ledger()

    @ledger.step
    def echo(self: int, run_id: int) -> list[int]:
        return [self, run_id]

    assert ledger.execute(self=1, run_id=2) == [1, 2]


def test_a_result_that_cannot_be_recorded_is_handed_to_the_caller(
    new_ledger: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = new_ledger()

    @ledger.step
    def paid() -> dict[str, int]:
        monkeypatch.setattr(type(ledger._opened.context().store), "transact", refuse)
        return {"answer": 42}

    def refuse(*_: Any, **__: Any) -> None:
        raise Unavailable("no room", code="disk_full")

    with pytest.raises(Unavailable) as caught:
        ledger.execute()
    assert caught.value.unrecorded == {"paid": {"answer": 42}}
    monkeypatch.undo()
    assert ledger.bind("r1").state is RunState.RUNNING
