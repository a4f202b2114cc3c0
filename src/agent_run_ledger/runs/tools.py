"""Tools: steps that may change the world outside, and so are not repeated unless they are declared safe."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from agent_run_ledger.errors import Misuse
from agent_run_ledger.runs.steps import P, R, Step


class Tool(Step[P, R]):
    """A function that an agent calls, as a step of a dynamic run; see `Step` for its settings.

    `safe`: it only reads, or doing it twice is doing it once. A safe tool whose end nobody recorded runs again. Any
    other is never repeated: after a crash the agent gets a result that says that the outcome is unknown.

    For the breaker: `poll`: it is meant to be called again until its answer changes, and has a limit of its own.
    `volatile`: keys, or dotted paths, of its arguments and results whose values say nothing ("eta", "meta.took").
    `outcome`: returns what of a result says how the call went, where a result is an envelope around it; an Exception
    that it returns stands for an error. What it raises is raised to the caller: it must take every value.
    """

    watched = True

    def __init__(
        self,
        fn: Any,
        /,
        *,
        safe: bool = False,
        poll: bool = False,
        volatile: Iterable[str] = (),
        outcome: Callable[[Any], object] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(fn, **settings)
        self.outcome = outcome
        self.repeatable = bool(safe)
        self.poll = bool(poll)
        self.volatile = _keys(volatile, self.name)
        if not safe and self.retries:
            raise Misuse(
                f"tool {self.name!r} is not safe and has retries",
                code="bad_step",
                hint="declare safe=True where doing it twice does no harm, or leave retries at 0",
            )

    def __repr__(self) -> str:
        """Return a short form for messages."""
        return f"<Tool {self.name!r} of {self.function_name}>"


def _keys(volatile: object, name: str) -> tuple[str, ...]:
    """Return the volatile keys of a tool; Misuse for what is no list of texts."""
    keys = (
        [] if isinstance(volatile, str) or not isinstance(volatile, Iterable) else [*cast("Iterable[object]", volatile)]
    )
    if volatile != () and (not keys or not all(isinstance(key, str) and key for key in keys)):
        raise Misuse(f"volatile of tool {name!r} must be a list of keys, such as ['eta', 'meta.took']", code="bad_step")
    return tuple(cast("list[str]", keys))


def outcome_unknown(tool: str, record_id: int) -> dict[str, object]:
    """Return what an agent gets for a call of which nobody can say whether it happened; the same at every restore."""
    return {
        "outcome": "unknown",
        "tool": tool,
        "call": str(record_id),
        "message": (
            f"Nobody recorded how {tool} ended: the program stopped while it ran, or its end could not be recorded. "
            "It may have taken effect or not. Do not call it again for the same purpose; look at the present state "
            "first, or ask a person."
        ),
    }
