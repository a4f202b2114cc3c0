"""Who asks the witness when: between others who write and ask meanwhile, and where it fails to answer."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import pytest

from agent_run_ledger import EffectLedger, LedgerError, Pending, Unavailable
from agent_run_ledger.effects import DoubtBy, Event, Heard, LedgerState, Seen
from agent_run_ledger.effects.witnessing import TRIES
from tests.contract.effect_kit import CAT, EXE, OPS, A, ActionView, E, FakeWitness, Kit, effects
from tests.contract.engine_kit import each_engine

pytestmark = each_engine


class Hooked(FakeWitness):
    """A witness during whose answer something else happens, once."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], object] | None = None

    def extend(self, size: int, root: bytes) -> Heard:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            beside = threading.Thread(target=meanwhile)
            beside.start()
            beside.join()
        return super().extend(size, root)


def _beside(kit: Kit, witness: FakeWitness) -> EffectLedger:
    """The same store, opened once more."""
    return EffectLedger(kit.path, witness=witness, time=kit.ticks, settings=kit.settings)


def test_a_preparation_that_lands_while_the_witness_is_asked_is_not_one_that_it_has_seen() -> None:
    witness = Hooked()
    with effects(witness=witness) as kit:
        view = kit.reach(A.CLAIMED)
        witness.meanwhile = lambda: kit.do(E.PREPARE, view)
        with_claim = kit.ledger._store.reader().head().size
        with pytest.raises(Pending) as early:
            kit.do(E.HAND_OUT, view)
        assert early.value.code == "not_cosigned"
        assert witness.size == with_claim, "all but the preparation"
        assert kit.look(view).state is A.PREPARED
        assert not kit.look(view).handed_out
        assert kit.do(E.HAND_OUT, view).handed_now
        assert witness.size == with_claim + 1


def test_a_close_that_lands_while_the_witness_is_asked_lets_no_successor_follow() -> None:
    witness, nobody = Hooked(), FakeWitness()
    with effects(witness=witness) as kit, _beside(kit, nobody) as other:
        view = kit.reach(A.CLAIMED)
        kit.ledger.doubt(OPS, view.action_id, by=DoubtBy.OPERATOR)
        told: list[str] = []

        def close() -> None:
            nobody.silent()
            try:
                other.close_unprepared(CAT, view.action_id)
            except Pending as error:
                told.append(error.code)

        witness.meanwhile = close
        with pytest.raises(Pending) as early:
            kit.do(E.SUCCESSOR, view)
        assert told == ["not_witnessed"]
        assert early.value.code == "close_not_cosigned"
        assert kit.look(view).state is A.NOT_EXECUTED
        assert kit.do(E.SUCCESSOR, view).state is A.PROPOSED


def test_who_asks_for_a_successor_shows_the_close_to_the_witness() -> None:
    witness = FakeWitness()
    with effects(witness=witness) as kit:
        view = kit.ready(E.NOT_EXECUTED, kit.reach(A.UNRESOLVED))
        witness.says = [Seen.SILENT]
        with pytest.raises(Pending):
            kit.do(E.NOT_EXECUTED, view)
        assert kit.do(E.SUCCESSOR, view).state is A.PROPOSED


# -- others show their heads too ---------------------------------------------------------------------------------------


class Jittering(FakeWitness):
    """An honest witness that many ask; each question takes its own time on the way there."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def extend(self, size: int, root: bytes) -> Heard:
        time.sleep(random.random() / 100)
        with self._lock:
            return super().extend(size, root)


def _hand_all_out(ledger: EffectLedger, views: list[ActionView], failed: list[LedgerError]) -> None:
    """Claim, prepare and hand out; what only waits is asked again."""
    for view in views:
        try:
            own: Any = {"worker": "w"}
            own["claim_id"] = ledger.claim(EXE, view.action_id, request_sha256=view.request_sha256, worker="w").claim_id
            while not ledger.get(view.action_id).handed_out:
                try:
                    ledger.prepare(EXE, view.action_id, **own)
                    ledger.hand_out(EXE, view.action_id, **own)
                except (Pending, Unavailable):
                    continue
        except LedgerError as error:
            failed.append(error)


@pytest.mark.parametrize("openings", [1, 2])
def test_threads_that_ask_an_honest_witness_at_the_same_time_are_never_called_old(openings: int) -> None:
    witness = Jittering()
    with effects(witness=witness) as kit:
        views = [kit.reach(A.AVAILABLE, key=f"k{number}") for number in range(24)]
        ledgers = [kit.ledger, *(_beside(kit, witness) for _ in range(openings - 1))]
        witness.inside = lambda: False  # that asks of one thread only
        failed: list[LedgerError] = []
        threads = [
            threading.Thread(target=_hand_all_out, args=(ledgers[one % openings], views[one::4], failed))
            for one in range(4)
        ]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert failed == []
        assert all(kit.look(view).handed_out for view in views)
        assert [one._witnessing.look() for one in ledgers] == [LedgerState.OPEN] * openings
        for other in ledgers[1:]:
            other.close()


def test_a_head_that_grew_while_the_witness_was_asked_is_shown_again() -> None:
    witness = Hooked()
    with effects(witness=witness) as kit, _beside(kit, witness) as other:

        def show_more() -> None:
            kit.propose()
            assert other._witnessing.look() is LedgerState.OPEN

        witness.meanwhile = show_more
        asked = witness.asked
        assert kit.ledger._witnessing.look() is LedgerState.OPEN
        assert witness.asked == asked + 3, "the other one's, one too late, one again"
        assert witness.size == kit.ledger._store.reader().head().size


def test_a_head_that_grew_and_is_still_smaller_than_the_witness_says_is_an_older_copy() -> None:
    witness = Hooked()
    with effects(witness=witness) as kit:
        kit.propose()
        witness.size = kit.ledger._store.reader().head().size + 2
        witness.meanwhile = lambda: kit.propose(key="one more")
        asked = witness.asked
        assert kit.ledger._witnessing.look() is LedgerState.RECOVERY
        assert witness.asked == asked + 1


def test_a_witness_that_is_shown_more_each_time_has_not_answered_and_proves_no_loss() -> None:
    class Always(FakeWitness):
        always = False

        def extend(self, size: int, root: bytes) -> Heard:
            if not self.always:
                return super().extend(size, root)
            self.asked += 1
            kit.propose(key=f"of somebody else {self.asked}")
            return Heard(Seen.AHEAD, size + 1)

    witness = Always()
    with effects(witness=witness) as kit:
        view = kit.reach(A.CLAIMED)
        witness.always, witness.asked = True, 0
        assert kit.ledger._witnessing.look() is LedgerState.HELD
        assert witness.asked == TRIES
        witness.always = False
        assert kit.do(E.PREPARE, view).state is A.PREPARED


class _Counting:
    """A lock that lets everybody know who has come to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.came = threading.Semaphore(0)

    def __enter__(self) -> None:
        self.came.release()
        self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lock.release()


def test_one_answer_is_that_of_all_who_came_before_the_question() -> None:
    witness = Hooked()
    with effects(witness=witness) as kit:
        witnessing, lock, said = kit.ledger._witnessing, _Counting(), []
        witnessing._asking = lock  # type: ignore[assignment]
        others = [threading.Thread(target=lambda: said.append(witnessing.look())) for _ in range(5)]

        def come() -> None:
            assert lock.came.acquire(timeout=30)  # who asks
            for one in others:
                one.start()
                assert lock.came.acquire(timeout=60)
            kit.propose()

        witness.meanwhile = come
        asked = witness.asked
        assert witnessing.look() is LedgerState.OPEN
        for one in others:
            one.join(timeout=60)
        assert said == [LedgerState.OPEN] * 5
        assert witness.asked == asked + 2, "the question under way, and one for all others"
        assert witness.size == kit.ledger._store.reader().head().size


@pytest.mark.parametrize("event", [E.OUTCOME, E.SUCCESS])
def test_the_success_of_what_was_revoked_is_told_while_the_witness_is_silent(event: Event) -> None:
    witness = FakeWitness()
    with effects(witness=witness) as kit:
        view = kit.reach(A.PREPARED if event is E.OUTCOME else A.UNRESOLVED)
        witness.silent()
        with pytest.raises(Pending):
            kit.do(E.REVOKE, view)
        told = kit.do(event, view)
        assert (told.state, told.revoked) == (A.SUCCEEDED, True)
        assert kit.ledger.status().state is LedgerState.HELD
        with pytest.raises(Pending) as revoked:
            kit.do(E.REVOKE, view)
        assert revoked.value.code == "not_witnessed"


# -- it fails ---------------------------------------------------------------------------------------------------------


def _raises(error: Exception) -> Any:
    raise error


FAILURES: dict[str, Callable[[], Any]] = {
    "too late": lambda: _raises(TimeoutError("slow")),
    "its own mistake": lambda: _raises(KeyError("x")),
    "the store's error": lambda: _raises(Unavailable("no", code="store_busy")),
    "nothing": lambda: None,
    "a word": lambda: "current",
    "no answer but its word": lambda: Seen.CURRENT,
    "a word in an answer": lambda: Heard("current"),  # type: ignore[arg-type]
    "a size that is none": lambda: Heard(Seen.AHEAD, "9"),  # type: ignore[arg-type]
}


class Failing(FakeWitness):
    """A witness that does something else than to answer."""

    instead: Callable[[], Any] | None = None

    def extend(self, size: int, root: bytes) -> Heard:
        if self.instead is None:
            return super().extend(size, root)
        self.asked += 1
        answer: Heard = self.instead()
        return answer


@pytest.mark.parametrize("failure", FAILURES)
def test_a_witness_that_fails_is_silent_and_the_log_says_so_once(
    failure: str, caplog: pytest.LogCaptureFixture
) -> None:
    witness = Failing()
    with caplog.at_level(logging.WARNING, "agent_run_ledger"), effects(witness=witness) as kit:
        prepared, other = kit.reach(A.PREPARED, key="k1"), kit.reach(A.PREPARED, key="k2")
        witness.instead, op_id = FAILURES[failure], kit.id()[:16]
        with pytest.raises(Pending) as told:
            kit.do(E.REVOKE, prepared, op_id=op_id)
        assert told.value.code == "not_witnessed"
        error = kit.refused(lambda: kit.do(E.HAND_OUT, other))
        assert (type(error), error.code) == (Unavailable, "ledger_held")
        assert witness.asked > 2
        assert [one.message.partition(":")[0] for one in caplog.records] == [
            "the witness fails, which is taken for silence"
        ]
        with _beside(kit, witness) as opened:
            assert opened.status().state is LedgerState.HELD
        witness.instead = None
        assert kit.do(E.REVOKE, prepared, op_id=op_id).revoked
        assert kit.ledger.status().state is LedgerState.OPEN
