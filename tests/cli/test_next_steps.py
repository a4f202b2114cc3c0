"""What is printed to be typed next: it names the store, survives a shell, and does what it says."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from agent_run_ledger import RunLedger
from agent_run_ledger.cli.next_steps import candidates, next_command, run_command, shell_word, with_store
from agent_run_ledger.cli.settings import DEFAULT_DB, Setting
from tests.cli.conftest import Arl, Audit

DEFAULT = Setting(value=DEFAULT_DB, source="default")
SPACED = Setting(value="my runs.db", source="--db")
AWKWARD = ["plain", "two words", "it's", '$HOME `id` \\ "x"', "a\nb\tc\x1b[2J", "é \u202e \u009b 0 \U000e0001", "-x"]


@pytest.mark.parametrize("word", AWKWARD)
def test_a_shell_gives_back_the_word_and_a_terminal_obeys_nothing_in_it(word: str) -> None:
    quoted = shell_word(word)
    assert quoted.isprintable()
    done = subprocess.run(
        ["bash", "-c", f"printf %s {quoted}"],
        env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode() == word


def test_a_byte_of_a_file_name_that_is_no_utf8_comes_back_as_that_byte() -> None:
    done = subprocess.run(["bash", "-c", f"printf %s {shell_word('a' + chr(0xDCFF))}"], capture_output=True, check=True)
    assert done.stdout == b"a\xff"


def test_the_store_is_named_unless_it_is_the_default() -> None:
    assert next_command(DEFAULT, "verify") == "arl verify"
    assert next_command(SPACED, "verify") == "arl verify --db 'my runs.db'"
    shown = run_command(SPACED, "show", "two words", "--payloads")
    assert shown == "arl runs show 'two words' --payloads --db 'my runs.db'"
    assert run_command(DEFAULT, "release", "-x", "--reason ...") == "arl runs release --reason ... -- -x"


def test_hints_from_below_are_completed_and_other_words_are_left_alone() -> None:
    words = "run `arl verify`, then `arl demo`, `arl runs list --db other.db` or `ls`"
    assert with_store(words, DEFAULT) == words
    assert with_store(words, SPACED) == words.replace("`arl verify`", "`arl verify --db 'my runs.db'`")


def _typed(arl: Arl, line: str) -> tuple[int, str]:
    program, *arguments = shlex.split(line)
    assert program == "arl"
    ended = arl(*arguments)
    return ended.code, ended.out


def test_the_line_to_note_runs_against_the_same_store(arl: Arl, store: Path) -> None:
    spaced = store.rename(store.with_name("my runs.db"))
    line = arl("verify", "--db", "my runs.db").out.splitlines()[-1]
    assert "--db 'my runs.db'" in line
    code, out = _typed(arl, line)
    assert code == 0
    assert "is extended by this log" in out
    assert spaced.exists()


def test_the_environment_counts_as_another_store(arl: Arl, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_RUN_LEDGER_DB", store.name)
    line = arl("verify").out.splitlines()[-1]
    monkeypatch.delenv("AGENT_RUN_LEDGER_DB")
    assert _typed(arl, line)[0] == 0


def test_the_next_page_keeps_filter_and_size_and_takes_a_run_id_like_an_option(arl: Arl, db: Path) -> None:
    for run_id in ("first", "-second one", "third"):
        Audit(db, run_id, ends="fail").run()
    said = arl("runs", "list", "--db", db.name, "--state", "failed", "--limit", 2).err
    assert said.startswith("more: arl runs list --state failed --limit 2 --before=")
    code, out = _typed(arl, said.removeprefix("more: ").strip())
    assert code == 0
    assert [line.split("  ")[0] for line in out.splitlines()[2:]] == ["first"]


def test_release_is_printed_ready_to_be_typed(arl: Arl, db: Path) -> None:
    Audit(db, "-odd 'name'", ends="fail").run()
    said = arl("runs", "quarantine", "--reason", "loop", "--db", db.name, "--", "-odd 'name'").out
    line = said.partition("`")[2].rpartition("`")[0]
    assert _typed(arl, line.replace("...", "looked"))[0] == 0
    assert arl("runs", "list", "--db", db, "--json").json["runs"][0]["state"] == "running"


def test_hints_of_refusals_name_the_store(arl: Arl, store: Path) -> None:
    assert (
        arl("runs", "show", "nobody", "--db", store.name, "--json")
        .error["hint"]
        .startswith("`arl runs list --db runs.db` ")
    )
    assert "`arl init --db runs.db`" in arl("doctor", "--db", store.name).out


def test_without_a_store_nobody_is_led_to_a_second_one(arl: Arl, store: Path, tmp_path: Path) -> None:
    with RunLedger(run_id="r", db_path=tmp_path / "ledger.sqlite") as ledger:
        ledger.step(name="one")(lambda: 1)
        ledger.execute()
    hint = arl("runs", "list", "--json").error["hint"]
    assert "init" not in hint
    assert hint.startswith("give --db PATH or set AGENT_RUN_LEDGER_DB")
    assert hint.endswith("in that folder: ledger.sqlite, runs.db")
    assert arl("runs", "cancel", "r", "--reason", "x", "--yes", "--json").error["hint"] == hint
    advice = {one["subject"]: one["advice"] for one in arl("doctor", "--json").json["findings"]}["store"]
    assert advice.endswith(hint)
    assert store.exists()


def test_candidates_are_names_and_at_most_three(tmp_path: Path) -> None:
    for name in ("d.db", "b.db", "c.db", "a.txt", "z.db", "z.db-lock"):
        (tmp_path / name).touch()
    assert [Path(found).name for found in candidates(str(tmp_path / "agent_run_ledger.db"))] == ["z.db", "b.db", "c.db"]
    assert candidates(str(tmp_path / "missing" / "x.db")) == []
