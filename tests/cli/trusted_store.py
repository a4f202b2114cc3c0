"""A real store under a trust file of several people, with their key files and actions in doubt."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from agent_run_ledger import EffectLedger
from agent_run_ledger.effects import ActionView, Role, Settings, TargetClass
from agent_run_ledger.effects.signing import sign_approval
from agent_run_ledger.effects.trusting import SignedTrust, open_trust, sign_trust
from agent_run_ledger.kernel.effects.display import display
from agent_run_ledger.kernel.effects.principals import PrincipalKind
from agent_run_ledger.kernel.effects.trust import TrustFile
from agent_run_ledger.keys import write_key
from agent_run_ledger.ledger.authority import now_here
from agent_run_ledger.store import open_sqlite
from tests.cli.effect_store import Effects
from tests.unit.effects.trust_examples import key, policy, principal, public

FOREVER_MS = 1 << 52
DAY_MS = 86_400_000
R, PROGRAM = Role, PrincipalKind.AUTOMATIC


def _with_key(name: str, *roles: Role, **changes: Any) -> Any:
    return principal(name, *roles, **{"keys": (public(name, 0, FOREVER_MS),), **changes})


def _without(name: str, *roles: Role, **changes: Any) -> Any:
    return principal(name, *roles, **{"kind": PROGRAM, "keys": (), **changes})


PRINCIPALS = (
    _with_key("ann", R.APPROVER, R.OFFICER),
    _with_key("ben", R.APPROVER),
    _with_key("cat", R.RECONCILER),
    _with_key("dan", R.RECONCILER),
    _with_key("late", R.RECONCILER, keys=(public("late", 0, 1),)),
    _with_key("ops", R.OPERATOR),
    _with_key("rita", R.REQUESTER),
    _with_key("bot", R.RECONCILER, kind=PROGRAM),
    _without("agent", R.REQUESTER),
    _without("boss", R.REQUESTER, kind=PrincipalKind.PERSON),
    _without("payer", R.EXECUTOR),
    _without("watcher", R.RECONCILER),
)


class Trusted(Effects):
    """`Effects` under a trust file, whose path is `trust`; `key(NAME)` is the file of somebody's key."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.path, self.settings = path, Settings(**{"bound_ms": 0, **settings})
        self.folder = path.parent / "people"
        self.folder.mkdir(mode=0o700)
        store = open_sqlite(path, create=True, authority=True)
        self.file = TrustFile(
            ledger_id=store.log_id,
            serial=1,
            officers_needed=1,
            principals=PRINCIPALS,
            policies=(
                policy("finance", 1, "ann", people=1, window_ms=DAY_MS // 2),
                policy("both", 2, "ann", "ben", people=2, window_ms=DAY_MS),
                policy("other", 1, "ann", people=0, window_ms=7 * DAY_MS),
            ),
        )
        store.close()
        self.trust = self.folder / "trust.json"
        self.trust.write_bytes(sign_trust(self.file, [key("ann")]))
        for one in ("ann", "ben", "cat", "dan", "late", "ops", "rita", "bot", "nobody"):
            write_key(self.key(one), key(one))
        self.open().close()  # from here on it is under this file

    def key(self, name: str) -> Path:
        """The file of somebody's key."""
        return self.folder / f"{name}.pem"

    def digest(self, name: str) -> bytes:
        """The digest of a policy."""
        found = self.file.policy_named(name)
        assert found is not None
        return self.file.policy_sha256(found)

    def open(self) -> EffectLedger:
        signed: SignedTrust = open_trust(self.trust.read_bytes(), now=now_here(), expected_sha256=None)
        return EffectLedger(self.path, settings=self.settings, trust=signed)

    def propose(self, key: str = "refund:1", target: TargetClass = TargetClass.V, **changes: Any) -> ActionView:
        return super().propose(key, target, **{"policy_sha256": self.digest("finance"), **changes})

    def approve(self, view: ActionView) -> ActionView:
        with self.open() as ledger:
            body = ledger.request(view.action_id)
            statement = ledger.statement(view.action_id, approver="ann", nonce=os.urandom(16))
            return ledger.grant(sign_approval(statement, key("ann"), request=body, display=display(body).encode()))
