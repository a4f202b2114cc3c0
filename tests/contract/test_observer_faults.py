"""Observers that raise, swallow, interrupt or are no observers, and forked children: the run goes on as if alone."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from agent_run_ledger import Misuse, RunLedger, Unavailable
from agent_run_ledger.kernel.notices import AttemptOpened, CallBegun, CallConcluded, Notice
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.runs.watch import begin_watch
from agent_run_ledger.testing import check_ledger
from tests.contract.observer_kit import Keeper, two_steps
from tests.contract.run_kit import LyingStore, row_of, store_of, stored_of

New = Callable[..., RunLedger]


class Broken:
    """Raises wherever it can."""

    def __init__(self, *where: str) -> None:
        self.where = where
        self.raised = 0

    def _maybe(self, place: str) -> None:
        if place in self.where:
            self.raised += 1
            raise RuntimeError(f"broken in {place}")

    def tell(self, notice: Notice) -> None:
        self._maybe("tell")

    def around(self, call: CallBegun) -> AbstractContextManager[object]:
        self._maybe("around")
        return self  # type: ignore[return-value]

    def __enter__(self) -> None:
        self._maybe("enter")

    def __exit__(self, kind: object, error: object, trace: TracebackType | None) -> bool:
        self._maybe("exit")
        return True  # would swallow the body's exception


@pytest.mark.parametrize("place", ["tell", "around", "enter", "exit"])
@pytest.mark.parametrize("way", ["execute", "aexecute"])
def test_an_observer_that_raises_is_logged_once_and_the_run_goes_on(
    new_ledger: New, db: Path, caplog: pytest.LogCaptureFixture, place: str, way: str
) -> None:
    broken, keeper = Broken(place), Keeper()
    ledger = new_ledger(observers=[broken, keeper])
    two_steps(ledger)
    with caplog.at_level(logging.WARNING, "agent_run_ledger"):
        assert (ledger.execute() if way == "execute" else asyncio.run(ledger.aexecute())) == 2
    assert broken.raised > 1
    assert [record.message for record in caplog.records if "observer" in record.message] == [
        "run 'r1': an observer (Broken) raised RuntimeError; the run is not affected, further ones of this attempt "
        "are not logged"
    ]
    assert len(keeper.of(CallConcluded)) == 2, "the other observer is told all the same"
    assert len(keeper.around_bodies) == 4
    ledger.close()
    check_ledger(db)


@pytest.mark.parametrize("way", ["execute", "aexecute"])
def test_what_is_around_a_body_cannot_swallow_its_exception(new_ledger: New, way: str) -> None:
    ledger = new_ledger(observers=[Broken()])

    def failing(first: int) -> int:
        raise LookupError("mine")

    async def afailing(first: int) -> int:
        raise LookupError("mine")

    two_steps(ledger, failing if way == "execute" else afailing)
    with pytest.raises(LookupError, match="mine"):
        ledger.execute()
    assert stored_of(ledger, RecordKind.ERROR)[0].record.name == "second"


def test_an_interrupt_while_an_observer_is_told_passes_through(new_ledger: New, db: Path) -> None:
    class Interrupted(Keeper):
        def tell(self, notice: Notice) -> None:
            if isinstance(notice, CallConcluded):
                raise KeyboardInterrupt

    ledger = new_ledger(observers=[Interrupted()])
    two_steps(ledger)
    with pytest.raises(KeyboardInterrupt):
        ledger.execute()
    assert not store_of(ledger).is_run_live("r1")
    other = new_ledger()
    two_steps(other)
    assert other.execute() == 2
    other.close()
    ledger.close()
    check_ledger(db)


def test_a_store_that_cannot_say_what_was_abandoned_does_not_stop_a_run(new_ledger: New) -> None:
    ledger = new_ledger()
    two_steps(ledger, lambda first: 1 // 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            ledger.execute()

    def broken(*_: object, **__: object) -> Any:
        raise Unavailable("no")

    keeper = Keeper()
    begin_watch([keeper], LyingStore(store_of(ledger), records=broken), row_of(ledger), takeover=False)  # type: ignore[arg-type]
    assert keeper.of(AttemptOpened)[0].abandoned == ()


@pytest.mark.parametrize("observer", [object(), Keeper, None])
def test_what_is_no_observer_is_refused_at_once(db: Path, observer: Any) -> None:
    with pytest.raises(Misuse, match="tell and around"):
        RunLedger("r1", db, observers=[observer])


def test_without_observers_nothing_is_put_around_bodies_and_no_time_is_taken(
    new_ledger: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agent_run_ledger.runs import watch

    def never(*_: object, **__: object) -> Any:
        pytest.fail("somebody watches")

    monkeypatch.setattr(watch.Watch, "__init__", never)
    monkeypatch.setattr(watch.Around, "__init__", never)
    ledger = new_ledger()
    two_steps(ledger)
    assert ledger.execute() == 2


# -- forks ----------------------------------------------------------------------------------------------------------


@pytest.mark.fault
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_tells_nothing_and_the_parent_tells_all(new_ledger: New, db: Path) -> None:
    keeper = Keeper()
    ledger = new_ledger(observers=[keeper])
    parent = os.getpid()
    reading, writing = os.pipe()

    def forking(first: int) -> int:
        if os.fork() == 0:
            keeper.notices.clear()
            keeper.around_bodies.clear()
        return first

    two_steps(ledger, forking)
    try:
        value: Any = ledger.execute()
    except BaseException as error:
        value = type(error).__name__
    if os.getpid() != parent:
        os.write(writing, f"{value} {keeper.kinds()}".encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "Forked []"
    os.wait()
    assert value == 1
    assert keeper.kinds()[-1] == "AttemptEnded"
    assert len(keeper.of(CallConcluded)) == 2
    ledger.close()
    check_ledger(db)


def test_a_null_context_is_enough_of_an_observer(new_ledger: New) -> None:
    class Least:
        def tell(self, notice: Notice) -> None:
            return

        def around(self, call: CallBegun) -> AbstractContextManager[object]:
            return nullcontext()

    ledger = new_ledger(observers=[Least()])
    two_steps(ledger)
    assert ledger.execute() == 2
