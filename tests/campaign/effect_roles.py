"""What the processes of a story of effects do: offices decide, workers claim and send, reconcilers end doubts."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agent_run_ledger import probes
from agent_run_ledger.effects.views import ActionView
from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.errors import Pending, Refused
from agent_run_ledger.kernel.effects import ActionState, TargetClass
from agent_run_ledger.kernel.effects.approval import VerifiedApproval, statement_sha256
from agent_run_ledger.kernel.effects.commands import Actor, DoubtBy
from agent_run_ledger.kernel.effects.evidence import Covers, Drain, DrainKind, FenceAnswer, Found, Observation, Receipt
from agent_run_ledger.kernel.effects.states import FENCING, Role
from agent_run_ledger.ledger.effect_ledger import EffectLedger
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.store.ledger_place import LEDGER_FILE
from tests.campaign.effect_stories import TARGET_AFTER, TARGET_BEFORE, EffectStory, Process, life_of
from tests.campaign.meter import append, read_lines
from tests.fault.effect_kit import APPROVER, EXECUTOR, OPERATOR, RECONCILER, REQUESTER, REVOKER, TARGET, intent

TARGET_FILE, TOLD_FILE = "target.log", "told.log"
ALWAYS_MS = 1 << 52
SECOND_APPROVER = Actor("cat", frozenset({Role.APPROVER}))
MOST_MEMBERS = 3
_A = ActionState


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One effect at the target, written by the worker at the moment at which it happened."""

    key: str
    generation: int
    claim_id: str


def sent(folder: Path) -> list[Sent]:
    """Return all effects in the order in which they happened: the truth that no ledger can change."""
    lines = read_lines(folder / TARGET_FILE)
    return [Sent(key=key, generation=int(generation), claim_id=claim) for key, generation, claim in lines]


class Desk:
    """One process at work. What a call refuses is no matter: others were there before."""

    def __init__(self, folder: Path, story: EffectStory, process: Process) -> None:
        self._folder, self._story, self._process = folder, story, process
        self._random = random.Random(f"{story.seed} {process.name}")
        self._token = SystemEntropy().token
        path = folder / LEDGER_FILE
        if process.role == "office":
            store = open_sqlite(path, create=True, durability=story.durability)
            if not store.authority:
                store.grant_authority()
            store.close()
        self._ledger = EffectLedger(path, durability=story.durability)
        self._last = life_of(process.name) > len(story.lives) - 4

    def work(self) -> None:
        """Go through all keys once, in an order of one's own."""
        act = {"office": self._decide, "worker": self._send, "reconciler": self._reconcile}[self._process.role]
        keys = list(self._story.keys)
        self._random.shuffle(keys)
        with self._ledger:
            for key in keys:
                self._allowed(lambda key=key: act(key))

    def _newest(self, key: str) -> ActionView | None:
        members = self._ledger.inspect(key)
        return members[-1] if members else None

    def _allowed(self, do: Callable[[], object]) -> None:
        try:
            do()
        except (Refused, Pending) as error:
            append(self._folder / TOLD_FILE, "refused", error.code, self._process.name, "")

    def _told(self, what: str, view: ActionView) -> None:
        append(self._folder / TOLD_FILE, what, view.action_key, view.generation, self._process.name)

    # -- an office ----------------------------------------------------------------------------------------------------

    def _decide(self, key: str) -> None:
        view, wanted = self._newest(key), self._wanted(key)
        if view is None:
            view = self._ledger.propose(REQUESTER, key, wanted)
        elif view.state in (_A.NOT_EXECUTED, _A.REJECTED, _A.REVOKED):
            if len(self._ledger.inspect(key)) >= MOST_MEMBERS:
                return
            view = self._ledger.successor(REQUESTER, view.action_id, wanted)
        chance = self._random.random()
        if view.state is _A.PROPOSED and chance < 0.1:
            view = self._ledger.edit(REQUESTER, view.action_id, self._wanted(key))
        if view.state is _A.PROPOSED and chance > 0.95:
            self._ledger.reject(APPROVER, view.action_id)
            return
        for approver in (APPROVER, SECOND_APPROVER):
            if view.state is _A.PROPOSED and approver.principal not in view.approvals:
                view = self._approve(view, approver)
        if view.state in (_A.AVAILABLE, _A.CLAIMED, _A.PREPARED) and chance < 0.15 and not self._last:
            self._ledger.revoke(REVOKER, view.action_id)

    def _wanted(self, key: str) -> object:
        body = f"{key} {self._random.random()}".encode()
        return intent(body, target_class=self._story.keys[key], end_ms=ALWAYS_MS, approvals_needed=1 + len(body) % 2)

    def _approve(self, view: ActionView, approver: Actor) -> ActionView:
        statement = self._ledger.statement(view.action_id, approver=approver.principal, nonce=view.action_id)
        approval = VerifiedApproval(
            approval_id=self._token(16),
            statement=statement,
            signed_sha256=statement_sha256(statement),
            principal=approver.principal,
        )
        return self._ledger.approve(approver, view.action_id, approval)

    # -- a worker -----------------------------------------------------------------------------------------------------

    def _send(self, key: str) -> None:
        """Claim, prepare, be handed the permit, send, report; now and then ask twice, or leave it at some point."""
        view, name = self._newest(key), self._process.name
        if view is None:
            return
        action_id, claim_key = view.action_id, self._token(16)
        for _ in range(self._random.choice((1, 1, 2))):
            grant = self._ledger.claim(
                EXECUTOR, action_id, worker=name, request_sha256=view.request_sha256, claim_key=claim_key
            )
            if grant.granted_now:
                self._told("granted", grant.view)
        if self._leaves():
            return
        claim_id = grant.claim_id
        for _ in range(self._random.choice((1, 1, 2))):
            self._ledger.prepare(EXECUTOR, action_id, claim_id=claim_id, worker=name)
        if self._leaves():
            return
        dispatch = self._ledger.hand_out(EXECUTOR, action_id, claim_id=claim_id, worker=name)
        self._told("permit", dispatch.view)
        if self._random.random() < 0.2:  # as if the reply had been lost: it is told again, or it is not
            self._allowed(lambda: self._ledger.hand_out(EXECUTOR, action_id, claim_id=claim_id, worker=name))
        if self._leaves():
            self._ledger.doubt(EXECUTOR, action_id, by=DoubtBy.WORKER, worker=name)
            return
        probes.reach(TARGET_BEFORE)
        append(self._folder / TARGET_FILE, key, dispatch.permit.gen, dispatch.permit.jti)
        probes.reach(TARGET_AFTER)
        if not self._leaves():
            self._ledger.outcome(EXECUTOR, action_id, self._receipt(view, dispatch.permit.gen))

    def _leaves(self) -> bool:
        return self._random.random() < 0.08

    def _receipt(self, view: ActionView, generation: int) -> Receipt:
        return Receipt(
            evidence_id=self._token(16),
            action_key=view.action_key,
            receiver=TARGET,
            generation=generation,
            request_sha256=view.request_sha256,
        )

    # -- a reconciler -------------------------------------------------------------------------------------------------

    def _reconcile(self, key: str) -> None:
        """End what a process of an earlier life left: all of those are dead, and the target says what they did."""
        view = self._newest(key)
        if view is None or view.worker is None or view.closed:
            return
        if life_of(view.worker) >= life_of(self._process.name):
            return
        if view.state is not _A.UNRESOLVED:
            view = self._ledger.doubt(OPERATOR, view.action_id, by=DoubtBy.OPERATOR)
        done = [one for one in sent(self._folder) if one.key == key]
        mine = [one for one in done if one.generation == view.generation]
        if mine and view.target_class is not TargetClass.N:
            self._ledger.reconcile_success(RECONCILER, view.action_id, self._receipt(view, mine[0].generation))
        elif mine:
            seen = self._observed(key, Found.EXECUTED, after=None)
            self._ledger.reconcile_success(RECONCILER, view.action_id, seen)
        elif view.target_class in FENCING:
            self._fence(view)
        elif self._random.random() < 0.15 and not self._last:
            people = frozenset({RECONCILER.principal, "off"})
            self._ledger.write_off(RECONCILER, view.action_id, nobody_can_observe=True, people=people)
        else:
            drain = self._token(16)
            self._ledger.observe(RECONCILER, view.action_id, self._drained(key, drain))
            self._ledger.observe(RECONCILER, view.action_id, self._observed(key, Found.NOTHING, after=drain))
            self._ledger.reconcile_not_executed(RECONCILER, view.action_id)

    def _fence(self, view: ActionView) -> None:
        answer = FenceAnswer(
            evidence_id=self._token(16),
            action_key=view.action_key,
            receiver=TARGET,
            epoch=0,
            mark=view.generation or 0,
            found=Found.NOTHING,
        )
        close = self._ledger.reconcile_not_executed if view.prepared_ms else self._ledger.close_unprepared
        close(RECONCILER, view.action_id, fence=answer)

    def _drained(self, key: str, evidence_id: bytes) -> Drain:
        return Drain(
            evidence_id=evidence_id,
            action_key=key,
            epoch=0,
            observer=RECONCILER.principal,
            kind=DrainKind.PATH_DEAD,
            covers=Covers.WORKER,
        )

    def _observed(self, key: str, found: Found, *, after: bytes | None) -> Observation:
        return Observation(
            evidence_id=self._token(16),
            action_key=key,
            epoch=0,
            observer=RECONCILER.principal,
            found=found,
            after=after,
        )
