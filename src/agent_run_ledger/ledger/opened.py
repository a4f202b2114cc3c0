"""A store that is opened at the first use, and what a run needs beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from agent_run_ledger.clock import SystemClock
from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.errors import Refused
from agent_run_ledger.ports import Observer
from agent_run_ledger.runs.attempt import Context
from agent_run_ledger.runs.own_thread import in_own_thread, loop_runs_here
from agent_run_ledger.store import AnyStore, StoreThread, open_store
from agent_run_ledger.store.moves import check_open

if TYPE_CHECKING:
    from agent_run_ledger.ledger.run_effects import EffectSettings, RunEffects

T = TypeVar("T")


class OpenedStore:
    """Opens its store once, at the first call of `context`, from whichever thread comes first."""

    def __init__(
        self,
        path: str,
        *,
        create: bool,
        durability: str,
        limit_bytes: int,
        observers: tuple[Observer, ...] = (),
        effects: EffectSettings | None = None,
    ) -> None:
        self._path = path
        self._create = create
        self._durability = durability
        self._observers = observers
        self.limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._store: AnyStore | None = None
        self._thread: StoreThread | None = None
        self._effect_settings = effects
        self._effects: RunEffects | None = None

    def context(self) -> Context:
        """Return the opened store with clock, entropy and limits; a missing store is made if the settings say so."""
        return self._context(create=self._create)

    def existing(self) -> Context | None:
        """Return the same of a store that exists, and None where there is none: looking never makes one."""
        try:
            return self._context(create=False)
        except Refused as error:
            if error.code == "no_store" and self._create:
                return None
            raise

    def _context(self, *, create: bool) -> Context:
        with self._lock:
            if self._store is None:
                self._store = open_store(self._path, create=create, durability=self._durability)
            store = self._store
        return Context(
            store=store,
            clock=SystemClock(),
            entropy=SystemEntropy(),
            limit_bytes=self.limit_bytes,
            observers=self._observers,
            effects=self.effects,
        )

    def refuse_moved(self) -> None:
        """Refuse, as `store.moves.check_open` does, a store that was moved since it was opened; ask nothing before."""
        with self._lock:
            store = self._store
        if store is not None:
            check_open(store.read_move(), store.read_move, store.location, readonly=False)

    def effects(self) -> RunEffects:
        """Return the store's effects, opened at the first call: Refused where it has no authority, or no trust file."""
        from agent_run_ledger.ledger.run_effects import (
            open_run_effects,  # half of the modules: most runs have no effects
        )

        with self._lock:
            if self._effects is None:
                self._effects = open_run_effects(self._path, self._durability, self._effect_settings)
            return self._effects

    def check_effects(self, policies: Iterable[str]) -> None:
        """Refuse, as `effects` and `Effects.check_policies` do, what effects under these policies could not be in."""
        self.effects().check_policies(policies)

    async def off_loop(self, fn: Callable[[], T]) -> T:
        """Run fn on the store's own thread. See store.store_thread.StoreThread."""
        return await self._its_thread().call(fn)

    def post(self, fn: Callable[[], object]) -> None:
        """Run fn on the store's own thread and do not wait. See store.store_thread.StoreThread."""
        self._its_thread().post(fn)

    def _its_thread(self) -> StoreThread:
        with self._lock:
            if self._thread is None:
                self._thread = StoreThread()
            return self._thread

    def close(self) -> None:
        """Close the store and its thread, if they were opened, once the effects that are under way are on record.

        Where an event loop runs in this thread it waits for none of them, which may need that very loop to end: then
        another thread waits and closes, and the process does not end before it.
        """
        parts = self._taken()
        if parts.effects is not None and parts.effects.under_way and loop_runs_here():
            threading.Thread(target=parts.close, name="arl-close", daemon=False).start()
        else:
            parts.close()

    async def aclose(self) -> None:
        """Do what `close` does, and wait for the effects beside the running event loop. Cancelled, it goes on."""
        await in_own_thread(self._taken().close, name="arl-close")

    def _taken(self) -> _Parts:
        """Take what is open out of here: whoever comes next opens it anew."""
        with self._lock:
            parts = _Parts(self._thread, self._effects, self._store)
            self._store = self._thread = self._effects = None
        return parts


class _Parts(NamedTuple):
    """What of a store is open."""

    thread: StoreThread | None
    effects: RunEffects | None
    store: AnyStore | None

    def close(self) -> None:
        """Close it, the store last."""
        for part in self:
            if part is not None:
                part.close()
