"""What the explanations of pipelines and of dynamic runs say alike: of attempts, decisions and the next attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_run_ledger.cli.next_steps import run_command
from agent_run_ledger.cli.words import iso
from agent_run_ledger.ledger.run_story import NextAnswer
from agent_run_ledger.ledger.run_view import AttemptEnd, AttemptView, DecisionView, RunView

if TYPE_CHECKING:
    from agent_run_ledger.cli.settings import Setting


def attempt_head(attempt: AttemptView) -> str:
    """Return when an attempt started and how it ended."""
    from agent_run_ledger.cli.run_tree import attempt_duration

    if attempt.is_fork:
        return f"Attempt {attempt.number} is the making of the fork, {iso(attempt.started_at_ms)}; nothing ran in it."
    if attempt.is_submission:
        return f"Attempt {attempt.number} is the submission, {iso(attempt.started_at_ms)}; nothing ran in it."
    ends = {
        AttemptEnd.DIED: "and died: nothing says how",
        AttemptEnd.LIVE: "and lives",
        AttemptEnd.UNKNOWN: "and whether it lives cannot be asked here",
        AttemptEnd.TAKEN_OVER: "and was taken over",
        AttemptEnd.QUARANTINED: "and was stopped by a quarantine",
        AttemptEnd.CANCELLED: "and was cancelled",
    }
    end = ends.get(attempt.end, str(attempt.end))
    if attempt.ended_at_ms is not None:
        took = attempt_duration(attempt)
        end += f" ({took})" if attempt.clock_changed else f" after {took}"
    return f"Attempt {attempt.number} started {iso(attempt.started_at_ms)} {end}."


def decision_words(decision: DecisionView) -> str:
    """Return what a person did, when and why."""
    return f"{iso(decision.at_ms)} {decision.event} by {decision.actor}: {decision.reason}"


def next_words(run: RunView, answer: NextAnswer, setting: Setting) -> str:
    """Return what the next attempt would be answered, with the command that changes it."""
    row = run.row
    takeover = run_command(setting, "takeover", row.run_id, "--reason ...")
    words = {
        NextAnswer.GOES_ON: f"goes on as attempt {row.attempt + 1}; what is recorded is restored for free",
        NextAnswer.RETURNS_RECORD: "returns the recorded result; nothing runs"
        if run.calls is None
        else "is answered from its records; nothing new runs in it",
        NextAnswer.BUSY: "is answered RunBusy while the live attempt lives; then it goes on from its records, "
        f"or at once after `{takeover}`",
    }
    if answer in words:
        return f"with the same inputs it {words[answer]}. Other inputs are refused."
    if answer is NextAnswer.REFUSED_UNTIL_RELEASE:
        release = run_command(setting, "release", row.run_id, "--reason ...")
        return f"it is refused until `{release}`, then it goes on."
    if answer is NextAnswer.REFUSED_AS_ERASED and run.calls is not None and run.calls.has_key:
        return "it is refused where it asks for a call that was erased; nothing of that is run again."
    if answer is NextAnswer.REFUSED_AS_ERASED:
        return "it is refused: what it needs was erased, and nothing of it is run again. Use a new run id."
    return "it is refused for ever: use a new run id, or a fork."
