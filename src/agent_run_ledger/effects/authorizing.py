"""Who may ask an effect ledger for what, by its trust file: one place for every command, and for the audit."""

from __future__ import annotations

from typing import Final

from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.dsse import Envelope
from agent_run_ledger.kernel.effects import Action, Now, Role, Standing
from agent_run_ledger.kernel.effects.clock import CorrectClock
from agent_run_ledger.kernel.effects.commands import (
    Actor,
    Command,
    Doubt,
    Edit,
    NotExecuted,
    Observe,
    Outcome,
    Propose,
    Reject,
    Revoke,
    WriteOff,
)
from agent_run_ledger.kernel.effects.decided import DECISION_TYPE, Decision, deciders, decision_bytes, is_decision
from agent_run_ledger.kernel.effects.principals import Principal, PrincipalKind, PublicKey
from agent_run_ledger.kernel.effects.trust import TrustFile
from agent_run_ledger.keys import signed_by

_LIST: Final = "`arl principals list` shows who has which role"
_SIGN: Final = "pass `sign` with the keys of all who decide; on the command line that is --key and --with-key"


def only_narrows(command: Command) -> bool:
    """Return whether a command gives nobody anything: a worker's report of its claim, a doubt, a revocation.

    To refuse one could lose evidence, or send what somebody wanted to stop. So who was opened before another trust file
    came into use is heard by the one of its opening, and whoever has keys, also when they are over.
    """
    return isinstance(command, Outcome | Doubt | Revoke)


def check_command(trust: TrustFile, ledger: Standing, row: Action | None, command: Command, now: Now) -> None:
    """Refuse a command of somebody who may not ask for it. `row`: the action as it stands, None for a new key.

    Refused: "unknown_principal" for nobody of the trust file, "wrong_role" for a role that it does not give them,
    "key_expired" where they have keys and none counts now; "not_an_approver" for who closes or changes what another
    policy's approvers decide about; for a decision as `_check_decision` says.
    """
    who = _somebody(trust, command.actor.principal)
    _check_roles(who, command.actor)
    if not only_narrows(command):
        _check_keys(who, now)
    if row is None or isinstance(command, Propose):
        return
    if isinstance(command, Reject | Edit) and _as_approver(command):
        _check_approver(trust, row, who)
    if is_decision(command) or (isinstance(command, Observe) and command.signatures):
        _check_decision(trust, ledger, row, command, now)


def check_officers(trust: TrustFile, command: CorrectClock, now: Now) -> None:
    """Refuse a correction of the clock by others than officers, each with a key that counts now, and enough of them.

    Refused: "unknown_principal", "wrong_role", "key_expired", "few_officers".
    """
    names = command.people | {command.actor.principal}
    _check_roles(_somebody(trust, command.actor.principal), command.actor)
    for name in sorted(names):
        who = _somebody(trust, name)
        _check_role(who, Role.OFFICER)
        _check_keys(who, now)
    if len(names) < trust.officers_needed:
        said = f"{len(names)} officers decide, and the trust file wants {trust.officers_needed}"
        raise Refused(said, code="few_officers", hint="name those who decide together in `people`")


def _somebody(trust: TrustFile, name: str) -> Principal:
    who = trust.principal(name)
    if who is None:
        raise Refused(f"{name!r} is nobody of the trust file", code="unknown_principal", hint=_LIST)
    return who


def _check_roles(who: Principal, actor: Actor) -> None:
    for role in sorted(actor.roles):
        _check_role(who, role)


def _check_role(who: Principal, role: Role) -> None:
    if role not in who.roles:
        raise Refused(f"{who.name!r} is no {role} by the trust file", code="wrong_role", hint=_LIST)


def _check_keys(who: Principal, now: Now) -> None:
    if who.keys and not any(_counts(key, now) for key in who.keys):
        said = f"no key of {who.name!r} counts now"
        raise Refused(said, code="key_expired", hint="a later trust file gives them another one")


def _counts(key: PublicKey, now: Now) -> bool:
    return key.begun(now) and not key.over(now)


def _as_approver(command: Reject | Edit) -> bool:
    """Return whether somebody asks as an approver; who has no role for it is refused by the rules."""
    roles = command.actor.roles
    return Role.APPROVER in roles and (isinstance(command, Reject) or Role.REQUESTER not in roles)


def _check_approver(trust: TrustFile, row: Action, who: Principal) -> None:
    """Refuse an approver of another policy than the action's. One that is a policy no more has no approvers."""
    policy = trust.policy(row.terms.policy_sha256)
    if policy is None or who.name not in policy.approvers:
        said = f"{who.name!r} is no approver of the policy of action {row.action_id.hex()}"
        raise Refused(said, code="not_an_approver", hint="one of its policy decides; a revoker can revoke it")


def _check_decision(trust: TrustFile, ledger: Standing, row: Action, command: Decision, now: Now) -> None:
    """Refuse a decision that not each of its deciders signed, as the action stands.

    Where several decide, they are people. A program that has no key closes alone what a drain and the look after it
    prove, and nothing by a word that no key stands for. Refused: "unknown_principal", "wrong_role", "no_person",
    "key_expired", "not_signed", "bad_signature", "other_key".
    """
    names = deciders(command)
    together = isinstance(command, WriteOff) or len(names) > 1
    if not together and _closes_by_proof(command) and _is_keyless(_somebody(trust, command.actor.principal)):
        return
    signed = Envelope(DECISION_TYPE, decision_bytes(ledger, row, command), command.signatures)
    left = {one.key_id for one in command.signatures}
    for name in sorted(names):
        who = _somebody(trust, name)
        _check_role(who, Role.RECONCILER)
        if together and who.kind is not PrincipalKind.PERSON:
            raise Refused(f"{name!r} is no person: people decide this together", code="no_person", hint=_LIST)
        _check_keys(who, now)
        left -= _check_signature(who, signed, now)
    if left:
        raise Refused(f"key {min(left)} signed, and is that of nobody who decides", code="other_key", hint=_SIGN)


def _closes_by_proof(command: Decision) -> bool:
    return isinstance(command, NotExecuted) and command.fence is None and not command.signatures


def _is_keyless(who: Principal) -> bool:
    return who.kind is PrincipalKind.AUTOMATIC and not who.keys


def _check_signature(who: Principal, signed: Envelope, now: Now) -> frozenset[str]:
    """Return the ids of the keys by which somebody signed. Refused where they did not, or signed something else."""
    given = {one.key_id for one in signed.signatures}
    theirs = [key for key in who.keys if key.key_id in given and _counts(key, now)]
    if not theirs:
        said = f"this is decided by signature, and none is by a key of {who.name!r} that counts now"
        raise Refused(said, code="not_signed", hint=_SIGN)
    for key in theirs:
        if not signed_by(signed, key.public):
            said = f"{who.name!r} did not sign this decision about the action as it stands"
            raise Refused(said, code="bad_signature", hint="look at the action again, and sign it as it is now")
    return frozenset(key.key_id for key in theirs)
