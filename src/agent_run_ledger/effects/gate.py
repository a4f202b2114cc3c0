"""What a trust file asks of commands, inside of the transaction that decides about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from agent_run_ledger.effects.authorizing import check_command, check_officers, only_narrows
from agent_run_ledger.effects.sizes import NONCE_BYTES
from agent_run_ledger.effects.trusting import SignedTrust
from agent_run_ledger.effects.verifying import approval_said, read_approval, verify_approval, verify_recorded
from agent_run_ledger.errors import Refused, Tampered
from agent_run_ledger.kernel.effects import Action, ActionState, LedgerState, Now, Standing, Terms
from agent_run_ledger.kernel.effects.approval import BadStatement, Statement
from agent_run_ledger.kernel.effects.clock import CorrectClock
from agent_run_ledger.kernel.effects.commands import (
    Actor,
    Approve,
    Claim,
    Command,
    Edit,
    HandOut,
    NotExecuted,
    Observe,
    Prepare,
    Propose,
    Successor,
)
from agent_run_ledger.kernel.effects.decision import Accepted
from agent_run_ledger.kernel.effects.evidence import Drain, DrainKind
from agent_run_ledger.kernel.effects.principals import ApprovalPolicy
from agent_run_ledger.kernel.effects.record import command_from
from agent_run_ledger.kernel.effects.reducer import decide
from agent_run_ledger.kernel.effects.trust import TrustFile
from agent_run_ledger.kernel.effects.trust_change import TrustOnRecord
from agent_run_ledger.ports.effects import EffectTx

_ADMITTED: Final = (Propose, Edit, Successor, Claim, Prepare, HandOut)
"""What `admit` compares with the trust file on record, after the rules: they may know the answer already."""

NO_TRUST: Final = "open the ledger with its trust file (`open_effects`); `arl init --local` makes one"
NAME_TRUST: Final = (
    "name that file: --trust or AGENT_RUN_LEDGER_TRUST, in a program also `EffectSettings(trust=…)` or "
    "`open_effects(trust_path=…)`; no other one takes its place, and where it is lost, a backup has it"
)
"""What leads on where a trust file is on record, and none is given."""

_SIGN: Final = "let an approver sign it, and call `grant` with the envelope (`arl approvals grant`)"
_ANEW: Final = "ask for it anew: edit what is proposed, or make a successor of what was revoked or rejected"
_NO_MORE: Final = "revoke it, and make a successor that people approve anew"
_BY_PEOPLE: Final = "evidence that the paths are dead leads on: a drain and a decision that people sign"
_POLICY: Final = "take the digest and the numbers of a policy of the trust file (`arl trust show`)"


class Gate:
    """Guarantees, where there is a trust file: no approval counts but one that it verifies, by the rows, the standing
    and the time of the transaction; nobody asks for anything whose role it does not give them; no doubt ends without
    the effect but by who signs that; nothing is asked for that its policies do not allow; and what waits under a policy
    that it knows no more is neither claimed nor sent. Without a trust file everything passes, and signatures are the
    caller's business.
    """

    def __init__(self, trust: SignedTrust | None) -> None:
        self.trust = trust

    def said(self, envelope: bytes) -> Approve:
        """Return the approval that an envelope says it is, by whom it says; nothing of that is verified.

        Refused: "no_trust", "one_signature", "unknown_principal", "short_nonce", and as `read_approval` says.
        """
        if self.trust is None:
            raise Refused("without a trust file nobody knows whose signatures count", code="no_trust", hint=NO_TRUST)
        read, statement = read_approval(envelope)
        if len(read.signatures) != 1:
            raise Refused("an approval has one signature", code="one_signature")
        _check_nonce(statement)
        who = self.trust.trust.principal(statement.approver)
        if who is None:
            raise Refused(f"{statement.approver!r} is nobody of the trust file", code="unknown_principal")
        return Approve(
            actor=Actor(who.name, who.roles),
            now=Now(0, 0),
            action_id=statement.action_id,
            approval=approval_said(read, statement),
        )

    def verify(
        self,
        effects: EffectTx,
        ledger: Standing,
        members: tuple[Action, ...],
        command: Command,
        signed: bytes | None,
    ) -> None:
        """Refuse who may not ask, and an approval or a decision that the trust file does not bear, before the rules.

        `signed`: the envelope of an approval, None where the caller gives its word alone. Refused: "not_signed", and as
        `verify_approval`, `check_command` and `check_record` say.
        """
        if not isinstance(command, Approve):
            self._check_who(effects, ledger, members, command)
            return
        self.check_record(effects.trust())
        if self.trust is None:
            return
        action = _member(members, command.action_id)
        if signed is None:
            said = f"an approval of action {command.action_id.hex()} came without its signature"
            raise Refused(said, code="not_signed", hint=_SIGN)
        verify_approval(signed, self.trust.trust, ledger=ledger, action=action, now=command.now)

    def _check_who(self, effects: EffectTx, ledger: Standing, members: tuple[Action, ...], command: Command) -> None:
        """Refuse who may not ask, under the trust file on record. A copy is under none, and grants nothing."""
        if self.trust is None and ledger.state is LedgerState.RECOVERY:
            return
        if not only_narrows(command) and not isinstance(command, _ADMITTED):
            self.check_record(effects.trust())
        if self.trust is not None:
            about: bytes | None = getattr(command, "action_id", None)
            row = next((one for one in members if one.action_id == about), None)
            check_command(self.trust.trust, ledger, row, command, command.now)

    def check_correction(self, effects: EffectTx, command: CorrectClock, now: Now) -> None:
        """Refuse a correction of the clock by others than the officers: as `check_record` and `check_officers` say."""
        self.check_record(effects.trust())
        if self.trust is not None:
            check_officers(self.trust.trust, command, now)

    def admit(self, effects: EffectTx, ledger: Standing, members: tuple[Action, ...], command: Command) -> None:
        """Refuse what the rules allow and the trust file does not. Asked after the rules.

        What was proposed before there was a trust file may have been approved without a signature, so nothing of it is
        approved, claimed or sent. A claim verifies every approval again, under the trust file that is in use by then.
        No doubt ends by time alone but at a target of which approvers signed that it can. Refused: "unknown_policy",
        "other_count", "window_too_long", "unproved_expiry", "before_trust", for a claim and for what a program closes
        by its name also "not_signed" and as `verify_approval` says, and as `check_record` says.
        """
        if self.trust is not None and isinstance(command, Observe | NotExecuted):
            _check_end(effects, _member(members, command.action_id), command)
        if not isinstance(command, Propose | Edit | Successor | Approve | Claim | Prepare | HandOut):
            return
        self.check_record(effects.trust())
        if self.trust is None:
            return
        if isinstance(command, Propose | Edit | Successor):
            self._check_terms(command.terms)
            return
        self._policy(_member(members, command.action_id).terms)
        if effects.is_before_trust(command.action_id):
            said = f"action {command.action_id.hex()} was proposed before there was a trust file"
            raise Refused(said, code="before_trust", hint=_ANEW)
        if isinstance(command, Claim):
            self._verify_again(effects, ledger, members, _member(members, command.action_id), self.trust.trust)

    def _verify_again(
        self, effects: EffectTx, ledger: Standing, members: tuple[Action, ...], action: Action, trust: TrustFile
    ) -> None:
        """Refuse a claim whose row has other approvals than those on record make, each verified and decided anew.

        So who can write the rows approves nothing without the keys, and a key that the trust file has no more approved
        nothing. A key counts by the time at which its approval was recorded. What was claimed, revoked or closed by its
        records is not claimed either: no arrow leads back to `available`.
        """
        row = replace(action, state=ActionState.PROPOSED, approvals=())
        others = tuple(one for one in members if one.action_id != action.action_id)
        for command in _on_record(effects, action):
            if not isinstance(command, Approve):
                if not _makes(command, action):
                    raise _moved_before(action, command)
                continue
            if not command.approval.signature:
                raise _approved_by_nobody(action)
            try:
                verify_recorded(command.approval, trust, ledger=ledger, action=row, now=command.now)
            except Refused as error:
                error.hint = error.hint or _NO_MORE
                raise
            decision = decide(ledger, (*others, row), command)
            if not isinstance(decision, Accepted):
                raise _approved_by_nobody(action)
            row = decision.rows[0]
        if (row.state, row.approvals) != (ActionState.AVAILABLE, action.approvals):
            raise _approved_by_nobody(action)

    def check_record(self, found: TrustOnRecord | None) -> None:
        """Refuse to go on under another trust file than the one on record, which may have come meanwhile.

        Refused: "no_trust" without one, "other_trust" under another.
        """
        trust = self.trust
        if trust is None and found is not None:
            raise Refused("this ledger is under a trust file, and was opened without", code="no_trust", hint=NAME_TRUST)
        if trust is not None and (found is None or found.sha256 != trust.sha256):
            raise other_trust(trust, found)

    def _check_terms(self, terms: Terms) -> None:
        policy = self._policy(terms)
        if terms.approvals_needed != policy.approvals_needed:
            said = f"{terms.approvals_needed} approvals are asked for, and policy {policy.name!r} wants "
            raise Refused(f"{said}{policy.approvals_needed}", code="other_count", hint=_POLICY)
        window_ms = terms.dispatch_before_ms - terms.not_before_ms
        if window_ms > policy.max_window_ms:
            said = f"a window of {window_ms} ms is asked for, and policy {policy.name!r} allows {policy.max_window_ms}"
            raise Refused(said, code="window_too_long", hint=_POLICY)

    def _policy(self, terms: Terms) -> ApprovalPolicy:
        found = None if self.trust is None else self.trust.trust.policy(terms.policy_sha256)
        if found is None:
            said = f"the trust file has no policy with the digest {terms.policy_sha256.hex()}"
            raise Refused(said, code="unknown_policy", hint=_POLICY)
        return found


def other_trust(given: SignedTrust, found: TrustOnRecord | None) -> Refused:
    """Return the refusal of a trust file that is not the one on record, with what may be done."""
    said = f"the trust file given has the serial {given.trust.serial} and the digest {given.sha256.hex()}"
    if found is None:
        return Refused(f"{said}, and none is on record", code="other_trust", hint="open the ledger anew")
    if given.trust.serial > found.serial:
        hint = "`arl trust follow` puts it in use, where enough officers of both signed it"
    else:
        hint = f"it is an older one, or another: give the one with the serial {found.serial}"
    return Refused(f"{said}; on record is serial {found.serial}, {found.sha256.hex()}", code="other_trust", hint=hint)


def _check_end(effects: EffectTx, action: Action, command: Observe | NotExecuted) -> None:
    """Refuse an end of a doubt that rests on what nobody signed: the class of the target, or a drain before the trust
    file."""
    by_name = isinstance(command, NotExecuted) and not command.signatures
    if by_name and effects.is_before_trust(action.action_id):
        said = f"action {action.action_id.hex()} was proposed before there was a trust file"
        raise Refused(f"{said}: what is on record of it is a word", code="not_signed", hint=_BY_PEOPLE)
    drain = command.evidence if isinstance(command, Observe) else action.drain if command.fence is None else None
    if isinstance(drain, Drain) and drain.kind is DrainKind.EXPIRY and not _class_is_signed(effects, action):
        said = f"that time ends a doubt about action {action.action_id.hex()} is the word of who asked for it"
        raise Refused(f"{said}: its approvers did not sign it", code="unproved_expiry", hint=_BY_PEOPLE)


def _class_is_signed(effects: EffectTx, action: Action) -> bool:
    """Return whether as many approvers as it needs signed what its audience is taken for, under a trust file."""
    terms = action.terms
    approved = [one.approval for one in _on_record(effects, action) if isinstance(one, Approve)]
    told = [one for one in approved if one.signature]
    same = [
        one.principal
        for one in told
        if (one.statement.target_class, one.statement.checks_expiry) == (terms.target_class, terms.checks_expiry)
    ]
    return len(same) >= terms.approvals_needed and not effects.is_before_trust(action.action_id)


def _on_record(effects: EffectTx, action: Action) -> Iterator[Command]:
    """Yield what was asked for of an action, and what made it, in the order recorded."""
    for stored in effects.transitions(action.action_id):
        try:
            yield command_from(stored.payload)
        except (ValueError, KeyError, TypeError) as error:
            said = f"a record of action {action.action_id.hex()} cannot be read: {error}"
            raise Tampered(said, code="corrupt") from error


def _makes(command: Command, action: Action) -> bool:
    """Return whether a command made this member: it is proposed, or takes the place of another one."""
    return isinstance(command, Propose) or (
        isinstance(command, Edit | Successor) and command.new_action_id == action.action_id
    )


def _approved_by_nobody(action: Action) -> Refused:
    said = f"action {action.action_id.hex()} stands as approved, and the signatures on record do not say so"
    return Refused(said, code="not_signed", hint=f"`arl verify` compares it with the log; {_NO_MORE}")


def _moved_before(action: Action, command: Command) -> Refused:
    said = f"action {action.action_id.hex()} stands as available, and {command.event} is on record of it"
    return Refused(said, code="moved_before", hint="`arl verify` compares it with the log; nothing leads back there")


def _member(members: tuple[Action, ...], action_id: bytes) -> Action:
    return next(one for one in members if one.action_id == action_id)


def _check_nonce(statement: Statement) -> None:
    """Refuse what no record holds: it came from outside, and is nobody's mistake here."""
    if len(statement.nonce) < NONCE_BYTES[0]:
        raise Refused(f"the nonce of an authorisation has at least {NONCE_BYTES[0]} bytes", code="short_nonce")
    if len(statement.nonce) > NONCE_BYTES[-1]:
        raise BadStatement(f"the nonce of an authorisation has at most {NONCE_BYTES[-1]} bytes")
