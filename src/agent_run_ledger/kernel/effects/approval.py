"""The statement that approvers sign: its fields, its canonical bytes and its digest (format: approval v1)."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.canonical import Json, canonical
from agent_run_ledger.kernel.effects.action import Action, Standing
from agent_run_ledger.kernel.effects.states import TargetClass
from agent_run_ledger.kernel.strict_json import (
    NotStrict,
    bytes_of,
    exactly,
    list_of,
    number_of,
    read_strict,
    shown,
    text_of,
    truth_of,
)

APPROVAL_DOMAIN: Final = b"arl/approval/v1\n"
APPROVAL_TYPE: Final = "application/vnd.agent-run-ledger.approval.v1+json"
APPROVAL_VERSION: Final = 1
MAX_STATEMENT_BYTES: Final = 1 << 18

_BYTES: Final = ("ledger_id", "action_id", "request_sha256", "policy_sha256", "display_sha256", "nonce")
_NUMBERS: Final = ("epoch", "not_before_ms", "dispatch_before_ms")
_TEXTS: Final = ("action_key", "executor", "audience", "requester", "approver")
_OTHERS: Final = ("target_class", "checks_expiry", "preconditions", "v")


class BadStatement(Refused, ValueError):
    """Bytes that are no statement, or none in the form in which it is signed."""

    code = "bad_statement"


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What one approver signs: exactly these bytes, by this executor, to this audience, in this epoch and window.

    Ids and digests are bytes here and lower-case hex in the canonical form, times Unix milliseconds. `nonce` is that
    of one authorisation instance, which all approvers of it share.
    """

    ledger_id: bytes
    epoch: int
    action_key: str
    action_id: bytes
    request_sha256: bytes
    executor: str
    audience: str
    target_class: TargetClass
    checks_expiry: bool
    preconditions: tuple[tuple[str, str], ...]
    not_before_ms: int
    dispatch_before_ms: int
    policy_sha256: bytes
    display_sha256: bytes
    requester: str
    approver: str
    nonce: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedApproval:
    """A statement with the principal whose signature over `signed_sha256` was verified elsewhere.

    `key_id` and `signature`: the key that signed it and the 64 bytes that it made, by which anybody can verify it
    later; empty where the ledger was not told.
    """

    approval_id: bytes
    statement: Statement
    signed_sha256: bytes
    principal: str
    key_id: str = ""
    signature: bytes = b""


def statement_of(ledger: Standing, action: Action, *, approver: str, nonce: bytes) -> Statement:
    """Return the statement that `approver` has to sign for `action` as the ledger stands."""
    terms = action.terms
    return Statement(
        ledger_id=ledger.ledger_id,
        epoch=ledger.epoch,
        action_key=action.action_key,
        action_id=action.action_id,
        request_sha256=terms.request_sha256,
        executor=terms.executor,
        audience=terms.audience,
        target_class=terms.target_class,
        checks_expiry=terms.checks_expiry,
        preconditions=terms.preconditions,
        not_before_ms=terms.not_before_ms,
        dispatch_before_ms=terms.dispatch_before_ms,
        policy_sha256=terms.policy_sha256,
        display_sha256=terms.display_sha256,
        requester=action.requester,
        approver=approver,
        nonce=nonce,
    )


def statement_bytes(statement: Statement) -> bytes:
    """Return the RFC 8785 bytes of a statement; NotCanonical for text or numbers that JSON cannot say exactly."""
    tree: Json = {
        "action_id": statement.action_id.hex(),
        "action_key": statement.action_key,
        "approver": statement.approver,
        "audience": statement.audience,
        "checks_expiry": statement.checks_expiry,
        "dispatch_before_ms": statement.dispatch_before_ms,
        "display_sha256": statement.display_sha256.hex(),
        "epoch": statement.epoch,
        "executor": statement.executor,
        "ledger_id": statement.ledger_id.hex(),
        "nonce": statement.nonce.hex(),
        "not_before_ms": statement.not_before_ms,
        "policy_sha256": statement.policy_sha256.hex(),
        "preconditions": [[name, value] for name, value in statement.preconditions],
        "request_sha256": statement.request_sha256.hex(),
        "requester": statement.requester,
        "target_class": str(statement.target_class),
        "v": APPROVAL_VERSION,
    }
    return canonical(tree)


def statement_sha256(statement: Statement) -> bytes:
    """Return the 32 bytes that are signed: SHA-256 over APPROVAL_DOMAIN and the canonical statement."""
    return sha256(APPROVAL_DOMAIN + statement_bytes(statement)).digest()


def statement_from(data: bytes) -> Statement:
    """Return the statement of these canonical bytes; BadStatement for anything that `statement_bytes` does not give."""
    try:
        tree = exactly(read_strict(data, limit=MAX_STATEMENT_BYTES), (*_BYTES, *_NUMBERS, *_TEXTS, *_OTHERS), "it")
        if number_of(tree["v"], "v") != APPROVAL_VERSION:
            raise NotStrict(f"its version is {shown(tree['v'])}")
        pairs = [list_of(pair, "a precondition") for pair in list_of(tree["preconditions"], "preconditions")]
        if any(len(pair) != 2 for pair in pairs):
            raise NotStrict("a precondition is a pair of name and expected value")
        held: dict[str, Any] = {
            **{name: bytes_of(tree[name], name) for name in _BYTES},
            **{name: number_of(tree[name], name) for name in _NUMBERS},
            **{name: text_of(tree[name], name) for name in _TEXTS},
            "target_class": _class_of(tree["target_class"]),
            "checks_expiry": truth_of(tree["checks_expiry"], "checks_expiry"),
            "preconditions": tuple([(text_of(a, "a name"), text_of(b, "an expected value")) for a, b in pairs]),
        }
        statement = Statement(**held)
        if statement_bytes(statement) != data:
            raise NotStrict("its bytes are not the canonical ones")
    except NotStrict as error:
        raise BadStatement(f"this is no approval statement: {error}") from None
    return statement


def _class_of(tree: object) -> TargetClass:
    text = text_of(tree, "target_class")
    if text not in set(TargetClass):
        raise NotStrict(f"target_class is one of {', '.join(TargetClass)}, not {shown(text)}")
    return TargetClass(text)
