"""The effect ledger against a small reference: random operations on two keys, restarts and steps of the clock."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agent_run_ledger import LedgerError, Misuse, Tampered, Uncertain
from agent_run_ledger.effects import ActionView, Event, TargetClass
from tests.contract.effect_kit import ANN, BOB, BOUND_MS, DAN, E, effects
from tests.model.effect_reference import REPLACEABLE, Reference

KEYS = st.sampled_from(["k1", "k2"])
WORKERS = st.sampled_from(["w1", "w2"])
BODIES = st.sampled_from([b"one", b"two"])
TARGETS = st.sampled_from([TargetClass.N, TargetClass.I])
WINDOW_MS, PERMIT_MS = 9_000, 1_000
LATER = st.sampled_from(
    ["doubt", "drain", "look", "not_executed", "success", "write_off", "revoke", "restart", "hand_out"]
)
ENDS = st.sampled_from(["not_executed", "write_off", "success"])
CLAIM_KEYS = {"w1": b"claim key of w1.", "w2": b"claim key of w2."}


class EffectMachine(RuleBasedStateMachine):
    """Each step is asked of both; both must say the same, and stand where the other stands."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.kit = self.stack.enter_context(effects())
        self.reference = Reference(self.kit.now(), bound_ms=BOUND_MS)
        self.drawn = 0

    def _both(self, event: Event, key: str, said: str, **more: Any) -> None:
        members = self.kit.ledger.inspect(key)
        if not members:
            assert said == "no"
            return
        size = self._size()
        answer, refused = _asked(lambda: self.kit.do(event, members[-1], **more))
        assert bool(refused) == (said == "no"), f"{event} of {key}: {refused or 'accepted'}"
        assert self._size() == size + (said == "")
        if refused:
            return
        if event is E.CLAIM:
            assert answer.granted_now == (said == "")
        if event is E.HAND_OUT:
            assert answer.handed_now == (said == "")

    def _size(self) -> int:
        return self.kit.ledger._store.reader().head().size

    def _newest(self, key: str) -> ActionView | None:
        members = self.kit.ledger.inspect(key)
        return members[-1] if members else None

    @initialize(receivers=st.tuples(TARGETS, TARGETS))
    def begin(self, receivers: tuple[TargetClass, TargetClass]) -> None:
        for key, receiver in zip(("k1", "k2"), receivers, strict=True):
            self.propose(key, b"one", 1, receiver)

    @rule(key=KEYS, body=BODIES, needs=st.sampled_from([1, 2]), receiver=TARGETS)
    def propose(self, key: str, body: bytes, needs: int, receiver: TargetClass) -> None:
        ends = self.kit.now() + WINDOW_MS
        said = self.reference.propose(key, body, ends, needs, receiver.value)
        intent = self.kit.intent(receiver, request=body, approvals_needed=needs, dispatch_before_ms=ends)
        size = self._size()
        _, refused = _asked(lambda: self.kit.ledger.propose(ANN, key, intent))
        assert bool(refused) == (said == "no"), refused
        assert self._size() == size + (said == "")

    @rule(key=KEYS, receiver=TARGETS, after=st.booleans())
    def replace(self, key: str, receiver: TargetClass, after: bool) -> None:
        self.drawn += 1
        body, ends = b"replacement %d" % self.drawn, self.kit.now() + WINDOW_MS
        said = self.reference.replace(key, REPLACEABLE if after else ("proposed",), body, ends, receiver.value)
        intent = self.kit.intent(receiver, request=body, dispatch_before_ms=ends)
        self._both(E.SUCCESSOR if after else E.EDIT, key, said, intent=intent)

    @rule(key=KEYS, who=st.sampled_from([BOB, DAN]))
    def approve(self, key: str, who: Any) -> None:
        self._both(E.APPROVE, key, self.reference.approve(key, who.principal), actor=who)

    @rule(key=KEYS)
    def reject(self, key: str) -> None:
        self._both(E.REJECT, key, self.reference.close(key, ("proposed",), "rejected"))

    @rule(key=KEYS)
    def revoke(self, key: str) -> None:
        self._both(E.REVOKE, key, self.reference.revoke(key))

    @rule(key=KEYS)
    def expire(self, key: str) -> None:
        self._both(E.EXPIRE, key, self.reference.expire(key))

    @rule(key=KEYS, worker=WORKERS)
    def claim(self, key: str, worker: str) -> None:
        said = self.reference.claim(key, worker)
        self._both(E.CLAIM, key, said, worker=worker, claim_key=CLAIM_KEYS[worker])

    @rule(key=KEYS, worker=WORKERS)
    def prepare(self, key: str, worker: str) -> None:
        said = self.reference.prepare(key, worker, PERMIT_MS)
        self._both(E.PREPARE, key, said, worker=worker, permit_ms=PERMIT_MS)

    @rule(key=KEYS, worker=WORKERS)
    def hand_out(self, key: str, worker: str) -> None:
        self._both(E.HAND_OUT, key, self.reference.hand_out(key, worker), worker=worker)

    @rule(key=KEYS, receiver=TARGETS, worker=WORKERS, steps=st.integers(2, 5), then=st.lists(LATER, max_size=5))
    def live(self, key: str, receiver: TargetClass, worker: str, steps: int, then: list[str]) -> None:
        """Steps of a life in a row, as far as they are possible where the key stands, and what comes after them."""
        self.replace(key, receiver, True)
        whole = (lambda: self.approve(key, BOB), lambda: self.approve(key, DAN), lambda: self.claim(key, worker))
        whole += (lambda: self.prepare(key, worker), lambda: self.hand_out(key, worker))
        for step in whole[:steps]:
            step()
        for name in then:
            if name == "doubt":
                self.doubt(key, False)
            elif name == "restart":
                self.restart()
            elif name == "hand_out":
                self.hand_out(key, worker)
            else:
                getattr(self, name)(key)

    @rule(key=KEYS, receiver=TARGETS, steps=st.integers(3, 5), in_order=st.booleans(), end=ENDS)
    def settle(self, key: str, receiver: TargetClass, steps: int, in_order: bool, end: str) -> None:
        """A life that ends in doubt: drain, look and decide; or the look first, which is no evidence."""
        self.live(key, receiver, "w1", steps, ["doubt"])
        for step in (self.drain, self.look) if in_order else (self.look, self.drain):
            step(key)
        getattr(self, end)(key)

    @rule(key=KEYS, by_clock=st.booleans())
    def doubt(self, key: str, by_clock: bool) -> None:
        said = self.reference.doubt(key, by_clock=by_clock)
        self._both(E.DOUBT, key, said, by="expiry" if by_clock else "operator")

    @rule(key=KEYS)
    def drain(self, key: str) -> None:
        newest = self._newest(key)
        evidence = None if newest is None else self.kit.drain(newest)
        self._both(E.OBSERVE, key, self.reference.drain(key), evidence=evidence)

    @rule(key=KEYS)
    def look(self, key: str) -> None:
        self._both(E.OBSERVE, key, self.reference.look(key))

    @rule(key=KEYS)
    def not_executed(self, key: str) -> None:
        self._both(E.NOT_EXECUTED, key, self.reference.not_executed(key))

    @rule(key=KEYS)
    def success(self, key: str) -> None:
        said = self.reference.close(key, ("prepared", "unresolved"), "succeeded")
        self._both(E.SUCCESS, key, said)

    @rule(key=KEYS)
    def write_off(self, key: str) -> None:
        self._both(E.WRITE_OFF, key, self.reference.write_off(key))

    @rule()
    def restart(self) -> None:
        self.kit.reopen()
        self.reference.opening += 1

    @rule(ms=st.sampled_from([1, 499, 999, 1_000, 1_500, 8_999, 9_500]))
    def tick(self, ms: int) -> None:
        self.kit.ticks.tick(ms)
        self.reference.now_ms += ms

    @rule(ms=st.sampled_from([-2_000, -1, 1_000]))
    def set_the_clock(self, ms: int) -> None:
        self.kit.ticks.leap(ms)
        self.reference.now_ms += ms

    @invariant()
    def both_stand_at_the_same_place(self) -> None:
        for key, members in self.reference.keys.items():
            views = self.kit.ledger.inspect(key)
            assert [(one.state, one.revoked, one.worker or "", one.handed_out) for one in views] == [
                (one.state, one.revoked, one.worker, bool(one.handed)) for one in members
            ]
            claimed = [one.generation for one in views if one.generation is not None]
            assert claimed == sorted(set(claimed)), "generations of a key only grow"
            assert sum(not one.closed for one in views) <= 1

    def teardown(self) -> None:
        assert len(set(self.reference.permits)) == len(self.reference.permits)
        self.stack.close()  # reads all of it anew


def _asked(ask: Callable[[], Any]) -> tuple[Any, str]:
    """The answer, or the words of a refusal; what is neither is raised."""
    try:
        return ask(), ""
    except (Tampered, Uncertain, Misuse):
        raise
    except LedgerError as error:
        return None, str(error)


TestEffectMachine = EffectMachine.TestCase
TestEffectMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None, derandomize=True)
