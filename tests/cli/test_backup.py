"""`arl backup` and what every command says of a copy."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent_run_ledger.store import open_sqlite, sqlite_store
from agent_run_ledger.testing import check_ledger
from tests.cli.conftest import COMMAND, Arl, Audit, edit


@pytest.fixture(autouse=True)
def _warn_anew() -> None:
    sqlite_store._warned_of_copies.clear()


@pytest.fixture
def copy(arl: Arl, store: Path) -> Path:
    """A copy of the store with every run."""
    path = store.with_name("copy.db")
    assert arl("backup", path, "--db", store).code == 0
    return path


def test_it_prints_what_was_copied_and_the_line_to_note(arl: Arl, store: Path, tmp_path: Path) -> None:
    ended = arl("backup", tmp_path / "copy.db", "--db", store)
    assert ended.code == 0
    found = arl("verify", "--db", store, "--json").json
    for line in (
        f"copy     {tmp_path / 'copy.db'}",
        f"leaves   {found['leaves']}",
        f"root     {found['root_hex']}",
        f"checked  ok: {found['leaves'] + 1} leaves with that of the copy, {found['records']} records, 7 runs",
    ):
        assert line in ended.out.splitlines()
    noted = f"{found['leaves']}:{found['root_hex']}"
    assert f"arl verify --since {noted} --db {store}" in ended.out
    for path in (store, tmp_path / "copy.db"):
        assert arl("verify", "--since", noted, "--db", path).code == 0
    assert check_ledger(tmp_path / "copy.db").leaves == found["leaves"] + 1


def test_json(arl: Arl, store: Path, tmp_path: Path) -> None:
    ended = arl("backup", "copy.db", "--db", store, "--json")
    assert (ended.code, ended.err) == (0, "")
    made = ended.json
    assert set(made) == {
        "db", "destination", "log_id", "leaves", "root_hex", "made_at", "bytes", "duration_ms", "verified", "records",
        "runs",
    }  # fmt: skip
    assert (made["destination"], made["verified"], made["runs"]) == (str(tmp_path / "copy.db"), True, 7)
    assert made["bytes"] == (tmp_path / "copy.db").stat().st_size
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("copy")) == ["copy.db"]
    unchecked = arl("backup", "other.db", "--db", store, "--no-verify", "--json").json
    assert (unchecked["verified"], unchecked["records"]) == (False, None)
    assert "checked  no" in arl("backup", "third.db", "--db", store, "--no-verify").out


def test_a_copy_that_contradicts_its_log_is_not_kept_unless_asked_for(arl: Arl, store: Path, tmp_path: Path) -> None:
    edit(store, "UPDATE records SET payload = x'22' WHERE name = 'fetch'")
    ended = arl("backup", "copy.db", "--db", store, "--json")
    assert (ended.code, ended.error["code"]) == (6, "problems")
    assert "the first: leaf " in ended.error["message"]
    assert f"`arl verify --db {store}`" in ended.error["hint"]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("copy")]
    assert arl("backup", "copy.db", "--db", store, "--no-verify").code == 0
    assert arl("verify", "--db", "copy.db").code == 6


@pytest.mark.parametrize(
    ("destination", "code", "exit_code"),
    [
        ("runs.db", "destination_exists", 1),
        ("taken.db", "destination_exists", 1),
        (".", "bad_path", 2),
        ("runs.db-wal", "side_file", 1),
        ("none/copy.db", "cannot_open", 5),
    ],
)
def test_refusals_have_the_exit_code_of_their_class(
    arl: Arl, store: Path, tmp_path: Path, destination: str, code: str, exit_code: int
) -> None:
    (tmp_path / "taken.db").write_text("mine")
    before = sorted(path.name for path in tmp_path.iterdir())
    ended = arl("backup", destination, "--db", store, "--json")
    assert (ended.code, ended.error["code"], ended.out) == (exit_code, code, "")
    assert [name for name in sorted(path.name for path in tmp_path.iterdir()) if "-" not in name] == before
    assert (tmp_path / "taken.db").read_text() == "mine"


def test_a_store_in_use_is_copied(arl: Arl, db: Path, tmp_path: Path) -> None:
    """Another process has the store open, and a run of this one is under way."""
    store = open_sqlite(db, create=True)
    done = subprocess.run([*COMMAND, "backup", tmp_path / "copy.db", "--db", db], capture_output=True, check=False)
    assert done.returncode == 0
    assert arl("backup", tmp_path / "second.db", "--db", db).code == 0
    store.close()
    check_ledger(tmp_path / "second.db")


def test_a_store_that_is_missing_is_not_made(arl: Arl, db: Path) -> None:
    ended = arl("backup", "copy.db", "--db", db, "--json")
    assert (ended.code, ended.error["code"]) == (1, "no_store")
    assert list(db.parent.iterdir()) == []


@pytest.mark.parametrize("arguments", [("runs", "list"), ("runs", "show", "done")])
def test_looking_says_that_it_is_a_copy(arl: Arl, store: Path, copy: Path, arguments: tuple[str, ...]) -> None:
    assert "copy" not in arl(*arguments, "--db", store).err
    assert arl(*arguments, "--db", store, "--json").json["copy"] is None
    ended = arl(*arguments, "--db", copy)
    assert re.fullmatch(rf"note: {copy} is a copy, made \S+Z of a log of \d+ leaves\n", ended.err)
    found = arl(*arguments, "--db", copy, "--json")
    assert (set(found.json["copy"]), found.err) == ({"copied_at", "copied_size"}, "")


def test_verify_says_that_it_is_a_copy_and_finds_one_that_denies_it(arl: Arl, store: Path, copy: Path) -> None:
    found = arl("verify", "--db", copy, "--json").json
    size = found["copy"]["copied_size"]
    assert f"copy     made {found['copy']['copied_at']} of a log of {size} leaves" in arl("verify", "--db", copy).out
    assert (found["leaves"], found["ok"]) == (size + 1, True)
    assert arl("verify", "--db", store, "--json").json["copy"] is None
    edit(copy, "UPDATE meta SET value = 0 WHERE key = 'is_copy'")
    ended = arl("verify", "--db", copy, "--json")
    assert ended.code == 6
    assert ended.json["problems"] == [
        {"leaf_index": size, "text": "the store says that it is no copy, and the log says that it is one"}
    ]


def test_a_copy_that_does_not_say_of_what_is_tampered(arl: Arl, copy: Path) -> None:
    edit(copy, "UPDATE meta SET value = 'soon' WHERE key = 'copied_at_ms'")
    ended = arl("runs", "list", "--db", copy, "--json")
    assert (ended.code, ended.error["code"]) == (6, "corrupt")


def test_doctor_says_that_it_is_a_copy(arl: Arl, copy: Path) -> None:
    found = arl("doctor", "--db", copy, "--json").json
    by_subject = {one["subject"]: one for one in found["findings"]}
    assert by_subject["copy"]["level"] == "warn"
    assert "never runs again" in by_subject["copy"]["advice"]
    assert "until people admit it" in by_subject["authority"]["finding"]
    numbers = found["numbers"]
    assert (numbers["is_copy"], numbers["authority"]) == (True, False)
    assert numbers["copied_size"] == numbers["leaves"] - 1


def test_init_gives_a_copy_no_authority(arl: Arl, copy: Path) -> None:
    ended = arl("init", "--db", copy, "--json")
    assert (ended.code, ended.error["code"]) == (7, "is_copy")
    assert "only people can admit a copy" in ended.error["hint"]


def test_a_decision_in_a_copy_warns_once_of_the_original(arl: Arl, copy: Path) -> None:
    ended = arl("runs", "quarantine", "failed", "--reason", "x", "--db", copy)
    assert ended.code == 0
    warnings = [line for line in ended.err.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 1
    assert f"{copy} is a copy, made at " in warnings[0]
    assert "the original must not run on beside it" in warnings[0]


def test_a_run_goes_on_in_a_copy_where_it_was(arl: Arl, copy: Path) -> None:
    assert Audit(copy, "dead").run() == "published judged"
    check_ledger(copy)


def test_export_names_the_leaf_of_a_copy(arl: Arl, copy: Path) -> None:
    types = [event["type"] for event in arl("export", "--db", copy).lines]
    assert types[-2:] == ["agent-run-ledger.store.copy", "agent-run-ledger.log.checkpoint"]


BARS = """
import sys
from agent_run_ledger.cli import backup, output
shown = []
def progress(title, *, quiet):
    from contextlib import contextmanager
    @contextmanager
    def bar():
        shown.append(f"{title} begins")
        yield lambda done, total: shown.append(title)
        shown.append(f"{title} ends")
    return bar()
backup.progress = progress
from agent_run_ledger.cli.main import main
code = main(["backup", sys.argv[2], "--db", sys.argv[1]])
print(code, *dict.fromkeys(shown), file=sys.stderr)
"""


def test_one_bar_ends_before_the_next_begins(store: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BARS, store, tmp_path / "copy.db"], capture_output=True, text=True, check=True
    )
    assert done.stderr == "0 pages begins pages pages ends leaves begins leaves leaves ends\n"
