"""The three faces of `arl runs watch`: a live screen, plain lines, JSON Lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from rich.console import Group
from rich.live import Live
from rich.text import Text

from agent_run_ledger.cli.call_tree import call_line, calls_words
from agent_run_ledger.cli.output import console, print_json, text
from agent_run_ledger.cli.run_json import call_json, duration_ms, origin_json
from agent_run_ledger.cli.run_tree import step_line, steps_words
from agent_run_ledger.cli.runs_list import STATE_STYLES, state_words
from agent_run_ledger.cli.words import duration_words, first_line, iso
from agent_run_ledger.ledger.call_view import CallStanding, CallsView, CallView
from agent_run_ledger.ledger.run_watch import WatchEnd, changed_calls, changed_steps, run_changed
from agent_run_ledger.ledger.step_states import StepState

if TYPE_CHECKING:
    from agent_run_ledger.ledger.run_view import RunView, StepView
    from agent_run_ledger.ledger.views import RecordView
    from agent_run_ledger.ports import InFlight

_FRAME_LINES = 4
"""Lines of a live screen that are no steps, and one that stays free below it."""

_URGENT = (StepState.RUNNING, StepState.FAILED, StepState.UNCERTAIN, StepState.RESCUED, StepState.LIVE)
"""What is kept where not all steps fit, most telling first; others come after these."""


class Screen(Protocol):
    """Shows what a watch sees."""

    def show(self, before: RunView | None, now: RunView) -> None:
        """Show what changed between two views."""
        ...

    def tick(self, now: RunView) -> None:
        """Note that time has passed and nothing changed."""
        ...

    def end(self, now: RunView, end: WatchEnd) -> None:
        """Say how it ended."""
        ...


class JsonLines:
    """One JSON object per change (docs/reference/cli.md), flushed at once."""

    def show(self, before: RunView | None, now: RunView) -> None:
        """See Screen.show."""
        if run_changed(before, now):
            print_json(_run_change(now), lines=True)
        for step in changed_steps(before, now):
            print_json(_step_change(step, now), lines=True)
        for call in changed_calls(before, now):
            told = {"change": "call", "run_id": now.row.run_id, **call_json(call, None)}
            print_json(told, lines=True)
        sys.stdout.flush()

    def tick(self, now: RunView) -> None:
        """See Screen.tick."""

    def end(self, now: RunView, end: WatchEnd) -> None:
        """See Screen.end."""
        code = 0 if end is WatchEnd.COMPLETED else 1
        print_json({"change": "end", "run_id": now.row.run_id, "outcome": str(end), "exit_code": code}, lines=True)
        sys.stdout.flush()


class PlainLines:
    """One line per change for people who read a pipe or a log, flushed at once."""

    def show(self, before: RunView | None, now: RunView) -> None:
        """See Screen.show."""
        if run_changed(before, now):
            _line(Text.assemble(f"{iso(now.row.updated_at_ms)}  ", _head(now)))
        width = max((len(step.definition.name) for step in now.steps), default=0)
        for step in changed_steps(before, now):
            _line(Text.assemble(f"{iso(_moment(step.in_flight, step.current, now))}  ", step_line(step, width)))
        for call in changed_calls(before, now):
            marks = [] if call.mark is None else [call.mark]
            _line(Text.assemble(f"{iso(_moment(marks, call.current, now))}  ", call_line(call)))
        sys.stdout.flush()

    def tick(self, now: RunView) -> None:
        """See Screen.tick."""

    def end(self, now: RunView, end: WatchEnd) -> None:
        """See Screen.end."""
        _line(_end_words(now, end))
        sys.stdout.flush()


def _line(words: Text) -> None:
    """Print one line, however long: who reads a pipe line by line is not helped by a fold."""
    out = console()
    with out.capture() as captured:
        out.print(words, soft_wrap=True)
    sys.stdout.write(f"{captured.get().rstrip()}\n")


class LiveScreen:
    """The whole run, drawn anew in place; what does not fit the terminal's height is counted instead."""

    def __init__(self) -> None:
        self._console = console()
        self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)

    def __enter__(self) -> LiveScreen:
        """Take the terminal over."""
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the terminal back, with its cursor, and leave the last picture on it."""
        self._live.stop()

    def show(self, before: RunView | None, now: RunView) -> None:
        """See Screen.show."""
        self._draw(now, None)

    def tick(self, now: RunView) -> None:
        """See Screen.tick."""
        self._draw(now, None)

    def end(self, now: RunView, end: WatchEnd) -> None:
        """See Screen.end."""
        self._draw(now, end)

    def _draw(self, now: RunView, end: WatchEnd | None) -> None:
        room = max(1, self._console.size.height - _FRAME_LINES)
        lines = [_head(now), *(_step_lines(now.steps, room) if now.calls is None else _call_lines(now.calls, room))]
        words = steps_words(now) if now.calls is None else calls_words(now)
        lines.append(text(words, "bold") if end is None else _end_words(now, end))
        for line in lines:
            line.no_wrap, line.overflow = True, "ellipsis"
        self._live.update(Group(*lines), refresh=True)


def fitting(steps: Sequence[StepView], room: int) -> list[StepView]:
    """Return at most `room` steps in their order: those that tell most, and of the same kind the latest."""
    if len(steps) <= room:
        return list(steps)
    rank = {state: at for at, state in enumerate(_URGENT)}
    order = sorted(range(len(steps)), key=lambda at: (rank.get(steps[at].state, len(rank)), -at))
    return [steps[at] for at in sorted(order[:room])]


def _step_lines(steps: Sequence[StepView], room: int) -> list[Text]:
    shown = fitting(steps, room)
    width = min(28, max((len(step.definition.name) for step in shown), default=0))
    lines = [_live_line(step, width) for step in shown]
    more = len(steps) - len(shown)
    return [*lines, text(f"… and {more:,} more steps", "dim")] if more else lines


def _call_lines(calls: CallsView, room: int) -> list[Text]:
    """Return the latest calls, and of those before them the ones that run or that nobody knows the outcome of."""
    listed = [call for call in calls.calls if not call.is_own]
    urgent = [call for call in listed[:-room] if call.standing in (CallStanding.RUNNING, CallStanding.UNKNOWN)][-room:]
    shown = urgent + listed[max(0, len(listed) - room + len(urgent)) :] if urgent else listed[-room:]
    lines = [_live_call(call) for call in shown]
    more = len(listed) - len(shown)
    return [text(f"… and {more:,} more calls", "dim"), *lines] if more else lines


def _live_call(call: CallView) -> Text:
    line = call_line(call, ident=False)
    if call.standing is CallStanding.RUNNING and call.mark is not None:
        line.append(f"  for {_passed(call.mark)}", "dim")
    elif call.current is not None and call.current.error:
        line.append_text(text(f"  {first_line(call.current.error)}", "red"))
    return line


def _passed(mark: InFlight) -> str:
    return duration_words(max(0, time.time_ns() // 1_000_000 - mark.started_at_ms))


def _head(view: RunView) -> Text:
    row = view.row
    head = Text.assemble(
        ("run ", "bold"),
        text(row.run_id, "bold"),
        "  ",
        text(state_words(row.state, view.live, taken_over=view.taken_over), STATE_STYLES[row.state]),
        text(f"  attempt {row.attempt}", "dim"),
    )
    return head.append_text(text(f" · {first_line(row.reason)}", "dim")) if row.reason else head


def _live_line(step: StepView, width: int) -> Text:
    line = step_line(step, width)
    if step.state is StepState.RUNNING and step.in_flight:
        line.append(f"  for {_passed(step.in_flight[-1])}", "dim")
    elif step.current is not None and step.current.error:
        line.append_text(text(f"  {first_line(step.current.error)}", "red"))
    return line


def _end_words(view: RunView, end: WatchEnd) -> Text:
    words = "died: no attempt of it lives, and nothing says how it ended" if end is WatchEnd.DIED else str(end)
    return text(f"run {view.row.run_id} {'' if end is WatchEnd.DIED else 'is '}{words}", "bold")


def _moment(marks: Sequence[InFlight], current: RecordView | None, view: RunView) -> int:
    if marks:
        return marks[-1].started_at_ms
    return view.row.updated_at_ms if current is None else current.ended_at_ms


def _run_change(view: RunView) -> dict[str, object]:
    row = view.row
    return {
        "change": "run",
        "run_id": row.run_id,
        "state": str(row.state),
        "reason": row.reason,
        "live_attempt": view.live,
        "attempt": row.attempt,
        "generation": row.generation,
    }


def _step_change(step: StepView, view: RunView) -> dict[str, object]:
    mark, record = (step.in_flight[-1] if step.in_flight else None), step.current
    told: dict[str, object] = {
        "change": "step",
        "run_id": view.row.run_id,
        "step": step.definition.name,
        "state": str(step.state),
        "attempt": None,
        "tries": None,
        "started_at": None,
        "ended_at": None,
        "duration_ms": None,
        "record_id": None,
        "because": [],
        "error": "",
        "origin": None,
    }
    if mark is not None:
        told |= {"attempt": mark.attempt, "tries": mark.tries, "started_at": iso(mark.started_at_ms)}
    elif record is not None:
        told |= {
            "attempt": record.attempt,
            "tries": record.tries,
            "started_at": iso(record.started_at_ms),
            "ended_at": iso(record.ended_at_ms),
            "duration_ms": duration_ms(record),
            "record_id": record.record_id,
            "because": list(record.because),
            "error": record.error,
            "origin": None if record.origin is None else origin_json(record.origin),
        }
    return told
