"""A reply that was lost: the same call tells what is on record, and grants nothing a second time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apsw
import pytest

from agent_run_ledger import Misuse, Refused, Tampered, Unavailable, Uncertain
from agent_run_ledger.effects import Event, TargetClass
from tests.contract.effect_kit import ANN, ASKED, DAN, FROM, WINDOW_MS, A, E, Kit, effects

N, V, I, F_MINUS, F = TargetClass.N, TargetClass.V, TargetClass.I, TargetClass.F_MINUS, TargetClass.F  # noqa: E741
OP = b"an op id 16 byte"


def _ready(kit: Kit, event: Event) -> tuple[Any, dict[str, Any]]:
    """An action for which `event` is possible, and the arguments that a caller keeps for the same call again."""
    view = kit.ready(event, kit.reach(FROM[event], F if event is E.CLOSE_UNPREPARED else I))
    more: dict[str, Any] = {"op_id": OP}
    if event is E.EXPIRE:
        kit.ticks.tick(WINDOW_MS)
    if event is E.CLOSE_UNPREPARED:
        more["fence"] = kit.fence(view)
    if event is E.PROPOSE:
        more |= {"key": "another key", "intent": kit.intent(request=b"new")}
    if event in (E.EDIT, E.SUCCESSOR):
        more["intent"] = kit.intent(request=b"new")
    if event is E.APPROVE:
        more["approval"] = kit.approval(view)
    if event in (E.OUTCOME, E.SUCCESS):
        more["evidence"] = kit.receipt(view)
    if event is E.OBSERVE:
        more["evidence"] = kit.seen(view)
    return view, more


def _told(event: Event, answer: Any) -> Any:
    """What an answer tells: but for a grant whether it was granted now."""
    if event is E.CLAIM:
        return answer.view, answer.claim_id
    if event is E.HAND_OUT:
        return answer.view, answer.permit, answer.request
    return answer


@pytest.mark.parametrize("event", ASKED)
def test_the_same_operation_again_tells_what_is_on_record_and_changes_nothing(event: Event) -> None:
    with effects() as kit:
        view, more = _ready(kit, event)
        first = kit.do(event, view, **more)
        before = kit.shape()
        kit.ticks.tick(7)
        second = kit.do(event, view, **more)
        assert _told(event, second) == _told(event, first)
        assert kit.shape() == before
        if event is E.CLAIM:
            assert (first.granted_now, second.granted_now) == (True, False)
        if event is E.HAND_OUT:
            assert (first.handed_now, second.handed_now) == (True, False)


@pytest.mark.parametrize("event", ASKED)
def test_the_op_id_of_another_question_is_refused(event: Event) -> None:
    with effects() as kit:
        other = kit.ledger.propose(ANN, "the other", kit.intent(), op_id=OP)
        view, more = _ready(kit, event)
        error = kit.refused(lambda: kit.do(event, view, **more))
        assert (type(error), error.code) == (Refused, "op_id_used")
        assert OP.hex() in error.message
        assert kit.look(other) == other


def test_an_op_id_is_of_one_question_exactly() -> None:
    with effects() as kit:
        view = kit.reach(A.AVAILABLE)
        grant = kit.do(E.CLAIM, view, op_id=OP)
        for changes in ({"worker": "w2"}, {"request_sha256": b"?" * 32}, {"claim_key": b"k" * 16}):
            assert kit.refused(lambda changes=changes: kit.do(E.CLAIM, view, op_id=OP, **changes)).code == "op_id_used"
        assert kit.refused(lambda: kit.do(E.PREPARE, grant.view, op_id=OP)).code == "op_id_used"
        assert kit.refused(lambda: kit.do(E.HAND_OUT, grant.view, op_id=OP)).code == "op_id_used"
        other = b"another op id 16"
        kit.do(E.REVOKE, grant.view, op_id=other)
        someone = type(ANN)("someone", frozenset(type(next(iter(ANN.roles)))))
        assert kit.refused(lambda: kit.do(E.REVOKE, view, actor=someone, op_id=other)).code == "op_id_used"


def test_the_op_id_of_a_leaf_that_is_about_no_action_is_refused() -> None:
    with effects() as kit:
        view = kit.propose()
        born = next(iter(kit.ledger._store.reader().events(first=0, stop=1)))
        error = kit.refused(lambda: kit.do(E.REVOKE, view, op_id=born.op_id))
        assert error.code == "op_id_used"


def test_an_operation_that_landed_is_told_as_its_action_stands_now() -> None:
    with effects() as kit:
        view = kit.propose(approvals_needed=2)
        approval = kit.approval(view)
        kit.do(E.APPROVE, view, approval=approval, op_id=OP)
        successor = kit.do(E.EDIT, view)
        told = kit.do(E.APPROVE, view, approval=approval, op_id=OP)
        assert (told.action_id, told.state, told.approvals) == (view.action_id, A.SUPERSEDED, ("bob",))
        assert kit.look(successor).state is A.PROPOSED


def test_a_record_that_cannot_be_read_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with effects() as kit:
        view = kit.reach(A.AVAILABLE)
        kit.do(E.CLAIM, view, op_id=OP)

        def broken(_: bytes) -> None:
            raise ValueError("other bytes")

        monkeypatch.setattr("agent_run_ledger.effects.asked.transition_from", broken)
        error = kit.refused(lambda: kit.do(E.CLAIM, view, op_id=OP))
        assert (type(error), error.code) == (Tampered, "corrupt")
        monkeypatch.undo()


# Claim keys


def test_the_same_claim_key_of_the_same_worker_is_the_record_in_every_later_state() -> None:
    with effects() as kit:
        key = b"claim key 16 by."
        view = kit.reach(A.AVAILABLE)
        first = kit.do(E.CLAIM, view, claim_key=key)
        assert first.granted_now
        for event in (None, E.PREPARE, E.HAND_OUT, E.DOUBT, E.SUCCESS):
            if event is not None:
                kit.do(event, first.view)
            before = kit.shape()
            again = kit.do(E.CLAIM, view, claim_key=key)
            assert (again.granted_now, again.claim_id, again.view) == (False, first.claim_id, kit.look(view))
            assert kit.shape() == before


@pytest.mark.parametrize("changes", [{"worker": "w2"}, {"claim_key": b"another key 16 b"}, {"claim_key": None}])
def test_another_worker_or_another_key_is_refused(changes: dict[str, Any]) -> None:
    with effects() as kit:
        key = b"claim key 16 by."
        view = kit.reach(A.AVAILABLE)
        kit.do(E.CLAIM, view, claim_key=key)
        error = kit.refused(lambda: kit.do(E.CLAIM, view, **{"claim_key": key, **changes}))
        assert (type(error), error.code) == (Refused, "claimed")
        assert "a worker has the claim" in error.hint


def test_after_a_restart_the_worker_gets_the_record_and_no_second_grant() -> None:
    with effects() as kit:
        key = b"claim key 16 by."
        view = kit.reach(A.AVAILABLE)
        first = kit.do(E.CLAIM, view, claim_key=key)
        kit.reopen()
        again = kit.do(E.CLAIM, view, claim_key=key)
        assert (again.granted_now, again.claim_id) == (False, first.claim_id)


# Permits


@pytest.mark.parametrize("target", TargetClass)
@pytest.mark.parametrize("op_id", [None, OP])
def test_a_permit_is_told_again_only_where_its_receiver_takes_it_for_one_effect(
    target: TargetClass, op_id: bytes | None
) -> None:
    with effects() as kit:
        view = kit.reach(A.PREPARED, target)
        first = kit.do(E.HAND_OUT, view, op_id=op_id)
        assert first.handed_now
        if target in (N, V):
            error = kit.refused(lambda: kit.do(E.HAND_OUT, view, op_id=op_id))
            assert (type(error), error.code) == (Refused, "handed_out")
            assert "doubt" in error.hint
        else:
            again = kit.do(E.HAND_OUT, view, op_id=op_id)
            assert (again.handed_now, again.permit, again.request) == (False, first.permit, first.request)
            kit.reopen()
            assert kit.refused(lambda: kit.do(E.HAND_OUT, view, op_id=op_id)).code == "restarted"


def test_bytes_that_are_not_the_approved_ones_are_not_handed_out() -> None:
    with effects(kept=False) as kit:
        view = kit.reach(A.PREPARED)
        kit.ledger.close()
        file = apsw.Connection(str(kit.path))
        (guard,) = file.execute("SELECT sql FROM sqlite_schema WHERE name = 'requests_no_update'").fetchall()[0]
        file.execute(f"DROP TRIGGER requests_no_update; UPDATE requests SET body = x'00'; {guard}")
        file.close()
        kit.ledger = kit._open()
        with pytest.raises(Tampered) as refused:
            kit.ledger.request(view.action_id)
        assert refused.value.code == "corrupt"
        with pytest.raises(Tampered) as refused:
            kit.do(E.HAND_OUT, view)
        assert refused.value.code == "corrupt"
        assert not kit.look(view).handed_out


# Lost commit replies


class _Fails:
    """A cursor whose first COMMIT fails: before it acted, or after it landed."""

    def __init__(self, cursor: Any, landed: bool) -> None:
        self._cursor, self._landed, self._armed = cursor, landed, True
        self.connection = cursor.connection

    def execute(self, sql: str, *arguments: Any, **settings: Any) -> Any:
        if sql.startswith("COMMIT") and self._armed:
            self._armed = False
            if self._landed:
                self._cursor.execute(sql)
            raise apsw.exception_for(apsw.SQLITE_IOERR)
        return self._cursor.execute(sql, *arguments, **settings)


def _break_commit(kit: Kit, *, landed: bool) -> None:
    writer = kit.ledger._store._shared.writer()
    writer._cursor = _Fails(writer._open_cursor(), landed)  # type: ignore[assignment]


@pytest.mark.parametrize("event", ASKED)
def test_a_commit_whose_reply_was_lost_is_found_and_told(event: Event) -> None:
    with effects() as kit:
        view, more = _ready(kit, event)
        size = kit.ledger._store.reader().head().size
        _break_commit(kit, landed=True)
        first = kit.do(event, view, **more)
        assert kit.ledger._store.reader().head().size == size + 1
        assert _told(event, kit.do(event, view, **more)) == _told(event, first)
        assert kit.ledger._store.reader().head().size == size + 1


@pytest.mark.parametrize("event", ASKED)
def test_a_commit_that_did_not_land_changed_nothing_and_the_same_call_does_it(event: Event) -> None:
    with effects() as kit:
        view, more = _ready(kit, event)
        before = kit.shape()
        _break_commit(kit, landed=False)
        with pytest.raises(Unavailable):
            kit.do(event, view, **more)
        assert kit.shape() == before
        done = kit.do(event, view, **more)
        assert kit.shape() != before
        if event is E.CLAIM:
            assert done.granted_now
        if event is E.HAND_OUT:
            assert done.handed_now


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("event", ASKED)
def test_where_nobody_can_say_the_same_op_id_says_it_later(
    event: Event, landed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with effects() as kit:
        view, more = _ready(kit, event)
        size = kit.ledger._store.reader().head().size
        writer = kit.ledger._store._shared.writer()
        _break_commit(kit, landed=landed)

        def out_of_reach() -> Any:
            raise apsw.exception_for(apsw.SQLITE_CANTOPEN)

        whole: Callable[[], Any] = writer._open_cursor
        broken = writer._cursor
        calls = iter([lambda: broken, out_of_reach])
        monkeypatch.setattr(writer, "_open_cursor", lambda: next(calls)())
        with pytest.raises(Uncertain) as unknown:
            kit.do(event, view, **more)
        assert unknown.value.code == "commit_unknown"
        monkeypatch.setattr(writer, "_open_cursor", whole)
        kit.do(event, view, **more)
        assert kit.ledger._store.reader().head().size == size + 1
        kit.do(event, view, **more)
        assert kit.ledger._store.reader().head().size == size + 1


def test_a_claim_without_a_key_of_its_own_is_found_by_its_op_id_after_a_restart() -> None:
    with effects() as kit:
        view = kit.reach(A.AVAILABLE)
        first = kit.do(E.CLAIM, view, op_id=OP)
        kit.reopen()
        again = kit.do(E.CLAIM, view, op_id=OP)
        assert (again.granted_now, again.claim_id) == (False, first.claim_id)
        assert kit.refused(lambda: kit.do(E.CLAIM, view, worker="w2", op_id=OP)).code == "op_id_used"
        assert kit.refused(lambda: kit.do(E.CLAIM, view, op_id=b"short")).exit_code == Misuse.exit_code


def test_a_second_approver_has_an_operation_of_her_own() -> None:
    with effects() as kit:
        view = kit.propose(approvals_needed=2)
        kit.do(E.APPROVE, view, op_id=OP)
        error = kit.refused(lambda: kit.do(E.APPROVE, view, actor=DAN, op_id=OP))
        assert error.code == "op_id_used"
        assert kit.do(E.APPROVE, view, actor=DAN).state is A.AVAILABLE
