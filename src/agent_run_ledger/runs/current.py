"""Which run the code that runs here belongs to: one context variable, and what a call of a step is handed to."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from agent_run_ledger.runs.steps import Step


class Caller(Protocol):
    """A place in a live run where steps can be called."""

    def call(self, step: Step[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer the call from its record, or run and record it: a value, a coroutine or an iterator as the step is."""
        ...


CURRENT: Final[contextvars.ContextVar[Caller | None]] = contextvars.ContextVar("agent_run_ledger_run", default=None)
"""The innermost run and scope of this context. It reaches tasks, but no threads: `run.map` and `run.wrap` carry it."""
