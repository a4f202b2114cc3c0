"""What the effects of a run's calls came to: the actions that the records of the calls name, as they stand now."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from agent_run_ledger.effects.views import CLASS_WORDS, status_words
from agent_run_ledger.errors import LedgerError
from agent_run_ledger.kernel.effects.trust import TrustFile
from agent_run_ledger.ledger.call_view import CallsView
from agent_run_ledger.ports import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectLine:
    """One action that a call of a run was about. `status`: its state in words. `members`: how many its key has.

    `policy` is the name of the policy that counts its approvals, "" where no trust file is found that has one of its
    digest, `policy_sha256` in hex. `guarantee` is what its target's class is good for. `evidence` are ids in hex, in
    the order recorded.
    """

    action_id: str
    action_key: str
    status: str
    audience: str
    guarantee: str
    policy: str
    policy_sha256: str
    approvals: tuple[str, ...]
    approvals_needed: int
    evidence: tuple[str, ...]
    members: int


def effect_lines(store: Store, calls: CallsView | None, now_ms: int) -> Mapping[str, EffectLine]:
    """Return by id (32 hex digits) the actions of a run's calls; nothing for an id that the store has no action of."""
    named = [] if calls is None else [call.effect for call in calls.calls if call.effect]
    trust = _trust(store) if named else None
    found = ((name, _line(store, name, now_ms, trust)) for name in dict.fromkeys(named))
    return {name: line for name, line in found if line is not None}


def _trust(store: Store) -> TrustFile | None:
    """Return the trust file that is there, for the names of policies: a digest has one name, in whichever file."""
    from agent_run_ledger.ledger.authority import find_authority  # with the store and its driver: no help needs them

    with suppress(LedgerError):
        found = find_authority(store.location, on_record=store.reader().effects.trust)
        return None if found is None else found.trust
    return None


def _line(store: Store, action_id: str, now_ms: int, trust: TrustFile | None) -> EffectLine | None:
    reader = store.reader().effects
    try:
        stored = reader.action(bytes.fromhex(action_id))
    except ValueError:
        return None
    if stored is None:
        return None
    action = stored.action
    policy = None if trust is None else trust.policy(action.terms.policy_sha256)
    return EffectLine(
        action_id=action_id,
        action_key=action.action_key,
        status=status_words(action, now_ms=now_ms),
        audience=action.terms.audience,
        guarantee=CLASS_WORDS[action.terms.target_class],
        policy="" if policy is None else policy.name,
        policy_sha256=action.terms.policy_sha256.hex(),
        approvals=tuple(one.principal for one in action.approvals),
        approvals_needed=action.terms.approvals_needed,
        evidence=tuple(one.hex() for one in action.evidence),
        members=len(reader.members(action.action_key)),
    )
