"""The place of one scenario of the effect kit: a target, a ledger, workers that are processes, and honest people."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from agent_run_ledger.effects.intents import Intent
from agent_run_ledger.effects.views import ActionView
from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.errors import Pending, Refused, Unavailable
from agent_run_ledger.kernel.effects import ActionState, LedgerState
from agent_run_ledger.kernel.effects.approval import VerifiedApproval, statement_sha256
from agent_run_ledger.kernel.effects.commands import Actor, DoubtBy
from agent_run_ledger.kernel.effects.display import display_sha256
from agent_run_ledger.kernel.effects.evidence import Covers, Drain, DrainKind, Found, Observation
from agent_run_ledger.kernel.effects.request import request_bytes
from agent_run_ledger.kernel.effects.states import CLOSED, Role
from agent_run_ledger.ledger.effect_ledger import EffectLedger
from agent_run_ledger.store import open_store
from agent_run_ledger.store.ledger_place import LedgerPlace
from agent_run_ledger.testing.effect_case import EffectCase, Place
from agent_run_ledger.testing.effect_life import EXECUTOR, TARGET_FOLDER, LifeOrder
from agent_run_ledger.testing.effect_path import CutPath, OnTheWay, can_be_cut
from agent_run_ledger.testing.effect_verdicts import Probe
from agent_run_ledger.testing.harness import Exit, Life, RunningLife, start_scenario
from agent_run_ledger.testing.points import KillPoint

WORKER_LIFE: Final = "agent_run_ledger.testing.effect_life:dispatch"
LIFE_LIMIT_S: Final = 60.0
WINDOW_MS: Final = 3 * 3_600_000
"""Wide enough for every jump of a clock in the scenarios."""

REQUESTER: Final = Actor("kit-requester", frozenset({Role.REQUESTER}))
APPROVER: Final = Actor("kit-approver", frozenset({Role.APPROVER}))
RECONCILER: Final = Actor("kit-reconciler", frozenset({Role.RECONCILER}))
OPERATOR: Final = Actor("kit-operator", frozenset({Role.OPERATOR}))
OFFICER: Final = Actor("kit-officer", frozenset({Role.OFFICER}))


class CaseBroken(Exception):
    """A scenario could not be carried through: the text says why."""


class NotForThisTool(Exception):
    """A scenario has no meaning for this tool: the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """One question to the probe, and how many effects there were at that moment."""

    found: Found
    effects: int

    @property
    def worth(self) -> Probe:
        """What the answer was worth."""
        if self.found is Found.UNKNOWN:
            return Probe.SILENT
        if self.found is Found.NOTHING:
            return Probe.DENIES if self.effects else Probe.TRUE
        return Probe.TRUE if self.effects else Probe.INVENTS


class Desk:
    """One scenario of one case. A context manager: the target runs within it.

    `happened`: what was done and seen, in words. `looks`: what the probe said, in order. `reached`: the points to which
    an undisturbed worker came, where one was asked for them. `met`: see `Row`.
    """

    def __init__(self, reference: str, case: EffectCase, folder: Path, number: int) -> None:
        self.reference = reference
        self.case = case
        self.folder = folder
        self.number = number
        self.key = f"kit:{number}"
        self.happened: list[str] = []
        self.looks: list[Looked] = []
        self.path: CutPath | None = None
        self.reached: Mapping[str, int] = {}
        self.met = True
        self._entropy = SystemEntropy()
        self._workers = 0
        self._ledger = LedgerPlace.here(folder)
        self._target = Place(folder=folder / TARGET_FOLDER)
        self._started = ExitStack()
        self._cut_off: CutPath | None = None

    # -- the target ---------------------------------------------------------------------------------------------------

    def __enter__(self) -> Desk:
        """Start the target, and stand on the way to it where that can be."""
        self._target.folder.mkdir()
        self._start()
        if can_be_cut(self._target.url):
            self.path = CutPath(self._target.url)
        return self

    def __exit__(self, *_: object) -> None:
        """End what was started."""
        if self.path is not None:
            self.path.close()
        self._started.close()

    def restart(self) -> None:
        """Stop the target and start it anew, with what it keeps in its folder."""
        if self.case.start is None:
            raise NotForThisTool("the case says not how to start the target")
        self._started.close()
        self._start()
        if self.path is not None:
            self.path.lead_to(self._target.url)
        self.happened.append("the target was started anew")

    def the_path(self) -> CutPath:
        """Return the way that can be cut."""
        if self.path is None:
            raise NotForThisTool("the kit is not on the way: `start` gave no http://127.0.0.1 URL")
        return self.path

    def must_have_struck(self, times: int) -> None:
        """CaseBroken unless the fault met a request: else nothing of it was seen."""
        if times < 1:
            raise CaseBroken("the fault met no request: the tool must reach its target by place.url")

    def rest(self) -> None:
        """Wait until nothing that was sent is under way any more."""
        if self.path is not None:
            self.path.rest()
        time.sleep(self.case.settle_s)

    def count(self) -> int:
        """Return how many effects there are."""
        found: Any = self.case.count(self._target, self.number)
        if type(found) is not int or found < 0:
            raise CaseBroken(f"`count` returned {found!r:.80}, which is no number of effects")
        return found

    def look(self) -> Looked:
        """Ask the probe, and compare what it says with the count."""
        way = self._cut_off
        place = self._target if way is None else replace(self._target, url=way.url)
        try:
            found = Found.UNKNOWN if self.case.probe is None else Found(self.case.probe(place, self.number))
            said = str(found)
        except Exception as error:
            if way is None:
                raise
            found, said = Found.UNKNOWN, type(error).__name__  # nothing is on record of a probe that raises
        looked = Looked(found=found, effects=self.count())
        self.looks.append(looked)
        self.happened.append(f"probe: {said}" if way is None else f"probe cut off: {said}")
        return looked

    @contextmanager
    def probe_cut_off(self, fault: OnTheWay | None) -> Generator[CutPath]:
        """Give the probe another way meanwhile, where each question meets the fault, or None: nobody is there."""
        self.the_path()
        with closing(CutPath(self._target.url)) as way:
            if fault is None:
                way.refuse()
            else:
                way.strike(fault, always=True)
            self._cut_off = way
            try:
                yield way
            finally:
                self._cut_off = None

    def _start(self) -> None:
        if self.case.start is not None:
            url = self._started.enter_context(self.case.start(replace(self._target, url="")))
            self._target = replace(self._target, url=url if isinstance(url, str) else "")

    def _way(self) -> Place:
        """Return the place as the tool is told it."""
        return replace(self._target, url=self._target.url if self.path is None else self.path.url)

    # -- the ledger, before the dispatch -------------------------------------------------------------------------------

    @contextmanager
    def ledger(self) -> Generator[EffectLedger]:
        """Open the ledger, as a process of its own would."""
        with EffectLedger(self._ledger.named) as ledger:
            yield ledger

    def newest(self) -> ActionView:
        """Return the member of the key that counts."""
        with self.ledger() as ledger:
            return ledger.inspect(self.key)[-1]

    def approve(self) -> None:
        """Make a ledger with the action, approved. The people are the kit's, and nobody signs anything."""
        if self.count() != 0:
            raise CaseBroken(f"`count` says {self.count()} for number {self.number}, of which nothing was sent yet")
        open_store(self._ledger.named, create=True, authority=True).close()
        with self.ledger() as ledger:
            self._approved(ledger, ledger.propose(REQUESTER, self.key, self._intent()))

    def keep_a_copy(self) -> None:
        """Copy the database that nobody has open."""
        self._ledger.keep_a_copy()

    def put_the_copy_back(self) -> None:
        """Put the older database in the place of the newer one, as a restore does."""
        self._ledger.put_the_copy_back()
        self.happened.append("an older copy of the database was put back")

    def _intent(self) -> Intent:
        stored = request_bytes(self.case.request(self.number))
        target = self.case.target(self._way())
        now_ms = time.time_ns() // 1_000_000
        return Intent(
            request=stored,
            executor=EXECUTOR.principal,
            audience=target.audience,
            target_class=target.target_class,
            not_before_ms=now_ms - WINDOW_MS,
            dispatch_before_ms=now_ms + WINDOW_MS,
            policy_sha256=sha256(b"the effect kit approves").digest(),
            display_sha256=display_sha256(stored),
        )

    def _approved(self, ledger: EffectLedger, view: ActionView) -> None:
        nonce = self._entropy.token(16)
        statement = ledger.statement(view.action_id, approver=APPROVER.principal, nonce=nonce)
        approval = VerifiedApproval(
            approval_id=self._entropy.uuid7(),
            statement=statement,
            signed_sha256=statement_sha256(statement),
            principal=APPROVER.principal,
        )
        ledger.approve(APPROVER, view.action_id, approval)

    # -- workers ------------------------------------------------------------------------------------------------------

    def start_worker(self, *, kill_at: KillPoint | None = None, **more: Any) -> RunningLife:
        """Start a worker's process. `more`: what a LifeOrder has."""
        self._workers += 1
        order = LifeOrder(case=self.reference, key=self.key, url=self._way().url, worker=f"worker {self._workers}")
        order = replace(order, **more)
        env = {**self._ledger.env(), **order.env()}
        return start_scenario(WORKER_LIFE, self.folder, kill_at=kill_at, life=self._workers, env=env)

    def work(self, *, kill_at: KillPoint | None = None, **more: Any) -> Life:
        """Run a worker's process to its end."""
        return self.ended(self.start_worker(kill_at=kill_at, **more), kill_at=kill_at)

    def ended(self, running: RunningLife, *, kill_at: KillPoint | None = None) -> Life:
        """Wait for a worker. CaseBroken where it ended as no worker should; NotForThisTool where no kill came."""
        life = running.wait(LIFE_LIMIT_S)
        if life.exit is Exit.ERROR or (life.exit is Exit.KILLED and kill_at is None):
            raise CaseBroken(f"a worker ended badly: {life.describe()}")
        if kill_at is not None and life.exit is not Exit.KILLED:
            raise NotForThisTool(f"this tool does not come to {kill_at}")
        said: dict[str, Any] = life.result or {}
        self.happened.append("killed" if kill_at else said.get("report") or f"refused ({said.get('code')})")
        return life

    # -- people, afterwards -------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Do what honest people do with what a fault left, until it is closed or nobody can say.

        An action that is free is dispatched by another worker. One that is not is offered to another worker, who must
        be refused; then the doubt is recorded, and the probe is asked: a success, or nothing seen, which is believed
        after a drain only. What did not happen has a successor, which is approved and dispatched.
        """
        self.rest()
        self._trust_the_clock()
        if self.newest().state is ActionState.AVAILABLE:
            self.work()
            self.rest()
        if self.newest().state in CLOSED:
            return
        self._must_be_refused()
        self.doubt()
        if self.resolve(self.look()) is ActionState.NOT_EXECUTED:
            self.succeed()

    def doubt(self) -> None:
        """Record the doubt, as an operator who knows that the worker is dead."""
        with self.ledger() as ledger:
            view = ledger.inspect(self.key)[-1]
            if view.state in (ActionState.CLAIMED, ActionState.PREPARED):
                ledger.doubt(OPERATOR, view.action_id, by=DoubtBy.OPERATOR)

    def resolve(self, looked: Looked) -> ActionState:
        """Decide by what was seen, with a drain and a second look where it was nothing; return the state."""
        with self.ledger() as ledger:
            view = ledger.inspect(self.key)[-1]
            if looked.found is Found.NOTHING:
                drain = Drain(
                    evidence_id=self._entropy.uuid7(),
                    action_key=self.key,
                    epoch=view.epoch,
                    observer=RECONCILER.principal,
                    kind=DrainKind.PATH_DEAD,
                    covers=Covers.EVERY_EXECUTOR,
                )
                ledger.observe(RECONCILER, view.action_id, drain)
                self.happened.append("drained")
                looked = self.look()
                if looked.found is Found.NOTHING:
                    ledger.observe(RECONCILER, view.action_id, self._seen(view, looked.found, drain.evidence_id))
                    view = ledger.reconcile_not_executed(RECONCILER, view.action_id)
            if looked.found is Found.EXECUTED:
                view = ledger.reconcile_success(RECONCILER, view.action_id, self._seen(view, looked.found, None))
            return view.state

    def refused_without_a_drain(self, looked: Looked) -> None:
        """CaseBroken unless the ledger refuses to close by a look alone, which came before the way was dead."""
        with self.ledger() as ledger:
            view = ledger.inspect(self.key)[-1]
            if looked.found is not Found.EXECUTED:
                ledger.observe(RECONCILER, view.action_id, self._seen(view, looked.found, None))
            try:
                ledger.reconcile_not_executed(RECONCILER, view.action_id)
            except Refused:
                return
        raise CaseBroken("the ledger closed an action by a look that came before the way was dead")

    def succeed(self) -> None:
        """Put an approved successor in the place of what did not happen, and dispatch it."""
        with self.ledger() as ledger:
            view = ledger.inspect(self.key)[-1]
            self._approved(ledger, ledger.successor(REQUESTER, view.action_id, self._intent()))
        self.happened.append("successor")
        self.work()
        self.rest()
        view = self.newest()
        if view.state not in CLOSED:
            self.doubt()
            self.resolve(self.look())

    def _seen(self, view: ActionView, found: Found, after: bytes | None) -> Observation:
        return Observation(
            evidence_id=self._entropy.uuid7(),
            action_key=self.key,
            epoch=view.epoch,
            observer=RECONCILER.principal,
            found=found,
            after=after,
        )

    def _must_be_refused(self) -> None:
        """CaseBroken where another worker gets what one before it may have sent."""
        with self.ledger() as ledger:
            view = ledger.inspect(self.key)[-1]
            try:
                ledger.dispatcher(self.case.target(self._way()), EXECUTOR, worker="worker after").dispatch(
                    view.action_id
                )
            except (Refused, Pending, Unavailable):
                return
        raise CaseBroken("the ledger let a second worker send what a first one may have sent")

    def _trust_the_clock(self) -> None:
        """Let two officers confirm the true time where a clock that jumped left it in doubt."""
        with self.ledger() as ledger:
            if ledger.status().state is LedgerState.TIME_UNTRUSTED:
                ledger.correct_clock(OFFICER, frozenset({"kit-officer-2"}))
                self.happened.append("officers corrected the clock")
