"""What fault tests of effects share: people, a clock of ticks, approved actions, and the log, read raw."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from agent_run_ledger.effects.intents import Intent
from agent_run_ledger.kernel.effects import Role, TargetClass
from agent_run_ledger.kernel.effects.approval import VerifiedApproval, statement_sha256
from agent_run_ledger.kernel.effects.commands import Actor
from agent_run_ledger.kernel.effects.evidence import Receipt
from agent_run_ledger.kernel.effects.reading import Sample
from agent_run_ledger.ledger.effect_ledger import EffectLedger
from agent_run_ledger.store import open_sqlite, open_store
from agent_run_ledger.store.opening import durability_of

REQUESTER = Actor("ann", frozenset({Role.REQUESTER}))
APPROVER = Actor("bob", frozenset({Role.APPROVER}))
EXECUTOR = Actor("exe", frozenset({Role.EXECUTOR}))
RECONCILER = Actor("rec", frozenset({Role.RECONCILER}))
OPERATOR = Actor("ops", frozenset({Role.OPERATOR}))
REVOKER = Actor("rev", frozenset({Role.REVOKER}))

TARGET = "pay"
BEGIN_MS, NOW_MS, END_MS = 0, 1_000, 1_000_000
DOMAIN = b"agent-run-ledger/effect/v1\n"
BEFORE_THE_CLAIM: dict[str, Any] = {
    "generation": None,
    "revoked": False,
    "claim_id": None,
    "worker": None,
    "prepare_leaf": False,
    "prepared_ms": None,
    "permit_expires_ms": None,
    "handed_out": False,
    "rebuilt": False,
    "evidence": [],
}
"""What a row says that no claim and no doubt has touched."""

_ids = count(1)


class Ticks:
    """A clock that stands where it is put. See ports.effects.TimeSource."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.now_ms = now_ms

    def sample(self) -> Sample:
        return Sample(wall_ms=self.now_ms, uptime_ms=self.now_ms, boot="one")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """An action that people approved, and the digest of its bytes."""

    key: str
    action_id: bytes
    request_sha256: bytes


def number() -> bytes:
    """16 bytes that no other call of this process gave: op_ids, nonces, ids of evidence."""
    return next(_ids).to_bytes(16, "big")


def new_store(path: Path, *, durability: str = "full") -> Path:
    """A store that may hold effects, closed."""
    open_sqlite(path, create=True, authority=True, durability=durability).close()
    return path


def intent(
    body: bytes = b"{}",
    *,
    target_class: TargetClass = TargetClass.N,
    end_ms: int = END_MS,
    checks_expiry: bool = False,
    approvals_needed: int = 1,
) -> Intent:
    return Intent(
        request=body,
        executor=EXECUTOR.principal,
        audience=TARGET,
        target_class=target_class,
        not_before_ms=BEGIN_MS,
        dispatch_before_ms=end_ms,
        policy_sha256=bytes(32),
        display_sha256=bytes(32),
        approvals_needed=approvals_needed,
        checks_expiry=checks_expiry,
    )


def signed(
    ledger: EffectLedger, action_id: bytes, *, approver: Actor = APPROVER, nonce: bytes = b"n" * 16
) -> VerifiedApproval:
    """What an approver signs of an action as it stands."""
    statement = ledger.statement(action_id, approver=approver.principal, nonce=nonce)
    return VerifiedApproval(
        approval_id=number(),
        statement=statement,
        signed_sha256=statement_sha256(statement),
        principal=approver.principal,
    )


def ready(ledger: EffectLedger, key: str, wanted: Intent | None = None) -> Ready:
    """Propose and approve."""
    view = ledger.propose(REQUESTER, key, wanted or intent())
    ledger.approve(APPROVER, view.action_id, signed(ledger, view.action_id))
    return Ready(key=key, action_id=view.action_id, request_sha256=view.request_sha256)


def receipt(key: str, generation: int, request_sha256: bytes) -> Receipt:
    """The receiver's word for one effect."""
    return Receipt(
        evidence_id=number(), action_key=key, receiver=TARGET, generation=generation, request_sha256=request_sha256
    )


# -- the log, read without the product's own records and rules -------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One transition as it is on record: in which leaf, of which member, by which command, and the row afterwards."""

    leaf: int
    op_id: bytes
    action_id: str
    command: dict[str, Any]
    old: str
    row: dict[str, Any]

    @property
    def kind(self) -> str:
        """The command's name."""
        return str(self.command["class"])


def log_of(path: Path | str) -> list[Line]:
    """Every transition in the order of the log, each compared with its leaf; AssertionError where one is not as said.

    The store's rows must be what the last record of each member says, and no record or change is alone.
    """
    store = open_store(path, create=False, durability=durability_of(path))
    try:
        reader = store.reader()
        size = reader.head().size
        leaves = {event.index: event for event in reader.events(first=0, stop=size)}
        records = {one.record_id: one for one in reader.effects.leaf_transitions(first=0, stop=size)}
        lines = []
        for index in range(size):
            for place, change in enumerate(orjson.loads(leaves[index].envelope)["changes"]):
                if change["type"] == "action":
                    record = records.pop(index << 16 | place)
                    mac = hmac.digest(record.salt, DOMAIN + record.payload, sha256)
                    tree = orjson.loads(record.payload)
                    said = (mac.hex(), change["id"], change["old"], change["new"], change["generation"])
                    row = {**BEFORE_THE_CLAIM, **tree["row"]}
                    is_so = (row["action_id"], tree["old"], row["state"], row["generation"] or 0)
                    assert said == (change["mac"], *is_so), (index, change, tree)
                    assert record.action_id is not None
                    assert record.action_id.hex() == change["id"]
                    op_id = leaves[index].op_id
                    lines.append(
                        Line(
                            leaf=index,
                            op_id=op_id,
                            action_id=change["id"],
                            command=tree["command"],
                            old=tree["old"],
                            row=row,
                        )
                    )
        assert not records, f"records without a change: {sorted(records)}"
        last = {line.action_id: line.row for line in lines}
        stored = {
            one.action.action_id.hex(): one.action
            for key in reader.effects.keys()  # noqa: SIM118 - a method, not that of a dict
            for one in reader.effects.members(key)
        }
        assert stored.keys() == last.keys()
        for action_id, row in last.items():
            now = stored[action_id]
            for name in ("state", "generation", "revoked", "handed_out", "worker", "prepared_ms", "permit_expires_ms"):
                assert getattr(now, name) == row[name], (action_id, name)
            assert (now.claim_id or b"").hex() == (row["claim_id"] or "")
        return lines
    finally:
        store.close()


def broken(lines: list[Line]) -> Iterator[str]:
    """Yield in words which of the invariants 1, 3, 5, 6 and 8 a log breaks, by its lines and by no rule of ours."""
    claims: dict[tuple[str, int], str] = {}
    handed: dict[str, int] = {}
    highest: dict[str, int] = {}
    before: dict[str, dict[str, Any]] = {}
    for line in lines:
        row, was, key = line.row, before.get(line.action_id), line.row["action_key"]
        at = f"leaf {line.leaf}, {line.kind} of {key}"
        generation = row["generation"]
        if was is None or generation != was["generation"]:
            if generation is not None and not row["rebuilt"]:
                if line.kind != "Claim" or line.old != "available":
                    yield f"{at}: a generation without a claim (6)"
                if (key, generation) in claims:
                    yield f"{at}: generation {generation} was claimed before, by {claims[key, generation]} (1)"
                claims[key, generation] = row["claim_id"]
                if generation <= highest.get(key, 0):
                    yield f"{at}: generation {generation} after {highest[key]} (6)"
            highest[key] = max(highest.get(key, 0), generation or 0)
        elif line.kind == "Claim":
            yield f"{at}: a claim without a new generation (6)"
        if row["handed_out"] and not (was or {}).get("handed_out"):
            handed[row["claim_id"]] = handed.get(row["claim_id"], 0) + 1
            if line.kind != "HandOut" or line.old != "prepared" or was is None or not was["prepare_leaf"]:
                yield f"{at}: a permit without a prepared row (3)"
        elif line.kind == "HandOut":
            yield f"{at}: a permit was handed out again (5)"
        if any(number > 1 for number in handed.values()):
            yield f"{at}: one claim has two permits (5)"
        if line.old == "unresolved" and row["state"] != "unresolved":
            ends = {"Success", "Outcome", "NotExecuted", "WriteOff", "CloseUnprepared"}
            if line.kind not in ends or not (row["evidence"] or line.kind == "WriteOff"):
                yield f"{at}: a doubt ended without evidence and decision (8)"
        if row["state"] == "available" and line.old != "proposed":
            yield f"{at}: a way back to available (8)"
        before[line.action_id] = row
