"""Rows of actions as the values of the rules, in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import orjson

from agent_run_ledger.errors import Tampered
from agent_run_ledger.kernel.effects.action import Action, Approval, Terms
from agent_run_ledger.kernel.effects.evidence import Drain, Observation
from agent_run_ledger.kernel.effects.plain import from_plain, to_plain
from agent_run_ledger.kernel.effects.states import ActionState, TargetClass
from agent_run_ledger.kernel.effects.trust_change import TrustOnRecord
from agent_run_ledger.ports.effects import (
    StoredAction,
    StoredAnswer,
    StoredCorrection,
    StoredTransition,
    StoredTrustChange,
)
from agent_run_ledger.store.rows import Row

_SHORT_BYTES, _MOST_KEPT = 1_024, 512
_APPROVAL: Final = 30
"""Where the columns of an approval begin; this one, its row id, is None where there is none."""
_row_id = itemgetter(27)
_integers = itemgetter(3, 4, 11, 12, 13, 14, 19, 23, 25, 27, 28, 29)
_STATES: Final = {state.value: state for state in ActionState}
_CLASSES: Final = {one.value: one for one in TargetClass}


@dataclass(frozen=True, slots=True, kw_only=True)
class More:
    """What a row keeps in `more`: the parts of an action that no statement asks for."""

    policy_sha256: bytes
    display_sha256: bytes
    checks_expiry: bool = False
    preconditions: tuple[tuple[str, str], ...] = ()
    replaces: bytes | None = None
    drain: Drain | None = None
    drain_corrections: int = 0
    observation: Observation | None = None
    fenced_mark: int | None = None
    evidence: tuple[bytes, ...] = ()
    demoted_epoch: int | None = None


def more_of(action: Action) -> bytes:
    """Return `more` of a row, as compact JSON with sorted keys."""
    terms = action.terms
    more = More(
        policy_sha256=terms.policy_sha256,
        display_sha256=terms.display_sha256,
        checks_expiry=terms.checks_expiry,
        preconditions=terms.preconditions,
        replaces=action.replaces,
        drain=action.drain,
        drain_corrections=action.drain_corrections,
        observation=action.observation,
        fenced_mark=action.fenced_mark,
        evidence=action.evidence,
        demoted_epoch=action.demoted_epoch,
    )
    return orjson.dumps(to_plain(more), option=orjson.OPT_SORT_KEYS)


def row_of_action(action: Action, now_ms: int) -> Row:
    """Return the bindings of `insert_action`; `now_ms` is when it came and changed."""
    terms = action.terms
    return (
        action.action_id,
        action.action_key,
        action.state.value,
        action.epoch,
        action.floor,
        action.generation,
        action.requester,
        terms.executor,
        terms.audience,
        terms.target_class.value,
        terms.request_sha256,
        terms.not_before_ms,
        terms.dispatch_before_ms,
        terms.approvals_needed,
        int(action.revoked),
        action.claim_id,
        action.claim_key,
        action.worker,
        action.claimed_ms,
        int(action.prepare_leaf),
        action.opening,
        action.prepared_ms,
        action.permit_expires_ms,
        int(action.handed_out),
        action.in_doubt_since_ms,
        int(action.rebuilt),
        more_of(action),
        now_ms,
        now_ms,
    )


def actions_from(rows: Sequence[Row]) -> list[StoredAction]:
    """Return the members that rows of the columns of `select_members` hold, one for each approval, oldest first.

    Tampered("corrupt") where a column holds what it never held.
    """
    try:
        if len(rows) == 1:
            return [_action_from(rows[0], rows)]
        each = [list(some) for _, some in groupby(sorted(rows, key=_place), _row_id)]
        return [_action_from(of_one[0], of_one) for of_one in each]
    except (ValueError, TypeError, KeyError) as error:
        raise Tampered(f"a row of an action is not as it was written: {error}", code="corrupt") from error


def _place(row: Row) -> tuple[int, int]:
    return row[27], row[_APPROVAL] or 0


def _action_from(row: Row, approvals: Sequence[Row]) -> StoredAction:
    stored: Any = row[26]
    is_short = isinstance(stored, bytes) and len(stored) <= _SHORT_BYTES
    more = _short_more_from(stored) if is_short else _more_from(stored)
    if set(map(type, _integers(row))) != {int}:
        raise ValueError("a number is none")
    terms = Terms(
        request_sha256=row[10],
        executor=row[7],
        audience=row[8],
        target_class=_CLASSES[row[9]],
        not_before_ms=row[11],
        dispatch_before_ms=row[12],
        policy_sha256=more.policy_sha256,
        display_sha256=more.display_sha256,
        approvals_needed=row[13],
        checks_expiry=more.checks_expiry,
        preconditions=more.preconditions,
    )
    action = Action(
        action_key=row[1],
        action_id=row[0],
        epoch=row[3],
        floor=row[4],
        state=_STATES[row[2]],
        requester=row[6],
        terms=terms,
        generation=row[5],
        approvals=tuple([_approval_from(one) for one in approvals if one[_APPROVAL] is not None]),
        revoked=bool(row[14]),
        claim_id=row[15],
        claim_key=row[16],
        worker=row[17],
        claimed_ms=row[18],
        prepare_leaf=bool(row[19]),
        opening=row[20],
        prepared_ms=row[21],
        permit_expires_ms=row[22],
        handed_out=bool(row[23]),
        in_doubt_since_ms=row[24],
        replaces=more.replaces,
        drain=more.drain,
        drain_corrections=more.drain_corrections,
        observation=more.observation,
        fenced_mark=more.fenced_mark,
        evidence=more.evidence,
        demoted_epoch=more.demoted_epoch,
        rebuilt=bool(row[25]),
    )
    return StoredAction(row_id=row[27], action=action, proposed_at_ms=row[28], changed_at_ms=row[29])


def _more_from(stored: Any) -> More:
    more: More = from_plain(More, orjson.loads(stored))
    return more


_short_more_from: Final = lru_cache(maxsize=_MOST_KEPT)(_more_from)
"""The same from memory: all transitions of a claim up to its outcome find the same bytes."""


def transition_row(row: Row) -> StoredTransition:
    """Return the record of a transition of its columns. Tampered("corrupt") where they hold other types."""
    values: Any = row
    record_id, action_id, salt, payload = values
    if not isinstance(salt, bytes) or not isinstance(payload, bytes):
        raise Tampered(f"the record {record_id} of a transition holds a value of another type", code="corrupt")
    return StoredTransition(record_id=record_id, action_id=action_id, salt=salt, payload=payload)


def answer_row(row: Row) -> StoredAnswer:
    """Return an answer of its columns. Tampered("corrupt") where they hold other types."""
    values: Any = row
    evidence_id, status, body = values
    if not isinstance(evidence_id, bytes) or not isinstance(status, int | None) or not isinstance(body, bytes):
        raise Tampered("an answer of a target holds a value of another type", code="corrupt")
    return StoredAnswer(evidence_id=evidence_id, status=status, body=body)


def trust_on_record(rows: list[Row]) -> TrustOnRecord | None:
    """Return which trust file is in use, None without a row. Tampered("corrupt") for other types."""
    if not rows:
        return None
    sha256, serial = rows[0]
    if (type(sha256), type(serial)) != (bytes, int):
        raise Tampered("the record of the trust file in use holds another type", code="corrupt")
    return TrustOnRecord(sha256=sha256, serial=serial)


def trust_change_row(row: Row) -> StoredTrustChange:
    """Return the record of a trust file of its columns. Tampered("corrupt") where they hold other types."""
    record_id, sha256, serial, salt, payload = row
    if (type(sha256), type(serial), type(salt), type(payload)) != (bytes, int, bytes, bytes):
        raise Tampered(f"the record {record_id} of a trust file holds another type", code="corrupt")
    return StoredTrustChange(record_id=record_id, sha256=sha256, serial=serial, salt=salt, payload=payload)


def correction_row(row: Row) -> StoredCorrection:
    """Return the record of a clock correction of its columns. Tampered("corrupt") where they hold other types."""
    values: Any = row
    record_id, later_ms, salt, payload = values
    if not isinstance(later_ms, int) or not isinstance(salt, bytes) or not isinstance(payload, bytes):
        raise Tampered(f"the record {record_id} of a clock correction holds another type", code="corrupt")
    return StoredCorrection(record_id=record_id, later_ms=later_ms, salt=salt, payload=payload)


def row_of_approval(approval: Approval, action_row_id: int) -> Row:
    """Return the bindings of `insert_approval`."""
    return (
        approval.approval_id,
        action_row_id,
        approval.principal,
        approval.epoch,
        approval.nonce,
        approval.statement_sha256,
    )


def _approval_from(row: Row) -> Approval:
    values: Any = row[_APPROVAL + 1 :]
    approval_id, principal, epoch, nonce, statement_sha256 = values
    return Approval(
        approval_id=approval_id, principal=principal, epoch=epoch, nonce=nonce, statement_sha256=statement_sha256
    )
