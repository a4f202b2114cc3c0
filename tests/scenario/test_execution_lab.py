"""The twenty-eight behaviours of the execution lab that the second seed describes, with processes that really die."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger.effects.views import UNWITNESSED
from agent_run_ledger.errors import LedgerError, Misuse, Pending, Refused, Tampered, Unavailable
from agent_run_ledger.kernel.effects import ActionState, Event
from agent_run_ledger.kernel.effects.commands import DoubtBy
from agent_run_ledger.kernel.effects.evidence import Found, Observation, Receipt
from agent_run_ledger.ledger.effect_ledger import EffectLedger
from agent_run_ledger.ledger.local_trust import UNSIGNED
from tests.scenario.effect_room import (
    APPROVER,
    BEGIN,
    END,
    EXECUTOR,
    INSIDE,
    KEY,
    LAST,
    OPERATOR,
    REQUEST,
    REQUEST_SHA256,
    REQUESTER,
    REVOKER,
    Room,
    WorkerProcess,
    approval_of,
    executor,
    intent,
)

pytestmark = pytest.mark.fault

A = ActionState


@pytest.fixture
def room(tmp_path: Path) -> Room:
    """An approved action, within its window."""
    return Room(tmp_path)


def _refused(code: str, kind: type[LedgerError] = Refused) -> Any:
    return pytest.raises(kind, check=lambda error: error.code == code)


def _unchanged(room: Room, before: tuple[int, Any]) -> None:
    """Nothing was written: no leaf, no row."""
    assert room.standing() == before


# -- who gets the claim ------------------------------------------------------------------------------------------------


def test_of_eight_competing_processes_one_gets_the_claim(room: Room) -> None:
    with ExitStack() as stack:
        workers = [stack.enter_context(room.worker(f"w{number}")) for number in range(8)]
        for worker in workers:
            worker.say(do="claim")
        answers = [worker.answer() for worker in workers]
    assert sorted(answer["code"] for answer in answers) == ["", *["claimed"] * 7]
    (winner,) = [number for number, answer in enumerate(answers) if answer["code"] == ""]
    leaves, row = room.standing()
    assert (row.state, row.worker, row.generation, leaves) == (A.CLAIMED, f"w{winner}", 1, 5)


def test_the_same_worker_again_gets_no_second_grant(room: Room) -> None:
    with room.open() as ledger:
        first = room.claim(ledger, claim_key=b"one key, 16 byte")
        before = room.standing()
        again = room.claim(ledger, claim_key=b"one key, 16 byte")
        assert (first.granted_now, again.granted_now, again.claim_id) == (True, False, first.claim_id)
        with _refused("claimed"):
            room.claim(ledger)
    _unchanged(room, before)


def test_a_claim_whose_reply_was_lost_is_found_and_not_granted_again(room: Room) -> None:
    with room.worker("w1") as worker:
        worker.die("claim", at="commit.after")
    before = room.standing()
    assert (before[1].state, before[1].worker) == (A.CLAIMED, "w1")
    with room.worker("w1") as after_the_crash, room.worker("w2") as other:
        assert after_the_crash.do("claim")["code"] == "claimed"
        assert other.do("claim")["code"] == "claimed"
    _unchanged(room, before)


def test_a_claim_with_another_digest_is_refused(room: Room) -> None:
    before = room.standing()
    with room.open() as ledger, _refused("digest_mismatch"):
        room.claim(ledger, request_sha256=bytes(32))
    _unchanged(room, before)


def test_a_claim_by_another_executor_is_refused(room: Room) -> None:
    before = room.standing()
    with room.open() as ledger, _refused("wrong_executor"):
        room.claim(ledger, actor=executor("somebody else"))
    _unchanged(room, before)


# -- processes that die ------------------------------------------------------------------------------------------------


def test_an_exit_before_the_claim_commits_leaves_it_claimable(room: Room) -> None:
    before = room.standing()
    with room.worker("w1") as worker:
        worker.die("claim", at="commit.before")
    _unchanged(room, before)
    with room.worker("w2") as other:
        assert other.do("claim")["granted"] is True
    assert room.standing()[1].worker == "w2"


def test_an_exit_between_claim_and_preparation_keeps_the_claim(room: Room) -> None:
    with room.worker("w1") as worker:
        worker.do("claim")
        worker.die("prepare", at="commit.before")
    before = room.standing()
    assert (before[1].state, before[1].worker) == (A.CLAIMED, "w1")
    with room.worker("w2") as other:
        assert other.do("claim")["code"] == "claimed"
    _unchanged(room, before)


@pytest.mark.parametrize("at", ["commit.after", "effect.after"])
def test_an_exit_after_preparation_leaves_it_prepared_and_refuses_a_replacement(room: Room, at: str) -> None:
    with room.worker("w1") as worker:
        worker.do("claim")
        worker.die("prepare", at=at)
    before = room.standing()
    assert (before[1].state, before[1].worker, before[1].handed_out) == (A.PREPARED, "w1", False)
    with room.worker("w2") as replacement:
        assert replacement.do("claim")["code"] == "prepared"
        assert replacement.do("prepare")["code"] == "prepared"
    _unchanged(room, before)


def test_no_time_gives_a_dead_workers_claim_back(room: Room) -> None:
    with room.worker("w1") as worker:
        worker.do("claim")
    room.clock.put(END * 1_000)
    before = room.standing()
    with room.worker("w2") as other:
        assert other.do("claim")["code"] == "claimed"
    with room.open() as ledger, _refused("claimed"):
        ledger.expire(OPERATOR, room.action_id)
    _unchanged(room, before)


# -- preparation -------------------------------------------------------------------------------------------------------


def test_a_repeated_preparation_is_the_record_and_prepares_nothing_again(room: Room) -> None:
    with room.open() as ledger:
        grant = room.claim(ledger)
        first = room.prepare(ledger, grant)
        before = room.standing()
        room.clock.put(LAST)
        assert room.prepare(ledger, grant) == first
    _unchanged(room, before)


def test_only_the_claim_and_the_worker_that_hold_it_can_prepare(room: Room) -> None:
    with room.open() as ledger:
        grant = room.claim(ledger)
        before = room.standing()
        with _refused("other_worker"):
            room.prepare(ledger, grant, worker="w2")
        with _refused("other_claim"):
            ledger.prepare(executor(), room.action_id, claim_id=b"another claim 16", worker="w1")
    _unchanged(room, before)


def test_what_was_never_claimed_cannot_be_prepared(room: Room) -> None:
    before = room.standing()
    with room.open() as ledger, _refused("available"):
        ledger.prepare(executor(), room.action_id, claim_id=b"no claim, really", worker="w1")
    _unchanged(room, before)


# -- the window --------------------------------------------------------------------------------------------------------


def test_a_claim_before_the_window_waits_and_the_first_tick_is_within(room: Room) -> None:
    room.clock.put(BEGIN - 1)
    before = room.standing()
    with room.open() as ledger:
        with _refused("not_yet_valid", Pending):
            room.claim(ledger)
        _unchanged(room, before)
        room.clock.put(BEGIN)
        assert room.claim(ledger).granted_now


def test_expired_at_the_claim_it_is_refused_and_the_last_tick_is_within(room: Room) -> None:
    room.clock.put(END)
    before = room.standing()
    with room.open() as ledger, _refused("expired"):
        room.claim(ledger)
    _unchanged(room, before)
    room.clock.put(LAST)
    with room.open() as ledger:
        assert room.claim(ledger).granted_now


def test_expired_at_the_preparation_it_is_refused_and_stays_claimed(room: Room) -> None:
    with room.open() as ledger:
        grant = room.claim(ledger)
        before = room.standing()
        room.clock.put(END)
        with _refused("expired"):
            room.prepare(ledger, grant)
        _unchanged(room, before)
    assert room.state is A.CLAIMED


# -- waiting for the lock ----------------------------------------------------------------------------------------------


def _ask_while_held(room: Room, worker: WorkerProcess, deed: str, *, tick: int) -> dict[str, Any]:
    """Let a worker ask while another process stands in a transaction, in which it becomes `tick`."""
    with room.worker("holder") as holder:
        holder.say(do="hold")
        assert holder.hear() == {"holding": True}
        worker.say(do=deed)
        assert worker.hear() == {"asking": True}
        holder.say(tick=tick)
        answer = worker.answer()
        assert holder.answer()["held"] is True
    # Whatever the processes' speeds: the clock was asked after the lock was had, and once.
    asked = [point for point in answer["trace"] if point in ("commit.begin", "clock", "commit.after")]
    assert asked[:2] == ["commit.begin", "clock"]
    assert asked[2:] in ([], ["commit.after", "clock"])  # the view that is told reads it once more
    return answer


def test_expired_while_waiting_for_the_lock_it_is_refused(room: Room) -> None:
    room.clock.put(LAST)
    before = room.standing()
    with room.worker("w1") as worker:
        assert _ask_while_held(room, worker, "claim", tick=END)["code"] == "expired"
    _unchanged(room, before)


def test_a_wait_for_the_lock_extends_no_validity(room: Room) -> None:
    with room.worker("w1") as worker:
        worker.do("claim")
        assert _ask_while_held(room, worker, "prepare", tick=LAST)["prepared"] is True
    row = room.standing()[1]
    assert (row.claimed_ms, row.prepared_ms, row.permit_expires_ms) == (INSIDE, LAST, END)
    room.clock.put(END)
    with room.worker("w2") as other:
        assert other.do("claim")["code"] == "prepared"


def test_a_busy_ledger_grants_nothing_and_forbids_nothing(room: Room) -> None:
    before = room.standing()
    with room.worker("holder") as holder, room.worker("w1", wait_s=0.2) as worker:
        holder.say(do="hold")
        assert holder.hear() == {"holding": True}
        answer = worker.do("claim")
        assert (answer["error"], answer["code"]) == ("Unavailable", "store_busy")
        assert "clock" not in answer["trace"]
        holder.say(tick=INSIDE)
        holder.answer()
        _unchanged(room, before)
        assert worker.do("claim")["granted"] is True


# -- revocation --------------------------------------------------------------------------------------------------------


def test_revoked_before_the_claim_it_is_refused(room: Room) -> None:
    with room.open() as ledger:
        ledger.revoke(REVOKER, room.action_id)
        before = room.standing()
        with _refused("revoked"):
            room.claim(ledger)
    _unchanged(room, before)
    assert before[1].state is A.REVOKED


def test_revoked_before_the_preparation_it_is_refused_and_stays_claimed(room: Room) -> None:
    with room.open() as ledger:
        grant = room.claim(ledger)
        ledger.revoke(REVOKER, room.action_id)
        before = room.standing()
        with _refused("revoked"):
            room.prepare(ledger, grant)
    _unchanged(room, before)
    assert (before[1].state, before[1].revoked) == (A.CLAIMED, True)


def test_a_revocation_after_the_preparation_erases_and_cancels_nothing(room: Room) -> None:
    with room.open() as ledger:
        grant = room.claim(ledger)
        prepared = room.prepare(ledger, grant)
        revoked = ledger.revoke(REVOKER, room.action_id)
        assert (revoked.state, revoked.revoked, revoked.prepared_ms) == (A.PREPARED, True, prepared.prepared_ms)
        with _refused("revoked"):
            ledger.hand_out(executor(), room.action_id, claim_id=grant.claim_id, worker="w1")
        receipt = Receipt(
            evidence_id=b"a receipt, sixteen", action_key=KEY, receiver=revoked.audience, generation=1,
            request_sha256=REQUEST_SHA256,
        )  # fmt: skip
        assert ledger.outcome(executor(), room.action_id, receipt).state is A.SUCCEEDED


# -- storage -----------------------------------------------------------------------------------------------------------


def test_a_missing_database_is_not_an_empty_one_and_is_not_made(room: Room) -> None:
    with room.open() as ledger:
        room.claim(ledger)
    room.db.rename(room.folder / "elsewhere.db")
    with _refused("no_store"):
        room.open()
    assert not room.db.exists()
    room.db.touch()
    with pytest.raises((Refused, Tampered)):
        room.open()
    assert room.db.stat().st_size == 0


@pytest.mark.parametrize("table", ["events", "action_records"])
@pytest.mark.parametrize("deed", ["claim", "prepare"])
def test_an_event_that_cannot_be_inserted_rolls_the_state_back(room: Room, deed: str, table: str) -> None:
    with room.worker("w1") as worker:
        if deed == "prepare":
            worker.do("claim")
        before = room.standing()
        room.behind_its_back(
            f"CREATE TRIGGER none_more BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'not to be written'); END"
        )
        assert worker.do(deed)["code"] != ""
        room.behind_its_back("DROP TRIGGER none_more")
        _unchanged(room, before)
        assert worker.do(deed)["code"] == ""


# -- approval and doubt ------------------------------------------------------------------------------------------------


def test_an_unapproved_request_stays_unapproved(tmp_path: Path) -> None:
    room = Room(tmp_path, approved=False)
    before = room.standing()
    with room.worker("w1") as worker:
        assert worker.do("claim")["code"] == "proposed"
    with room.open() as ledger:
        again = ledger.propose(REQUESTER, KEY, intent())
        with _refused("proposed", Pending):
            room.claim(ledger)
        assert (again.action_id, again.authorized) == (room.action_id, False)
        assert again.status == "proposed (authorization: not_established, 0 of 1)"
        assert ledger.request(room.action_id) == REQUEST
        with _refused("wrong_role", Misuse):
            ledger.approve(executor("bob"), room.action_id, approval_of(ledger, room.action_id))
    _unchanged(room, before)


def test_neither_an_action_nor_an_approval_is_registered_twice(room: Room) -> None:
    before = room.standing()
    with room.open() as ledger:
        with _refused("key_taken"):
            ledger.propose(REQUESTER, KEY, intent(b"other bytes"))
        with _refused("available"):
            ledger.approve(APPROVER, room.action_id, approval_of(ledger, room.action_id))
        _unchanged(room, before)
        other = ledger.propose(REQUESTER, "ticket-8/close", intent(b"other bytes")).action_id
        with _refused("approval_used"):
            ledger.approve(APPROVER, other, approval_of(ledger, other))
        assert ledger.get(other).state is A.PROPOSED


def test_unresolved_work_is_never_claimable_again(room: Room) -> None:
    with room.open() as ledger:
        grant = room.claim(ledger, claim_key=b"one key, 16 byte")
        room.prepare(ledger, grant)
        ledger.doubt(OPERATOR, room.action_id, by=DoubtBy.OPERATOR)
    before = room.standing()
    for tick in (INSIDE, LAST, END, 1_000):
        room.clock.put(tick)
        with room.worker("w1") as same, room.worker("w2") as other, room.open() as ledger:
            assert same.do("claim")["code"] == "unresolved"
            assert same.do("claim", claim_key="one key, 16 byte")["granted"] is False
            assert other.do("claim")["code"] == "unresolved"
            with _refused("unresolved"):
                ledger.hand_out(executor(), room.action_id, claim_id=grant.claim_id, worker="w1")
    _unchanged(room, before)
    assert before[1].state is A.UNRESOLVED


def _everything_but_evidence(ledger: EffectLedger, action_id: bytes) -> list[Any]:
    """What anybody may try in order to have an action again, without evidence of what became of it."""
    nothing = Observation(
        evidence_id=b"an observation..", action_key=KEY, epoch=0, observer=EXECUTOR, found=Found.NOTHING, after=None
    )
    return [
        lambda: ledger.claim(executor(), action_id, worker="w2", request_sha256=REQUEST_SHA256),
        lambda: ledger.propose(REQUESTER, KEY, intent(b"other bytes")),
        lambda: ledger.edit(REQUESTER, action_id, intent(b"other bytes")),
        lambda: ledger.reject(APPROVER, action_id),
        lambda: ledger.approve(APPROVER, action_id, approval_of(ledger, action_id, b"another approval")),
        lambda: ledger.successor(REQUESTER, action_id, intent(b"other bytes")),
        lambda: ledger.expire(OPERATOR, action_id),
        lambda: ledger.outcome(executor(), action_id, nothing),
        lambda: ledger.reconcile_not_executed(executor(), action_id),
    ]


@pytest.mark.parametrize("state", [A.CLAIMED, A.PREPARED, A.UNRESOLVED])
def test_no_call_leads_from_a_claim_back_to_available(room: Room, state: ActionState) -> None:
    with room.open() as ledger:
        grant = room.claim(ledger)
        if state is not A.CLAIMED:
            room.prepare(ledger, grant)
        if state is A.UNRESOLVED:
            ledger.doubt(executor(), room.action_id, by=DoubtBy.WORKER, worker="w1")
        before = room.standing()
        for attempt in _everything_but_evidence(ledger, room.action_id):
            with pytest.raises((Refused, Pending, Misuse, Unavailable)):
                attempt()
        _unchanged(room, before)
        assert ledger.propose(REQUESTER, KEY, intent()).state is state
        assert ledger.revoke(REVOKER, room.action_id).state is state
        assert Event.CLAIM not in ledger.get(room.action_id).next


# -- what a database cannot know ---------------------------------------------------------------------------------------


def test_limit_an_older_copy_that_is_put_back_accepts_the_claim_again(room: Room) -> None:
    older, newer = room.folder / "older.db", room.folder / "newer.db"
    older.write_bytes(room.db.read_bytes())  # nobody has it open: with this journal one file is all of it
    with room.worker("w1") as first:
        assert first.do("claim")["granted"] is True
    claimed = room.standing()
    room.db.rename(newer)
    older.rename(room.db)
    with room.worker("w2") as second:
        assert second.do("claim")["granted"] is True
    again = room.standing()
    assert (claimed[0], claimed[1].worker, claimed[1].generation) == (5, "w1", 1)
    assert (again[0], again[1].worker, again[1].generation) == (5, "w2", 1)
    with room.open() as ledger:
        assert ledger.status().not_protected == (UNWITNESSED, UNSIGNED)
