"""People who decide about effects, for tests and trials: they make a store with a trust file, and hold its keys."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agent_run_ledger.effects.signing import sign_approval
from agent_run_ledger.effects.trusting import sign_trust
from agent_run_ledger.effects.views import ActionView
from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.effects import Role
from agent_run_ledger.kernel.effects.commands import Actor
from agent_run_ledger.kernel.effects.display import display
from agent_run_ledger.kernel.effects.evidence import Found, Observation
from agent_run_ledger.kernel.effects.principals import ApprovalPolicy, Principal, PrincipalKind, PublicKey
from agent_run_ledger.kernel.effects.trust import TrustFile
from agent_run_ledger.keys import SigningKey
from agent_run_ledger.ledger.authority import open_effects
from agent_run_ledger.ledger.effect_ledger import EffectLedger
from agent_run_ledger.ledger.run_effects import EffectSettings
from agent_run_ledger.store import open_store, refuse_server

DAY_MS: Final = 86_400_000
_BYTES: Final = 16
_APPROVERS: Final = ("ada", "dora")


class People:
    """Ada or Dora approves by policy `finance`, Ben looks after doubts, Cleo signs the trust file; each in their own
    process in earnest, and here all in one, with keys that nobody keeps.

    `db_path`: the store, or the URL of one, made with authority where there is none. `trust`: where the trust file is
    written, mode 0600, beside the store by default; at a server there is no default. `settings`: what a program's
    `RunLedger(effects=...)` takes.
    """

    policy: Final = "finance"

    def __init__(self, db_path: str | os.PathLike[str], trust: str | os.PathLike[str] | None = None) -> None:
        self.db_path = os.fspath(db_path)
        if trust is None:
            refuse_server(self.db_path, "no file lies beside it", hint="name the trust file")
        self.trust = Path(trust) if trust is not None else Path(self.db_path).with_suffix(".trust.json")
        self.settings = EffectSettings(trust=self.trust)
        self._keys = {name: SigningKey.draw() for name in _APPROVERS}
        officer, now_ms = SigningKey.draw(), time.time_ns() // 1_000_000
        store = open_store(self.db_path, create=True, authority=True)
        try:
            made = _trust_file(store.log_id, self._keys, officer, now_ms)
        finally:
            store.close()
        descriptor = os.open(self.trust, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(sign_trust(made, [officer]))

    def grant(self, action_key: str, approver: str = "ada") -> ActionView:
        """Let Ada, or Dora, sign what was asked for last under a key."""
        with self._effects() as effects:
            view, stored = self._last(effects, action_key)
            statement = effects.statement(view.action_id, approver=approver, nonce=os.urandom(_BYTES))
            signed = sign_approval(statement, self._keys[approver], request=stored, display=display(stored).encode())
            return effects.grant(signed)

    def reject(self, action_key: str) -> ActionView:
        """Let Ada say no."""
        with self._effects() as effects:
            view, _ = self._last(effects, action_key)
            return effects.reject(Actor("ada", frozenset({Role.APPROVER})), view.action_id)

    def saw_it(self, action_key: str) -> ActionView:
        """Let Ben put on record that he saw at the target that it happened."""
        with self._effects() as effects:
            view, _ = self._last(effects, action_key)
            seen = Observation(
                evidence_id=os.urandom(_BYTES),
                action_key=action_key,
                epoch=view.epoch,
                observer="ben",
                found=Found.EXECUTED,
                after=None,
            )
            return effects.reconcile_success(Actor("ben", frozenset({Role.RECONCILER})), view.action_id, seen)

    def members(self, action_key: str) -> list[ActionView]:
        """Return the actions of a key, oldest first."""
        with self._effects() as effects:
            return [*effects.inspect(action_key)]

    def _effects(self) -> EffectLedger:
        return open_effects(self.db_path, trust_path=self.trust)

    def _last(self, effects: EffectLedger, action_key: str) -> tuple[ActionView, bytes]:
        members = effects.inspect(action_key)
        if not members:
            raise Refused(f"there is no action of the key {action_key!r}", code="no_action")
        return members[-1], effects.request(members[-1].action_id)


def _trust_file(ledger_id: bytes, approvers: Mapping[str, SigningKey], officer: SigningKey, now_ms: int) -> TrustFile:
    def key(one: SigningKey) -> tuple[PublicKey, ...]:
        return (PublicKey(public=one.public, not_before_ms=now_ms - DAY_MS, not_after_ms=now_ms + 365 * DAY_MS),)

    def who(name: str, role: Role, kind: PrincipalKind, keys: tuple[PublicKey, ...] = ()) -> Principal:
        return Principal(name=name, kind=kind, roles=frozenset({role}), keys=keys)

    person, program = PrincipalKind.PERSON, PrincipalKind.AUTOMATIC
    return TrustFile(
        ledger_id=ledger_id,
        serial=1,
        officers_needed=1,
        principals=(
            *(who(name, Role.APPROVER, person, key(one)) for name, one in approvers.items()),
            who("ben", Role.RECONCILER, person, key(SigningKey.draw())),
            who("cleo", Role.OFFICER, person, key(officer)),
            who("agent", Role.REQUESTER, program),
            who("worker", Role.EXECUTOR, program),
        ),
        policies=(
            ApprovalPolicy(
                name=People.policy,
                approvals_needed=1,
                people_needed=1,
                approvers=frozenset(approvers),
                max_window_ms=DAY_MS,
            ),
        ),
    )
