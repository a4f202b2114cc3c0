"""Entries: functions that are a whole run, so that a worker can begin one that somebody else submitted."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar

from agent_run_ledger.errors import Misuse
from agent_run_ledger.ledger.entering import Entering

if TYPE_CHECKING:
    from agent_run_ledger.runs.run import Run

P = ParamSpec("P")
R = TypeVar("R")

RUN_PARAMETER: Final = "run"
"""The parameter by which an entry gets its `Run`, where it has one of this name."""
RESULT: Final = "result"
"""The name of the value by which an entry's result is on record: `run.result`."""
_MOST_NAME: Final = 190


class Entry(Generic[P, R]):
    """A function that is a whole dynamic run: called in it with the run's inputs, and what it returns is on record.

    `plain` is the function itself. Make one with `RunLedger.entry`.
    """

    def __init__(
        self,
        fn: Callable[P, R],
        *,
        name: str | None,
        enter: Callable[[str | None, dict[str, Any]], Entering],
        submit: Callable[[str | None, str, dict[str, Any]], str],
    ) -> None:
        self.plain = fn
        self.name = _named(fn, name)
        self.is_async = inspect.iscoroutinefunction(fn)
        self._takes_run = RUN_PARAMETER in _parameters(fn, self.name)
        self._enter = enter
        self._submit = submit

    def __repr__(self) -> str:
        """Return a short form for messages."""
        return f"<Entry {self.name!r}>"

    def start(self, run_id: str | None = None, /, **inputs: Any) -> R:
        """Begin or go on with a run here and now, and return its result; every keyword is an input.

        On a completed run: the recorded result. Errors as of `RunLedger.run`, and what the function raises. Without a
        run_id it is the ledger's own run. Misuse for an async function: `await entry.astart(...)`.
        """
        if self.is_async:
            raise Misuse(f"entry {self.name!r} is async", code="bad_entry", hint="await entry.astart(...)")
        with self._enter(run_id, inputs) as run:
            result = self.plain(*self._given(run), **run.inputs)
            return run.value(RESULT, lambda: result)

    async def astart(self, run_id: str | None = None, /, **inputs: Any) -> Any:
        """Do what `start` does, on the running event loop; a function that is not async runs on it too."""
        async with self._enter(run_id, inputs) as run:
            made: Any = self.plain(*self._given(run), **run.inputs)
            result: Any = await made if inspect.isawaitable(made) else made
            return run.value(RESULT, lambda: result)

    def submit(self, run_id: str | None = None, /, **inputs: Any) -> str:
        """Put a run on record that a worker is to begin (`arl worker`), and return its id; see `RunLedger.submit`."""
        return self._submit(run_id, self.name, inputs)

    def check(self, inputs: dict[str, Any]) -> None:
        """Raise Misuse for inputs that the function cannot be called with."""
        try:
            inspect.signature(self.plain).bind(*self._given(None), **inputs)
        except TypeError as error:
            raise Misuse(f"entry {self.name!r}: {error}", code="bad_inputs") from None

    def _given(self, run: Run | None) -> tuple[Any, ...]:
        return (run,) if self._takes_run else ()


def _named(fn: Callable[..., Any], name: str | None) -> str:
    found = getattr(fn, "__name__", "") if name is None else name
    if not isinstance(found, str) or not found.strip() or not found.isprintable() or len(found) > _MOST_NAME:
        raise Misuse(f"an entry needs a printable name, not {found!r:.80}", code="bad_entry")
    return found


def _parameters(fn: Callable[..., Any], name: str) -> tuple[str, ...]:
    """Return the names of a function's parameters. Misuse for one that cannot be called with inputs by their names."""
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise Misuse(f"entry {name!r} is a generator, and a run has one result", code="bad_entry")
    parameters = tuple(inspect.signature(fn).parameters.values())
    for at, one in enumerate(parameters):
        by_name = one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD, one.VAR_KEYWORD)
        is_run = one.name == RUN_PARAMETER
        if is_run and (at != 0 or one.kind is one.KEYWORD_ONLY):
            raise Misuse(f"entry {name!r} gets its run as its first parameter", code="bad_entry")
        if not by_name and not is_run:
            raise Misuse(f"entry {name!r}: inputs come by name, and {one.name!r} has none", code="bad_entry")
    return tuple(one.name for one in parameters)
