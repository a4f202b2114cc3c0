"""`arl runs explain` of a dynamic run: what each attempt recorded, and what the next would do with each call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from agent_run_ledger.cli.explain_words import attempt_head, decision_words, next_words
from agent_run_ledger.cli.next_steps import resolve_command
from agent_run_ledger.cli.output import print_json, show, text
from agent_run_ledger.cli.runs_list import state_words
from agent_run_ledger.cli.words import MAX_LISTED, MAX_REASON, counted, first_line
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ledger.call_story import CallCounts, CallFate, ToldCall, attempt_counts, tell_calls
from agent_run_ledger.ledger.run_story import next_answer
from agent_run_ledger.ledger.run_view import RunView

if TYPE_CHECKING:
    from rich.padding import Padding
    from rich.text import Text

    from agent_run_ledger.cli.settings import Setting
    from agent_run_ledger.store import AnyStore

_SAID = "said by a person"
_FATES = {
    (CallFate.RAISES, ""): "gets the recorded error again, since the agent went on from it",
    (CallFate.RAISES, _SAID): "gets the error that a person recorded",
    (CallFate.TRIES, ""): "tries again what failed last (a tool that is not safe: raises its error again)",
    (CallFate.RUNS, ""): "makes again, since nothing says how it ended",
    (CallFate.RUNS, _SAID): "makes again, since a person said that it was not done",
    (CallFate.UNKNOWN, ""): "is told that the outcome is unknown, and does not make it again",
    (CallFate.RUNNING, ""): "waits for what runs now",
}
_MAX_ERROR = 80


def explain_calls(store: AnyStore, view: RunView, setting: Setting, *, as_json: bool) -> None:
    """Print the explanation of a dynamic run."""
    told, counts = tell_calls(store, view), attempt_counts(view)
    if as_json:
        print_json(_json(view, told, counts, setting))
    else:
        _print(view, told, counts, setting)


def _json(
    view: RunView, told: Sequence[ToldCall], counts: Mapping[int, CallCounts], setting: Setting
) -> dict[str, object]:
    from agent_run_ledger.cli.run_json import attempt_json, decision_json, prefix_json

    row = view.row
    answer = next_answer(view)
    return {
        "run_id": row.run_id,
        "kind": "dynamic",
        "state": str(row.state),
        "reason": row.reason,
        "live_attempt": view.live,
        "forked_from": None if view.prefix is None else prefix_json(view.prefix),
        "attempts": [
            {
                **attempt_json(attempt),
                "recorded": counts[attempt.number].recorded,
                "failed": counts[attempt.number].failed,
                "left": counts[attempt.number].left,
                "left_unknown": counts[attempt.number].unknown,
                "decisions": [decision_json(one) for one in view.decisions if one.attempt == attempt.number],
            }
            for attempt in view.attempts
        ],
        "calls": [
            {
                "step": one.call.name,
                "scope": one.call.scope.hex(),
                "occurrence": one.call.occurrence,
                "own": one.call.is_own,
                "state": str(one.call.standing),
                "fate": str(one.fate),
                "went_on": one.went_on,
                "record_id": None if one.call.current is None else one.call.current.record_id,
                "unknown": one.call.unknown_id,
            }
            for one in told
        ],
        "next_execute": str(answer),
        "next_execute_words": next_words(view, answer, setting),
    }


def _print(view: RunView, told: Sequence[ToldCall], counts: Mapping[int, CallCounts], setting: Setting) -> None:
    from rich.padding import Padding
    from rich.text import Text

    row = view.row
    state = state_words(row.state, view.live, taken_over=view.taken_over)
    lines: list[Text | Padding] = [text(f"Run {row.run_id} is {state}.", "bold")]
    if view.parent is not None:
        lines.append(text(f"It was started within run {view.parent}."))
    if view.prefix is not None:
        lines.append(text(f"It was forked from run {view.prefix.run_id} at step {view.prefix.from_step}."))
    if row.reason:
        lines.append(text(f"Recorded reason: {first_line(row.reason)}."))

    def add(line: str) -> None:
        indent = len(line) - len(line.lstrip(" "))
        lines.append(Padding(text(line.lstrip(" ")), (0, 0, 0, 2 + indent), expand=False))

    for attempt in view.attempts:
        lines += [Text(), text(attempt_head(attempt), "bold")]
        if attempt.executed:
            add(_count_words(counts[attempt.number]))
        if attempt.reason:
            add(f"it stopped at {first_line(attempt.reason, limit=MAX_REASON)}")
        for decision in view.decisions:
            if decision.attempt == attempt.number:
                add(decision_words(decision))
    lines += [Text(), text(f"The next attempt: {next_words(view, next_answer(view), setting)}", "bold")]
    for line in _fate_lines(told, view, setting):
        add(line)
    show(*lines)


def _count_words(counts: CallCounts) -> str:
    parts = [f"recorded {counted(counts.recorded, 'call')}"]
    parts += [f"{counts.failed:,} failed"] if counts.failed else []
    parts += [f"{counts.left:,} left, to be made again"] if counts.left else []
    parts += [f"{counts.unknown:,} left with an unknown outcome"] if counts.unknown else []
    return ", ".join(parts)


def _fate_lines(told: Sequence[ToldCall], view: RunView, setting: Setting) -> list[str]:
    restored = [one for one in told if one.fate is CallFate.RESTORES]
    own = sum(one.call.is_own for one in restored)
    values = f", {counted(own, 'value')} of the run's own among them" if own else ""
    inside = sum(one.fate is CallFate.NOT_ASKED for one in told)
    lines = [f"it restores {counted(len(restored), 'call')}{values}"]
    lines += [f"it does not ask for {counted(inside, 'call')} within them"] if inside else []
    for known, words in _FATES.items():
        chosen = [one for one in told if (one.fate, _said_by(one)) == known]
        if chosen:
            lines.append(f"it {words} ({len(chosen)}):")
            lines += [f"  {_call_words(one, view, setting)}" for one in chosen[:MAX_LISTED]]
        if len(chosen) > MAX_LISTED:
            lines.append(f"  and {len(chosen) - MAX_LISTED:,} more (all with --json)")
    return lines


def _said_by(one: ToldCall) -> str:
    """Return whether a person's decision makes this the fate of the call, and nothing that came of it before."""
    if one.fate is CallFate.RAISES:
        return "" if one.went_on else _SAID
    resolved = {decision.call for decision in one.call.resolutions}
    by_person = one.call.current is not None and one.call.current.record_id in resolved
    return _SAID if one.fate is CallFate.RUNS and by_person and one.call.mark is None else ""


def _call_words(one: ToldCall, view: RunView, setting: Setting) -> str:
    call, current = one.call, one.call.current
    place = "" if current is None else f" #{current.record_id}"
    if one.fate is CallFate.UNKNOWN:
        if one.went_on:
            return f"{call.name}{place}: it went on from that, so nothing found out later changes it"
        if view.row.state in (RunState.COMPLETED, RunState.CANCELLED) or not call.ident:
            return f"{call.name}{place}"
        resolve = resolve_command(setting, view.row.run_id, call.ident, "--reason ...")
        return f"{call.name}{place}, unless a person says before what became of it: {resolve}"
    error = "" if current is None else first_line(current.error, limit=_MAX_ERROR)
    return f"{call.name}{place}{': ' if error else ''}{error}"
