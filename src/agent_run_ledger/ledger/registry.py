"""What a program registers with its ledger: steps, tools, effects and entries, each by its name."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar, overload

from agent_run_ledger.errors import Misuse
from agent_run_ledger.kernel.budget import Budget, Reserve
from agent_run_ledger.ledger.entering import Entering
from agent_run_ledger.ledger.entries import Entry
from agent_run_ledger.ports.effect_steps import Probe
from agent_run_ledger.ports.targets import Target
from agent_run_ledger.runs.effect_steps import Effect
from agent_run_ledger.runs.steps import Environment, Step
from agent_run_ledger.runs.tools import Tool

P = ParamSpec("P")
R = TypeVar("R")


class Registry(ABC):
    """Steps, tools and effects share their names, entries have names of their own. Thread-safe."""

    def __init__(self, steps: Iterable[Step[..., Any]] = ()) -> None:
        self._steps: dict[str, Step[..., Any]] = {}
        self._entries: dict[str, Entry[..., Any]] = {}
        self._lock = threading.Lock()
        for step in steps:
            self.add(step)

    @abstractmethod
    def _enter(self, run_id: str | None, inputs: dict[str, Any]) -> Entering:
        """Return the run that an entry is called in."""

    @abstractmethod
    def _submit(self, run_id: str | None, entry: str, inputs: dict[str, Any]) -> str:
        """Put a run of an entry on record, and return its id."""

    def add(self, step: Step[P, R]) -> Step[P, R]:
        """Register a Step object and return it. Two steps of one name are Misuse, whichever ledger they come from."""
        if not isinstance(step, Step):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misuse(f"add takes a Step, not {type(step).__name__}", code="bad_step")
        self._register(step)
        return step

    def _register(self, step: Step[..., Any]) -> None:
        with self._lock:
            if step.name in self._steps:
                raise Misuse(
                    f"two steps are named {step.name!r}", code="duplicate_step", hint="give one of them another name="
                )
            self._steps[step.name] = step

    @overload
    def step(self, fn: Callable[P, R], /) -> Step[P, R]: ...
    @overload
    def step(
        self,
        fn: None = None,
        /,
        *,
        name: str | None = None,
        depends_on: Iterable[str | Step[..., Any]] = (),
        environment: Environment = None,
        version: str = "1",
        retries: int = 0,
        retry_base_s: float = 0.5,
        retry_cap_s: float = 30.0,
        timeout_s: float | None = None,
        on_change: str | None = None,
        key: str | Callable[..., str] | None = None,
        interchangeable: bool = False,
        ignore: Iterable[str] = (),
        budget: Budget | None = None,
        reserves: Reserve | None = None,
    ) -> Callable[[Callable[P, R]], Step[P, R]]: ...
    def step(
        self, fn: Callable[P, R] | None = None, /, **settings: Any
    ) -> Step[P, R] | Callable[[Callable[P, R]], Step[P, R]]:
        """Register a function as a step; with or without settings, which are those of `Step`."""
        if fn is not None:
            return self.add(Step(fn, **settings))

        def register(function: Callable[P, R]) -> Step[P, R]:
            return self.add(Step(function, **settings))

        return register

    @overload
    def tool(self, fn: Callable[P, R], /) -> Tool[P, R]: ...
    @overload
    def tool(
        self,
        fn: None = None,
        /,
        *,
        name: str | None = None,
        safe: bool = False,
        poll: bool = False,
        volatile: Iterable[str] = (),
        environment: Environment = None,
        version: str = "1",
        retries: int = 0,
        retry_base_s: float = 0.5,
        retry_cap_s: float = 30.0,
        timeout_s: float | None = None,
        on_change: str | None = None,
        key: str | Callable[..., str] | None = None,
        interchangeable: bool = False,
        ignore: Iterable[str] = (),
        budget: Budget | None = None,
        reserves: Reserve | None = None,
    ) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
    def tool(
        self, fn: Callable[P, R] | None = None, /, **settings: Any
    ) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
        """Register a function that an agent calls in a dynamic run; its settings are those of `Tool`.

        It is no part of what `execute` runs.
        """

        def register(function: Callable[P, R]) -> Tool[P, R]:
            made: Tool[P, R] = Tool(function, **settings)
            self._register(made)
            return made

        return register if fn is None else register(fn)

    @overload
    def effect(
        self, fn: Callable[P, Any], /, *, key: str | Callable[..., str], target: Target, approval: str
    ) -> Effect[P]: ...
    @overload
    def effect(
        self,
        fn: None = None,
        /,
        *,
        name: str | None = None,
        key: str | Callable[..., str],
        target: Target,
        approval: str,
        observe: Probe | None = None,
        successors: int = 0,
        wait_s: float = 0,
        environment: Environment = None,
        version: str = "1",
        retries: int = 0,
        retry_base_s: float = 0.5,
        retry_cap_s: float = 30.0,
        timeout_s: float | None = None,
        on_change: str | None = None,
        ignore: Iterable[str] = (),
        budget: Budget | None = None,
        reserves: Reserve | None = None,
    ) -> Callable[[Callable[P, Any]], Effect[P]]: ...
    def effect(
        self, fn: Callable[P, Any] | None = None, /, **settings: Any
    ) -> Effect[P] | Callable[[Callable[P, Any]], Effect[P]]:
        """Register a function that acts on the world once, with people's approval; see `Effect` for its settings.

        It is called in dynamic runs, as tools are. A store without authority, or without a trust file that says who
        approves, and knows the policy that `approval` names, is refused where a run of this ledger is entered:
        `arl init --local` makes both for one machine.
        """

        def register(function: Callable[P, Any]) -> Effect[P]:
            made: Effect[P] = Effect(function, **settings)
            self._register(made)
            return made

        return register if fn is None else register(fn)

    @overload
    def entry(self, fn: Callable[P, R], /) -> Entry[P, R]: ...
    @overload
    def entry(self, fn: None = None, /, *, name: str | None = None) -> Callable[[Callable[P, R]], Entry[P, R]]: ...
    def entry(
        self, fn: Callable[P, R] | None = None, /, *, name: str | None = None
    ) -> Entry[P, R] | Callable[[Callable[P, R]], Entry[P, R]]:
        """Register a function that is a whole dynamic run, so that a worker can begin it; see `Entry`.

        It is called with the run's inputs, and with the `Run` where its first parameter is named `run`.
        """

        def register(function: Callable[P, R]) -> Entry[P, R]:
            made = Entry(function, name=name, enter=self._enter, submit=self._submit)
            with self._lock:
                if made.name in self._entries:
                    raise Misuse(f"two entries are named {made.name!r}", code="duplicate_entry")
                self._entries[made.name] = made
            return made

        return register if fn is None else register(fn)

    @property
    def entries(self) -> tuple[Entry[..., Any], ...]:
        """The registered entries in the order of registration."""
        with self._lock:
            return tuple(self._entries.values())

    def _registered(self) -> tuple[Step[..., Any], ...]:
        with self._lock:
            return tuple(self._steps.values())

    @property
    def tools(self) -> tuple[Tool[..., Any], ...]:
        """The registered tools in the order of registration."""
        with self._lock:
            return tuple(step for step in self._steps.values() if isinstance(step, Tool))

    @property
    def steps(self) -> tuple[Step[..., Any], ...]:
        """The registered steps in the order of registration, without the tools and effects."""
        with self._lock:
            return tuple(step for step in self._steps.values() if not isinstance(step, Tool | Effect))

    @property
    def effects(self) -> tuple[Effect[...], ...]:
        """The registered effects in the order of registration."""
        with self._lock:
            return tuple(step for step in self._steps.values() if isinstance(step, Effect))
