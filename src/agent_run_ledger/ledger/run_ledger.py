"""RunLedger as people see it: where the store is, which steps there are, and one run or many."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.errors import Misuse
from agent_run_ledger.kernel.budget import Budget, check_budget
from agent_run_ledger.kernel.gauges import StoreGauges
from agent_run_ledger.kernel.policy import LoopDetectorPolicy
from agent_run_ledger.ledger.account import Account, account_of_store, parse_by
from agent_run_ledger.ledger.bound_run import BoundRun
from agent_run_ledger.ledger.entering import Entering
from agent_run_ledger.ledger.opened import OpenedStore
from agent_run_ledger.ledger.registry import Registry
from agent_run_ledger.ledger.store_gauges import read_gauges
from agent_run_ledger.ports import Observer
from agent_run_ledger.runs.budgets import Limits
from agent_run_ledger.runs.fork import fork_run
from agent_run_ledger.runs.inputs import Inputs
from agent_run_ledger.runs.operate import no_run
from agent_run_ledger.runs.resolve import check_record_id
from agent_run_ledger.runs.steps import MAX_SECONDS, Step, parse_on_change
from agent_run_ledger.store import named_store, without_secrets

if TYPE_CHECKING:
    from agent_run_ledger.ledger.run_effects import EffectSettings, NamesPolicy
    from agent_run_ledger.ledger.run_queue import RunQueue

P = ParamSpec("P")
R = TypeVar("R")

DB_VARIABLE = "AGENT_RUN_LEDGER_DB"
DEFAULT_DB = "./agent_run_ledger.db"
DEFAULT_LIMIT_BYTES = 16 * 1024 * 1024
DEFAULT_PARALLEL = 8
DEFAULT_POLICY = LoopDetectorPolicy()
DEFAULT_QUEUE = "default"


def default_db_path() -> str:
    """Return the store's path where none is given: the environment's AGENT_RUN_LEDGER_DB, else a file right here."""
    return os.environ.get(DB_VARIABLE) or DEFAULT_DB


class RunLedger(Registry):
    """A set of steps, and the store their runs are recorded in.

    `run_id`: which run `execute` works on; without one a UUIDv7 is made, once per ledger. `db_path`: the SQLite
    file; see `default_db_path`. `url`: in its place, a database at a server (postgresql://…). `policy`: when the
    breaker stops a dynamic run that goes in circles, stored with each run; None for never. `create`: whether a missing
    store is made.
    `max_parallel`: how many bodies of independent steps run at once in one run.
    `max_payload_bytes`: the largest value a record may hold, encoded and before compression. `on_change`: what a
    step does whose fingerprint differs from its record, "rerun" or "refuse"; by default pipelines run it again and
    dynamic runs refuse. `durability`: "full" or "extra".
    `observers`: who is told what happens in the runs, see `ports.Observer`.
    `keep_inputs`: whether the inputs' values are kept with the run, and not only digests of them.
    `budget`: what a run, with the runs within it, may use; see `Budget`. Runs within another one have none of their own
    but by `bind`. `effects`: as whom effects are asked for and carried out, and by which trust file. `queue`: where
    workers find what is submitted.

    Nothing is opened before the first run. Thread-safe; a context manager, by `with` or `async with`, that closes the
    store.
    """

    def __init__(
        self,
        run_id: str | None = None,
        db_path: str | os.PathLike[str] | None = None,
        *,
        url: str | None = None,
        policy: LoopDetectorPolicy | None = DEFAULT_POLICY,
        create: bool = True,
        max_parallel: int = DEFAULT_PARALLEL,
        max_payload_bytes: int = DEFAULT_LIMIT_BYTES,
        on_change: str | None = None,
        durability: str = "full",
        observers: Iterable[Observer] = (),
        keep_inputs: bool = False,
        budget: Budget | None = None,
        effects: EffectSettings | None = None,
        queue: str = DEFAULT_QUEUE,
        steps: Iterable[Step[..., Any]] = (),
    ) -> None:
        if policy is not None and not isinstance(policy, LoopDetectorPolicy):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misuse(f"policy must be a LoopDetectorPolicy, not {type(policy).__name__}", code="bad_policy")
        if type(max_parallel) is not int or not 1 <= max_parallel <= 1024:
            raise Misuse(
                f"max_parallel must be a whole number from 1 to 1024, not {max_parallel!r}", code="bad_setting"
            )
        if type(max_payload_bytes) is not int or max_payload_bytes < 1:
            raise Misuse(f"max_payload_bytes must be at least 1, not {max_payload_bytes!r}", code="bad_setting")
        self.run_id: str = made_run_id() if run_id is None else check_run_id(run_id)
        named = default_db_path() if db_path is None and url is None else named_store(db_path, url)
        self.db_path: str = _path_text(named)
        self.policy = policy
        self.max_parallel = max_parallel
        self.on_change = None if on_change is None else parse_on_change(on_change)
        self.keep_inputs = bool(keep_inputs)
        self.budget = check_budget(budget)
        self._opened = OpenedStore(
            self.db_path,
            create=create,
            durability=durability,
            limit_bytes=max_payload_bytes,
            observers=_checked(observers),
            effects=effects,
        )
        self.queue = check_queue(queue)
        super().__init__(steps)

    def __repr__(self) -> str:
        """Return a short form for messages."""
        store = without_secrets(self.db_path)
        return f"<RunLedger run_id={self.run_id!r} db_path={store!r} steps={len(self._steps)}>"

    def check_effects(self, tools: Mapping[str, NamesPolicy] | None = None) -> None:
        """Open the effects of the store: for programs whose effects are tools of a framework, before they begin.

        `tools`: those effects by the names of tools, as the adapter gets them. Refused where the store has no
        authority, or no trust file that says who approves (see `EffectSettings`), and Refused("no_policy") where that
        one has no policy of a name that an effect, here or among `tools`, is asked for under.
        """
        named: list[NamesPolicy] = [*self.effects, *(tools or {}).values()]
        self._opened.check_effects(sorted({effect.approval for effect in named}))

    def run(self, run_id: str | None = None, /, **inputs: Any) -> Entering:
        """Return a dynamic run, to be entered by `with` or `async with`; every keyword is an input. See `Run`.

        Without a run_id it is this ledger's run or, within another run, a child that is named by its place there.
        For other settings: `bind(run_id, ...).run(...)`.

        Entering raises RunBusy where another attempt is live, InputsChanged for other inputs than the run was started
        with, RunQuarantined (BudgetExceeded) or RunCancelled for a run that was stopped, Unstorable for an input
        without a stored form. Leaving completes the run; an Exception makes it failed, Pending suspended, and what is
        no Exception records nothing. An error that stopped the run and was swallowed is raised again on leaving.
        """
        handle = self.bind(self.run_id if run_id is None else run_id)
        return Entering(self._opened, handle.settings(run_id), inputs)

    def submit(self, run_id: str | None = None, /, **inputs: Any) -> str:
        """Put a run on record that a worker is to begin (`arl worker`), and return its id; every keyword is an input.

        It is a run of this ledger's only entry, else of its pipeline; of several entries call `entry.submit`. Once this
        returns, the run is synced, and nothing of it has run. Without a run_id a UUIDv7 is made; the same submission
        again changes nothing. InputsChanged, Refused("run_exists"); Misuse for inputs that nothing can be called with.
        """
        entries = self.entries
        if len(entries) > 1:
            names = ", ".join(one.name for one in entries)
            raise Misuse("this ledger has several entries", code="which_entry", hint=f"entry.submit(...) of {names}")
        return self._submit(run_id, entries[0].name if entries else "", inputs)

    def runs_of_queue(self, queue: str | None = None) -> RunQueue:
        """Return the runs of a queue as a worker sees them; by default of this ledger's own queue."""
        from agent_run_ledger.ledger.run_queue import RunQueue  # for workers: no run needs it

        return RunQueue(self._opened, self.queue if queue is None else check_queue(queue))

    def _enter(self, run_id: str | None, inputs: dict[str, Any]) -> Entering:
        return self.run(run_id, **inputs)

    def _submit(self, run_id: str | None, entry: str, inputs: dict[str, Any]) -> str:
        if entry:
            next(one for one in self.entries if one.name == entry).check(inputs)
        handle = self.bind(made_run_id() if run_id is None else run_id)
        handle.submit(entry, self.queue, inputs)
        return handle.run_id

    def execute(self, /, **inputs: Any) -> Any:
        """Run or resume this ledger's run; every keyword is an input. See `BoundRun.execute`."""
        return self.bind(self.run_id).execute(**inputs)

    async def aexecute(self, /, **inputs: Any) -> Any:
        """Run or resume this ledger's run on the running event loop. See `BoundRun.aexecute`."""
        return await self.bind(self.run_id).aexecute(**inputs)

    def bind(
        self,
        run_id: str,
        /,
        *,
        wait_s: float = 0,
        on_change: str | None = None,
        takeover: bool = False,
        budget: Budget | None = None,
    ) -> BoundRun:
        """Return a handle on one of many runs of these steps.

        `wait_s`: how long to wait for another live attempt before RunBusy. `takeover`: become the live attempt even
        if another one lives; that one can write nothing more. `budget`: the run's own; by default that of
        the ledger, for a run that is within no other.
        """
        if not isinstance(wait_s, int | float) or isinstance(wait_s, bool) or not 0 <= wait_s <= MAX_SECONDS:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misuse(f"wait_s must be a number of seconds from 0 on, not {wait_s!r}", code="bad_setting")
        own = check_budget(budget)
        return BoundRun(
            check_run_id(run_id),
            opened=self._opened,
            steps=lambda: self.steps,
            policy=self.policy,
            max_parallel=self.max_parallel,
            on_change=self.on_change if on_change is None else parse_on_change(on_change),
            wait_s=wait_s,
            takeover=takeover,
            keep_inputs=self.keep_inputs,
            policies=lambda: frozenset(effect.approval for effect in self.effects),
            limits=lambda: Limits(own=own, default=self.budget, steps=self._registered()),
        )

    def store_gauges(self) -> StoreGauges | None:
        """Return what the store says of all its runs at this moment, or None where there is no store yet.

        For monitoring: see `StoreGauges`. It reads every row of runs, not the records.
        """
        context = self._opened.existing()
        return None if context is None else read_gauges(context.store, context.clock.now_ms())

    def fork(
        self,
        run_id: str,
        /,
        *,
        from_step: str | Step[..., Any] | None = None,
        from_call: int | str | None = None,
        new_run_id: str | None = None,
        inputs: Mapping[str, object] | None = None,
    ) -> BoundRun:
        """Make a new run that refers to what `run_id` recorded before `from_step`, and return a handle on it.

        Guarantees: nothing of the other run changes, whatever state it is in; the fork is recorded at once and runs
        nothing before its own `execute`, which restores the referenced results for free and runs `from_step`, what
        depends on it, and what was not recorded. Without `inputs` the fork belongs to the other run's inputs; with
        others, steps that take a changed one run again. Without `new_run_id` a UUIDv7 is made. Refused: "no_run",
        "no_step", "run_exists", "erased".

        Of a dynamic run it refers to all that was recorded before a call was begun: the first of `from_step`, or the
        one that the record `from_call` is of. Enter it by `.run(**inputs)`. Refused besides: "no_call", and
        "dynamic_fork" where another run was started within it before.
        """
        fork_id = made_run_id() if new_run_id is None else check_run_id(new_run_id)
        given = None if inputs is None else Inputs(inputs, limit_bytes=self._opened.limit_bytes)
        context = self._opened.existing()
        if context is None:
            raise no_run(run_id)
        step = from_step.name if isinstance(from_step, Step) else from_step
        call = None if from_call is None else check_record_id(from_call)
        fork_run(context, run_id, from_step=step, from_call=call, new_run_id=fork_id, inputs=given)
        return self.bind(fork_id)

    def usage(self, *, by: str | None = None, since: datetime | None = None) -> Account | None:
        """Return what all runs of the store used, of what ended from `since` on; None where there is no store yet.

        For one run see `BoundRun.usage`, for `by` too. A naive `since` is Misuse.
        """
        if since is not None and since.tzinfo is None:
            raise Misuse("since must say its time zone", code="bad_setting", hint="datetime.now(UTC), for example")
        context = self._opened.existing()
        if context is None:
            return None
        since_ms = None if since is None else round(since.timestamp() * 1000)
        return account_of_store(context.store, by=parse_by(by), since_ms=since_ms)

    def close(self) -> None:
        """Release the store. A later run opens it again; a second call does nothing.

        It waits until effects that other threads have under way are on record, at most a minute; but not on an event
        loop, which they may need: there it returns, and the store is released when they are. `aclose` waits for that.
        """
        self._opened.close()

    async def aclose(self) -> None:
        """Release the store as `close` does, and wait beside the event loop for the effects that are under way."""
        await self._opened.aclose()

    def __enter__(self) -> RunLedger:
        """Return self."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    async def __aenter__(self) -> RunLedger:
        """Return self."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close, see `aclose`."""
        await self.aclose()


def _checked(observers: Iterable[Observer]) -> tuple[Observer, ...]:
    found = tuple(observers)
    for observer in found:
        if isinstance(observer, type) or not all(
            callable(getattr(observer, name, None)) for name in ("tell", "around")
        ):
            raise Misuse(f"an observer has the methods tell and around: {observer!r} has not", code="bad_observer")
    return found


def _path_text(path: object) -> str:
    try:
        return os.fsdecode(path)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    except TypeError:
        raise Misuse(f"db_path must be a path, not {type(path).__name__}", code="bad_path") from None


def made_run_id() -> str:
    """Return a new run id: a UUIDv7 (RFC 9562) in hex."""
    return uuid.UUID(bytes=SystemEntropy().uuid7()).hex


def check_run_id(run_id: str) -> str:
    """Return the run id, or refuse one that is not a printable string of 1 to 200 characters."""
    if not isinstance(run_id, str) or not run_id.strip() or not run_id.isprintable() or len(run_id) > 200:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Misuse(f"a run_id must be a printable string of 1 to 200 characters, not {run_id!r}", code="bad_run_id")
    return run_id


def check_queue(queue: str) -> str:
    """Return the name of a queue, or refuse one that is not a printable string of 1 to 100 characters."""
    if not isinstance(queue, str) or not queue.strip() or not queue.isprintable() or len(queue) > 100:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Misuse(f"a queue is a printable string of 1 to 100 characters, not {queue!r:.80}", code="bad_queue")
    return queue
