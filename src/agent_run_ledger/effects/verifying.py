"""Whether a signed approval counts: who signed it, under which trust, for exactly which action, and until when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.dsse import Envelope, Signature, read_envelope
from agent_run_ledger.kernel.effects import Action, Now, Standing
from agent_run_ledger.kernel.effects.approval import (
    APPROVAL_TYPE,
    MAX_STATEMENT_BYTES,
    Statement,
    VerifiedApproval,
    statement_bytes,
    statement_from,
    statement_of,
    statement_sha256,
)
from agent_run_ledger.kernel.effects.principals import ApprovalPolicy, Principal, PrincipalKind, PublicKey
from agent_run_ledger.kernel.effects.trust import TrustFile
from agent_run_ledger.keys import signed_by

MAX_APPROVAL_BYTES: Final = 2 * MAX_STATEMENT_BYTES
MIN_NONCE_BYTES: Final = 16
APPROVAL_ID_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One approval before the checks: what was signed, and all that it is held against."""

    envelope: Envelope
    statement: Statement
    trust: TrustFile
    ledger: Standing
    action: Action
    now: Now

    @property
    def expected(self) -> Statement:
        """What has to be signed for the action as the ledger stands."""
        return statement_of(self.ledger, self.action, approver=self.statement.approver, nonce=self.statement.nonce)

    @property
    def principal(self) -> Principal:
        """Who says that they signed. LookupError for nobody, which the first check asks."""
        found = self.trust.principal(self.statement.approver)
        if found is None:
            raise LookupError(self.statement.approver)
        return found

    @property
    def key(self) -> PublicKey:
        """The key of theirs that the signature names. LookupError where it is not theirs."""
        found = self.principal.key(self.envelope.signatures[0].key_id)
        if found is None:
            raise LookupError(self.envelope.signatures[0].key_id)
        return found

    @property
    def policy(self) -> ApprovalPolicy:
        """The policy that the statement names. LookupError where the trust file has none of that digest."""
        found = self.trust.policy(self.statement.policy_sha256)
        if found is None:
            raise LookupError(self.statement.policy_sha256.hex())
        return found


@dataclass(frozen=True, slots=True)
class Check:
    """One condition of an approval: where it does not hold, the answer is Refused(code, words, hint)."""

    code: str
    words: str
    holds: Callable[[_Case], bool]
    hint: str = ""


def _same_action(case: _Case) -> bool:
    signed, action = case.statement, case.action
    return (signed.action_key, signed.action_id) == (action.action_key, action.action_id)


def _same_window(case: _Case) -> bool:
    signed, terms = case.statement, case.action.terms
    return (signed.not_before_ms, signed.dispatch_before_ms) == (terms.not_before_ms, terms.dispatch_before_ms)


def _knows(ask: Callable[[_Case], object]) -> Callable[[_Case], bool]:
    """Return the condition that what a case is asked for is there."""

    def holds(case: _Case) -> bool:
        try:
            ask(case)
        except LookupError:
            return False
        return True

    return holds


def _leaves_room_for_people(case: _Case) -> bool:
    """Whether people can still give as many of the approvals as the policy wants of them."""
    if case.principal.kind is PrincipalKind.PERSON:
        return True
    kinds = {one.name: one.kind for one in case.trust.principals}
    programs = sum(kinds.get(one.principal) is not PrincipalKind.PERSON for one in case.action.approvals)
    return programs + 1 <= case.policy.approvals_needed - case.policy.people_needed


CHECKS: Final[tuple[Check, ...]] = (
    Check("other_trust", "the trust file is that of another ledger", lambda c: c.trust.ledger_id == c.ledger.ledger_id),
    Check("one_signature", "an approval has one signature", lambda c: len(c.envelope.signatures) == 1),
    Check("unknown_principal", "nobody of that name is in the trust file", _knows(lambda c: c.principal)),
    Check("other_key", "the key is not one of theirs", _knows(lambda c: c.key)),
    Check("key_not_yet_valid", "the key does not count yet", lambda c: c.key.begun(c.now)),
    Check("key_expired", "the key counts no more", lambda c: not c.key.over(c.now)),
    Check("bad_signature", "the key did not sign these bytes", lambda c: signed_by(c.envelope, c.key.public)),
    Check("other_ledger", "it is about another ledger", lambda c: c.statement.ledger_id == c.ledger.ledger_id),
    Check(
        "old_epoch",
        "an approval is valid in one epoch only, and this is another",
        lambda c: c.statement.epoch == c.ledger.epoch == c.action.epoch,
    ),
    Check("other_action", "it is about another action", _same_action),
    Check(
        "other_request",
        "it is about other bytes",
        lambda c: c.statement.request_sha256 == c.action.terms.request_sha256,
    ),
    Check(
        "other_policy", "it names another policy", lambda c: c.statement.policy_sha256 == c.action.terms.policy_sha256
    ),
    Check("other_window", "it names another window", _same_window),
    Check(
        "other_terms",
        "it names another executor, audience, class, precondition, display or requester",
        lambda c: c.statement == c.expected,
    ),
    Check("unknown_policy", "no policy of the trust file has that digest", _knows(lambda c: c.policy)),
    Check(
        "not_an_approver", "they are no approver of that policy", lambda c: c.statement.approver in c.policy.approvers
    ),
    Check(
        "other_count",
        "the action waits for another number of approvals than its policy wants",
        lambda c: c.action.terms.approvals_needed == c.policy.approvals_needed,
    ),
    Check("needs_people", "the approvals that are left are for people to give", _leaves_room_for_people),
    Check(
        "window_too_long",
        "its window is longer than the policy allows",
        lambda c: c.statement.dispatch_before_ms - c.statement.not_before_ms <= c.policy.max_window_ms,
    ),
    Check("expired", "its window is over", lambda c: c.now.latest_ms < c.statement.dispatch_before_ms),
    Check(
        "short_nonce",
        f"the nonce of an authorisation has at least {MIN_NONCE_BYTES} bytes",
        lambda c: len(c.statement.nonce) >= MIN_NONCE_BYTES,
    ),
    Check(
        "replayed",
        "this approval counts already",
        lambda c: all(one.statement_sha256 != statement_sha256(c.statement) for one in c.action.approvals),
    ),
    Check(
        "other_instance",
        "all approvals of an action belong to one authorisation instance",
        lambda c: all(one.nonce == c.statement.nonce for one in c.action.approvals),
        hint="somebody approved meanwhile: sign it again with `ActionView.nonce` as it is now",
    ),
)
"""In the order in which they are asked: first who signed and that they did, then what."""


def verify_approval(data: bytes, trust: TrustFile, *, ledger: Standing, action: Action, now: Now) -> VerifiedApproval:
    """Return the approval that an envelope holds, for an action as the ledger stands: its signer is an approver of it.

    Refused with the code of the first of CHECKS that does not hold, or as `read_envelope` and `statement_from` say.
    What it returns still passes the rules of the ledger, which know who asked, who carries out and who approved before.
    The approval's id is the beginning of its statement's digest: the same statement signed anew is the same approval.
    """
    envelope, statement = read_approval(data)
    _check(_Case(envelope=envelope, statement=statement, trust=trust, ledger=ledger, action=action, now=now))
    return approval_said(envelope, statement)


def verify_recorded(
    approval: VerifiedApproval, trust: TrustFile, *, ledger: Standing, action: Action, now: Now
) -> None:
    """Verify an approval that is on record, as `verify_approval` did when it came, and refuse as that does."""
    statement = approval.statement
    signature = Signature(approval.key_id, approval.signature)
    envelope = Envelope(APPROVAL_TYPE, statement_bytes(statement), (signature,))
    _check(_Case(envelope=envelope, statement=statement, trust=trust, ledger=ledger, action=action, now=now))


def _check(case: _Case) -> None:
    """Refuse with the first of CHECKS that does not hold."""
    for check in CHECKS:
        if not check.holds(case):
            who, action = case.statement.approver, case.action
            said = f"the approval of {who!r} for action {action.action_id.hex()} of {action.action_key!r}"
            raise Refused(f"{said} does not count: {check.words}", code=check.code, hint=check.hint)


def read_approval(data: bytes) -> tuple[Envelope, Statement]:
    """Return the envelope and the statement that bytes hold, of which nothing is verified."""
    envelope = read_envelope(data, payload_type=APPROVAL_TYPE, limit=MAX_APPROVAL_BYTES)
    return envelope, statement_from(envelope.payload)


def approval_said(envelope: Envelope, statement: Statement) -> VerifiedApproval:
    """Return what an envelope says of itself: only `verify_approval` says that it is so."""
    digest, signature = statement_sha256(statement), envelope.signatures[0]
    return VerifiedApproval(
        approval_id=digest[:APPROVAL_ID_BYTES],
        statement=statement,
        signed_sha256=digest,
        principal=statement.approver,
        key_id=signature.key_id,
        signature=signature.value,
    )
