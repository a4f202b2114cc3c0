"""Entering a dynamic run by `with` or `async with`, and leaving it."""

from __future__ import annotations

import importlib
import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import Token
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

from agent_run_ledger.errors import Misuse, Refused, RunBusy, Unavailable, Uncertain
from agent_run_ledger.kernel.digests import fingerprint
from agent_run_ledger.kernel.policy import LoopDetectorPolicy
from agent_run_ledger.ledger.opened import OpenedStore
from agent_run_ledger.ports import RunRow
from agent_run_ledger.runs.budgets import Limits
from agent_run_ledger.runs.current import CURRENT, Caller
from agent_run_ledger.runs.dynamic import DynamicSession
from agent_run_ledger.runs.execute import BUSY_POLL_S
from agent_run_ledger.runs.frames import Frame
from agent_run_ledger.runs.inputs import Inputs
from agent_run_ledger.runs.opened_run import DynamicRequest, open_dynamic
from agent_run_ledger.runs.parents import Child, Parent, child_of, parent_here
from agent_run_ledger.runs.run import Run
from agent_run_ledger.runs.steps import OnChange


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What a dynamic run is opened with. `run_id` None: a child's is made of its place, else it is `default_run_id`.

    `policies`: those that the program's effects are asked for under. Where there are some the run may act on the world,
    so its store must be one that effects can be in, and its trust file must know them. `picked`: see `open_attempt`.
    """

    run_id: str | None
    default_run_id: str
    on_change: OnChange
    wait_s: float
    takeover: bool
    max_parallel: int
    policy: LoopDetectorPolicy | None
    keep_inputs: bool
    limits: Limits
    policies: frozenset[str] = frozenset()
    picked: RunRow | None = None


class Entering:
    """A dynamic run to be entered once, by `with` or by `async with`.

    Entering opens the run's attempt, or the records of a completed run. Raises RunBusy where another attempt is live,
    InputsChanged, RunQuarantined, RunCancelled, Misuse("run_kind") for a run of `execute`. Leaving ends the attempt:
    completed, or failed by an Exception (suspended by Pending), which passes through. What is no Exception leaves the
    run as it is, to be gone on with. Who swallowed an error that stops the run gets it again on leaving.
    """

    def __init__(self, opened: OpenedStore, settings: RunSettings, inputs: dict[str, Any]) -> None:
        self._opened = opened
        self._settings = settings
        self._inputs = Inputs(inputs, limit_bytes=opened.limit_bytes)
        self._session: DynamicSession | None = None
        self._parent: Parent | None = None
        self._child: Child | None = None
        self._token: Token[Caller | None] | None = None

    def __enter__(self) -> Run:
        """Open the run, waiting for another attempt as long as was asked for."""
        run_id, parent = self._place()
        deadline = time.monotonic() + self._settings.wait_s
        with self._numbered():
            while True:
                try:
                    self._open(run_id, parent)
                    break
                except RunBusy:
                    if time.monotonic() >= deadline:
                        raise
                time.sleep(min(BUSY_POLL_S, max(0.0, deadline - time.monotonic())))
        return self._entered(on_loop=False)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the attempt."""
        session = self._left()
        late = session.close(error)
        self._note_end(session)
        if late is not None:
            raise late

    async def __aenter__(self) -> Run:
        """Open the run; everything that touches the store runs on the store's own thread."""
        import asyncio

        run_id, parent = self._place()
        with self._numbered():
            await self._opened.off_loop(_load)
            deadline = time.monotonic() + self._settings.wait_s
            while True:
                try:
                    await self._opened.off_loop(lambda: self._open(run_id, parent))
                    break
                except RunBusy:
                    if time.monotonic() >= deadline:
                        raise
                except asyncio.CancelledError as error:
                    if self._session is not None:  # it was opened all the same
                        await self._opened.off_loop(partial(self._session.close, error))
                    raise
                await asyncio.sleep(min(BUSY_POLL_S, max(0.0, deadline - time.monotonic())))
        return self._entered(on_loop=True)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the attempt."""
        session = self._left()
        late = await self._opened.off_loop(lambda: session.close(error))
        self._note_end(session)
        if late is not None:
            raise late

    def _place(self) -> tuple[str, Parent | None]:
        """Return the run's id and the run within which it is entered, if any."""
        run_id, parent = self._settings.run_id, parent_here()
        if run_id is not None or parent is None:
            return run_id or self._settings.default_run_id, parent
        inputs = fingerprint(name="run", version="1", inputs=self._inputs.digests, environment={})
        self._child = child_of(parent, inputs)
        return self._child.run_id, parent

    @contextmanager
    def _numbered(self) -> Generator[None]:
        """Give the number of a child that was not entered back where nothing but time stood against it."""
        try:
            yield
        except BaseException as error:
            if self._child is not None and (
                isinstance(error, Unavailable | Uncertain) or not isinstance(error, Exception)
            ):
                self._child.give_back()
            place = CURRENT.get()
            if isinstance(error, Refused) and error.code == "run_completed" and isinstance(place, Frame):
                place.session.halt(error, place)  # a run that is over has no such child: as with any call of it
            raise

    def _open(self, run_id: str, parent: Parent | None) -> None:
        if self._session is not None:
            raise Misuse("this run was entered already", code="run_entered", hint="call ledger.run(...) anew")
        if self._settings.policies:
            self._opened.check_effects(self._settings.policies)
        context, settings = self._opened.context(), self._settings
        self._parent = parent
        if parent is not None and parent.session is not None:
            parent.session.write_values()  # what this run is started with may rest on them
        request = DynamicRequest(
            run_id=run_id,
            inputs=self._inputs,
            max_parallel=settings.max_parallel,
            policy=settings.policy,
            takeover=settings.takeover,
            keep_inputs=settings.keep_inputs,
            limits=settings.limits,
            parent=parent,
            picked=settings.picked,
        )
        opened = open_dynamic(context, request)
        try:
            self._session = DynamicSession(
                context,
                opened,
                on_change=settings.on_change,
                off_loop=self._opened.off_loop,
                post=self._opened.post,
            )
        except BaseException as error:
            opened.close(error)
            raise

    def _entered(self, *, on_loop: bool) -> Run:
        session = self._live()
        self._token = CURRENT.set(session.root)
        return Run(session, self._inputs, max_parallel=self._settings.max_parallel, on_loop=on_loop)

    def _left(self) -> DynamicSession:
        token, self._token = self._token, None
        if token is not None:
            try:
                CURRENT.reset(token)
            except ValueError:  # left in another context than it was entered in: nothing of this one to restore
                CURRENT.set(None)
        return self._live()

    def _note_end(self, session: DynamicSession) -> None:
        parent = self._parent
        if parent is not None and parent.session is not None:
            child = (parent.scope, "", session.opened.row.run_uid, 0)
            parent.session.note_child_end(child, parent.after, session.last_id)

    def _live(self) -> DynamicSession:
        if self._session is None:
            raise Misuse("this run was left before it was entered", code="run_not_entered")
        return self._session


def _load() -> None:
    """Import what the first calls need: on the loop it would hold up every task."""
    for module in ("codecs.families", "runs.async_drivers"):
        importlib.import_module(f"agent_run_ledger.{module}")
