"""The front of the command line: exit codes, errors as words and as JSON, settings, pipes, and what is not imported."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import agent_run_ledger
from agent_run_ledger import errors
from agent_run_ledger.cli import failures
from agent_run_ledger.cli.main import main
from tests.cli.conftest import COMMAND, Arl, is_safe

CODES = {
    errors.Refused: 1,
    errors.InputsChanged: 1,
    errors.RunCancelled: 1,
    errors.RunQuarantined: 1,
    errors.Superseded: 1,
    errors.Misuse: 2,
    errors.Forked: 2,
    errors.Uncertain: 3,
    errors.Pending: 4,
    errors.Unavailable: 5,
    errors.RunBusy: 5,
    errors.Tampered: 6,
    errors.NotAdmitted: 7,
}


@pytest.mark.parametrize("kind", CODES)
def test_each_class_has_its_exit_code_and_its_words(
    kind: type[errors.LedgerError], capsys: pytest.CaptureFixture[str]
) -> None:
    error = kind("run 'r' said \x1b[31mno\nreally", hint="look [red]there[/red]")
    assert failures.conclude(error, as_json=False, debug=False) == CODES[kind]
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "error: run 'r' said \\x1b[31mno\\nreally\nhint:  look [red]there[/red]\n"
    assert failures.conclude(error, as_json=True, debug=False) == CODES[kind]
    told = capsys.readouterr().err
    assert told.isascii()
    assert f'{{"error":{{"code":"{kind.code}","message":' in told


def test_the_three_ways_out_without_an_error_of_the_tree(capsys: pytest.CaptureFixture[str]) -> None:
    assert failures.conclude(KeyboardInterrupt(), as_json=False, debug=False) == 130
    assert failures.conclude(BrokenPipeError(), as_json=False, debug=False) == 141
    assert capsys.readouterr().err == "interrupted\n"
    assert failures.conclude(ZeroDivisionError("by \x1b zero"), as_json=False, debug=False) == 70
    said = capsys.readouterr().err
    assert said.startswith("error: unexpected ZeroDivisionError: by \\x1b zero\n")
    assert "please report it" in said
    assert "Traceback" not in said


def test_a_traceback_is_shown_only_with_debug(arl: Arl, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Traceback" not in arl("verify", "--db", db).err
    assert "Traceback" in arl("verify", "--db", db, "--debug").err
    assert "Traceback" in arl("--debug", "verify", "--db", db).err
    monkeypatch.setenv("AGENT_RUN_LEDGER_DEBUG", "1")
    assert "Traceback" in arl("verify", "--db", db).err


def test_the_real_command_ends_with_the_code_of_each_cause(shell: Arl, tmp_path: Path) -> None:
    (tmp_path / "foreign.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 4096)
    assert shell("runs", "list", "--db", "missing.db").code == 1
    assert shell("sql", "SELECT 1").code == 2
    assert shell("init", "--db", "missing/runs.db").code == 5
    assert shell("verify", "--db", "foreign.db").code == 6
    assert shell("init").code == 0


@pytest.mark.parametrize(
    "arguments",
    [("nothing",), ("runs", "nothing"), ("verify", "--nothing"), ("runs", "show"), ("runs", "list", "--limit", "0")],
)
def test_a_wrong_command_line_is_one_line_and_a_hint(arl: Arl, arguments: tuple[str, ...]) -> None:
    ended = arl(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: ")
    assert "--help` shows what it takes" in ended.err
    assert arl(*arguments, "--json").error["code"] == "usage"


def test_arl_alone_and_a_group_alone_show_their_help(arl: Arl) -> None:
    for arguments in ((), ("runs",), ("breaker",)):
        ended = arl(*arguments)
        assert (ended.code, ended.err) == (0, "")
        assert ended.out.startswith("Usage: arl")


def test_help_lists_what_is_built_and_nothing_else(arl: Arl) -> None:
    def listed(*arguments: str) -> set[str]:
        return set(re.findall(r"^  ([a-z]+)  ", arl(*arguments, "--help").out.split("Commands:")[1], re.MULTILINE))

    assert listed() == {
        "init", "usage", "verify", "export", "backup", "upgrade", "erase", "prune", "sql", "doctor", "metrics", "demo",
        "lab", "kit", "bench", "version", "runs", "breaker", "proxy", "effects", "actions", "worker", "migrate",
        "approvals", "trust", "principals", "keys",
    }  # fmt: skip
    assert listed("runs") == {
        "list", "show", "explain", "watch", "fork", "resolve", "quarantine", "release", "takeover", "cancel", "submit",
    }  # fmt: skip
    assert listed("effects") == {"list", "show", "observe", "reconcile", "doubt", "expire"}
    assert listed("actions") == {"propose", "successor"}
    assert listed("demo") == {"restore", "effect"}
    assert listed("approvals") == {"list", "show", "grant", "reject", "revoke"}
    assert listed("trust") == {"new", "show", "sign", "cosign", "follow"}
    assert listed("principals") == {"list", "show"}
    assert listed("keys") == {"new", "show"}
    assert listed("breaker") == {"eval", "explain"}
    assert "..." not in arl("--help").out.split("Commands:")[1]


def test_every_command_has_json_and_help(arl: Arl) -> None:
    for command in (
        "init", "usage", "verify", "export", "backup", "upgrade", "erase", "prune", "sql", "doctor", "metrics",
        "lab", "version",
    ):  # fmt: skip
        assert "--json" in arl(command, "--help").out
    assert all("--json" in arl("demo", name, "--help").out for name in ("restore", "effect"))
    assert "--json" in arl("breaker", "eval", "--help").out
    runs = ("list", "show", "explain", "watch", "fork", "quarantine", "release", "takeover", "cancel")
    effects = ("list", "show", "observe", "reconcile", "doubt", "expire")
    for words in (
        *(("runs", name) for name in runs),
        *(("effects", name) for name in effects),
        *(("actions", name) for name in ("propose", "successor")),
    ):
        out = arl(*words, "--help").out
        assert "--json" in out
        assert "--db" in out


def test_both_names_lead_to_run(root: Path) -> None:
    scripts = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert scripts == dict.fromkeys(("agent-run-ledger", "arl"), "agent_run_ledger.cli.main:run")


def test_as_a_module_it_calls_itself_arl() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "agent_run_ledger", "usage", "--colour"], check=False, capture_output=True, text=True
    )
    assert ran.returncode == 2
    assert "`arl usage --help`" in ran.stderr


def test_versions(arl: Arl) -> None:
    assert arl("--version").out == f"agent-run-ledger {agent_run_ledger.__version__}\n"
    assert arl("--debug", "--version").out == f"agent-run-ledger {agent_run_ledger.__version__}\n"
    assert set(arl("version", "--json").json) == {"agent-run-ledger", "python", "sqlite", "apsw", "platform"}
    assert arl("version").out.startswith("agent-run-ledger")


def _loaded_by(*arguments: str) -> set[str]:
    program = (
        "import sys; before = set(sys.modules); from agent_run_ledger.cli.main import main; main(sys.argv[1:]);"
        "print('\\n'.join(set(sys.modules) - before), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_version_imports_no_command_line_and_help_no_store_and_no_rich() -> None:
    assert not {"typer", "rich", "apsw", "orjson"} & _loaded_by("--version")
    helped = _loaded_by("--help")
    assert "typer" in helped
    assert not {"rich", "apsw", "asyncio", "cryptography", "agent_run_ledger.store", "agent_run_ledger.codecs"} & helped


@pytest.mark.parametrize("arguments", [["export"], ["runs", "list", "--json"], ["runs", "show", "done"]])
def test_a_reader_that_went_away_is_no_news(store: Path, arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    child = subprocess.Popen([*COMMAND, *arguments, "--db", str(store)], stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    said = child.communicate(timeout=60)[1]
    assert (child.returncode, said) == (141, b"")


def test_flag_before_environment_before_file_before_default(
    arl: Arl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def used(*flags: str) -> str:
        return Path(arl("doctor", *flags, "--json").json["db"]).name

    assert used() == "agent_run_ledger.db"
    (tmp_path / "agent_run_ledger.toml").write_text('db = "file.db"\nactor = "file-person"\n')
    assert used() == "file.db"
    monkeypatch.setenv("AGENT_RUN_LEDGER_DB", "environment.db")
    assert used() == "environment.db"
    assert used("--db", "flag.db") == "flag.db"


def test_a_path_in_a_named_file_is_relative_to_that_file(
    arl: Arl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "arl.toml").write_text('db = "there.db"\n')
    monkeypatch.setenv("AGENT_RUN_LEDGER_CONFIG", "elsewhere/arl.toml")
    assert arl("doctor", "--json").json["db"] == str(tmp_path / "elsewhere" / "there.db")


@pytest.mark.parametrize("text", ["db = 5", 'db = ""', 'database = "x"', "db = ", "\xff"])
def test_a_wrong_file_is_misuse(arl: Arl, tmp_path: Path, text: str) -> None:
    (tmp_path / "agent_run_ledger.toml").write_bytes(text.encode("latin-1"))
    ended = arl("doctor", "--json")
    assert (ended.code, ended.error["code"]) == (2, "bad_config")


def test_a_named_file_that_is_missing_is_misuse(arl: Arl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_RUN_LEDGER_CONFIG", "nowhere.toml")
    ended = arl("doctor", "--json")
    assert (ended.code, ended.error["code"]) == (2, "bad_config")


def test_init_is_polite_the_second_time(arl: Arl, db: Path) -> None:
    first, second = arl("init", "--db", db, "--json"), arl("init", "--db", db, "--json")
    assert (first.code, second.code) == (0, 0)
    assert set(first.json) == {"db", "log_id", "created", "authority", "changed"}
    assert (first.json["created"], first.json["changed"]) == (True, True)
    assert (second.json["created"], second.json["changed"]) == (False, False)
    assert second.json["log_id"] == first.json["log_id"]
    assert arl("verify", "--db", db, "--json").json["leaves"] == 2


def test_init_says_what_authority_means_today(arl: Arl, db: Path, store: Path) -> None:
    assert db == store
    granted = arl("init", "--db", db)
    assert "already there; authority granted" in granted.out
    assert "only\na store with it may hold effects" in granted.out
    assert "unchanged" in arl("init", "--db", db).out


def test_init_leaves_a_foreign_file_alone(arl: Arl, db: Path) -> None:
    db.write_text("my notes")
    assert arl("init", "--db", db).code in (1, 6)
    assert db.read_text() == "my notes"


def _on_a_terminal(arguments: list[str], **environment: str) -> str:
    terminal, its_end = pty.openpty()
    child = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=its_end,
        stdout=its_end,
        stderr=its_end,
        env={**os.environ, "TERM": "xterm", **environment},
    )
    os.close(its_end)
    said = b""
    try:
        while more := os.read(terminal, 65_536):
            said += more
    except OSError:  # Linux says so when the other end is closed
        pass
    os.close(terminal)
    assert child.wait(60) == 0
    return said.decode()


def test_colours_are_for_terminals_that_want_them(store: Path) -> None:
    command = ["runs", "list", "--db", str(store)]
    assert "\x1b[" in _on_a_terminal(command)
    assert "\x1b[" not in _on_a_terminal(command, NO_COLOR="1")


def test_a_progress_bar_is_for_terminals(store: Path, arl: Arl) -> None:
    assert "leaves" in _on_a_terminal(["verify", "--db", str(store)])
    assert arl("verify", "--db", store).err == ""


def test_bench_hands_everything_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def fake(argv: list[str]) -> int:
        seen.append(list(argv))
        return 3

    monkeypatch.setattr("agent_run_ledger.benchmark.main", fake)
    assert main(["bench", "--full", "--json", "x.json"]) == 3
    assert main(["bench", "--help"]) == 3
    assert seen == [["--full", "--json", "x.json"], ["--help"]]


def test_demo_hands_everything_on(monkeypatch: pytest.MonkeyPatch, arl: Arl) -> None:
    seen: list[tuple[object, ...]] = []

    def fake(path: Path | None, output: Path | None, *, json: bool, kill: bool, console: object) -> None:
        seen.append((path, output, json, kill, console is None))

    monkeypatch.setattr("agent_run_ledger.demo.driver.run_demo", fake)
    assert arl("demo").code == 0
    assert arl("demo", "src", "--output", "out", "--no-kill", "--json").code == 0
    assert seen == [(None, None, False, True, False), (Path("src"), Path("out"), True, False, True)]


@pytest.mark.parametrize("shell_name", ["bash", "zsh", "fish"])
def test_completion_answers(shell_name: str, shell: Arl) -> None:
    asked = {
        "bash": {"COMP_WORDS": "arl runs sh", "COMP_CWORD": "2"},
        "zsh": {"_TYPER_COMPLETE_ARGS": "arl runs sh"},
        "fish": {"_TYPER_COMPLETE_ARGS": "arl runs sh", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell_name]
    ended = shell(_ARL_COMPLETE=f"complete_{shell_name}", **asked)
    assert "show" in ended.out
    assert is_safe(ended.out.replace("\t", " "))
