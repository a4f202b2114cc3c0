"""The demo's facts: what three witnesses together say about each step and each life, and how it is shown."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from agent_run_ledger.demo.facts import History, Life, Mark, Proof, RecordedStep, Tally, merged, tally
from agent_run_ledger.demo.job import Job, read_job, write_job
from agent_run_ledger.demo.meter import MeterEvent, MeterLine
from agent_run_ledger.demo.outcome import Outcome, as_json, provenance, with_provenance
from agent_run_ledger.demo.screen import audience_for
from agent_run_ledger.demo.tables import seconds
from agent_run_ledger.errors import Misuse

NAMES = ("collect", "ask", "last", "report")
LIVES = [
    Life(number=1, pid=11, exit_code=0, signal=9, wall_ms=1500),
    Life(number=2, pid=12, exit_code=0, signal=0, wall_ms=700),
]


def _body(life: int, step: str) -> MeterLine:
    return MeterLine(event=MeterEvent.BODY, life=life, step=step)


def _paid(life: int, step: str, tokens: int) -> MeterLine:
    return MeterLine(event=MeterEvent.PAID, life=life, step=step, tokens_in=tokens - 1, tokens_out=1, estimated=True)


def _step(name: str, attempt: int, tokens: int = 0) -> RecordedStep:
    return RecordedStep(name=name, attempt=attempt, took_ms=5, subject="", tokens=tokens)


METER = [
    _body(1, "collect"),
    _body(1, "ask"),
    _paid(1, "ask", 100),
    _body(1, "last"),
    _paid(1, "last", 30),
    _body(2, "last"),
    _paid(2, "last", 31),
    _body(2, "report"),
]
HISTORY = History(
    state="completed",
    attempt=2,
    steps=(_step("collect", 1), _step("ask", 1, 100), _step("last", 2, 31), _step("report", 2)),
)


def _tally(meter: list[MeterLine] = METER, history: History = HISTORY, lives: list[Life] = LIVES) -> Tally:
    return tally(NAMES, lives, meter, history)


def _outcome(label: str = "tree", reviewer: str = "rules") -> Outcome:
    return Outcome(
        job=Job(folder=Path("somewhere"), label=label, roots=("x",), reviews=0),
        reviewer=reviewer,
        state="completed",
        tally=_tally(),
        proof=Proof(log_size=12, root_hex="ab" * 32),
        next_commands=("arl runs show demo-audit --db runs.db",),
    )


def test_each_step_is_live_once_restored_later_and_killed_where_it_was_not_recorded() -> None:
    assert [step.marks for step in _tally().steps] == [
        (Mark.LIVE, Mark.RESTORED),
        (Mark.LIVE, Mark.RESTORED),
        (Mark.KILLED, Mark.LIVE),
        (Mark.NOT_REACHED, Mark.LIVE),
    ]


def test_tokens_are_spent_restored_or_uncertain_and_what_was_paid_is_their_sum() -> None:
    first, second = _tally().lives
    assert (first.tokens_paid, first.tokens_spent, first.tokens_uncertain, first.tokens_restored) == (130, 100, 30, 0)
    assert (second.tokens_paid, second.tokens_spent, second.tokens_uncertain, second.tokens_restored) == (
        31,
        31,
        0,
        100,
    )
    assert (first.steps_live, first.steps_restored, first.killed_in) == (2, 0, "last")
    assert (second.steps_live, second.steps_restored, second.killed_in) == (2, 2, "")
    assert (first.model_calls, second.model_calls) == (2, 1)
    assert (first.ended, second.ended) == ("killed by signal 9", "completed")


def test_paying_again_is_told_apart_by_whether_the_step_was_recorded() -> None:
    facts = _tally()
    assert facts.recorded_paid_again == ()
    assert facts.unrecorded_paid_again == ("last",)
    assert facts.tokens_in_records == 131


def test_a_recorded_step_that_runs_again_is_shown_as_the_fault_it_is() -> None:
    facts = _tally([*METER, _body(2, "ask"), _paid(2, "ask", 100)])
    assert facts.steps[1].marks == (Mark.LIVE, Mark.AGAIN)
    assert facts.recorded_paid_again == ("ask",)
    assert facts.lives[1].steps_restored == 1
    assert facts.lives[1].tokens_uncertain == 100


def test_an_error_is_failed_and_a_retry_in_the_same_life_is_spent() -> None:
    history = History(state="failed", attempt=1, steps=(_step("collect", 1), _step("ask", 1, 60)))
    meter = [
        _body(1, "collect"),
        _body(1, "ask"),
        MeterLine(event=MeterEvent.LOST, life=1, step="ask"),
        _body(1, "ask"),
        _paid(1, "ask", 60),
        _body(1, "last"),
    ]
    facts = _tally(meter, history, [Life(number=1, pid=1, exit_code=5, signal=0, wall_ms=1)])
    assert [step.marks[0] for step in facts.steps] == [Mark.LIVE, Mark.LIVE, Mark.FAILED, Mark.NOT_REACHED]
    (life,) = facts.lives
    assert (life.tokens_spent, life.tokens_uncertain, life.calls_without_answer) == (60, 0, 1)
    assert life.ended == "stopped with exit code 5"


def test_a_process_that_never_became_an_attempt_shares_the_next_ones_number() -> None:
    lives = [
        Life(number=1, pid=1, exit_code=5, signal=0, wall_ms=10),
        Life(number=1, pid=2, exit_code=0, signal=9, wall_ms=5),
    ]
    assert merged(lives) == [Life(number=1, pid=2, exit_code=0, signal=9, wall_ms=15)]


# -- shown ----------------------------------------------------------------------------------------------------


def test_what_is_for_copying_is_never_broken_into_lines() -> None:
    stream = io.StringIO()
    audience_for(Console(file=stream, width=40, force_terminal=True, color_system=None), json=False).closing(_outcome())
    lines = stream.getvalue().splitlines()
    assert f"Log: 12 leaves, root {'ab' * 32}, verified." in lines
    assert "  arl runs show demo-audit --db runs.db" in lines


@pytest.mark.parametrize("width", [40, 60, 120])
def test_the_screen_fits_narrow_terminals_and_has_no_colour_without_one(width: int) -> None:
    stream = io.StringIO()
    audience = audience_for(Console(file=stream, width=width, highlight=False), json=False)
    audience.opening(_outcome().job, files=3, reviewer="rules")
    audience.ended(LIVES[0], "last")
    audience.closing(_outcome())
    shown = stream.getvalue()
    assert "\x1b" not in shown
    table = [line for line in shown.splitlines() if any(name in line for name in ("collect", "report"))]
    assert table
    assert all(len(line) <= width for line in table if "audit.md" not in line)
    assert "ab" * 32 in shown
    assert "arl runs show demo-audit --db runs.db" in shown


def test_the_screen_says_that_source_is_sent_where_a_model_reviews() -> None:
    stream = io.StringIO()
    audience = audience_for(Console(file=stream, width=200), json=False)
    audience.opening(_outcome().job, files=3, reviewer="model m at https://h/v1")
    assert "is sent there" in stream.getvalue()


def _closing(outcome: Outcome) -> str:
    stream = io.StringIO()
    audience_for(Console(file=stream, width=120), json=False).closing(outcome)
    return stream.getvalue()


def test_one_life_without_a_crash_claims_nothing_about_crashes() -> None:
    whole = replace(_outcome(), tally=_tally(METER[:6], replace(HISTORY, attempt=1), LIVES[1:]))
    said = _closing(whole)
    assert "One life, without a crash" in said
    assert "was paid again" not in said
    assert "killed   " not in said
    assert "No recorded step was paid again" in _closing(_outcome())


def test_a_clock_that_was_set_back_is_no_negative_time() -> None:
    assert seconds(-5) == "clock changed"
    assert (seconds(5), seconds(1500)) == ("5 ms", "1.5 s")


def test_foreign_words_have_no_effect_on_the_screen() -> None:
    stream = io.StringIO()
    audience = audience_for(Console(file=stream, width=120, force_terminal=True, color_system=None), json=False)
    audience.opening(_outcome().job, files=3, reviewer="[bold]x[/] \x1b[2J")
    audience.opening(Job(folder=Path("x"), label="\x1b]0;t\x07[red]", roots=(), reviews=1), files=1, reviewer="r")
    shown = stream.getvalue()
    assert "\x1b" not in shown
    assert "[bold]x[/] \\x1b[2J" in shown
    assert "\\x1b]0;t\\x07[red]" in shown


def test_an_ascii_terminal_gets_ascii_marks() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", errors="strict", write_through=True)
    audience_for(Console(file=stream, width=120), json=False).closing(_outcome())
    assert b"* live" in raw.getvalue()


def test_json_is_one_object_with_the_same_facts() -> None:
    stream = io.StringIO()
    audience = audience_for(Console(file=stream), json=True)
    audience.opening(_outcome().job, files=3, reviewer="rules")
    audience.life(1, 4)({"event": "body", "step": "collect"})
    audience.ended(LIVES[0], "last")
    assert stream.getvalue() == ""
    audience.closing(_outcome())
    assert json.loads(stream.getvalue()) == as_json(_outcome())
    assert as_json(_outcome())["lives"][0]["tokens"] == {"paid": 130, "spent": 100, "uncertain": 30, "restored": 0}


def test_provenance_names_attempts_and_restored_steps_and_is_replaced_as_a_whole() -> None:
    section = provenance(_outcome())
    assert "Attempt 1: killed by signal 9; 2 steps ran and were recorded, 0 were restored" in section
    assert "Restored: collect, ask." in section
    once = with_provenance("# Audit\n\ntext\n", section)
    assert with_provenance(once, section) == once
    assert once == f"# Audit\n\ntext\n\n{section}"


# -- the job --------------------------------------------------------------------------------------------------


def test_a_job_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    job = Job(folder=tmp_path, label="a tree", roots=("one", "two"), reviews=3)
    write_job(job)
    assert read_job(tmp_path) == job


@pytest.mark.parametrize(
    "text", [None, "", "[]", '{"label": "x"}', '{"label": 1, "roots": 2, "reviews": "x", "run_id": 1}']
)
def test_a_job_that_cannot_be_read_is_misuse(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "job.json").write_text(text)
    with pytest.raises(Misuse, match=r"job\.json"):
        read_job(tmp_path)
