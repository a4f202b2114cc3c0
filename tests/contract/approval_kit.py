"""An effect ledger whose approvals are signed: a trust file for it, approvers with keys, and the gate they pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from typing import Any

from agent_run_ledger import LedgerError
from agent_run_ledger.effects import ActionView, Actor
from agent_run_ledger.effects.signing import sign_approval
from agent_run_ledger.effects.verifying import verify_approval
from agent_run_ledger.kernel.effects import Action, Now, Role, Standing
from agent_run_ledger.kernel.effects.principals import PrincipalKind
from agent_run_ledger.kernel.effects.reading import read_time
from agent_run_ledger.kernel.effects.trust import TrustFile
from agent_run_ledger.keys import SigningKey
from tests.contract.effect_kit import START_MS, WINDOW_MS, Kit, effects
from tests.unit.effects.trust_examples import RULES, key, policy, principal, public

REQUEST, DISPLAY = b'{"amount_cents":3000,"to":"ann"}', b"Pay 30.00 EUR to ann"
NONCE = b"nonce of sixteen"
KEY_ENDS_MS = START_MS + 10 * WINDOW_MS


def someone(name: str, *roles: Role, **changes: Any) -> Any:
    return principal(name, *roles, **{"keys": (public(name, 0, KEY_ENDS_MS),), **changes})


class Approvals(Kit):
    """The kit of effects with signed approvals: bob and dan approve, bot is a program, ann asks, exe carries out."""

    trust: TrustFile
    one: bytes
    two: bytes

    def begin(self) -> None:
        """Make the trust file of this ledger."""
        self.trust = TrustFile(
            ledger_id=self.ledger.status().ledger_id,
            serial=1,
            officers_needed=2,
            principals=(
                someone("ann", Role.REQUESTER, Role.APPROVER),
                someone("bob", Role.APPROVER),
                someone("dan", Role.APPROVER, Role.OFFICER),
                someone("ola", Role.OFFICER),
                someone("bot", Role.APPROVER, kind=PrincipalKind.AUTOMATIC, rules_sha256=RULES),
                someone("exe", Role.EXECUTOR, kind=PrincipalKind.AUTOMATIC, keys=()),
            ),
            policies=(
                policy("one", 1, "bob", "dan", people=1, window_ms=WINDOW_MS),
                policy("two", 2, "ann", "bob", "dan", "bot", people=2, window_ms=WINDOW_MS),
            ),
        )
        self.one, self.two = (self.trust.policy_sha256(one) for one in self.trust.policies)

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

    def grant(self, view: ActionView, data: bytes, *, trust: TrustFile | None = None) -> ActionView:
        """Let an envelope pass the checks, and then the rules of the ledger, as the one whom it names."""
        action, ledger, now = self.standing(view)
        approval = verify_approval(data, trust or self.trust, ledger=ledger, action=action, now=now)
        who = (trust or self.trust).principal(approval.principal)
        assert who is not None
        return self.ledger.approve(Actor(who.name, who.roles), view.action_id, approval)

    def standing(self, view: ActionView) -> tuple[Action, Standing, Now]:
        """The action as it is stored, where the ledger stands, and what time it is there."""
        stored = self.ledger._store.reader().effects.action(view.action_id)
        assert stored is not None
        reading = read_time(self.ledger._store.reader().effects.time_mark(), self.ticks.sample())
        return stored.action, self.ledger._standing(), reading.now

    def refusal(self, view: ActionView, data: bytes, **changes: Any) -> str:
        """The code with which an envelope is refused; nothing changed."""
        error: LedgerError = self.refused(lambda: self.grant(view, data, **changes))
        return error.code

    def code(self, asked: Callable[[], object]) -> str:
        """The code with which anything is refused; nothing changed."""
        return self.refused(asked).code


@contextmanager
def approvals(**settings: Any) -> Iterator[Approvals]:
    """A ledger with signed approvals in a folder of its own, read anew at the end."""
    with effects(kind=Approvals, **settings) as kit:
        assert isinstance(kit, Approvals)
        kit.begin()
        yield kit
