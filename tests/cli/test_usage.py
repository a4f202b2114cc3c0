"""`arl usage`, and what `runs show` and `runs list` say of it: sums, rows, what is unknown, and safe words."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import RunLedger, report_usage
from agent_run_ledger.cli.account_words import MAX_ROWS, money_words
from tests.cli.conftest import HOSTILE_STEP, Arl, edit, is_safe

HOSTILE_MODEL = "[red]m[/red]\x1b[2J"


def _ticket(db: Path, *, die: bool) -> RunLedger:
    ledger = RunLedger("ticket", db)
    ledger.step(name="fetch")(lambda: 1)

    @ledger.step(depends_on=["fetch"])
    def review(fetch: int) -> int:
        report_usage(model="gpt-4o-mini", input_tokens=12_000, output_tokens=800)
        return 1

    @ledger.step(depends_on=["review"])
    def sum_up(review: int) -> int:
        report_usage(model="claude-sonnet-4-5", input_tokens=4_038, output_tokens=400)
        report_usage(model="ours", input_tokens=100)
        if die:
            raise KeyboardInterrupt
        return 2

    return ledger


@pytest.fixture
def spent(db: Path) -> Path:
    """A store with a run that was killed and finished, one that was killed, and one that asks no model."""
    for die in (True, False):
        with _ticket(db, die=die) as ledger:
            _run(ledger)
    with RunLedger("dead", db) as ledger:
        ledger.step(name="a")(_interrupted)
        _run(ledger)
    with RunLedger("plain", db) as ledger:
        ledger.step(name="a")(lambda: 1)
        _run(ledger)
    return db


def _interrupted() -> None:
    raise KeyboardInterrupt


def _run(ledger: RunLedger) -> None:
    try:
        ledger.execute()
    except KeyboardInterrupt:
        return


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_the_store_shows_three_sums_and_says_what_they_are_not(arl: Arl, spent: Path) -> None:
    ended = arl("usage", "--db", spent)
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert [_cells(line) for line in lines[2:5]] == [
        ["spent", "3", "16,138", "1,200 +?", "$0.0204 +?"],
        ["restored", "1", "12,000", "800", "$0.0023"],
        ["uncertain", "2", "≈ 4,138 +?", "≈ 400 +?", "≈ $0.0181 +?"],
    ]
    notes = " ".join(lines[5:])
    for said in (
        "restored: at least this.",
        "2 calls of steps were started",
        "what 1 repetition used",
        "nobody said the output of 1 call, the cost of 1 call",
        "2 records say nothing",
    ):
        assert said in notes


def test_a_run_is_shown_by_step(arl: Arl, spent: Path) -> None:
    lines = arl("usage", "ticket", "--db", spent).out.splitlines()
    assert _cells(lines[0]) == ["STEP", "CALLS", "INPUT", "OUTPUT", "COST", "RESTORED", "UNCERTAIN"]
    assert _cells(lines[2]) == ["review", "1", "12,000", "800", "$0.0023", "12,800", "–"]
    assert _cells(lines[3]) == ["sum_up", "2", "4,138", "400 +?", "$0.0181 +?", "–", "1 call"]


@pytest.mark.parametrize(
    ("by", "keys"),
    [
        ("model", ["claude-sonnet-4-5", "gpt-4o-mini", "ours", "(not said)"]),
        ("step", ["sum_up", "review", "a"]),
        ("run", ["dead", "ticket"]),
    ],
)
def test_rows_by_model_step_and_run_the_dearest_first(arl: Arl, spent: Path, by: str, keys: list[str]) -> None:
    lines = arl("usage", "--by", by, "--db", spent).out.splitlines()
    assert [_cells(line)[0] for line in lines[2 : 2 + len(keys)]] == keys
    assert lines[2 + len(keys)] == ""
    told = arl("usage", "--by", by, "--db", spent, "--json").json
    assert [row["key"] for row in told["rows"]] == ["" if key == "(not said)" else key for key in keys]
    assert sum(row["spent"]["calls"] for row in told["rows"]) == told["spent"]["calls"] == 3


def test_days_come_in_their_order(arl: Arl, spent: Path) -> None:
    rows = arl("usage", "--by", "day", "--db", spent, "--json").json["rows"]
    assert [row["key"] for row in rows] == sorted(row["key"] for row in rows)
    assert all(len(row["key"]) == len("2026-11-29") for row in rows)


def test_the_tables_fit_80_columns(arl: Arl, spent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for arguments in (["usage"], ["usage", "ticket"], ["usage", "--by", "model"], ["runs", "show", "ticket"]):
        out = arl(*arguments, "--db", spent).out
        assert max(len(line) for line in out.splitlines()) <= 80


def test_no_number_is_cut_in_two_in_a_narrow_list(arl: Arl, spent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunLedger("a run with a name that is rather long", spent) as ledger:
        ledger.step(name="a")(lambda: report_usage(model="x", input_tokens=1_234_567_890, output_tokens=5_000_000))
        ledger.step(name="b", depends_on=["a"])(lambda a: 1)
        ledger.execute()
        ledger.fork("a run with a name that is rather long", from_step="b", new_run_id="a fork")
    monkeypatch.setenv("COLUMNS", "80")
    out = arl("runs", "list", "--usage", "--db", spent).out
    assert "1,239,567,890" in out
    assert "FORKED FROM" not in out
    monkeypatch.setenv("COLUMNS", "300")
    assert "FORKED FROM" in arl("runs", "list", "--usage", "--db", spent).out
    assert max(len(line) for line in out.splitlines()) <= 80


def test_tokens_stand_in_the_lines_of_steps_only_where_all_of_them_fit(
    arl: Arl, spent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "64")
    out = arl("runs", "show", "ticket", "--db", spent).out
    (review,) = (line for line in out.splitlines() if " review " in line and "attempt" in line)
    assert "tokens" not in review


def test_json_keeps_what_is_unknown_null(arl: Arl, spent: Path) -> None:
    told = arl("usage", "dead", "--db", spent, "--json").json
    empty = {
        "calls": 0, "input_tokens": None, "output_tokens": None, "cache_read_tokens": None,
        "cache_write_tokens": None, "cost_usd": None, "input_unknown": 0, "output_unknown": 0, "cost_unknown": 0,
    }  # fmt: skip
    assert told == {
        "run": "dead", "since": None, "by": "step", "spent": empty, "restored": empty,
        "uncertain": {"calls": 1, "repeated": 0, "unknown": 0, "estimate": empty}, "runs": 1, "running_calls": 0,
        "silent_records": 0,
        "rows": [
            {"key": "a", "spent": empty, "restored": empty,
             "uncertain": {"calls": 1, "repeated": 0, "unknown": 0, "estimate": empty}},
        ],
    }  # fmt: skip
    ticket = arl("usage", "ticket", "--db", spent, "--json").json["spent"]
    assert (ticket["output_tokens"], ticket["output_unknown"]) == (1200, 1)
    assert Decimal(ticket["cost_usd"]) == Decimal("0.020394")
    assert ticket["cache_read_tokens"] is None


def test_where_nothing_was_said_there_is_no_table(arl: Arl, spent: Path) -> None:
    lines = arl("usage", "plain", "--db", spent).out.splitlines()
    assert lines[0] == "No usage is recorded in 1 run."
    assert "1 record says nothing" in lines[1]


def test_since_leaves_out_what_ended_before_and_counts_no_silence(arl: Arl, spent: Path) -> None:
    assert arl("usage", "--since", "1h", "--db", spent, "--json").json["spent"]["calls"] == 3
    told = arl("usage", "--since", "0h", "--db", spent, "--json").json
    assert (told["spent"]["calls"], told["silent_records"]) == (0, None)
    assert arl("usage", "--since", "0h", "--db", spent).out.startswith("No usage is recorded in ")
    assert " since 2" in arl("usage", "--since", "0h", "--db", spent).out, "there is usage, before"
    assert arl("usage", "--since", "1970-01-02", "--db", spent, "--json").json["since"] == "1970-01-02T00:00:00.000Z"
    for words in ("2999-01-01", "yesterday"):
        assert (arl("usage", "--since", words, "--db", spent, "--json").code) == 2
    both = arl("usage", "ticket", "--since", "1h", "--db", spent, "--json")
    assert (both.code, both.error["code"]) == (2, "usage")


@pytest.mark.parametrize("words", ["yesterday", "2999-01-01"])
def test_since_takes_the_moments_that_prune_takes(arl: Arl, spent: Path, words: str) -> None:
    told = arl("usage", "--since", words, "--db", spent, "--json")
    assert (told.code, told.error["code"]) == (2, "usage")


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        ("0", "$0.00"), ("1", "$1.00"), ("1234.567", "$1,234.57"), ("0.5", "$0.5000"), ("0.1234567", "$0.1235"),
        ("0.00021", "$0.00021"), ("0.000012345", "$0.000012"), ("0.000000000001", "$0.0000000000010"),
    ],
)  # fmt: skip
def test_money_never_rounds_to_nothing(cost: str, words: str) -> None:
    assert money_words(Decimal(cost)) == words


def test_runs_show_has_a_line_for_the_run_and_tokens_where_there_is_room(arl: Arl, spent: Path) -> None:
    out = arl("runs", "show", "ticket", "--db", spent).out
    (line,) = (line for line in out.splitlines() if "usage" in line)
    assert line.endswith(
        "usage · spent 17,338 +? tokens, $0.0204 +? · restored at least 12,800 tokens, $0.0023 · 1 call uncertain"
    )
    assert "12,800 tokens" in next(line for line in out.splitlines() if " review " in line)
    assert "usage" not in arl("runs", "show", "plain", "--db", spent).out


def test_runs_show_in_json_has_the_account_and_the_usage_of_each_record(arl: Arl, spent: Path) -> None:
    told = arl("runs", "show", "ticket", "--db", spent, "--json").json
    assert told["usage"]["spent"]["calls"] == 3
    (review,) = (step for step in told["steps"] if step["step"] == "review")
    (line,) = review["records"][0]["usage"]
    assert line["prices"].startswith("genai-prices ")
    assert {name: line[name] for name in line if name != "prices"} == {
        "model": "gpt-4o-mini", "provider": "", "calls": 1, "input_tokens": 12000, "output_tokens": 800,
        "cache_read_tokens": None, "cache_write_tokens": None, "cost_usd": "0.00228",
    }  # fmt: skip
    (fetch,) = (step for step in told["steps"] if step["step"] == "fetch")
    assert fetch["records"][0]["usage"] == []


def test_runs_list_shows_what_runs_spent_when_asked(arl: Arl, spent: Path) -> None:
    assert "TOKENS" not in arl("runs", "list", "--db", spent).out
    lines = {_cells(line)[0]: _cells(line) for line in arl("runs", "list", "--usage", "--db", spent).out.splitlines()}
    assert lines["RUN"] == ["RUN", "STATE", "ATTEMPT", "STEPS", "TOKENS", "COST", "UPDATED"]
    assert lines["ticket"][4:6] == ["17,338 +?", "$0.0204 +?"]
    assert lines["plain"][4:6] == ["–", "–"]
    runs = arl("runs", "list", "--usage", "--db", spent, "--json").json["runs"]
    assert {run["run_id"]: run["usage"]["spent"]["calls"] for run in runs} == {"ticket": 3, "dead": 0, "plain": 0}
    more = arl("runs", "list", "--usage", "--limit", "1", "--db", spent)
    assert "--usage" in more.err


def test_foreign_names_are_shown_and_not_obeyed(arl: Arl, db: Path) -> None:
    with RunLedger("r", db) as ledger:
        ledger.step(name=HOSTILE_STEP)(lambda: report_usage(model=HOSTILE_MODEL, input_tokens=1))
        ledger.execute()
    for by in ("model", "step"):
        out = arl("usage", "--by", by, "--db", db).out
        assert is_safe(out)
    assert HOSTILE_STEP in out


def test_many_rows_are_cut_and_the_rest_is_counted(arl: Arl, db: Path) -> None:
    with RunLedger("r", db) as ledger:

        @ledger.step
        def ask() -> None:
            for n in range(MAX_ROWS + 3):
                report_usage(model=f"m{n}", input_tokens=1)

        ledger.execute()
    lines = arl("usage", "--by", "model", "--db", db).out.splitlines()
    assert lines[2 + MAX_ROWS] == "and 3 more (all with --json)"


def test_a_usage_that_is_none_ends_with_tampering(arl: Arl, spent: Path) -> None:
    edit(spent, "UPDATE records SET usage = x'5b5d' WHERE usage IS NOT NULL")
    ended = arl("usage", "--db", spent, "--json")
    assert (ended.code, ended.error["code"]) == (6, "tampered")
    assert "arl verify" in ended.error["hint"]


def test_an_unknown_run_is_refused(arl: Arl, spent: Path) -> None:
    ended = arl("usage", "nobody", "--db", spent, "--json")
    assert (ended.code, ended.error["code"]) == (1, "no_run")


def test_an_export_has_what_the_mac_of_a_record_covers(arl: Arl, spent: Path) -> None:
    events: list[Any] = arl("export", "--payloads", "--fingerprints", "--db", spent).lines[:-1]
    records = [change["record"] for event in events for change in event["data"]["changes"] if "record" in change]
    said = [record["usage"] for record in records if "usage" in record]
    assert len(said) == 2
    assert all(text.startswith("[{") for text in said)
