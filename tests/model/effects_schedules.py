"""Workers on real connections of their own, all after one approval, in the order that a schedule says."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from agent_run_ledger import probes
from agent_run_ledger.effects.intents import Intent
from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.effects import ActionState
from agent_run_ledger.kernel.effects.commands import DoubtBy
from agent_run_ledger.kernel.record import SALT_BYTES
from agent_run_ledger.ledger.effect_ledger import EffectLedger
from agent_run_ledger.store import sqlite_store
from agent_run_ledger.store.sqlite_shared import Registry
from tests.fault.effect_kit import EXECUTOR, Ready, Ticks, intent, ready, receipt
from tests.model.effects_turns import BEGIN, COMMIT, READ, TOLD, UPDATE, Choices, Rules, Turns, every_way, play

WAIT_S = 5.0
"""A worker that blocks at BEGIN although the explorer lets it run is told so by the store, and fails the schedule."""

_POINTS = {"effect.before": BEGIN, "commit.before": COMMIT, "commit.after": TOLD}


class _Stores:
    """For each worker the files that it has open, as if it were a process of its own."""

    def __init__(self) -> None:
        self._of = threading.local()

    def be(self, registry: Registry) -> None:
        """Let the calling thread have these files from now on."""
        self._of.registry = registry

    def open(self, *place: Any, **settings: Any) -> Any:
        return self._of.registry.open(*place, **settings)

    def release(self, shared: Any) -> Any:
        return self._of.registry.release(shared)


class _Pausing(Ticks):
    """A clock and an entropy at which a worker pauses: it is asked after the locks, and before the first write."""

    def __init__(self, pause: Callable[[str], None]) -> None:
        super().__init__()
        self._pause = pause
        self._entropy = SystemEntropy()
        self.uuid7, self.fraction = self._entropy.uuid7, self._entropy.fraction

    def sample(self) -> Any:
        self._pause(READ)
        return super().sample()

    def token(self, size: int) -> bytes:
        if size == SALT_BYTES:
            self._pause(UPDATE)
        return self._entropy.token(size)


@dataclass(slots=True)
class _Worker:
    """One worker: its files, its ledger, and what it was told in the schedule that runs."""

    name: str
    registry: Registry
    ledger: EffectLedger
    granted: list[bytes] = field(default_factory=list[bytes])
    permits: list[bytes] = field(default_factory=list[bytes])


@dataclass(slots=True)
class Reference:
    """What must come of the attempts in the order in which they had the lock: a few lines instead of the rules."""

    state: str = "available"
    worker: str | None = None

    def allows(self, act: str, worker: str) -> bool:
        """Whether this may happen now."""
        mine = self.worker == worker
        return {
            "claim": self.state == "available",
            "prepare": self.state == "claimed" and mine,
            "hand_out": self.state == "prepared" and mine,
            "outcome": self.state == "handed out" and mine,
            "doubt": False,
        }[act]

    def happen(self, act: str, worker: str) -> None:
        """Note that it did."""
        self.worker = worker
        self.state = {"claim": "claimed", "prepare": "prepared", "hand_out": "handed out", "outcome": "succeeded"}[act]


class Race:
    """Some workers over one store. Each schedule is about an action of its own."""

    def __init__(self, path: Path, workers: int, *, durability: str, steals: bool, stores: _Stores) -> None:
        """`steals`: who comes too late goes on with the claim it sees on record, as a mistaken one would."""
        self._path, self._durability, self._steals, self._stores = path, durability, steals, stores
        self._turns: Turns | None = None
        self._number = 0
        self.killed: Counter[str] = Counter()
        self.schedules = 0
        self.without_kill = 0
        self.refused: Counter[str] = Counter()
        self._workers = [self._opened(f"w{at}") for at in range(workers)]
        self._office = self._opened("office")
        self._action: Ready | None = None
        self._reference = Reference()

    def explore(self, rules: Rules, *, wanted: Intent | None = None, most: int | None = None) -> None:
        """Play every schedule, at most `most`; AssertionError for the first after which something does not hold."""
        for at, _ in enumerate(every_way(lambda choices: self._schedule(choices, rules, wanted or intent())), 1):
            if at == most:
                return

    def begin(self, programs: list[Callable[[], None]]) -> Turns:
        """Begin one schedule by hand, over a new action; who ends it calls its `end`."""
        self._turns = turns = self._fresh(programs, intent())
        turns.start()
        return turns

    def pause(self, point: str) -> None:
        """Let the calling worker stand at a point."""
        if self._turns is not None:
            self._turns.pause(point)

    def _pause_inside(self, point: str) -> None:
        acting = worker_act.get(threading.get_ident())
        if acting is not None and acting.inside:
            self.pause(point)

    def claim(self, who: int) -> None:
        """Let a worker claim, in its turn."""
        worker = self._workers[who]
        self._stores.be(worker.registry)
        self._claim(worker)

    def hurry(self, who: int) -> None:
        """Let a worker wait for no lock from now on."""
        worker = self._workers[who]
        self._stores.be(worker.registry)
        worker.ledger.close()
        self._workers[who] = self._opened(worker.name, wait_s=0.0)

    def close(self) -> None:
        """Close everything."""
        for worker in (*self._workers, self._office):
            self._stores.be(worker.registry)
            worker.ledger.close()

    def _fresh(self, programs: list[Callable[[], None]], wanted: Intent) -> Turns:
        self._number += 1
        self._stores.be(self._office.registry)
        self._action = ready(self._office.ledger, f"k{self._number}", wanted)
        self._reference = Reference()
        for worker in self._workers:
            worker.granted.clear()
            worker.permits.clear()
        return Turns(programs, self._die)

    def _schedule(self, choices: Choices, rules: Rules, wanted: Intent) -> None:
        turns = self._turns = self._fresh([self._program(worker) for worker in self._workers], wanted)
        try:
            killed = play(turns, choices, rules)
        finally:
            turns.end()
            self._turns = None
        self.killed += killed
        self.schedules += 1
        self.without_kill += not killed
        assert not turns.failed, (choices.given, turns.failed)
        self._check(choices)

    def _check(self, choices: Choices) -> None:
        """One grant, one permit, and the row is what the reference says; nothing that was claimed is available."""
        assert self._action is not None
        row = self._office.ledger.get(self._action.action_id)
        stands = "handed out" if row.handed_out and row.state is ActionState.PREPARED else str(row.state)
        said = (choices.made, self._reference, row)
        assert (stands, row.worker) == (self._reference.state, self._reference.worker), said
        granted = [worker.name for worker in self._workers for _ in worker.granted]
        permits = [worker.name for worker in self._workers for _ in worker.permits]
        assert granted in ([], [row.worker]), said
        assert permits in ([], [row.worker]), said
        assert row.handed_out or not permits, said
        assert row.generation == (None if row.worker is None else 1), said

    def _program(self, worker: _Worker) -> Callable[[], None]:
        def program() -> None:
            self._stores.be(worker.registry)
            claim_id = self._claim(worker)
            if claim_id is None:
                return
            action, ledger, name = self._of_now(), worker.ledger, worker.name

            def hand_out() -> None:
                dispatch = ledger.hand_out(EXECUTOR, action.action_id, claim_id=claim_id, worker=name)
                assert dispatch.handed_now
                worker.permits.append(dispatch.permit.act.encode())

            def prepare() -> None:
                ledger.prepare(EXECUTOR, action.action_id, claim_id=claim_id, worker=name)

            self._try(worker, "prepare", prepare)
            self._try(worker, "hand_out", hand_out)
            if worker.permits:
                told = receipt(action.key, 1, action.request_sha256)
                self._try(worker, "outcome", lambda: ledger.outcome(EXECUTOR, action.action_id, told))
            else:
                by = DoubtBy.WORKER
                self._try(worker, "doubt", lambda: ledger.doubt(EXECUTOR, action.action_id, by=by, worker=name))

        return program

    def _claim(self, worker: _Worker) -> bytes | None:
        """Return the claim to go on with: the worker's own, or the one that it finds where it wants to steal it."""
        action = self._of_now()

        def claim() -> None:
            grant = worker.ledger.claim(
                EXECUTOR, action.action_id, worker=worker.name, request_sha256=action.request_sha256
            )
            assert grant.granted_now
            worker.granted.append(grant.claim_id)

        self._try(worker, "claim", claim)
        if worker.granted:
            return worker.granted[0]
        return worker.ledger.get(action.action_id).claim_id if self._steals else None

    def _try(self, worker: _Worker, act: str, do: Callable[[], None]) -> None:
        """Do it, and compare with the reference, which is asked when the transaction has the lock."""
        turns, acting = self._turns, _Act(act, worker.name)
        assert turns is not None
        worker_act[threading.get_ident()] = acting
        try:
            do()
            happened = True
        except Refused as error:
            self.refused[error.code] += 1
            happened = False
        finally:
            acting.inside = False
        assert happened is acting.allowed, (act, worker.name, self._reference)

    def reach(self, point: str) -> None:
        """The hook of the probes: pause, and at the commit let the reference know."""
        turns, acting = self._turns, worker_act.get(threading.get_ident())
        if turns is None or acting is None:
            return
        if point == "commit.begin":
            acting.inside, acting.allowed = True, self._reference.allows(acting.act, acting.worker)
        if point == "commit.after":
            acting.inside = False
            self._reference.happen(acting.act, acting.worker)
        if point in _POINTS:
            turns.pause(_POINTS[point])

    def _of_now(self) -> Ready:
        assert self._action is not None
        return self._action

    def _die(self, who: int) -> None:
        """As a process dies: its connection is gone at once, and with it its lock and what it had not committed."""
        worker, acting = self._workers[who], worker_act.get(threading.get_ident())
        if acting is not None:
            acting.inside = False  # else who takes its place would wait for a turn of the dead one's
        (shared,) = worker.registry._open.values()
        connection = shared.writer()._connection
        assert connection is not None
        connection.close(force=True)
        shared.close()  # what is left of it: descriptors, which a process would not leave either
        self._workers[who] = self._opened(worker.name)

    def _opened(self, name: str, *, wait_s: float = WAIT_S) -> _Worker:
        registry = Registry()
        self._stores.be(registry)
        pausing: Any = _Pausing(self._pause_inside)
        ledger = EffectLedger(self._path, durability=self._durability, time=pausing, entropy=pausing, wait_s=wait_s)
        return _Worker(name, registry, ledger)


@dataclass(slots=True)
class _Act:
    """What a worker is at, and whether the reference allowed it when the worker got the lock."""

    act: str
    worker: str
    allowed: bool = False
    inside: bool = False
    """Whether it is in its transaction. What is told afterwards reads the clock too, and decides nothing."""


worker_act: dict[int, _Act] = {}


@contextmanager
def race(path: Path, workers: int, *, durability: str = "full", steals: bool = True) -> Iterator[Race]:
    """Workers whose every point is the explorer's, until the end of the block."""
    stores = _Stores()
    with patch.object(sqlite_store, "registry", stores):
        made = Race(path, workers, durability=durability, steals=steals, stores=stores)
        before = probes.install(made.reach)
        try:
            yield made
        finally:
            probes.install(before)
            made.close()
