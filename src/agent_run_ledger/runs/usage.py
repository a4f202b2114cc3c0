"""What a call uses of models while its body runs: reported by the body, or read from what it returned."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Final

from agent_run_ledger.errors import Misuse
from agent_run_ledger.kernel.usage import MAX_COUNT, Usage, cost_of, merged, usage_bytes
from agent_run_ledger.prices import price
from agent_run_ledger.runs.differences import is_text
from agent_run_ledger.runs.responses import MAX_TEXT, read_usage

if TYPE_CHECKING:
    from agent_run_ledger.runs.parents import Parent

log = logging.getLogger("agent_run_ledger")
REPORTED: Final = "reported"


class Meter:
    """What one try of one call reported. Any thread may add; what is added after `take` is in no record.

    `within`: the run of the call, where it is a pipeline's.
    """

    __slots__ = ("_children", "_lines", "_lock", "_nested", "_taken", "step", "within")

    def __init__(self, step: str, within: Parent | None = None) -> None:
        self.step = step
        self.within = within
        self._children: dict[bytes, int] = {}
        self._lines: list[Usage] = []
        self._lock = threading.Lock()
        self._nested = False
        self._taken = False

    def add(self, lines: Sequence[Usage]) -> None:
        """Add lines; too late, they are named in a warning."""
        with self._lock:
            if not self._taken:
                self._lines += lines
                return
        for line in lines:
            log.warning("step %r reported its usage after it had ended: %s is in no record", self.step, _said(line))

    def note_run(self) -> None:
        """Note that the body ran steps of another ledger: what it returns may be theirs, and they say what it used."""
        self._nested = True

    def count_child(self, inputs: bytes) -> int:
        """Return the number of a run that the body starts, among those with these inputs, from 0 on."""
        with self._lock:
            self._children[inputs] = self._children.get(inputs, -1) + 1
            return self._children[inputs]

    def uncount_child(self, inputs: bytes, number: int) -> None:
        """Take back the number of a run that was not entered, unless there is a later one."""
        with self._lock:
            if self._children.get(inputs) == number:
                self._children[inputs] = number - 1

    def take(self) -> tuple[list[Usage], bool]:
        """Return what was reported, and whether the body returned a value that nobody else accounts for."""
        with self._lock:
            self._taken = True
            return self._lines, not self._lines and not self._nested


METER: Final[contextvars.ContextVar[Meter | None]] = contextvars.ContextVar("agent_run_ledger_meter", default=None)
"""The meter of the body that runs in this context."""


def report_usage(
    response: object = None,
    /,
    *,
    model: str = "",
    provider: str = "",
    input_tokens: int | None = None,
    output_tokens: int | None = None,
    cache_read_tokens: int | None = None,
    cache_write_tokens: int | None = None,
    cost_usd: Decimal | float | str | None = None,
    calls: int = 1,
) -> None:
    """Say, inside a step's body, what it used of a model; once for each call of a model, any number of times.

    `response`: what a client returned (see `responses.read_usage`), or the numbers themselves; None is unknown, never
    0. `input_tokens` counts all input, cached input included. `cost_usd`: US dollars, where you know better than a
    price table. The record of this try of the step keeps it, also when the body raises. A response that says nothing
    is noted as a call of unknown usage.

    Raises Misuse outside a step, and for numbers that cannot be meant: then nothing was noted.
    """
    meter = METER.get()
    if meter is None:
        raise Misuse(
            "report_usage was called outside of a step",
            code="no_step",
            hint="call it in a step's body; a thread of your own carries the step with contextvars.copy_context().run",
        )
    cost = _checked_cost(cost_usd)
    said = Usage(
        model=_checked_text("model", model),
        provider=_checked_text("provider", provider),
        calls=_checked_count("calls", calls) or 0,
        input_tokens=_checked_count("input_tokens", input_tokens),
        output_tokens=_checked_count("output_tokens", output_tokens),
        cache_read_tokens=_checked_count("cache_read_tokens", cache_read_tokens),
        cache_write_tokens=_checked_count("cache_write_tokens", cache_write_tokens),
        cost_usd=cost,
        prices="" if cost is None else REPORTED,
    )
    if said.calls < 1:
        raise Misuse(f"calls must be a whole number from 1 on, not {_shown(calls)}", code="bad_usage")
    if response is None:
        meter.add([said])
    elif said == Usage(model=said.model, provider=said.provider):
        meter.add(_lines_of(response, said))
    else:
        raise Misuse("report_usage takes a response or numbers, not both", code="bad_usage")


def noted_usage(
    *, input_tokens: int | None = None, output_tokens: int | None = None, cost_usd: Decimal | float | str | None = None
) -> bytes:
    """Return what a person says that a call used, as a record keeps it; empty where nothing is said. Else Misuse."""
    cost = _checked_cost(cost_usd)
    said = Usage(
        input_tokens=_checked_count("input_tokens", input_tokens),
        output_tokens=_checked_count("output_tokens", output_tokens),
        cost_usd=cost,
        prices="" if cost is None else REPORTED,
    )
    return b"" if said == Usage() else usage_bytes([said])


def stored_usage(
    meter: Meter, value: object, *, args: Sequence[object], kwargs: Mapping[str, object], at_ms: int
) -> bytes:
    """Return what a try used, as its record keeps it; empty where nobody said. Never raises: the work is paid.

    What the body reported, and only where it reported nothing, what the value it returned says. Prices are those of
    `at_ms`, of each call by itself: where a price depends on the size of a prompt, a sum would have another one.
    """
    try:
        lines, unsaid = meter.take()
        if unsaid and value is not None:
            lines = read_usage(value, chain(args, kwargs.values()))
        return usage_bytes(merged([price(line, at_ms) for line in lines])) if lines else b""
    except Exception as error:  # of whatever kind: what was paid for is recorded, its usage is unknown
        log.warning("what step %r used cannot be kept: %s: %s", meter.step, type(error).__name__, error)
        return b""


def _lines_of(response: object, said: Usage) -> list[Usage]:
    lines = read_usage(response)
    if not lines:
        log.warning("a %s says nothing that is known of its usage: it is kept as unknown", type(response).__name__)
        lines = [Usage()]
    return [replace(line, model=said.model or line.model, provider=said.provider or line.provider) for line in lines]


def _checked_count(name: str, value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_COUNT:
        raise Misuse(f"{name} must be a whole number from 0 to {MAX_COUNT:,}, not {_shown(value)}", code="bad_usage")
    return int(value)


def _checked_cost(value: object) -> Decimal | None:
    if value is None:
        return None
    cost = cost_of(value)
    if cost is None:
        raise Misuse(f"cost_usd must be a number of US dollars from 0 on, not {_shown(value)}", code="bad_usage")
    return cost


def _checked_text(name: str, value: object) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT or not is_text(value):
        raise Misuse(f"{name} must be a text of at most {MAX_TEXT} characters, not {_shown(value)}", code="bad_usage")
    return str(value)


def _shown(value: object) -> str:
    try:
        return f"{value!r:.100}"
    except Exception:  # a number of more digits than Python writes, or a class of the user's
        return f"this {type(value).__name__}"


def _said(line: Usage) -> str:
    tokens = [f"{value:,} {name.replace('_', ' ')}" for name in ("input_tokens", "output_tokens")
              if (value := getattr(line, name)) is not None]  # fmt: skip
    model = f" of {line.model!r}" if line.model else ""
    return (" and ".join(tokens) or "a call of unknown usage") + model
