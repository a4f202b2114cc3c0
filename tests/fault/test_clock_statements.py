"""Every statement of a clock correction fails once, before it landed and after: the mark moves with its leaf or not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import apsw
import pytest

from agent_run_ledger import EffectLedger, LedgerError, Uncertain
from agent_run_ledger.effects import Actor, LedgerState, LedgerView, Role
from agent_run_ledger.store import sqlite_writer
from agent_run_ledger.testing import check_ledger
from tests.fault.effect_kit import NOW_MS, Ticks, new_store, number, ready
from tests.fault.test_effect_statements import Failing

pytestmark = pytest.mark.fault

OFFICER = Actor("olga", frozenset({Role.OFFICER}))
Shape = tuple[int, Any, tuple[int, int]]


@pytest.fixture
def place() -> Iterator[Path]:
    memory = Path("/dev/shm")
    with TemporaryDirectory(prefix="arl-clock-", dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


def untrusting(place: Path) -> EffectLedger:
    """A ledger that believed a later time than its clock says now."""
    clock = Ticks(NOW_MS)
    ledger = EffectLedger(new_store(place / f"{number().hex()}.db"), time=clock)
    ready(ledger, "refund:17")
    clock.now_ms -= 1
    return ledger


def failing(ledger: EffectLedger) -> Failing:
    writer: Any = ledger._store._shared.writer()
    writer._cursor = cursor = Failing(writer._open_cursor())
    return cursor


def shape(ledger: EffectLedger) -> Shape:
    """How many leaves there are, the mark, and the corrections on record."""
    mark, corrections = ledger._store.transact(number(), lambda tx: tx.effects.time_kept())
    return ledger._store.reader().head().size, mark, corrections


def called(ledger: EffectLedger, op_id: bytes) -> LedgerView | LedgerError:
    try:
        return ledger.correct_clock(OFFICER, op_id=op_id)
    except LedgerError as error:
        return error


def judge(ledger: EffectLedger, op_id: bytes, first: LedgerView | LedgerError, before: Shape) -> None:
    """What was said is so, all of it landed or nothing, and the same op_id does what did not happen, once."""
    size, mark, _ = before
    after = (size + 1, ledger._time.sample(), (1, NOW_MS))
    now = shape(ledger)
    assert now in (before, after)
    if not isinstance(first, Uncertain):
        assert (now == after) is isinstance(first, LedgerView)
    told = called(ledger, op_id)
    assert isinstance(told, LedgerView), told
    assert told.state is LedgerState.OPEN
    assert shape(ledger) == after
    assert mark != after[1]
    path = ledger._store.location
    ledger.close()
    check_ledger(path)


def statements(place: Path) -> list[str]:
    ledger = untrusting(place)
    cursor = failing(ledger)
    ledger.correct_clock(OFFICER, op_id=number())
    ledger.close()
    return list(cursor.said)


def test_every_statement_fails_once_before_and_once_after_it_landed(place: Path) -> None:
    said = statements(place)
    assert sum("clock_corrections" in sql for sql in said) >= 2
    for nth in range(1, len(said) + 1):
        for after in (False, True):
            ledger = untrusting(place)
            before, op_id, cursor = shape(ledger), number(), failing(ledger)
            cursor.fail(nth, after=after, code=apsw.SQLITE_IOERR)
            first = called(ledger, op_id)
            assert len(cursor.said) >= nth
            assert isinstance(first, LedgerError) is not (said[nth - 1] == "COMMIT" and after), (said[nth - 1], first)
            judge(ledger, op_id, first, before)


@pytest.mark.parametrize("after", [False, True])
def test_a_commit_that_nobody_can_look_up_is_uncertain_and_the_op_id_tells_later(place: Path, after: bool) -> None:
    ledger = untrusting(place)
    before, op_id, cursor = shape(ledger), number(), failing(ledger)
    cursor.fail(statements(place).index("COMMIT") + 1, after=after, code=apsw.SQLITE_IOERR)

    def unreachable(*_: Any, **__: Any) -> Any:
        raise apsw.exception_for(apsw.SQLITE_CANTOPEN)

    with patch.object(sqlite_writer, "connect_writer", unreachable):
        first = called(ledger, op_id)
    assert isinstance(first, Uncertain)
    assert (shape(ledger)[0] > before[0]) is after
    judge(ledger, op_id, first, before)


def test_what_can_only_be_read_before_it_is_read_before_it(place: Path) -> None:
    """Unavailable says that nothing changed: the counts of the answer are not read after the commit."""
    ledger = untrusting(place)
    before = shape(ledger)
    reader: Any = ledger._store.reader().effects

    def unreadable(*_: Any) -> Any:
        raise LedgerError("the disk does not answer", code="store_failed")

    with patch.object(type(reader), "counts", unreadable):
        assert isinstance(called(ledger, number()), LedgerError)
    assert shape(ledger) == before
    ledger.close()
