"""The effects of a run's store: the port that effect steps use, over `EffectLedger`, targets and the trust file."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol, cast
from weakref import WeakValueDictionary

from agent_run_ledger.effects.answers import is_named_after
from agent_run_ledger.effects.intents import Intent
from agent_run_ledger.effects.probing import Doubts, Prober
from agent_run_ledger.effects.trusting import SignedTrust
from agent_run_ledger.effects.views import ActionView
from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.errors import LedgerError, Misuse, Refused, Unavailable
from agent_run_ledger.kernel.effects import ActionState
from agent_run_ledger.kernel.effects.commands import Actor, DoubtBy
from agent_run_ledger.kernel.effects.display import display_sha256
from agent_run_ledger.kernel.effects.evidence import Found
from agent_run_ledger.kernel.effects.idempotency import idempotency_key
from agent_run_ledger.kernel.effects.principals import ApprovalPolicy
from agent_run_ledger.kernel.effects.request import request_from
from agent_run_ledger.kernel.effects.result import EffectResult
from agent_run_ledger.kernel.effects.states import Role
from agent_run_ledger.kernel.effects.step_moves import WantedTerms, differs
from agent_run_ledger.kernel.effects.trust import TrustFile
from agent_run_ledger.ledger.authority import actor_of, find_authority
from agent_run_ledger.ledger.effect_ledger import EffectLedger
from agent_run_ledger.ports.effect_steps import EffectMember, Lookup, Probe, Wanted
from agent_run_ledger.ports.effects import Witness

DAY_S: Final = 86_400
CLOSE_WAIT_S: Final = 60.0
"""How long closing waits for a dispatch: no permit lives longer."""


class NamesPolicy(Protocol):
    """What says under which approval policy it is asked for: an effect of a ledger, or one of a framework's tools."""

    @property
    def approval(self) -> str: ...  # noqa: D102


RECONCILER: Final = "reconciler"
"""The principal by which a program closes what is proved not to have happened, where the trust file has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectSettings:
    """As whom a program's effects are asked for and carried out, and by which trust file.

    `requester` and `executor` are principals of the trust file with those roles. `reconciler`: the principal by which
    the program closes what is proved not to have happened, None for people alone; by default the one of that name, if
    the trust file has it. `trust`: the signed trust file, see `ledger.authority.find_authority` for where it is looked
    for. `window_s`: how long after it was asked for an effect may be sent, at most what its policy allows. `witness`:
    see `EffectLedger`.
    """

    requester: str = "agent"
    executor: str = "worker"
    reconciler: str | None = RECONCILER
    trust: str | os.PathLike[str] | None = None
    window_s: float = DAY_S
    witness: Witness | None = None

    def __post_init__(self) -> None:
        """Misuse("bad_setting") for a window that is none."""
        window: object = self.window_s
        if type(window) not in (int, float) or not 0 < self.window_s <= 3_660 * DAY_S:
            raise Misuse(f"window_s is a number of seconds above 0, not {window!r:.40}", code="bad_setting")


def open_run_effects(db_path: str, durability: str, settings: EffectSettings | None) -> RunEffects:
    """Open the effects of a store for its runs.

    Refused: no_store, no_authority, no_trust (no trust file says who approves), unknown_principal, wrong_role, and as
    `EffectLedger` and `find_authority` say.
    """
    chosen = settings or EffectSettings()
    ledger = EffectLedger(db_path, durability=durability, witness=chosen.witness, trust=_signed(db_path, chosen))
    try:
        return RunEffects(ledger, chosen)
    except BaseException:
        ledger.close()
        raise


class RunEffects:
    """See ports.effect_steps.Effects."""

    def __init__(self, ledger: EffectLedger, settings: EffectSettings) -> None:
        if ledger.trust is None:
            raise Refused("no trust file says who approves effects", code="no_trust", hint=_INIT)
        self._ledger = ledger
        self._trust = trust = ledger.trust.trust
        self._window_ms = int(settings.window_s * 1000)
        self._requester = _in_role(trust, settings.requester, Role.REQUESTER)
        self._executor = _in_role(trust, settings.executor, Role.EXECUTOR)
        self._prober = Prober(
            cast("Doubts", ledger),
            executor=self._executor,
            reconciler=_reconciler(trust, settings.reconciler),
            epoch=lambda: ledger.status().epoch,
            entropy=SystemEntropy(),
        )
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)
        self._sending: list[int] = []
        self._at_it: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()

    def check_policies(self, names: Iterable[str]) -> None:
        """See ports.effect_steps.Effects.check_policies."""
        for name in names:
            self._policy(name)

    def members(self, action_key: str) -> Sequence[ActionView]:
        """See ports.effect_steps.Effects.members."""
        members = self._ledger.inspect(action_key)
        if members and self._settled_by_time(members[-1]):
            return self._ledger.inspect(action_key)
        return members

    def terms(self, wanted: Wanted) -> WantedTerms:
        """See ports.effect_steps.Effects.terms."""
        trust, target = self._trust, wanted.target
        return WantedTerms(
            policy_sha256=trust.policy_sha256(self._policy(wanted.approval)),
            audience=target.audience,
            executor=self._executor.principal,
            target_class=target.target_class,
            policies=frozenset(trust.policy_sha256(one) for one in trust.policies),
        )

    def propose(self, wanted: Wanted) -> ActionView:
        """See ports.effect_steps.Effects.propose."""
        return self._ledger.propose(self._requester, wanted.action_key, self._intent(wanted, wanted.request))

    def succeed(self, action_id: bytes, wanted: Wanted) -> ActionView:
        """See ports.effect_steps.Effects.succeed."""
        before = self._ledger.get(action_id)
        # Not the program's bytes: an approver may have edited them, and what people replaced is not asked for again.
        intent = self._intent(wanted, self._ledger.request(action_id))
        same = replace(intent, preconditions=before.preconditions)
        return self._ledger.successor(self._requester, action_id, same)

    def dispatch(self, action_id: bytes, wanted: Wanted, *, worker: str) -> ActionView:
        """See ports.effect_steps.Effects.dispatch."""
        with self._alone(wanted.action_key), self._noted():
            now = self._ledger.get(action_id)
            if now.state is not ActionState.AVAILABLE and now.handed_out:
                return now  # another thread of this process was at it
            if now.state is ActionState.AVAILABLE:
                self._check_terms(now, wanted)
            dispatcher = self._ledger.dispatcher(wanted.target, self._executor, worker=worker)
            try:
                return dispatcher.dispatch(action_id).view
            except Misuse as error:
                if error.code in UNSENDABLE:
                    raise _unsendable(now, error) from error
                raise

    def doubt(self, action_id: bytes, *, worker: str) -> ActionView:
        """See ports.effect_steps.Effects.doubt."""
        with self._alone(self._ledger.get(action_id).action_key):
            return self._ledger.doubt(self._executor, action_id, by=DoubtBy.WORKER, worker=worker)

    def look(self, action_id: bytes, wanted: Wanted, probe: Probe | None) -> ActionView:
        """See ports.effect_steps.Effects.look."""
        return self._prober.look(action_id, None if probe is None else self._question(action_id, probe))

    def result(self, member: EffectMember) -> EffectResult:
        """See ports.effect_steps.Effects.result."""
        view = cast("ActionView", member)
        kept = {one.evidence_id: one for one in self._ledger.answers(view.action_id)}
        said_so = (kept[name] for name in reversed(view.evidence) if name in kept)
        answer = next((one for one in said_so if is_named_after(one, Found.EXECUTED)), None)  # no refusal before it
        return EffectResult(
            action_key=view.action_key,
            action_id=view.action_id.hex(),
            generation=view.generation,
            status=None if answer is None else answer.status,
            answer=None if answer is None else answer.body,
        )

    @property
    def under_way(self) -> bool:
        """Whether another thread than this one carries an effect out."""
        mine = threading.get_ident()
        with self._lock:
            return any(one != mine for one in self._sending)

    def close(self) -> None:
        """Close the ledger, once what other threads have under way is on record, or `CLOSE_WAIT_S` are over.

        A call that was cancelled, or whose time was over, may still be sending: closed under it, what the target says
        would be lost, and a doubt would stand in its place.
        """
        mine = threading.get_ident()
        with self._ended:
            self._ended.wait_for(lambda: all(one == mine for one in self._sending), timeout=CLOSE_WAIT_S)
        self._ledger.close()

    def _question(self, action_id: bytes, probe: Probe) -> Callable[[bool], Found]:
        view, stored = self._ledger.get(action_id), self._ledger.request(action_id)
        key = ""
        if view.generation is not None:
            key = idempotency_key(self._ledger.status().ledger_id, view.action_key, view.generation)
        return lambda drained: probe(
            Lookup(
                action_key=view.action_key,
                request=request_from(stored),
                generation=view.generation,
                idempotency_key=key,
                drained=drained,
            )
        )

    def _settled_by_time(self, last: ActionView) -> bool:
        """Record what time alone decides; return whether anything was."""
        now_ms = self._ledger.now_ms()
        with suppress(LedgerError):  # a clock that is not trusted, or a moment too early: it stays as it is
            if last.state in (ActionState.PROPOSED, ActionState.AVAILABLE) and now_ms >= last.dispatch_before_ms:
                self._ledger.expire(self._executor, last.action_id)
                return True
            over_ms = last.permit_expires_ms or last.dispatch_before_ms
            if last.state in (ActionState.CLAIMED, ActionState.PREPARED) and now_ms >= over_ms:
                self._ledger.doubt(self._executor, last.action_id, by=DoubtBy.EXPIRY)
                return True
        return False

    def _check_terms(self, now: ActionView, wanted: Wanted) -> None:
        other = differs(now, self.terms(wanted))
        if other is not None:
            said = f"action {now.action_id.hex()} was not proposed under the terms that are wanted"
            raise Refused(said, code=str(other), hint=f"`arl effects show {now.action_id.hex()}`")

    def _policy(self, name: str) -> ApprovalPolicy:
        policy = self._trust.policy_named(name)
        if policy is None:
            raise Refused(
                f"the trust file has no approval policy {name!r}",
                code="no_policy",
                hint=f"it has {', '.join(sorted(one.name for one in self._trust.policies)) or 'none'}",
            )
        return policy

    def _intent(self, wanted: Wanted, request: bytes) -> Intent:
        policy = self._policy(wanted.approval)
        now_ms, target = self._ledger.now_ms(), wanted.target
        return Intent(
            request=request,
            executor=self._executor.principal,
            audience=target.audience,
            target_class=target.target_class,
            not_before_ms=now_ms,
            dispatch_before_ms=now_ms + min(self._window_ms, policy.max_window_ms),
            policy_sha256=self._trust.policy_sha256(policy),
            display_sha256=display_sha256(request),
            approvals_needed=policy.approvals_needed,
        )

    @contextmanager
    def _noted(self) -> Generator[None]:
        """Note that this thread carries out an effect."""
        mine = threading.get_ident()
        with self._lock:
            self._sending.append(mine)
        try:
            yield
        finally:
            with self._ended:
                self._sending.remove(mine)
                self._ended.notify_all()

    @contextmanager
    def _alone(self, action_key: str) -> Generator[None]:
        """Be the only one in this process who carries out an effect of this key.

        Unavailable("effect_busy") after ALONE_S: who is at it may wait for the very thread that asks.
        """
        with self._lock:
            mine = self._at_it.get(action_key)
            if mine is None:
                mine = self._at_it[action_key] = threading.Lock()
        if not mine.acquire(timeout=ALONE_S):
            raise Unavailable(
                f"an effect of {action_key!r} is under way in this process since {ALONE_S:.0f} s",
                code="effect_busy",
                hint="do not call it from the thread that its own send needs; the same call later tells the outcome",
            )
        try:
            yield
        finally:
            mine.release()


def _unsendable(now: ActionView, error: Misuse) -> Refused:
    """Return what says that this program cannot send what people approved, which they may have edited."""
    action_id = now.action_id.hex()
    return Refused(
        f"what was approved as action {action_id} cannot be sent here: {error.message}",
        code=error.code,
        hint=f"a program that can send it goes on; or people revoke it (`arl approvals revoke {action_id}`), and "
        f"`arl actions successor {action_id}` proposes it as it can be sent",
    )


UNSENDABLE: Final = frozenset({"other_request", "other_arguments"})
"""With which codes a target says, before a claim, that it cannot send a request."""

ALONE_S: Final = 90.0
"""How long a call waits for another one of its key in this process: longer than any send takes."""

_INIT: Final = "`arl init --local` makes one for this machine; see docs/guide/approvals.md"


def _signed(db_path: str, settings: EffectSettings) -> SignedTrust | None:
    found = find_authority(db_path, None if settings.trust is None else Path(settings.trust))
    return None if found is None else found.signed


def _in_role(trust: TrustFile, name: str, role: Role) -> Actor:
    actor = actor_of(trust, name)
    if role not in actor.roles:
        raise Refused(f"{name!r} is no {role} by the trust file", code="wrong_role", hint="`arl principals list`")
    return actor


def _reconciler(trust: TrustFile, name: str | None) -> Actor | None:
    """Return the principal that closes what is proved; None where there is none of the default's name."""
    if name is None or (name == RECONCILER and trust.principal(name) is None):
        return None
    return _in_role(trust, name, Role.RECONCILER)
