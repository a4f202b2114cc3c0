"""A look at the target of a doubt: what was seen goes on record, with what time proves and the rules let follow."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from agent_run_ledger.effects.views import ActionView
from agent_run_ledger.errors import Misuse, Refused
from agent_run_ledger.kernel.effects import ActionState
from agent_run_ledger.kernel.effects.commands import Actor
from agent_run_ledger.kernel.effects.evidence import Covers, Drain, DrainKind, Found, Observation
from agent_run_ledger.ports import Entropy

EVIDENCE_BYTES = 16


class Doubts(Protocol):
    """What a look needs of a ledger: see ledger.effect_ledger.EffectLedger for each."""

    def get(self, action_id: bytes) -> ActionView: ...  # noqa: D102
    def outcome(self, actor: Actor, action_id: bytes, evidence: Observation) -> ActionView: ...  # noqa: D102
    def observe(self, actor: Actor, action_id: bytes, evidence: Observation | Drain) -> ActionView: ...  # noqa: D102
    def reconcile_not_executed(self, actor: Actor, action_id: bytes) -> ActionView: ...  # noqa: D102


class Prober:
    """Looks at targets for a ledger.

    `executor` records that something was seen, which ends a doubt; its word that nothing was seen never does. That
    takes the `reconciler`, a principal of its own that decides by rules alone: where the receiver itself refuses a
    permit that is over, the end of all permits is put on record first, then somebody looks, and only a look after
    that closes the action as not executed. Without one, a look that saw nothing is on record for people.
    """

    def __init__(
        self, ledger: Doubts, *, executor: Actor, reconciler: Actor | None, epoch: Callable[[], int], entropy: Entropy
    ) -> None:
        self._ledger = ledger
        self._executor = executor
        self._reconciler = reconciler
        self._epoch = epoch
        self._entropy = entropy

    def look(self, action_id: bytes, ask: Callable[[bool], object] | None) -> ActionView:
        """Return the action after a look. `ask` gets whether a drain is on record; None: there is no way to look.

        What `ask` raises passes through, and then nothing is on record of it. Misuse for an answer that is none.
        """
        view = self._drained(self._ledger.get(action_id))
        if ask is None or view.state is not ActionState.UNRESOLVED:
            return view
        found = ask(view.drain is not None)
        if not isinstance(found, Found):
            raise Misuse(f"a probe says {', '.join(Found)}, and this one {found!r:.80}", code="bad_probe")
        if found is Found.EXECUTED:
            return self._ledger.outcome(self._executor, action_id, self._seen(view, found, self._executor))
        who = self._reconciler or self._executor
        if view.seen != (found, view.drain):
            view = self._ledger.observe(who, action_id, self._seen(view, found, who))
        return self._closed(view) if found is Found.NOTHING else view

    def _drained(self, view: ActionView) -> ActionView:
        """Put on record that every permit is over, where the receiver refuses such and it is so."""
        if self._reconciler is None or view.drain is not None or view.state is not ActionState.UNRESOLVED:
            return view
        drain = Drain(
            evidence_id=self._entropy.token(EVIDENCE_BYTES),
            action_key=view.action_key,
            epoch=self._epoch(),
            observer=self._reconciler.principal,
            kind=DrainKind.EXPIRY,
            covers=Covers.EVERY_EXECUTOR,
        )
        with suppress(Refused):  # not yet, or never by time alone: then people say that the path is dead
            return self._ledger.observe(self._reconciler, view.action_id, drain)
        return view

    def _closed(self, view: ActionView) -> ActionView:
        if self._reconciler is None:
            return view
        with suppress(Refused):  # a condition is missing: the action says which, to people
            return self._ledger.reconcile_not_executed(self._reconciler, view.action_id)
        return view

    def _seen(self, view: ActionView, found: Found, observer: Actor) -> Observation:
        return Observation(
            evidence_id=self._entropy.token(EVIDENCE_BYTES),
            action_key=view.action_key,
            epoch=self._epoch(),
            observer=observer.principal,
            found=found,
            after=view.drain,
        )
