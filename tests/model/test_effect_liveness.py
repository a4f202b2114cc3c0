"""Work that is allowed also completes: a thousand random histories with faults, and what becomes of each."""

from __future__ import annotations

from collections import Counter
from random import Random

from agent_run_ledger.effects import ActionView, DrainKind, Found, TargetClass
from tests.contract.effect_kit import BOUND_MS, PERMIT_MS, WINDOW_MS, A, E, Kit, effects

HISTORIES = 1_000
FENCES = (TargetClass.F, TargetClass.F_MINUS)
STAGES = ("proposed", "available", "claimed", "prepared", "handed out", "delivered")


class History:
    """One action from its proposal until it is closed. `executed` is what really happened at the receiver."""

    def __init__(self, kit: Kit, random: Random, key: str) -> None:
        self.kit, self.random, self.key = kit, random, key
        self.target = random.choice(list(TargetClass))
        self.observable = random.random() < 0.8
        self.executed = False
        self.lost_outcome = False
        self.revoked = False

    def live(self) -> ActionView:
        """Go as far as the faults let it, then settle it."""
        view = self.kit.propose(self.target, self.key, checks_expiry=self.target is TargetClass.I)
        stage = self.random.choice(STAGES)
        for name, event in zip(STAGES[1:], (E.APPROVE, E.CLAIM, E.PREPARE, E.HAND_OUT), strict=False):
            if self.random.random() < 0.04:
                self.kit.do(E.REVOKE, view)
                self.revoked = True
                return self.settle(self.kit.look(view))
            if STAGES.index(stage) >= STAGES.index(name):
                view = self.kit.move(event, view)
        if stage == "delivered":
            self.executed = self.random.random() < 0.7
            self.lost_outcome = self.target is TargetClass.F_MINUS and self.random.random() < 0.3
            if self.executed and not self.lost_outcome and self.random.random() < 0.5:
                return self.kit.move(E.OUTCOME, view)
        if self.random.random() < 0.02:
            self.kit.reopen()  # the process dies: nothing that it prepared is handed out any more
        return self.settle(view)

    def settle(self, view: ActionView) -> ActionView:
        """Do what the state lets people and their programs do, until it is closed."""
        for _ in range(10):
            if view.closed:
                return view
            view = self._step(view)
        raise AssertionError(f"{self.key} never ends: {view}")

    def _step(self, view: ActionView) -> ActionView:
        kit = self.kit
        if view.state in (A.PROPOSED, A.AVAILABLE):
            kit.ticks.tick(WINDOW_MS)
            return kit.move(E.EXPIRE, view)
        if view.state is A.CLAIMED and self.target in FENCES and self.random.random() < 0.5:
            return kit.move(E.CLOSE_UNPREPARED, view, fence=kit.fence(view))
        if view.state in (A.CLAIMED, A.PREPARED):
            kit.ticks.tick((WINDOW_MS if view.state is A.CLAIMED else PERMIT_MS) + BOUND_MS)
            return kit.move(E.DOUBT, view, by="expiry")
        if self.target in FENCES and not self.lost_outcome:
            found = Found.EXECUTED if self.executed else Found.NOTHING
            answer = kit.fence(view, found, generation=view.generation if self.executed else None)
            if self.executed:
                return kit.move(E.SUCCESS, view, evidence=answer)
            return kit.move(E.NOT_EXECUTED, view, fence=answer)
        if not self.observable:
            return kit.move(E.WRITE_OFF, view)
        if self.executed:
            return kit.move(E.SUCCESS, view, evidence=kit.seen(view, Found.EXECUTED))
        return self._drained(view)

    def _drained(self, view: ActionView) -> ActionView:
        """Drain, look and decide; F-minus, which lost its outcome, is asked too."""
        kit = self.kit
        timed = self.target in (TargetClass.V, TargetClass.I) and self.random.random() < 0.5
        kit.ticks.tick(WINDOW_MS)
        kit.do(E.OBSERVE, view, evidence=kit.drain(view, DrainKind.EXPIRY if timed else DrainKind.PATH_DEAD))
        kit.do(E.OBSERVE, view)
        fence = {"fence": kit.fence(view, Found.UNKNOWN)} if self.target is TargetClass.F_MINUS else {}
        return kit.move(E.NOT_EXECUTED, view, **fence)


def test_of_a_thousand_histories_with_faults_every_action_reaches_a_closed_state() -> None:
    random, ends, allowed, completed = Random(7), Counter[str](), 0, 0
    with effects() as kit:
        for number in range(HISTORIES):
            history = History(kit, random, f"k{number}")
            view = history.live()
            ends[view.state] += 1
            assert view.closed
            assert (view.state is A.SUCCEEDED) <= history.executed, "a success that did not happen"
            assert not (view.state is A.NOT_EXECUTED and history.executed), "an effect that nobody knows of"
            if view.state in (A.NOT_EXECUTED, A.EXPIRED) and not history.revoked:
                allowed += 1
                successor = kit.do(E.SUCCESSOR, view, intent=kit.intent(history.target, request=b"again"))
                for event in (E.APPROVE, E.CLAIM, E.PREPARE, E.HAND_OUT, E.OUTCOME):
                    successor = kit.move(event, successor)
                completed += successor.state is A.SUCCEEDED
                assert (successor.generation or 0) > (view.generation or 0)
        assert kit.ledger.inbox() == []
    print(f"{HISTORIES} histories: {dict(sorted(ends.items()))}; {completed} of {allowed} successors completed")
    assert sum(ends.values()) == HISTORIES
    assert set(ends) == {A.SUCCEEDED, A.NOT_EXECUTED, A.EXPIRED, A.REVOKED, A.WRITTEN_OFF}
    assert completed == allowed > HISTORIES // 4
