"""A store with an action in every state, and ways to forge it: in its rows, or thoroughly, with its leaves."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from agent_run_ledger.effects.intents import Intent
from agent_run_ledger.effects.views import ActionView
from agent_run_ledger.kernel.effects import Role, TargetClass
from agent_run_ledger.kernel.effects.approval import VerifiedApproval, statement_sha256
from agent_run_ledger.kernel.effects.commands import Actor, DoubtBy
from agent_run_ledger.kernel.effects.evidence import Covers, Drain, DrainKind, FenceAnswer, Found, Observation, Receipt
from agent_run_ledger.kernel.effects.reading import Sample
from agent_run_ledger.kernel.effects.record import transition_mac
from agent_run_ledger.kernel.merkle import Frontier, append, leaf_hash
from agent_run_ledger.ledger.effect_ledger import EffectLedger, Grant
from agent_run_ledger.ledger.verify import verify_log
from agent_run_ledger.store import open_sqlite

EDITOR = Path(__file__).parents[1] / "scenario" / "programs" / "edit_rows.py"

ANN = Actor("ann", frozenset({Role.REQUESTER}))
BOB = Actor("bob", frozenset({Role.APPROVER, Role.REVOKER}))
CAT = Actor("cat", frozenset({Role.APPROVER}))
EXEC = Actor("exec", frozenset({Role.EXECUTOR}))
RECON = Actor("recon", frozenset({Role.RECONCILER}))
PEOPLE = frozenset({"recon", "olga"})

Change = Callable[[dict[str, Any]], object]
"""What forges a tree of a record or a leaf, in place."""


class Ticks:
    """A clock that shows what the test sets."""

    def __init__(self, now_ms: int = 1_000) -> None:
        self.ms = now_ms

    def sample(self) -> Sample:
        return Sample(wall_ms=self.ms, uptime_ms=self.ms, boot="test")


def intent(body: bytes, target: TargetClass = TargetClass.F, approvals: int = 1, until_ms: int = 90_000) -> Intent:
    return Intent(
        request=body,
        executor="exec",
        audience="pay",
        target_class=target,
        not_before_ms=0,
        dispatch_before_ms=until_ms,
        policy_sha256=sha256(b"policy").digest(),
        display_sha256=sha256(b"display").digest(),
        approvals_needed=approvals,
        preconditions=(("amount", "30"),),
    )


class Stories:
    """Actions of one ledger, brought as far as a test wants them. Each is found by its key."""

    def __init__(self, path: Path, *, new: bool = True) -> None:
        open_sqlite(path, create=new, authority=True).close()
        self.ticks = Ticks()
        self.ledger = EffectLedger(path, time=self.ticks)
        self._drawn = 0

    def reopened(self, path: Path) -> EffectLedger:
        """The effects of another file, by the same clock."""
        return EffectLedger(path, time=self.ticks)

    def new_id(self) -> bytes:
        self._drawn += 1
        return self._drawn.to_bytes(16, "big")

    def approve(self, action: ActionView, who: Actor = BOB) -> ActionView:
        statement = self.ledger.statement(action.action_id, approver=who.principal, nonce=b"n" * 16)
        verified = VerifiedApproval(
            approval_id=self.new_id(),
            statement=statement,
            signed_sha256=statement_sha256(statement),
            principal=who.principal,
        )
        return self.ledger.approve(who, action.action_id, verified)

    def available(self, key: str, **terms: Any) -> ActionView:
        return self.approve(self.ledger.propose(ANN, key, intent(key.encode(), **terms)))

    def claimed(self, key: str, **terms: Any) -> Grant:
        action = self.available(key, **terms)
        return self.ledger.claim(EXEC, action.action_id, worker="w1", request_sha256=action.request_sha256)

    def prepared(self, key: str, **terms: Any) -> ActionView:
        grant = self.claimed(key, **terms)
        return self.ledger.prepare(EXEC, grant.view.action_id, claim_id=grant.claim_id, worker="w1", permit_ms=5_000)

    def handed_out(self, key: str, **terms: Any) -> ActionView:
        action = self.prepared(key, **terms)
        claim_id = action.claim_id
        assert claim_id is not None
        return self.ledger.hand_out(EXEC, action.action_id, claim_id=claim_id, worker="w1").view

    def doubted(self, key: str, **terms: Any) -> ActionView:
        action = self.handed_out(key, **terms)
        return self.ledger.doubt(EXEC, action.action_id, by=DoubtBy.WORKER, worker="w1")

    def receipt(self, action: ActionView, generation: int | None = None) -> Receipt:
        return Receipt(
            evidence_id=self.new_id(),
            action_key=action.action_key,
            receiver="pay",
            generation=generation or action.generation or 1,
            request_sha256=action.request_sha256,
        )

    def fence(self, action: ActionView, mark: int = 1) -> FenceAnswer:
        return FenceAnswer(
            evidence_id=self.new_id(),
            action_key=action.action_key,
            receiver="pay",
            epoch=0,
            mark=mark,
            found=Found.NOTHING,
        )

    def all_of_them(self) -> None:
        """Each state and each event that the ledger has, under keys named after how they end."""
        ledger = self.ledger
        ledger.propose(ANN, "proposed", intent(b"proposed", approvals=2))
        self.approve(ledger.inspect("proposed")[0])
        self.available("available")
        self.claimed("claimed")
        self.prepared("prepared")
        self.doubted("unresolved", target=TargetClass.N)
        done = self.handed_out("succeeded")
        ledger.outcome(EXEC, done.action_id, self.receipt(done))
        edited = ledger.propose(ANN, "superseded", intent(b"first"))
        ledger.edit(ANN, edited.action_id, intent(b"second"))
        rejected = ledger.propose(ANN, "rejected", intent(b"rejected"))
        ledger.reject(BOB, rejected.action_id)
        ledger.revoke(BOB, self.available("revoked").action_id)
        late = self.available("expired", until_ms=1_500)
        held = self.claimed("revoked later")
        ledger.revoke(BOB, held.view.action_id)
        closed = ledger.close_unprepared(RECON, held.view.action_id, fence=self.fence(held.view))
        ledger.successor(ANN, closed.action_id, intent(b"again"))
        fenced = self.doubted("not executed")
        ledger.reconcile_not_executed(RECON, fenced.action_id, fence=self.fence(fenced))
        lost = self.doubted("rebuilt")
        ledger.reconcile_success(RECON, lost.action_id, self.receipt(lost, generation=7))
        given_up = self.doubted("written off", target=TargetClass.N)
        ledger.write_off(RECON, given_up.action_id, nobody_can_observe=True, people=PEOPLE)
        self.ticks.ms = 2_000
        ledger.expire(EXEC, late.action_id)
        self.drained("drained")

    def drained(self, key: str) -> None:
        """A plain target: the path is dead, then somebody looks, then people decide."""
        action = self.doubted(key, target=TargetClass.N)
        drain = Drain(
            evidence_id=self.new_id(),
            action_key=key,
            epoch=0,
            observer="recon",
            kind=DrainKind.PATH_DEAD,
            covers=Covers.WORKER,
        )
        self.ledger.observe(RECON, action.action_id, drain)
        self.ledger.observe(RECON, action.action_id, self.look(action, after=drain.evidence_id))
        self.ledger.reconcile_not_executed(RECON, action.action_id)

    def look(self, action: ActionView, after: bytes | None = None) -> Observation:
        return Observation(
            evidence_id=self.new_id(),
            action_key=action.action_key,
            epoch=0,
            observer="recon",
            found=Found.NOTHING,
            after=after,
        )


def edit(path: Path, sql: str) -> int:
    """Change rows from a process of its own, past every CHECK and trigger; return how many."""
    lifted = f"PRAGMA ignore_check_constraints = 1; {sql}"
    done = subprocess.run([sys.executable, EDITOR, path, lifted], check=True, capture_output=True, text=True)
    return int(done.stdout)


def places(path: Path, key: str, event: str) -> list[int]:
    """The record ids of what an event did to the members of a key, in order."""
    store = open_sqlite(path, create=False)
    try:
        effects = store.reader().effects
        found = [
            record.record_id
            for row in effects.members(key)
            for record in effects.transitions(row.action.action_id)
            if json.loads(record.payload)["command"]["class"] == event
        ]
        return sorted(found)
    finally:
        store.close()


def rewrite(path: Path, record_id: int, change: Change, of_leaf: Change = lambda _: None) -> None:
    """Forge one record of an action: see `forge_record`."""
    forge_record(
        path,
        record_id,
        read=lambda effects: effects.leaf_transitions,
        table="action_records",
        mac=transition_mac,
        change=change,
        of_leaf=of_leaf,
    )


def forge_record(
    path: Path,
    record_id: int,
    *,
    read: Callable[[Any], Callable[..., Iterable[Any]]],
    table: str,
    mac: Callable[[bytes, bytes], bytes],
    change: Change,
    of_leaf: Change = lambda _: None,
) -> None:
    """Forge one record as somebody would who rewrites history thoroughly: with its MAC, its leaf and the head.

    `read` gives of a store's effects what reads such records, which are in `table`. `change` gets the record's tree,
    `of_leaf` its change in the leaf. For logs below one tile.
    """
    leaf_index = record_id >> 16
    store = open_sqlite(path, create=False)
    try:
        found = read(store.reader().effects)(first=leaf_index, stop=leaf_index + 1)
        stored = next(one for one in found if one.record_id == record_id)
        (event,) = store.reader().events(first=leaf_index, stop=leaf_index + 1)
    finally:
        store.close()
    tree = json.loads(stored.payload)
    change(tree)
    payload = orjson.dumps(tree, option=orjson.OPT_SORT_KEYS)
    envelope = json.loads(event.envelope)
    line = envelope["changes"][record_id & 0xFFFF]
    line["mac"] = mac(stored.salt, payload).hex()
    of_leaf(line)
    row = f"UPDATE {table} SET payload = x'{payload.hex()}' WHERE record_id = {record_id};"
    forge_leaf(path, leaf_index, orjson.dumps(envelope, option=orjson.OPT_SORT_KEYS), beside=row)


def forge_leaf(path: Path, leaf_index: int, envelope: bytes, *, beside: str = "") -> None:
    """Put another envelope into a leaf, and let the head fit it; `beside` is changed too. For logs below one tile."""
    envelopes = [envelope if index == leaf_index else one for index, one in _envelopes(path)]
    edit(
        path,
        f"{beside}UPDATE events SET envelope = x'{envelope.hex()}' WHERE leaf_index = {leaf_index};"
        f"UPDATE head SET frontier = x'{frontier_of(envelopes).hex()}'",
    )


def forge_words(path: Path, old: bytes, new: bytes) -> None:
    """Put other bytes into the one leaf that has these, and let the head fit it. For logs below one tile."""
    ((leaf_index, envelope),) = [(index, one) for index, one in _envelopes(path) if old in one]
    forge_leaf(path, leaf_index, envelope.replace(old, new))


def _envelopes(path: Path) -> list[tuple[int, bytes]]:
    store = open_sqlite(path, create=False)
    try:
        return [(one.index, one.envelope) for one in store.reader().events(first=0, stop=store.reader().head().size)]
    finally:
        store.close()


def problems_of(path: Path) -> list[tuple[int | None, str]]:
    """What an audit of a whole store finds: the leaf of each problem, if it has one, and its words."""
    store = open_sqlite(path, create=False)
    try:
        report = verify_log(store.reader(), log_id=store.log_id, is_copy=store.is_copy)
        return [(problem.leaf_index, problem.text) for problem in report.problems]
    finally:
        store.close()


def frontier_of(envelopes: list[bytes]) -> bytes:
    frontier: Frontier = ()
    for index, envelope in enumerate(envelopes):
        frontier = append(index, frontier, leaf_hash(envelope))
    return b"".join(frontier)
