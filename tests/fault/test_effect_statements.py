"""Every statement of the effect ledger fails once, before it landed and after: no transition is half done."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import apsw
import pytest

from agent_run_ledger.effects.witnessing import Witnessing
from agent_run_ledger.errors import LedgerError, Pending, Refused, Tampered, Unavailable, Uncertain
from agent_run_ledger.kernel.effects import ActionState, TargetClass, WitnessPolicy
from agent_run_ledger.kernel.effects.commands import DoubtBy
from agent_run_ledger.kernel.effects.evidence import FenceAnswer, Found, Observation
from agent_run_ledger.ledger.effect_ledger import Dispatch, EffectLedger, Grant
from agent_run_ledger.ports.effects import Heard, Seen
from agent_run_ledger.store import sqlite_writer
from agent_run_ledger.store.effect_reader import RowEffectReader
from agent_run_ledger.store.sqlite_reader import SqliteReader
from agent_run_ledger.testing import check_ledger
from tests.fault.effect_kit import (
    APPROVER,
    END_MS,
    EXECUTOR,
    OPERATOR,
    RECONCILER,
    REQUESTER,
    REVOKER,
    TARGET,
    Ready,
    Ticks,
    broken,
    intent,
    log_of,
    new_store,
    number,
    ready,
    receipt,
    signed,
)

pytestmark = pytest.mark.fault

KEY, WORKER = "refund:17", "w1"
CODES = (apsw.SQLITE_IOERR, apsw.SQLITE_FULL)
Call = Callable[[bytes], object]
"""One call of a method with an op_id."""


class Failing:
    """A cursor whose nth statement fails, before it is run or after; from 1 on, 0 for none."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor
        self.connection = cursor.connection
        self.said: list[str] = []
        self._nth, self._after, self._code = 0, False, 0

    def fail(self, nth: int, *, after: bool, code: int) -> None:
        self.said.clear()
        self._nth, self._after, self._code = nth, after, code

    def execute(self, sql: str, *arguments: Any, **settings: Any) -> Any:
        self.said.append(sql)
        here = len(self.said) == self._nth
        if here and not self._after:
            raise apsw.exception_for(self._code)
        done = self._cursor.execute(sql, *arguments, **settings)
        if here:
            raise apsw.exception_for(self._code)
        return done


@dataclass(slots=True)
class Desk:
    """A ledger with one action, and what a test does to both."""

    path: Path
    clock: Ticks
    ledger: EffectLedger
    action: Ready | None = None
    claim_id: bytes = b""

    @property
    def of_action(self) -> Ready:
        assert self.action is not None
        return self.action

    def cursor(self) -> Failing:
        """Let statements fail from now on."""
        writer: Any = self.ledger._store._shared.writer()
        writer._cursor = failing = Failing(writer._open_cursor())
        return failing

    def approved(self, target_class: TargetClass = TargetClass.N) -> Ready:
        self.action = ready(self.ledger, KEY, intent(target_class=target_class))
        return self.action

    def claimed(self, target_class: TargetClass = TargetClass.N) -> Ready:
        action = self.approved(target_class)
        grant = self.ledger.claim(
            EXECUTOR, action.action_id, worker=WORKER, request_sha256=action.request_sha256, claim_key=bytes(16)
        )
        self.claim_id = grant.claim_id
        return action

    def prepared(self, target_class: TargetClass = TargetClass.N) -> Ready:
        action = self.claimed(target_class)
        self.ledger.prepare(EXECUTOR, action.action_id, claim_id=self.claim_id, worker=WORKER)
        return action

    def sent(self, target_class: TargetClass = TargetClass.N) -> Ready:
        action = self.prepared(target_class)
        self.ledger.hand_out(EXECUTOR, action.action_id, claim_id=self.claim_id, worker=WORKER)
        return action

    def proposed(self) -> bytes:
        return self.ledger.propose(REQUESTER, KEY, intent()).action_id

    def fence(self) -> FenceAnswer:
        return FenceAnswer(evidence_id=number(), action_key=KEY, receiver=TARGET, epoch=0, mark=1, found=Found.NOTHING)


# -- one call of each method, in a state in which it is accepted -------------------------------------------------------


def _propose(desk: Desk) -> Call:
    return lambda op_id: desk.ledger.propose(REQUESTER, KEY, intent(), op_id=op_id)


def _edit(desk: Desk) -> Call:
    action_id = desk.proposed()
    return lambda op_id: desk.ledger.edit(REQUESTER, action_id, intent(b"other"), op_id=op_id)


def _reject(desk: Desk) -> Call:
    action_id = desk.proposed()
    return lambda op_id: desk.ledger.reject(APPROVER, action_id, op_id=op_id)


def _approve(desk: Desk) -> Call:
    action_id = desk.proposed()
    approval = signed(desk.ledger, action_id)
    return lambda op_id: desk.ledger.approve(APPROVER, action_id, approval, op_id=op_id)


def _successor(desk: Desk) -> Call:
    action_id = desk.proposed()
    desk.ledger.reject(APPROVER, action_id)
    return lambda op_id: desk.ledger.successor(REQUESTER, action_id, intent(b"next"), op_id=op_id)


def _revoke(desk: Desk) -> Call:
    action = desk.approved()
    return lambda op_id: desk.ledger.revoke(REVOKER, action.action_id, op_id=op_id)


def _expire(desk: Desk) -> Call:
    action = desk.approved()
    desk.clock.now_ms = END_MS
    return lambda op_id: desk.ledger.expire(OPERATOR, action.action_id, op_id=op_id)


def _claim(desk: Desk) -> Call:
    action = desk.approved()
    return lambda op_id: desk.ledger.claim(
        EXECUTOR,
        action.action_id,
        worker=WORKER,
        request_sha256=action.request_sha256,
        claim_key=bytes(16),
        op_id=op_id,
    )


def _prepare(desk: Desk) -> Call:
    action = desk.claimed()
    return lambda op_id: desk.ledger.prepare(
        EXECUTOR, action.action_id, claim_id=desk.claim_id, worker=WORKER, op_id=op_id
    )


def _hand_out(desk: Desk, target_class: TargetClass = TargetClass.N) -> Call:
    action = desk.prepared(target_class)
    return lambda op_id: desk.ledger.hand_out(
        EXECUTOR, action.action_id, claim_id=desk.claim_id, worker=WORKER, op_id=op_id
    )


def _hand_out_to_f(desk: Desk) -> Call:
    return _hand_out(desk, TargetClass.F)


def _outcome(desk: Desk) -> Call:
    action = desk.sent()
    told = receipt(KEY, 1, action.request_sha256)
    return lambda op_id: desk.ledger.outcome(EXECUTOR, action.action_id, told, op_id=op_id)


def _doubt(desk: Desk) -> Call:
    action = desk.sent()
    return lambda op_id: desk.ledger.doubt(OPERATOR, action.action_id, by=DoubtBy.OPERATOR, op_id=op_id)


def _observe(desk: Desk) -> Call:
    action = desk.sent()
    seen = Observation(
        evidence_id=number(),
        action_key=KEY,
        epoch=0,
        observer=RECONCILER.principal,
        found=Found.NOTHING,
        after=None,
    )
    return lambda op_id: desk.ledger.observe(RECONCILER, action.action_id, seen, op_id=op_id)


def _success(desk: Desk) -> Call:
    action = desk.sent()
    told = receipt(KEY, 1, action.request_sha256)
    return lambda op_id: desk.ledger.reconcile_success(RECONCILER, action.action_id, told, op_id=op_id)


def _lost_success(desk: Desk) -> Call:
    """A receipt of a generation that this history never had: two rows change in one transaction."""
    action = desk.sent(TargetClass.F)
    told = receipt(KEY, 4, action.request_sha256)
    return lambda op_id: desk.ledger.reconcile_success(RECONCILER, action.action_id, told, op_id=op_id)


def _not_executed(desk: Desk) -> Call:
    action, fence = desk.sent(TargetClass.F), desk.fence()
    return lambda op_id: desk.ledger.reconcile_not_executed(RECONCILER, action.action_id, fence=fence, op_id=op_id)


def _write_off(desk: Desk) -> Call:
    action = desk.sent()
    desk.ledger.doubt(OPERATOR, action.action_id, by=DoubtBy.OPERATOR)
    people = frozenset({"rec", "off"})
    return lambda op_id: desk.ledger.write_off(
        RECONCILER, action.action_id, nobody_can_observe=True, people=people, op_id=op_id
    )


def _close_unprepared(desk: Desk) -> Call:
    action, fence = desk.claimed(TargetClass.F), desk.fence()
    return lambda op_id: desk.ledger.close_unprepared(RECONCILER, action.action_id, fence=fence, op_id=op_id)


METHODS: dict[str, tuple[Callable[[Desk], Call], ActionState]] = {
    "propose": (_propose, ActionState.PROPOSED),
    "edit": (_edit, ActionState.PROPOSED),
    "reject": (_reject, ActionState.REJECTED),
    "approve": (_approve, ActionState.AVAILABLE),
    "successor": (_successor, ActionState.PROPOSED),
    "revoke": (_revoke, ActionState.REVOKED),
    "expire": (_expire, ActionState.EXPIRED),
    "claim": (_claim, ActionState.CLAIMED),
    "prepare": (_prepare, ActionState.PREPARED),
    "hand_out": (_hand_out, ActionState.PREPARED),
    "hand_out to f": (_hand_out_to_f, ActionState.PREPARED),
    "outcome": (_outcome, ActionState.SUCCEEDED),
    "doubt": (_doubt, ActionState.UNRESOLVED),
    "observe": (_observe, ActionState.PREPARED),
    "reconcile_success": (_success, ActionState.SUCCEEDED),
    "reconcile_success of a lost member": (_lost_success, ActionState.SUCCEEDED),
    "reconcile_not_executed": (_not_executed, ActionState.NOT_EXECUTED),
    "write_off": (_write_off, ActionState.WRITTEN_OFF),
    "close_unprepared": (_close_unprepared, ActionState.NOT_EXECUTED),
}
"""For each method its call, and the state of the newest member afterwards."""


# -- the desk ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def empty() -> Iterator[Path]:
    """A folder in memory with an empty store for effects to copy."""
    place = Path("/dev/shm")
    with TemporaryDirectory(prefix="arl-statements-", dir=place if os.access(place, os.W_OK) else None) as folder:
        new_store(Path(folder) / "empty.db")
        yield Path(folder)


def _desk(empty: Path, *, witness: Any = None) -> Desk:
    path = empty / f"{number().hex()}.db"
    shutil.copyfile(empty / "empty.db", path)
    clock = Ticks()
    return Desk(path=path, clock=clock, ledger=EffectLedger(path, time=clock, witness=witness))


def _called(call: Call, op_id: bytes) -> object:
    """What it returned, or the error that it raised, which must be one that says what may be done next."""
    try:
        return call(op_id)
    except (Refused, Unavailable, Uncertain, Tampered) as error:
        return error


def _stands(desk: Desk) -> tuple[int, list[Any]]:
    return desk.ledger._store.reader().head().size, desk.ledger.inspect(KEY)


def _is_new(value: object) -> bool:
    """Whether a call says that it made the grant, or handed the permit out."""
    return (isinstance(value, Grant) and value.granted_now) or (isinstance(value, Dispatch) and value.handed_now)


def _judge(desk: Desk, name: str, call: Call, op_id: bytes, first: object, before: tuple[int, list[Any]]) -> None:
    """What the first call said is so; the same op_id tells the truth, and does what did not happen, once."""
    size, rows = before
    now_size, now_rows = _stands(desk)
    landed = now_size == size + 1
    assert (now_size, now_rows == rows) in ((size, True), (size + 1, False))
    if isinstance(first, Uncertain):
        pass
    elif isinstance(first, LedgerError):
        assert not landed, first
    else:
        assert landed, first
    second = _called(call, op_id)
    spent = landed and name == "hand_out"
    if spent:  # a plain target's permit is never told twice, not even to who lost the reply
        assert isinstance(second, Refused), second
        assert second.code == "handed_out"
    else:
        assert not isinstance(second, LedgerError), second
    lost = landed and isinstance(first, Uncertain)  # the reply that would have been new
    grants = name in ("claim", "hand_out", "hand_out to f") and not lost
    assert [_is_new(first), _is_new(second)].count(True) == grants
    now_size, now_rows = _stands(desk)
    assert now_size == size + 1
    assert now_rows[-1].state is METHODS[name][1]
    desk.ledger.close()
    lines = log_of(desk.path)
    assert list(broken(lines)) == []
    assert op_id in {line.op_id for line in lines}
    check_ledger(desk.path)
    desk.path.unlink()


def _statements(desk: Desk, call: Call) -> list[str]:
    cursor = desk.cursor()
    call(number())
    desk.ledger.close()
    return list(cursor.said)


@pytest.mark.parametrize("name", METHODS)
def test_every_statement_fails_once_before_and_once_after_it_landed(empty: Path, name: str) -> None:
    begin, _ = METHODS[name]
    whole = _desk(empty)
    said = _statements(whole, begin(whole))
    assert {sql.split()[0] for sql in said} >= {"BEGIN", "SELECT", "INSERT", "UPDATE", "COMMIT"}
    for nth in range(1, len(said) + 1):
        for after in (False, True):
            desk = _desk(empty)
            call, op_id = begin(desk), number()
            before, cursor = _stands(desk), desk.cursor()
            cursor.fail(nth, after=after, code=CODES[(nth + after) % 2])
            first = _called(call, op_id)
            assert len(cursor.said) >= nth
            assert isinstance(first, LedgerError) is not (said[nth - 1] == "COMMIT" and after), (said[nth - 1], first)
            _judge(desk, name, call, op_id, first, before)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_a_commit_that_nobody_can_look_up_is_uncertain_and_the_op_id_tells_later(
    empty: Path, name: str, after: bool
) -> None:
    begin, _ = METHODS[name]
    desk = _desk(empty)
    call, op_id = begin(desk), number()
    before, cursor = _stands(desk), desk.cursor()
    whole = _desk(empty)
    cursor.fail(_statements(whole, begin(whole)).index("COMMIT") + 1, after=after, code=apsw.SQLITE_IOERR)

    def unreachable(*_: Any, **__: Any) -> Any:
        raise apsw.exception_for(apsw.SQLITE_CANTOPEN)

    with patch.object(sqlite_writer, "connect_writer", unreachable):
        first = _called(call, op_id)
    assert isinstance(first, Uncertain)
    assert (_stands(desk)[0] > before[0]) is after
    _judge(desk, name, call, op_id, first, before)


# -- reads outside of the transaction ----------------------------------------------------------------------------------


def _unreadable(*_: Any) -> Any:
    raise Unavailable("the disk does not answer", code="store_failed")


@pytest.mark.parametrize("read", ["request", "action"])
def test_a_permit_is_not_spent_where_its_bytes_cannot_be_read(empty: Path, read: str) -> None:
    desk = _desk(empty)
    call = _hand_out(desk)
    before = _stands(desk)
    with patch.object(RowEffectReader, read, _unreadable), pytest.raises(Unavailable):
        call(number())
    assert _stands(desk) == before
    dispatch = call(number())
    assert isinstance(dispatch, Dispatch)
    assert (dispatch.handed_now, dispatch.request) == (True, b"{}")


def test_bytes_that_are_not_the_approved_ones_are_found_before_the_permit_is_spent(empty: Path) -> None:
    desk = _desk(empty)
    call = _hand_out(desk)
    before = _stands(desk)
    with (
        patch.object(RowEffectReader, "request", lambda *_: b"other bytes"),
        pytest.raises(Tampered),
    ):
        call(number())
    assert _stands(desk) == before


class _Knowing:
    """A witness that has seen everything."""

    policy = WitnessPolicy.HTTP

    def extend(self, size: int, root: bytes) -> Heard:
        return Heard(Seen.CURRENT)


def test_what_landed_and_cannot_be_shown_to_the_witness_is_pending_not_undone(empty: Path) -> None:
    """Unavailable would say that nothing changed."""
    desk = _desk(empty, witness=_Knowing())
    call, op_id = _revoke(desk), number()
    size, _ = _stands(desk)
    with patch.object(SqliteReader, "head", _unreadable), pytest.raises(Pending) as caught:
        call(op_id)
    assert caught.value.code == "not_witnessed"
    assert _stands(desk)[0] == size + 1
    view: Any = call(op_id)
    assert view.state is ActionState.REVOKED
    assert _stands(desk)[0] == size + 1


def test_who_only_asks_the_witness_is_told_that_the_store_cannot_be_read(empty: Path) -> None:
    desk = _desk(empty, witness=_Knowing())
    witnessing: Witnessing = desk.ledger._witnessing
    with patch.object(SqliteReader, "head", _unreadable), pytest.raises(Unavailable):
        witnessing.look()
