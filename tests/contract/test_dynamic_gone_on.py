"""What an agent went on from is given again, what it did not is tried again: streams, threads and nested runs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from agent_run_ledger import Pending, Refused, RunLedger
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.testing import check_ledger
from agent_run_ledger.testing.recorded_calls import all_runs


class Boom(Exception):
    pass


class World:
    """A store with a few steps whose bodies are counted. `lives` are how often each program was begun."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bodies: list[str] = []
        self.lives = 0

    def live(self, program: Callable[[World], None]) -> str:
        """Begin the program anew. Returns "done", or the error that it ended with."""
        self.lives += 1
        said = "done"
        with RunLedger("r", self.path) as ledger:
            self.ledger = ledger
            self.flaky = ledger.step(self._flaky)
            self.work = ledger.step(self._work)
            self.stream = ledger.step(self._stream)
            self.breaking = ledger.step(self._breaking)
            try:
                with ledger.run() as run:
                    self.run = run
                    program(self)
            except Boom as error:
                said = str(error)
        check_ledger(self.path)
        return said

    def first_of(self, stream: Iterator[str]) -> str:
        """Take one item and close the stream."""
        item = next(stream)
        stream.close()  # type: ignore[attr-defined]
        return item

    def _flaky(self, name: str) -> str:
        self.bodies.append(name)
        if self.bodies.count(name) == 1:
            raise Boom(name)
        return f"{name} {self.bodies.count(name)}"

    def _work(self, name: str) -> str:
        self.bodies.append(name)
        return name

    def _stream(self, name: str) -> Iterator[str]:
        self.bodies.append(name)
        yield from (f"{name} {self.bodies.count(name)}.{number}" for number in range(3))

    def _breaking(self, name: str) -> Iterator[str]:
        self.bodies.append(name)
        yield name
        if self.bodies.count(name) == 1:
            raise Boom(name)
        yield name


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "runs.db")


def test_a_call_of_a_later_attempt_that_is_abandoned_ends_an_earlier_error(world: World) -> None:
    """The second life goes on from a stream that broke in the first one, and its third finds no error any more."""
    seen: list[list[str]] = []

    def program(world: World) -> None:
        taken: list[str] = []
        seen.append(taken)
        stream = world.breaking("s")
        taken.append(next(stream))
        if world.lives == 1:
            taken.append(next(stream))
        stream.close()  # type: ignore[attr-defined]
        taken.append(world.work("w"))
        if world.lives < 4:
            raise Boom("again")

    assert [world.live(program) for _ in range(4)] == ["s", "again", "again", "done"]
    assert seen[1:] == [["s", "w"]] * 3


def test_a_call_that_runs_again_comes_where_it_came_first(world: World) -> None:
    """Streams that are closed early run in each life; that does not mean that the agent went on from an error."""

    def program(world: World) -> None:
        world.first_of(world.stream("one"))
        world.first_of(world.stream("two"))
        world.flaky("f")

    assert [world.live(program), world.live(program)] == ["f", "done"]


@pytest.mark.parametrize("whole_first", [True, False])
def test_a_stream_that_is_closed_early_takes_no_number_when_it_is_restored_either(
    world: World, whole_first: bool
) -> None:
    seen: list[list[str]] = []

    def program(world: World) -> None:
        if not whole_first:
            world.first_of(world.stream("s"))
        seen.append(list(world.stream("s")))
        if world.lives < 3:
            raise Boom("again")

    assert [world.live(program) for _ in range(3)] == ["again", "again", "done"]
    assert seen[0] == seen[1] == seen[2]
    assert world.bodies.count("s") == (1 if whole_first else 2)


def test_an_async_stream_that_is_closed_early_takes_no_number_when_it_is_restored_either(tmp_path: Path) -> None:
    bodies: list[int] = []

    async def stream() -> AsyncIterator[int]:
        bodies.append(len(bodies))
        for number in range(3):
            yield 10 * len(bodies) + number

    async def live() -> list[int]:
        with RunLedger("r", tmp_path / "runs.db") as ledger:
            step = ledger.step(stream)
            async with ledger.run():
                first = step()
                await anext(first)
                await first.aclose()  # type: ignore[attr-defined]
                found = [item async for item in step()]
                raise Boom(str(found))
        return []

    said: list[str] = []
    for _ in range(2):
        with pytest.raises(Boom) as raised:
            asyncio.run(live())
        said.append(str(raised.value))
    assert said == ["[20, 21, 22]"] * 2
    assert len(bodies) == 2


def test_an_error_in_a_thread_is_not_handled_by_another_thread_that_went_on(world: World) -> None:
    def program(world: World) -> None:
        broken: list[Boom] = []

        def first() -> None:
            try:
                world.flaky("f")
            except Boom as error:
                broken.append(error)

        carried = [world.run.wrap(first), world.run.wrap(lambda: world.work("w"))]
        for one in carried:
            thread = threading.Thread(target=one)
            thread.start()
            thread.join()
        if broken:
            raise broken[0]

    assert [world.live(program), world.live(program)] == ["f", "done"]
    assert world.bodies == ["f", "w", "f"]


def failing_child(world: World) -> str:
    with world.ledger.run(x=1):
        return world.flaky("f")


def test_a_child_that_failed_and_was_gone_on_from_fails_again_and_runs_nothing(world: World) -> None:
    """Also where its program does not raise what the ledger gave it: the failure is the child's, not the call's."""
    seen: list[str] = []

    def program(world: World) -> None:
        try:
            failing_child(world)
        except Boom as error:
            seen.append(str(error))
        world.work("after")
        if world.lives < 3:
            raise Boom("again")

    assert [world.live(program) for _ in range(4)] == ["again", "again", "done", "done"]
    assert seen == ["f"] * 4
    assert world.bodies == ["f", "after"]


def test_a_child_that_failed_is_tried_again_where_nobody_went_on_from_that(world: World) -> None:
    def program(world: World) -> None:
        world.work("before")
        failing_child(world)

    assert [world.live(program), world.live(program)] == ["f", "done"]
    assert world.bodies == ["before", "f", "f"]


def test_a_child_in_a_completed_run_is_not_tried_again(world: World) -> None:
    def program(world: World) -> None:
        with contextlib.suppress(Boom):
            failing_child(world)

    assert [world.live(program), world.live(program)] == ["done", "done"]
    assert world.bodies == ["f"]


def test_a_call_that_a_failed_child_has_no_record_of_is_refused(world: World) -> None:
    def program(world: World) -> None:
        with contextlib.suppress(Boom), world.ledger.run(x=1):
            if world.lives == 1:
                raise Boom("child")
            world.work("late")
        world.work("after")
        if world.lives == 1:
            raise Boom("again")

    assert world.live(program) == "again"
    with pytest.raises(Refused) as refused:
        world.live(program)
    assert refused.value.code == "run_completed"
    assert world.bodies == ["after"]


def test_a_child_that_an_error_of_ours_ended_goes_on(world: World) -> None:
    def program(world: World) -> None:
        with contextlib.suppress(Refused), world.ledger.run(x=1):
            if world.lives == 1:
                raise Refused("not now")
            world.work("late")
        world.work("after")
        if world.lives == 1:
            raise Boom("again")

    assert [world.live(program), world.live(program)] == ["again", "done"]
    assert world.bodies == ["after", "late"]


def test_a_suspended_child_of_a_completed_run_is_suspended_for_good(world: World) -> None:
    seen: list[str] = []

    def program(world: World) -> None:
        def ask(question: str) -> str:
            world.bodies.append(question)
            if world.lives == 1:
                raise Pending("nobody is there")
            return "yes"

        try:
            with world.ledger.run(x=1):
                world.ledger.step(ask)("may I?")
        except Pending as error:
            seen.append(str(error))

    assert [world.live(program) for _ in range(3)] == ["done"] * 3
    assert world.bodies == ["may I?"]
    assert len(seen) == 3


@pytest.mark.parametrize("error", [Refused("not now"), KeyboardInterrupt()], ids=["failed", "died"])
def test_a_child_that_was_left_in_a_completed_run_goes_on_with_nothing_new(world: World, error: BaseException) -> None:
    def program(world: World) -> None:
        with contextlib.suppress(Refused, KeyboardInterrupt), world.ledger.run(x=1):
            if world.lives == 1:
                raise error
            world.work("late")

    assert world.live(program) == "done"
    for _ in range(2):
        assert world.live(program) == "done"
    assert world.bodies == []


def test_no_run_is_started_within_a_completed_one(world: World) -> None:
    def program(world: World) -> None:
        if world.lives == 2:
            with world.ledger.run(x=2):
                world.work("new")

    assert world.live(program) == "done"
    with pytest.raises(Refused) as refused:
        world.live(program)
    assert refused.value.code == "run_completed"
    assert world.bodies == []


@pytest.mark.parametrize("child", [False, True])
def test_a_value_on_a_loop_is_on_disk_before_anything_that_came_after_it(tmp_path: Path, child: bool) -> None:
    """A sync step, and a run entered by `with`, do not go through the store's own thread, where the value waits."""
    held = threading.Event()
    order: list[str] = []

    async def live() -> None:
        with RunLedger("r", tmp_path / "runs.db") as ledger:
            work = ledger.step(lambda: None, name="work")
            async with ledger.run() as run:
                ledger._opened.post(held.wait)
                run.random()
                with ledger.run(x=1) if child else contextlib.nullcontext():
                    work()
                held.set()

    asyncio.run(live())
    store = open_sqlite(tmp_path / "runs.db", create=False)
    reader = store.reader()
    for row in all_runs(reader):
        found = reader.records(row.row_id, kinds=tuple(RecordKind))
        order += [f"{one.record_id:020} {one.record.kind.name} {one.record.name}" for one in found]
    store.close()
    names = [line.split(" ", 1)[1] for line in sorted(order)]
    assert names.index("RESULT run.random") < names.index("RESULT work")
    if child:
        assert names.index("RESULT run.random") < len(names) - 1 - names[::-1].index("START ")
    check_ledger(tmp_path / "runs.db")


def test_who_swallows_the_refusal_of_a_new_child_in_a_completed_run_gets_no_further(tmp_path: Path) -> None:
    ledger = RunLedger(run_id="r", db_path=tmp_path / "over.db")

    def agent(*, child: bool) -> float:
        with ledger.run() as run:
            if child:
                with contextlib.suppress(Refused), ledger.run(new=1):
                    pass
            return run.random()

    agent(child=False)
    with pytest.raises(Refused) as caught:
        agent(child=True)
    assert caught.value.code == "run_completed"
    ledger.close()


@pytest.mark.parametrize("how", ["value", "child"])
def test_a_value_and_a_child_count_as_going_on_within_the_same_attempt(tmp_path: Path, how: str) -> None:
    """The error of a keyed call is given again when its key is asked for once more, however the agent went on."""
    ledger = RunLedger(run_id="r", db_path=tmp_path / "on.db")
    bodies: list[str] = []

    @ledger.step
    def first() -> None:
        bodies.append("first")
        if bodies.count("first") == 1:
            raise Boom

    @ledger.step(key="{x}")
    def keyed(x: int) -> None:
        bodies.append("keyed")
        raise Boom

    def agent() -> None:
        with ledger.run() as run:
            first()
            with contextlib.suppress(Boom):
                keyed(1)
            if how == "value":
                run.uuid4()
            else:
                with ledger.run(child=1):
                    pass
            keyed(1)

    for _ in range(2):
        with pytest.raises(Boom):
            agent()
    assert bodies == ["first", "first", "keyed"]
    ledger.close()
    check_ledger(tmp_path / "on.db")
