"""`arl erase` and `arl prune`: asked for, said in numbers, kept from what is alive, and gone from every file."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from agent_run_ledger import RunLedger
from agent_run_ledger.cli import erase as command
from agent_run_ledger.cli.moments import parse_moment
from agent_run_ledger.errors import Misuse
from agent_run_ledger.store.sqlite_store import SqliteStore
from agent_run_ledger.testing import check_ledger
from tests.cli.conftest import COMMAND, Arl, Audit, Ended, is_safe

WHY = ("--reason", "asked to", "--actor", "ann")
DAY_MS = 86_400_000


def _erased(arl: Arl, store: Path, run: str) -> int:
    return int(arl("runs", "show", run, "--db", store, "--json").json["erased"])


def test_a_run_is_erased_and_every_command_still_tells_its_story(arl: Arl, store: Path) -> None:
    ended = arl("erase", "done", *WHY, "--yes", "--db", store)
    assert ended.code == 0
    assert "erased   5 records in 1 run: done, all of it" in ended.out
    for told in ("run id", "times", "usage", "backups", "copies"):
        assert told in ended.out
    shown = arl("runs", "show", "done", "--db", store, "--payloads")
    assert "5 records erased" in shown.out
    assert "erase by ann: asked to (5 records)" in shown.out
    assert "acme" not in shown.out
    assert is_safe(shown.out)
    listed = {run["run_id"]: run for run in arl("runs", "list", "--db", store, "--json").json["runs"]}
    assert (listed["done"]["erased"], listed["done"]["steps_total"], listed["done"]["steps_recorded"]) == (
        True,
        None,
        4,
    )
    assert listed["failed"]["erased"] is False
    assert "completed · erased" in arl("runs", "list", "--db", store).out
    verified = arl("verify", "--db", store, "--json").json
    assert (verified["ok"], verified["erased"]) == (True, 5)
    assert "of which 5 are erased" in arl("verify", "--db", store).out
    explained = arl("runs", "explain", "done", "--db", store, "--json").json
    assert explained["next_execute"] == "refused_as_erased"
    assert "nothing of it is run again" in explained["next_execute_words"]
    assert [step["step"] for step in explained["attempts"][0]["live"]] == ["fetch", "review", "judge", "publish"]
    check_ledger(store)
    audit = Audit(store, "done")
    assert getattr(audit.run(), "code", "") == "erased"
    assert audit.ran == []


def test_the_json_says_all_of_it(arl: Arl, store: Path) -> None:
    said = arl("erase", "done", "--step", "review", *WHY, "--yes", "--db", store, "--json").json
    assert {**said, "kept": "", "not_reached": "", "payload_bytes": 0} == {
        "run_id": "done", "event": "erase", "steps": ["judge", "publish", "review"], "dependants": ["judge", "publish"],
        "records": 3, "payload_bytes": 0, "forks": [], "children": [], "waiting": [],
        "kept": "", "not_reached": "", "scrubbed": True,
        "reason": "asked to", "actor": "ann",
    }  # fmt: skip
    shown = arl("runs", "show", "done", "--db", store, "--json", "--payloads").json
    assert {step["step"]: step["records"][0]["erased"] for step in shown["steps"]} == {
        "fetch": False, "review": True, "judge": True, "publish": True,
    }  # fmt: skip
    assert shown["erased"] == 3
    assert shown["decisions"][0]["records"] == 3
    erased = next(step for step in shown["steps"] if step["step"] == "review")["records"][0]
    assert (erased["value"], erased["decodes"], erased["value_note"]) == (None, False, "erased")
    assert arl("runs", "explain", "done", "--db", store, "--json").json["next_execute"] == "refused_as_erased"


def test_several_steps_and_only_they(arl: Arl, store: Path) -> None:
    said = arl(
        "erase", "done", "--step", "fetch", "--step", "review", "--only", *WHY, "--yes", "--db", store, "--json"
    ).json
    assert (said["steps"], said["dependants"], said["records"]) == (["fetch", "review"], [], 2)
    assert arl("runs", "explain", "done", "--db", store, "--json").json["next_execute"] == "returns_record"
    assert Audit(store, "done").run() == "published judged"


@pytest.mark.parametrize("run", ["failed", "dead", "rescued", "changed", "crashed"])
def test_runs_of_every_kind_are_erased_and_shown(arl: Arl, store: Path, run: str) -> None:
    records = arl("erase", run, *WHY, "--yes", "--db", store, "--json").json["records"]
    assert records == _erased(arl, store, run) > 0
    for arguments in (("show", run), ("show", run, "--payloads"), ("explain", run)):
        ended = arl("runs", *arguments, "--db", store)
        assert ended.code == 0
        assert "removed" not in ended.out
        assert "not markup" not in ended.out
        assert is_safe(ended.out)
    attempts = arl("runs", "explain", run, "--db", store, "--json").json["attempts"]
    assert all(attempt["live"] or attempt["restored"] for attempt in attempts)
    check_ledger(store)


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("done",), 2, "not_confirmed"),
        (("nobody", "--yes"), 1, "no_run"),
        (("done", "--step", "nothing", "--yes"), 1, "no_step"),
        (("done", "--only", "--yes"), 2, "usage"),
    ],
)
def test_what_cannot_be_erased_changes_nothing(
    arl: Arl, store: Path, arguments: tuple[str, ...], code: int, word: str
) -> None:
    ended = arl("erase", *arguments, *WHY, "--db", store, "--json")
    assert (ended.code, ended.error["code"], ended.out) == (code, word, "")
    assert arl("verify", "--db", store, "--json").json["erased"] == 0


def test_a_reason_is_needed(arl: Arl, store: Path) -> None:
    assert arl("erase", "done", "--yes", "--db", store, "--json").error["code"] == "usage"
    assert arl("erase", "done", "--yes", "--reason", " ", "--db", store, "--json").error["code"] == "no_reason"


def _answered(store: Path, answer: bytes, *arguments: str) -> tuple[int, str]:
    """Run a command on a terminal and answer its question."""
    terminal, its_end = pty.openpty()
    child = subprocess.Popen([*COMMAND, *arguments, "--db", str(store)], stdin=its_end, stdout=its_end, stderr=its_end)
    os.close(its_end)
    said = b""
    while b"[y/N]" not in said:
        said += os.read(terminal, 1024)
    os.write(terminal, answer)
    try:
        while more := os.read(terminal, 1024):
            said += more
    except OSError:  # Linux says so when the other end is closed
        pass
    os.close(terminal)
    return child.wait(60), " ".join(said.decode().split())


def test_on_a_terminal_it_asks_and_no_means_no(arl: Arl, store: Path) -> None:
    code, said = _answered(store, b"n\n", "erase", "done", "--step", "review", *WHY)
    assert code == 1
    assert "Erase 3 records of run done (steps judge, publish, review)?" in said
    assert "Not named, but they take results of named steps: judge, publish." in said
    assert "What the run was started with stays, as do its other steps." in said
    assert _erased(arl, store, "done") == 0
    assert _answered(store, b"y\n", "erase", "done", *WHY)[0] == 0
    assert _erased(arl, store, "done") == 5


def test_what_stays_when_only_steps_are_erased_is_said(arl: Arl, store: Path) -> None:
    part = arl("erase", "done", "--step", "publish", *WHY, "--yes", "--db", store).out
    assert "erased   1 record in 1 run: done, step publish" in part
    assert "kept     what the run was started with, its other steps, and of these steps: run id" in part
    again = arl("erase", "done", "--step", "publish", *WHY, "--yes", "--db", store).out
    assert "there was nothing more to erase" in again
    assert (
        arl("erase", "done", "--step", "publish", *WHY, "--yes", "--db", store, "--json")
        .json["kept"]
        .startswith("what")
    )
    assert "started with" not in arl("erase", "done", *WHY, "--yes", "--db", store).out


def test_a_report_folds_in_its_column_and_not_below_it(arl: Arl, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for ended in (
        arl("erase", "done", *WHY, "--yes", "--db", store),
        arl("prune", "--completed-before", "0h", *WHY, "--yes", "--db", store),
    ):
        lines = ended.out.splitlines()
        assert max(map(len, lines)) <= 80
        folded = lines[next(at for at, line in enumerate(lines) if line.startswith("kept")) + 1]
        assert folded.startswith("         ")
        assert folded.strip()


def test_a_prune_asks_on_a_terminal(arl: Arl, store: Path) -> None:
    code, said = _answered(store, b"\n", "prune", "--completed-before", "0h", *WHY)
    assert code == 1
    assert "Erase 4 runs as a whole (completed, last changed before" in said
    assert _answered(store, b"y\n", "prune", "--completed-before", "0h", *WHY)[0] == 0
    assert _erased(arl, store, "done") == 5


def _pruned(arl: Arl, store: Path, *more: str) -> Ended:
    return arl("prune", "--completed-before", "0h", *more, "--db", store, "--json")


def test_a_prune_erases_what_is_old_and_says_what_it_did(arl: Arl, store: Path) -> None:
    assert _pruned(arl, store, "--dry-run").json["runs"] == 4
    assert arl("verify", "--db", store, "--json").json["erased"] == 0
    said = _pruned(arl, store, *WHY, "--yes", "--keep-last", "1").json
    assert (said["runs"], said["state"], said["skipped"], said["scrubbed"]) == (3, "completed", [], True)
    assert said["run_ids"] == ["done", "crashed", "changed"]
    assert said["records"] == sum(_erased(arl, store, run) for run in said["run_ids"])
    assert said["payload_bytes"] > 100
    assert _pruned(arl, store, *WHY, "--yes", "--keep-last", "1").json["runs"] == 0
    assert _pruned(arl, store, *WHY, "--yes", "--state", "failed").json["run_ids"] == ["failed", "rescued"]
    assert arl("verify", "--db", store).code == 0
    check_ledger(store)


def test_a_prune_for_people(arl: Arl, store: Path) -> None:
    dry = arl("prune", "--completed-before", "0h", "--dry-run", "--db", store)
    assert "would erase" in dry.out
    assert "run      done" in dry.out
    ended = arl("prune", "--completed-before", "0h", *WHY, "--yes", "--compact", "--db", store)
    assert ended.code == 0
    assert "erased" in ended.out
    assert "of room for a while" in ended.err
    assert "0 B are free" in ended.out
    again = arl("prune", "--completed-before", "2020-01-01", *WHY, "--yes", "--db", store)
    assert "erased 0 records in 0 runs" in again.out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--completed-before", "0h", "--yes"), "no_reason"),
        (("--completed-before", "yesterday", *WHY), "usage"),
        (("--completed-before", "0h", "--state", "running", *WHY), "bad_state"),
        (("--completed-before", "0h", *WHY), "not_confirmed"),
        ((*WHY,), "usage"),
    ],
)
def test_what_cannot_be_pruned_changes_nothing(arl: Arl, store: Path, arguments: tuple[str, ...], word: str) -> None:
    ended = arl("prune", *arguments, "--db", store, "--json")
    assert (ended.code, ended.error["code"]) == (2, word)
    assert arl("verify", "--db", store, "--json").json["erased"] == 0


def test_a_reader_that_holds_the_side_file_up_is_told_of(
    arl: Arl, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_PAUSE_S", 0)
    with monkeypatch.context() as held:
        held.setattr(SqliteStore, "scrub", lambda _: False)
        ended = arl("erase", "done", *WHY, "--yes", "--db", store, "--json")
        assert (ended.code, ended.error["code"], ended.json["scrubbed"]) == (5, "not_scrubbed", False)
        assert "same command again" in ended.error["hint"]
        assert _pruned(arl, store, *WHY, "--yes").error["code"] == "not_scrubbed"
    assert arl("erase", "done", *WHY, "--db", store, "--json").json["records"] == 0


def test_a_run_in_use_is_not_erased(arl: Arl, store: Path) -> None:
    with RunLedger("done", store) as ledger:
        lock = ledger._opened.context().store.lock_run("done")
        assert lock is not None
        ended = arl("erase", "done", *WHY, "--yes", "--db", store, "--json")
        lock.release()
    assert (ended.code, ended.error["code"]) == (5, "run_busy")
    assert _erased(arl, store, "done") == 0


def test_kept_inputs_are_shown(arl: Arl, db: Path) -> None:
    with RunLedger("kept", db, keep_inputs=True) as ledger:
        ledger.step(name="one")(lambda order: 1)
        ledger.execute(order={"sku": "A-7", "tags": ("x",)})
    shown = arl("runs", "show", "kept", "--db", db)
    assert "inputs, kept" in shown.out
    assert "A-7" in shown.out
    kept = arl("runs", "show", "kept", "--db", db, "--json").json["kept_inputs"]
    assert kept["order"]["sku"] == "A-7"
    assert kept["order"]["tags"]["$arl"] == "tuple"
    arl("erase", "kept", *WHY, "--yes", "--db", db)
    assert arl("runs", "show", "kept", "--db", db, "--json").json["kept_inputs"] is None
    assert b"A-7" not in db.read_bytes()


def test_an_export_names_an_erasure_and_shows_nothing_erased(arl: Arl, store: Path) -> None:
    arl("erase", "done", *WHY, "--yes", "--db", store)
    events = arl("export", "--run", "done", "--payloads", "--fingerprints", "--db", store).lines[:-1]
    assert events[-1]["type"] == "agent-run-ledger.step.erased"
    erased = [
        change["record"]
        for event in events
        for change in event["data"]["changes"]
        if change.get("record", {}).get("erased")
    ]
    assert len(erased) == 5
    assert all("value" not in record and "fingerprint_hex" not in record for record in erased)


@pytest.mark.parametrize(
    ("text", "moment_ms"),
    [
        ("0h", 50 * DAY_MS), ("30d", 20 * DAY_MS), ("12h", 50 * DAY_MS - DAY_MS // 2), ("2w", 36 * DAY_MS),
        ("1970-01-02", DAY_MS), ("1970-01-02T12:00", DAY_MS * 3 // 2), ("1970-01-02T12:00:00Z", DAY_MS * 3 // 2),
        ("1970-01-02T12:00:00+12:00", DAY_MS), (" 1970-01-03 ", 2 * DAY_MS),
    ],
)  # fmt: skip
def test_moments(text: str, moment_ms: int) -> None:
    assert parse_moment(text, 50 * DAY_MS) == moment_ms


@pytest.mark.parametrize("text", ["", "yesterday", "30", "-1d", "3m", "1970-13-01", "1970-02-21", "9" * 9 + "d"])
def test_other_words_and_moments_to_come_are_refused(text: str) -> None:
    with pytest.raises(Misuse) as caught:
        parse_moment(text, 50 * DAY_MS)
    assert caught.value.code == "usage"
