"""An effect ledger in ticks: its people, a witness that says what a test wants, and the way to every state."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from agent_run_ledger import EffectLedger, LedgerError
from agent_run_ledger.effects import (
    ActionState,
    ActionView,
    Actor,
    Covers,
    DoubtBy,
    Drain,
    DrainKind,
    Event,
    FenceAnswer,
    Found,
    Heard,
    Intent,
    Observation,
    Receipt,
    Role,
    Sample,
    Seen,
    Settings,
    TargetClass,
    VerifiedApproval,
    WitnessPolicy,
    statement_sha256,
)
from agent_run_ledger.kernel.effects.record import transition_from
from agent_run_ledger.kernel.effects.reducer import GUARDS
from agent_run_ledger.store import open_store
from agent_run_ledger.testing import check_ledger
from tests.contract.engine_kit import new_place
from tests.contract.store_kit import quick_folder

A, E, R = ActionState, Event, Role
START_MS, WINDOW_MS, PERMIT_MS, BOUND_MS = 1_000_000, 600_000, 30_000, 500
PAY = "https://pay.example"


def actor(principal: str, *roles: Role) -> Actor:
    return Actor(principal, frozenset(roles))


ANN, BOB, DAN = actor("ann", R.REQUESTER), actor("bob", R.APPROVER), actor("dan", R.APPROVER)
EXE, CAT = actor("exe", R.EXECUTOR), actor("cat", R.RECONCILER)
REV, OPS, NOBODY = actor("rev", R.REVOKER), actor("ops", R.OPERATOR), actor("eve")
DOES = {
    E.PROPOSE: ANN, E.EDIT: ANN, E.SUCCESSOR: ANN, E.REJECT: BOB, E.APPROVE: BOB, E.CLAIM: EXE, E.PREPARE: EXE,
    E.HAND_OUT: EXE, E.OUTCOME: EXE, E.OBSERVE: CAT, E.SUCCESS: CAT, E.NOT_EXECUTED: CAT, E.WRITE_OFF: CAT,
    E.CLOSE_UNPREPARED: CAT, E.REVOKE: REV, E.DOUBT: OPS, E.EXPIRE: OPS,
}  # fmt: skip
"""Who asks for what in these tests."""

ASKED = tuple(DOES)
"""Every event that the API has: all but the admission."""


class Ticks:
    """A time source of integer milliseconds that a test moves."""

    def __init__(self) -> None:
        self.wall_ms = START_MS
        self.uptime_ms = 5_000
        self.boot = "boot 1"

    def sample(self) -> Sample:
        return Sample(wall_ms=self.wall_ms, uptime_ms=self.uptime_ms, boot=self.boot)

    def tick(self, ms: int) -> None:
        """Time passes."""
        self.wall_ms += ms
        self.uptime_ms += ms

    def leap(self, ms: int) -> None:
        """Somebody sets the clock."""
        self.wall_ms += ms


class FakeWitness:
    """Remembers the largest head, and says in the order of `says` what a test wants; then the truth."""

    policy = WitnessPolicy.HTTP

    def __init__(self) -> None:
        self.says: list[Seen] = []
        self.asked = 0
        self.size = 0
        self.inside: Callable[[], bool] = lambda: False

    def extend(self, size: int, root: bytes) -> Heard:
        if self.inside() or len(root) != 32:
            pytest.fail("the witness was asked inside of a transaction, or without a root")
        self.asked += 1
        said = self.says.pop(0) if self.says else Seen.CURRENT if size >= self.size else Seen.AHEAD
        if said is Seen.CURRENT:
            self.size = max(self.size, size)
        return Heard(said, self.size)

    def silent(self) -> None:
        """Say nothing from now on."""
        self.says = [Seen.SILENT] * 1_000


class Kit:
    """One store with an effect ledger; opened anew as often as a test wants."""

    def __init__(self, folder: Path, *, witness: FakeWitness | None = None, **settings: Any) -> None:
        self.path = new_place(folder)
        self.ticks = Ticks()
        self.witness = witness
        self.settings = Settings(**{"bound_ms": BOUND_MS, **settings})
        self._ids = 0
        open_store(self.path, create=True, authority=True).close()
        self.ledger = self._open()

    def _open(self) -> EffectLedger:
        ledger = EffectLedger(self.path, witness=self.witness, time=self.ticks, settings=self.settings)
        if self.witness is not None:
            self.witness.inside = ledger._store._shared.is_mine
        return ledger

    def reopen(self) -> None:
        """Close the ledger and open it anew."""
        self.ledger.close()
        self.ledger = self._open()

    def id(self) -> bytes:
        """An id that nothing has yet."""
        self._ids += 1
        return b"test id %08d" % self._ids

    def now(self) -> int:
        return self.ticks.wall_ms

    def intent(self, target: TargetClass = TargetClass.N, **changes: Any) -> Intent:
        settings: dict[str, Any] = {
            "request": b"{}", "executor": "exe", "audience": PAY, "target_class": target,
            "not_before_ms": self.now(), "dispatch_before_ms": self.now() + WINDOW_MS,
            "policy_sha256": b"p" * 32, "display_sha256": b"d" * 32, "preconditions": (("uid", "7"),),
        }  # fmt: skip
        return Intent(**{**settings, **changes})

    def approval(self, view: ActionView, approver: str = "bob", **changes: Any) -> VerifiedApproval:
        """An approval over the statement of an action with `changes`."""
        statement = replace(
            self.ledger.statement(view.action_id, approver=approver, nonce=b"the first nonce "), **changes
        )
        return VerifiedApproval(
            approval_id=self.id(), statement=statement, signed_sha256=statement_sha256(statement), principal=approver
        )

    def receipt(self, view: ActionView, **changes: Any) -> Receipt:
        named: dict[str, Any] = {
            "evidence_id": self.id(), "action_key": view.action_key, "receiver": view.audience,
            "generation": view.generation or 1, "request_sha256": view.request_sha256,
        }  # fmt: skip
        return Receipt(**{**named, **changes})

    def seen(self, view: ActionView, found: Found = Found.NOTHING, **changes: Any) -> Observation:
        stored = self.ledger._store.reader().effects.action(view.action_id)
        assert stored is not None
        drain = stored.action.drain
        named: dict[str, Any] = {
            "evidence_id": self.id(), "action_key": view.action_key, "epoch": 0, "observer": "cat", "found": found,
            "after": None if drain is None else drain.evidence_id,
        }  # fmt: skip
        return Observation(**{**named, **changes})

    def drain(self, view: ActionView, kind: DrainKind = DrainKind.PATH_DEAD, **changes: Any) -> Drain:
        named: dict[str, Any] = {
            "evidence_id": self.id(), "action_key": view.action_key, "epoch": 0, "observer": "cat", "kind": kind,
            "covers": Covers.EVERY_EXECUTOR,
        }  # fmt: skip
        return Drain(**{**named, **changes})

    def fence(self, view: ActionView, found: Found = Found.NOTHING, **changes: Any) -> FenceAnswer:
        named: dict[str, Any] = {
            "evidence_id": self.id(), "action_key": view.action_key, "receiver": view.audience, "epoch": 0,
            "mark": 1, "found": found,
        }  # fmt: skip
        return FenceAnswer(**{**named, **changes})

    def do(self, event: Event, view: ActionView, **changes: Any) -> Any:
        """Ask for an event as these tests do it, with `changes`; `view` is the action as it was last seen."""
        who, action_id = changes.pop("actor", DOES[event]), changes.pop("action_id", view.action_id)
        ledger, own = self.ledger, {"claim_id": view.claim_id or b"none", "worker": "w1"}
        calls: dict[Event, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
            E.EDIT: (ledger.edit, ("intent",), {"intent": lambda: self.intent(request=b"other")}),
            E.SUCCESSOR: (ledger.successor, ("intent",), {"intent": lambda: self.intent(request=b"next")}),
            E.APPROVE: (ledger.approve, ("approval",), {"approval": lambda: self.approval(view, who.principal)}),
            E.REJECT: (ledger.reject, (), {}),
            E.REVOKE: (ledger.revoke, (), {}),
            E.EXPIRE: (ledger.expire, (), {}),
            E.CLAIM: (ledger.claim, (), {"worker": "w1", "request_sha256": view.request_sha256}),
            E.PREPARE: (ledger.prepare, (), {**own, "permit_ms": PERMIT_MS}),
            E.HAND_OUT: (ledger.hand_out, (), own),
            E.OUTCOME: (ledger.outcome, ("evidence",), {"evidence": lambda: self.receipt(view)}),
            E.SUCCESS: (ledger.reconcile_success, ("evidence",), {"evidence": lambda: self.receipt(view)}),
            E.OBSERVE: (ledger.observe, ("evidence",), {"evidence": lambda: self.seen(view)}),
            E.DOUBT: (ledger.doubt, (), {"by": DoubtBy.OPERATOR}),
            E.NOT_EXECUTED: (ledger.reconcile_not_executed, (), {}),
            E.WRITE_OFF: (ledger.write_off, (), {"nobody_can_observe": True, "people": frozenset({"dan"})}),
            E.CLOSE_UNPREPARED: (ledger.close_unprepared, (), {}),
        }
        if event is E.PROPOSE:
            key, intent = changes.pop("key", view.action_key), changes.pop("intent", None) or self.intent()
            return ledger.propose(who, key, intent, **changes)
        method, positional, defaults = calls[event]
        named = {name: changes.get(name, value) for name, value in defaults.items()} | changes
        given = {name: value() if name != "sign" and callable(value) else value for name, value in named.items()}
        return method(who, action_id, *(given.pop(name) for name in positional), **given)

    def propose(self, target: TargetClass = TargetClass.N, key: str = "refund:17", **changes: Any) -> ActionView:
        return self.ledger.propose(ANN, key, self.intent(target, **changes))

    def look(self, view: ActionView) -> ActionView:
        return self.ledger.get(view.action_id)

    def move(self, event: Event, view: ActionView, **changes: Any) -> ActionView:
        """Make an event happen and return the action as it is then."""
        self.do(event, view, **changes)
        return self.look(view)

    def reach(self, state: ActionState, target: TargetClass = TargetClass.N, *, key: str = "refund:17") -> ActionView:
        """Bring a new action into a state, through nothing but the API."""
        view = self.propose(target, key)
        for event in WAYS[state]:
            if event is E.EXPIRE:
                self.ticks.tick(WINDOW_MS)
            if event is E.NOT_EXECUTED:
                view = self.ready(event, view)
            fence = {"fence": self.fence(view)} if event is E.NOT_EXECUTED and view.target_class in FENCES else {}
            view = self.move(event, view, **fence)
        assert view.state is state
        return view

    def ready(self, event: Event, view: ActionView) -> ActionView:
        """Put on record what an event wants to find there."""
        if event is E.NOT_EXECUTED and view.state in (A.PREPARED, A.UNRESOLVED) and view.target_class not in FENCES:
            self.do(E.OBSERVE, view, evidence=self.drain(view))
            self.do(E.OBSERVE, view)
        return self.look(view)

    def shape(self) -> tuple[object, ...]:
        """All that a refusal must leave as it is."""
        reader = self.ledger._store.reader()
        keys = list(reader.effects.keys())
        rows = [reader.effects.members(key) for key in keys]
        mark = self.ledger._store.transact(b"x" * 16, lambda tx: tx.effects.time_kept()[0])
        return reader.head(), keys, rows, reader.effects.count_transitions(), mark

    def refused(self, asked: Callable[[], object]) -> LedgerError:
        """The error of what is refused; it changed nothing."""
        before = self.shape()
        with pytest.raises(LedgerError) as refusal:
            asked()
        assert self.shape() == before
        return refusal.value


FROM: dict[Event, ActionState] = {
    E.PROPOSE: A.PROPOSED, E.EDIT: A.PROPOSED, E.REJECT: A.PROPOSED, E.APPROVE: A.PROPOSED, E.SUCCESSOR: A.REJECTED,
    E.EXPIRE: A.AVAILABLE, E.REVOKE: A.AVAILABLE, E.CLAIM: A.AVAILABLE, E.PREPARE: A.CLAIMED, E.HAND_OUT: A.PREPARED,
    E.OUTCOME: A.PREPARED, E.SUCCESS: A.UNRESOLVED, E.DOUBT: A.PREPARED, E.OBSERVE: A.PREPARED,
    E.NOT_EXECUTED: A.UNRESOLVED, E.WRITE_OFF: A.UNRESOLVED, E.CLOSE_UNPREPARED: A.CLAIMED,
}  # fmt: skip
"""From which state a test asks for an event."""

FENCES = (TargetClass.F_MINUS, TargetClass.F)
_CLAIMED = (E.APPROVE, E.CLAIM)
_PREPARED = (*_CLAIMED, E.PREPARE)
WAYS: dict[ActionState, tuple[Event, ...]] = {
    A.PROPOSED: (),
    A.AVAILABLE: (E.APPROVE,),
    A.CLAIMED: _CLAIMED,
    A.PREPARED: _PREPARED,
    A.UNRESOLVED: (*_PREPARED, E.DOUBT),
    A.SUCCEEDED: (*_PREPARED, E.OUTCOME),
    A.SUPERSEDED: (E.EDIT,),
    A.REJECTED: (E.REJECT,),
    A.EXPIRED: (E.EXPIRE,),
    A.REVOKED: (E.REVOKE,),
    A.NOT_EXECUTED: (*_PREPARED, E.DOUBT, E.NOT_EXECUTED),
    A.WRITTEN_OFF: (*_PREPARED, E.DOUBT, E.WRITE_OFF),
}
"""One way to each state."""

GUARDED = [(event, guard.code) for event in ASKED for guard in GUARDS[event]]


def check_kept(path: Path) -> int:
    """Read everything anew: every leaf's change has its record and MAC, and each row is what its last record says.

    Returns how many records there are. Written from docs/formats, without the code that audits, which is asked too.
    """
    check_ledger(path)
    store = open_store(path, create=False)
    try:
        reader, rows = store.reader(), {}
        records = {one.record_id: one for one in reader.effects.leaf_transitions(first=0, stop=reader.head().size)}
        for event in reader.events(first=0, stop=reader.head().size):
            for position, change in enumerate(orjson.loads(event.envelope)["changes"]):
                if change["type"] != "action":
                    continue
                record = records.pop(event.index << 16 | position)
                mac = hmac.digest(record.salt, b"agent-run-ledger/effect/v1\n" + record.payload, "sha256")
                row = transition_from(record.payload).row
                said = (row.action_id.hex(), row.state, row.generation or 0, mac.hex())
                assert said == tuple(change[name] for name in ("id", "new", "generation", "mac"))
                assert record.action_id == row.action_id
                assert change["old"] == (rows[row.action_id].state if row.action_id in rows else "")
                rows[row.action_id] = row
        assert records == {}
        keys = list(reader.effects.keys())
        kept = [one.action for key in keys for one in reader.effects.members(key)]
        assert {row.action_id: row for row in kept} == rows
        assert len(kept) == len(rows)
        return reader.effects.count_transitions()
    finally:
        store.close()


@contextmanager
def effects(
    *, witness: FakeWitness | None = None, kept: bool = True, kind: type[Kit] = Kit, **settings: Any
) -> Iterator[Kit]:
    """An effect ledger in a folder of its own, which is closed at the end and read anew, unless a test broke it."""
    with quick_folder() as folder:
        kit = kind(folder, witness=witness, **settings)
        try:
            yield kit
        finally:
            with suppress(LedgerError):
                kit.ledger.close()
        if kept:
            check_kept(kit.path)
