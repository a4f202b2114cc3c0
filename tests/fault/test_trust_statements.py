"""Every statement of a trust file that follows, and of a grant, fails once, before it landed and after."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import apsw
import pytest

from agent_run_ledger import LedgerError, Uncertain
from agent_run_ledger.effects.trusting import sign_trust
from agent_run_ledger.kernel.effects.trust_change import TrustOnRecord
from agent_run_ledger.store import sqlite_writer
from agent_run_ledger.testing import check_ledger
from tests.contract.approval_kit import Approvals
from tests.contract.test_trust_on_record import OFFICERS
from tests.fault.test_effect_statements import Failing

pytestmark = pytest.mark.fault

Asked = Callable[[Approvals, bytes], object]
Shape = tuple[int, TrustOnRecord | None, tuple[str, ...]]


@contextmanager
def prepared() -> Iterator[tuple[Approvals, Asked, Asked]]:
    """A ledger under a trust file with one action; the way to the next trust file, and to an approval."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(prefix="arl-trust-", dir=memory if os.access(memory, os.W_OK) else None) as folder:
        kit = Approvals(Path(folder))
        kit.plan()
        kit.begin()
        signed = sign_trust(replace(kit.trust, serial=2), OFFICERS)
        data = kit.signed(kit.two_asked())
        try:
            yield (
                kit,
                lambda kit, op_id: kit.ledger.follow_trust(signed, op_id=op_id),
                lambda kit, op_id: kit.ledger.grant(data, op_id=op_id),
            )
        finally:
            kit.ledger.close()


def failing(kit: Approvals) -> Failing:
    writer: Any = kit.ledger._store._shared.writer()
    writer._cursor = cursor = Failing(writer._open_cursor())
    return cursor


def shape(kit: Approvals) -> Shape:
    """How many leaves there are, which trust file is in use, who approved."""
    reader = kit.ledger._store.reader()
    (view,) = kit.ledger.inspect("refund:17")
    return reader.head().size, reader.effects.trust(), view.approvals


def called(kit: Approvals, asked: Asked, op_id: bytes) -> object:
    try:
        return asked(kit, op_id)
    except LedgerError as error:
        return error


def statements(which: int) -> list[str]:
    with prepared() as (kit, *ways):
        cursor = failing(kit)
        ways[which](kit, kit.id())
        return list(cursor.said)


def judge(kit: Approvals, asked: Asked, op_id: bytes, first: object, before: Shape, which: int) -> None:
    """What was said is so, all of it landed or nothing, and the same op_id does what did not happen, once."""
    now = shape(kit)
    assert now[0] in (before[0], before[0] + 1)
    landed = now[0] > before[0]
    assert landed is (now != before)
    if not isinstance(first, Uncertain):
        assert landed is not isinstance(first, LedgerError)
    told = called(kit, asked, op_id)
    assert not isinstance(told, LedgerError), told
    after = shape(kit)
    assert after[0] == before[0] + 1
    assert after[1] is not None
    assert (after[1].serial, after[2]) == ((2, ()) if which == 0 else (1, ("bob",)))
    kit.ledger.close()
    check_ledger(kit.path)


@pytest.mark.parametrize("which", [0, 1], ids=["a trust file", "a grant"])
def test_every_statement_fails_once_before_and_once_after_it_landed(which: int) -> None:
    said = statements(which)
    assert any("trust_changes" in sql for sql in said)
    for nth in range(1, len(said) + 1):
        for after in (False, True):
            with prepared() as (kit, *ways):
                before, op_id, cursor = shape(kit), kit.id(), failing(kit)
                cursor.fail(nth, after=after, code=apsw.SQLITE_IOERR)
                first = called(kit, ways[which], op_id)
                assert isinstance(first, LedgerError) is not (said[nth - 1] == "COMMIT" and after), (
                    said[nth - 1],
                    first,
                )
                judge(kit, ways[which], op_id, first, before, which)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("which", [0, 1], ids=["a trust file", "a grant"])
def test_a_commit_that_nobody_can_look_up_is_uncertain_and_the_op_id_tells_later(which: int, after: bool) -> None:
    said = statements(which)
    with prepared() as (kit, *ways):
        before, op_id, cursor = shape(kit), kit.id(), failing(kit)
        cursor.fail(said.index("COMMIT") + 1, after=after, code=apsw.SQLITE_IOERR)

        def unreachable(*_: Any, **__: Any) -> Any:
            raise apsw.exception_for(apsw.SQLITE_CANTOPEN)

        with patch.object(sqlite_writer, "connect_writer", unreachable):
            first = called(kit, ways[which], op_id)
        assert isinstance(first, Uncertain)
        assert (shape(kit)[0] > before[0]) is after
        judge(kit, ways[which], op_id, first, before, which)
