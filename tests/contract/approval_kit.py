"""An effect ledger whose approvals are signed: a trust file for it, approvers with keys, and the gate they pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from typing import Any

from agent_run_ledger import EffectLedger, LedgerError
from agent_run_ledger.effects import ActionView, Actor, Drain, DrainKind, Event, Intent, TargetClass, statement_bytes
from agent_run_ledger.effects.signing import sign_approval, signing
from agent_run_ledger.effects.trusting import SignedTrust, open_trust, sign_trust
from agent_run_ledger.kernel.dsse import envelope_bytes
from agent_run_ledger.kernel.effects import Now, Role
from agent_run_ledger.kernel.effects.approval import APPROVAL_TYPE
from agent_run_ledger.kernel.effects.principals import PrincipalKind
from agent_run_ledger.kernel.effects.trust import TrustFile
from agent_run_ledger.keys import SigningKey, seal
from tests.contract.effect_kit import DOES, START_MS, WINDOW_MS, Kit, effects
from tests.unit.effects.trust_examples import RULES, key, policy, principal, public

REQUEST, DISPLAY = b'{"amount_cents":3000,"to":"ann"}', b"Pay 30.00 EUR to ann"
NONCE = b"nonce of sixteen"
KEY_ENDS_MS = START_MS + 10 * WINDOW_MS


def someone(name: str, *roles: Role, **changes: Any) -> Any:
    return principal(name, *roles, **{"keys": (public(name, 0, KEY_ENDS_MS),), **changes})


def _is_decided(event: Event, evidence: object) -> bool:
    drained = isinstance(evidence, Drain) and evidence.kind is DrainKind.PATH_DEAD
    return drained or event in (Event.NOT_EXECUTED, Event.WRITE_OFF, Event.CLOSE_UNPREPARED)


class Approvals(Kit):
    """The kit of effects with signed approvals: bob and dan approve, bot is a program, ann asks, exe carries out."""

    trust: TrustFile
    one: bytes
    two: bytes
    signed_trust: SignedTrust | None = None

    def _open(self) -> EffectLedger:
        return self.opened(self.signed_trust)

    def opened(self, trust: SignedTrust | None) -> EffectLedger:
        """Open the ledger under a trust file."""
        return EffectLedger(self.path, witness=self.witness, time=self.ticks, settings=self.settings, trust=trust)

    def plan(self) -> None:
        """Make the trust file of this ledger, under which nothing stands yet."""
        self.trust = TrustFile(
            ledger_id=self.ledger.status().ledger_id,
            serial=1,
            officers_needed=2,
            principals=(
                someone("ann", Role.REQUESTER, Role.APPROVER),
                someone("bob", Role.APPROVER),
                someone("dan", Role.APPROVER, Role.OFFICER, Role.RECONCILER),
                someone("ola", Role.OFFICER),
                someone("bot", Role.APPROVER, kind=PrincipalKind.AUTOMATIC, rules_sha256=RULES),
                someone("cat", Role.RECONCILER),
                someone("rev", Role.REVOKER),
                someone("ops", Role.OPERATOR),
                someone("watcher", Role.RECONCILER, kind=PrincipalKind.AUTOMATIC, keys=()),
                someone("exe", Role.EXECUTOR, kind=PrincipalKind.AUTOMATIC, keys=()),
            ),
            policies=(
                policy("one", 1, "bob", "dan", people=1, window_ms=WINDOW_MS),
                policy("two", 2, "ann", "bob", "dan", "bot", people=2, window_ms=WINDOW_MS),
            ),
        )
        self.one, self.two = (self.trust.policy_sha256(one) for one in self.trust.policies)

    def begin(self) -> None:
        """Open the ledger under its trust file from now on."""
        self.signed_trust = self.by_officers(self.trust)
        self.reopen()

    def follow(self, trust: TrustFile, *signers: SigningKey) -> None:
        """Let another trust file follow, signed by these."""
        self.signed_trust = self.ledger.follow_trust(sign_trust(trust, signers))
        self.trust = self.signed_trust.trust

    def by_officers(self, trust: TrustFile) -> SignedTrust:
        """A trust file that its officers signed."""
        data = sign_trust(trust, [key(one.name) for one in trust.officers])
        return open_trust(data, now=Now(self.now(), self.now()), expected_sha256=None)

    def do(self, event: Event, view: ActionView, **changes: Any) -> Any:
        """Ask for an event; under a trust file it is signed as it has to be, unless it is said otherwise."""
        if self.signed_trust is not None and event is Event.APPROVE and not changes:
            return self.ledger.grant(self.sealed(view))
        if self.signed_trust is not None and _is_decided(event, changes.get("evidence")):
            together = changes.get("people", frozenset({"dan"}) if event is Event.WRITE_OFF else frozenset())
            actor: Actor = changes.get("actor", DOES[event])
            names = sorted({actor.principal, *together})
            changes.setdefault("sign", signing(*(key(name) for name in names)))
        return super().do(event, view, **changes)

    def sealed(self, view: ActionView, approver: str = "bob") -> bytes:
        """What an approver signs of an action whose display nobody looks at."""
        statement = statement_bytes(self.ledger.statement(view.action_id, approver=approver, nonce=NONCE))
        return envelope_bytes(seal(APPROVAL_TYPE, statement, [key(approver)]))

    def intent(self, target: TargetClass = TargetClass.N, **changes: Any) -> Intent:
        """An intent, under a trust file by the policy of one approver."""
        own = {} if self.signed_trust is None else {"policy_sha256": self.one}
        return super().intent(target, **{**own, **changes})

    def asked(self, key: str = "refund:17", **changes: Any) -> ActionView:
        """Propose an action under the policy of one approver, or with changes of its intent."""
        settings: dict[str, Any] = {
            "request": REQUEST,
            "display_sha256": sha256(DISPLAY).digest(),
            "policy_sha256": self.one,
            **changes,
        }
        return self.propose(key=key, **settings)

    def two_asked(self) -> ActionView:
        """The same under the policy of two people."""
        return self.asked(policy_sha256=self.two, approvals_needed=2)

    def signed(
        self,
        view: ActionView,
        approver: str = "bob",
        *,
        by: SigningKey | None = None,
        nonce: bytes = NONCE,
        request: bytes = REQUEST,
        display: bytes = DISPLAY,
        **changes: Any,
    ) -> bytes:
        """What an approver signs who was shown these bytes, of the statement that the ledger gives, with changes."""
        statement = replace(self.ledger.statement(view.action_id, approver=approver, nonce=nonce), **changes)
        return sign_approval(statement, by or key(approver), request=request, display=display)

    def grant(self, view: ActionView, data: bytes) -> ActionView:
        """Let the ledger count a signed approval; return the action that the test is about."""
        self.ledger.grant(data)
        return self.look(view)

    def refusal(self, data: bytes) -> str:
        """The code with which the ledger refuses an envelope; nothing changed."""
        error: LedgerError = self.refused(lambda: self.ledger.grant(data))
        return error.code

    def code(self, asked: Callable[[], object]) -> str:
        """The code with which anything is refused; nothing changed."""
        return self.refused(asked).code


@contextmanager
def approvals(*, begin: bool = True, **settings: Any) -> Iterator[Approvals]:
    """A ledger with signed approvals in a folder of its own, read anew at the end."""
    with effects(kind=Approvals, **settings) as kit:
        assert isinstance(kit, Approvals)
        kit.plan()
        if begin:
            kit.begin()
        yield kit
