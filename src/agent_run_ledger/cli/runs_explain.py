"""`arl runs explain`: in words, what each attempt restored and ran and why, and what comes next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_run_ledger.cli.explain_words import attempt_head, decision_words, next_words
from agent_run_ledger.cli.next_steps import run_command
from agent_run_ledger.cli.options import Db, Json, RunId
from agent_run_ledger.cli.output import print_json, show, text
from agent_run_ledger.cli.runs_list import state_words
from agent_run_ledger.cli.words import MAX_LISTED, MAX_REASON, first_line, listed
from agent_run_ledger.ledger.run_story import AttemptStory, Cause, LiveStep, RunStory, tell_run
from agent_run_ledger.ledger.run_view import view_run
from agent_run_ledger.ledger.step_states import StepState
from agent_run_ledger.ledger.views import require_run

if TYPE_CHECKING:
    from rich.padding import Padding
    from rich.text import Text

    from agent_run_ledger.cli.settings import Setting


def explain(run: RunId, db: Db = None, as_json: Json = False) -> None:
    """Explain a run: per attempt what was restored, what ran and why, what is uncertain, and what comes next."""
    from agent_run_ledger.cli.settings import db_setting
    from agent_run_ledger.cli.stores import reading

    setting = db_setting(db)
    with reading(db) as store:
        view = view_run(store, require_run(store.reader(), run))
        if view.calls is not None:
            from agent_run_ledger.cli.calls_explain import explain_calls

            explain_calls(store, view, setting, as_json=as_json)
            return
    story = tell_run(view)
    if as_json:
        print_json(_story_json(story, setting))
    else:
        _print_story(story, setting)


def _story_json(story: RunStory, setting: Setting) -> dict[str, object]:
    from agent_run_ledger.cli.run_json import attempt_json, decision_json, origin_json, prefix_json

    row = story.run.row
    return {
        "run_id": row.run_id,
        "state": str(row.state),
        "reason": row.reason,
        "live_attempt": story.run.live,
        "forked_from": None if story.run.prefix is None else prefix_json(story.run.prefix),
        "attempts": [
            {
                **attempt_json(told.attempt),
                "restored": list(told.restored),
                "live": [
                    {
                        "step": step.name,
                        "state": str(step.state),
                        "cause": str(step.cause),
                        "because": list(step.because),
                        "tries": step.tries,
                        "error": step.error,
                    }
                    for step in told.live
                ],
                "kept": list(told.kept),
                "not_started": list(told.waiting),
                "code_changed": list(told.code_changed),
                "steps_added": list(told.added),
                "steps_removed": list(told.removed),
                "decisions": [decision_json(decision) for decision in told.decisions],
                "origins": [{"step": name, **origin_json(origin)} for name, origin in told.origins.items()],
            }
            for told in story.attempts
        ],
        "next_execute": str(story.next_answer),
        "next_execute_words": next_words(story.run, story.next_answer, setting),
    }


def _print_story(story: RunStory, setting: Setting) -> None:
    from rich.padding import Padding
    from rich.text import Text

    row = story.run.row
    state = state_words(row.state, story.run.live, taken_over=story.run.taken_over)
    lines: list[Text | Padding] = [text(f"Run {row.run_id} is {state}.", "bold")]
    if story.run.prefix is not None:
        prefix = story.run.prefix
        lines.append(text(f"It was forked from run {prefix.run_id} at step {prefix.from_step}."))
    if row.reason:
        lines.append(text(f"Recorded reason: {first_line(row.reason)}."))
    for told in story.attempts:
        lines += [Text(), text(attempt_head(told.attempt), "bold")]
        lines += [Padding(text(line), (0, 0, 0, 2), expand=False) for line in _attempt_lines(told)]
    if any(_is_shortened(step.error) for told in story.attempts for step in told.live):
        whole = run_command(setting, "show", row.run_id, "--step NAME --payloads")
        lines += [Text(), text(f"Errors are shortened; all of one: {whole}")]
    lines += [Text(), text(f"The next execute(): {next_words(story.run, story.next_answer, setting)}", "bold")]
    show(*lines)


def _attempt_lines(told: AttemptStory) -> list[str]:
    lines = _origin_lines(told, told.restored, "restored")
    lines += _origin_lines(
        told, told.kept, "referenced" if told.attempt.is_fork else "recorded earlier and not reached"
    )
    for names, words in (
        (told.added, "new in the pipeline"),
        (told.removed, "no longer in the pipeline"),
    ):
        if names:
            lines.append(f"{words} ({len(names)}): {listed(names)}")
    if told.code_changed:
        lines.append(f"code changed since the attempt before (records are used): {listed(told.code_changed)}")
    lines += _live_lines(told.live)
    if told.waiting:
        lines.append(f"not started ({len(told.waiting)}): {listed(told.waiting)}")
    if told.attempt.reason:
        lines.append(f"it stopped at {first_line(told.attempt.reason, limit=MAX_REASON)}")
    lines += map(decision_words, told.decisions)
    return lines


def _origin_lines(told: AttemptStory, names: tuple[str, ...], words: str) -> list[str]:
    """Return one line for the names whose records are the run's own, and one for each run that others come from."""
    groups: dict[str, list[str]] = {}
    for name in names:
        origin = told.origins.get(name)
        groups.setdefault("" if origin is None else f", {origin}", []).append(name)
    return [f"{words} ({len(found)}){whence}: {listed(found)}" for whence, found in groups.items()]


def _live_lines(steps: tuple[LiveStep, ...]) -> list[str]:
    """Return one line for all steps that ended the same way for the same reason, and one for each error."""
    groups: dict[str, list[str]] = {}
    failed: list[str] = []
    for step in steps:
        if step.error and step.state is StepState.FAILED:
            failed.append(f"{_phrase(step)}: {step.name}, {first_line(step.error)}")
        else:
            groups.setdefault(_phrase(step), []).append(step.name)
    lines = [f"{phrase}{_number(names)}: {listed(names)}" for phrase, names in groups.items()]
    more = [f"failed: {len(failed) - MAX_LISTED:,} more (all with --json)"] if len(failed) > MAX_LISTED else []
    return lines + failed[:MAX_LISTED] + more


def _is_shortened(error: str) -> bool:
    return first_line(error) != error.strip()


_CAUSES = {
    Cause.FIRST: "there was no record",
    Cause.CHANGED: "what it takes changed",
    Cause.ABANDONED: "an earlier attempt left it without a word",
    Cause.FAILED: "it had failed before",
    Cause.RESCUED: "its earlier result could not be stored",
}
_ENDINGS = {
    StepState.FAILED: "failed",
    StepState.RESCUED: "ended with a result that could only be rescued",
    StepState.UNCERTAIN: "started, and nothing says how it ended, so its cost is uncertain",
    StepState.RUNNING: "running now",
}


def _phrase(step: LiveStep) -> str:
    cause = f"{listed(step.because)} changed" if step.because else _CAUSES[step.cause]
    tries = f" in {step.tries} tries" if step.tries > 1 else ""
    if step.state is StepState.LIVE:
        return f"ran{tries} because {cause}"
    return f"{_ENDINGS.get(step.state, str(step.state))}{tries} (run because {cause})"


def _number(names: list[str]) -> str:
    return f" ({len(names)})" if len(names) > 1 else ""
