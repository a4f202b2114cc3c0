"""`arl lab`: what it writes, what it shows, and which exit code it ends with."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import agent_run_ledger
from agent_run_ledger import Misuse
from agent_run_ledger.lab import exercises, processes, runner
from agent_run_ledger.lab.exercises import Desk, Seen
from agent_run_ledger.lab.order import Incomplete, Order, Report, Role
from agent_run_ledger.lab.request import REQUEST, request_bytes
from agent_run_ledger.ledger.effect_ledger import EffectLedger
from agent_run_ledger.store import stored_durability
from tests.cli.conftest import COMMAND, Arl, Ended, is_safe
from tests.house.tree import SRC, python_sources

pytestmark = pytest.mark.fault

EXPECTED = {
    "crash_recovered_state": "prepared",
    "expected_lab_observations": True,
    "old_database_copy_reaccepted_claim": True,
    "production_authorization": "not_assessed",
    "race_accepted_claims": 1,
    "race_rejected_claims": 7,
    "replacement_claim_accepted": False,
}
DURABLE = Report(journal_mode="delete", synchronous=3, not_protected=("no witness",))
YES, NO = replace(DURABLE, accepted=True, state="claimed"), replace(DURABLE, accepted=False, code="claimed")
AVAILABLE, PREPARED = replace(DURABLE, state="available"), replace(DURABLE, state="prepared")
LATE = replace(NO, code="expired")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the one real run of this module keeps what it writes."""
    return tmp_path_factory.mktemp("lab") / "run"


@pytest.fixture(scope="module")
def ended(folder: Path) -> Ended:
    """That run, by a user whose files others may read."""
    environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR")}
    done = subprocess.run(
        [*COMMAND, "lab", "--output", str(folder)],
        env={**environment, "COLUMNS": "80"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=False,
        umask=0o022,
    )
    return Ended(code=done.returncode, out=done.stdout, err=done.stderr)


def test_the_summary_has_exactly_the_keys_and_values_of_the_seed(ended: Ended, folder: Path) -> None:
    assert ended.code == 0, ended.err
    text = (folder / "summary.json").read_text(encoding="ascii")
    assert text == json.dumps(EXPECTED, indent=2) + "\n"


def test_the_request_authorises_nothing_and_is_conditional(ended: Ended, folder: Path) -> None:
    request = json.loads((folder / "request.json").read_bytes())
    assert request["authorization"] == "not_established"
    assert (request["object"]["kind"], request["object"]["name"]) == ("ConfigMap", "retention-fixture")
    *conditions, change = request["body"]
    assert {one["op"] for one in conditions} == {"test"}
    assert [one["path"] for one in conditions] == ["/metadata/uid", "/metadata/resourceVersion", "/data"]
    assert conditions[-1]["value"] == {"retention_days": "30"}
    assert change == {"op": "replace", "path": "/data/retention_days", "value": "45"}


def test_each_exercise_leaves_its_databases_and_its_log(ended: Ended, folder: Path) -> None:
    logs = {
        name: [json.loads(line) for line in (folder / name / "log.jsonl").read_text().splitlines()]
        for name in ("race", "exit_before_commit", "exit_after_preparation", "old_copy")
    }
    assert {name: len(lines) for name, lines in logs.items()} == {
        "race": 9, "exit_before_commit": 4, "exit_after_preparation": 4, "old_copy": 5,
    }  # fmt: skip
    killed = {
        name: [line["order"]["worker"] for line in lines if line["ended"] == "killed by signal 9"]
        for name, lines in logs.items()
    }
    assert killed == {
        "race": [], "exit_before_commit": ["worker-1"], "exit_after_preparation": ["worker-1"], "old_copy": [],
    }  # fmt: skip
    opened = [line["report"] for lines in logs.values() for line in lines if line["order"]["role"] != "copy"]
    assert {(report["journal_mode"], report["synchronous"]) for report in opened} == {("delete", 3)}
    databases = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.db"))
    assert databases == [
        "exit_after_preparation/ledger.db", "exit_before_commit/ledger.db",
        "old_copy/before_the_claim.db", "old_copy/claimed.db", "old_copy/ledger.db", "race/ledger.db",
    ]  # fmt: skip
    assert {stored_durability(folder / name) for name in databases} == {"extra"}
    with EffectLedger(folder / "race" / "ledger.db", durability="extra") as ledger:
        (action,) = ledger.inbox()
        assert ledger.request(action.action_id) == (folder / "request.json").read_bytes()
    assert not list(folder.rglob("*-journal"))


def test_nobody_else_can_read_what_it_writes_whatever_the_umask_was(ended: Ended, folder: Path) -> None:
    modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}
    assert modes == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir()) if path.is_dir()} == {0o700}


def test_it_tells_what_it_does_and_warns_of_the_unsafe_observation_in_eighty_columns(ended: Ended) -> None:
    assert [line[:4] for line in ended.err.splitlines()] == ["1/4 ", "2/4 ", "3/4 ", "4/4 "]
    words = " ".join(ended.out.split())
    assert "of 8 processes 1 got the claim, 7 were refused" in words
    assert "the action is prepared; the replacement was refused (prepared)" in words
    assert "UNSAFE, expected old_copy: two processes hold the claim of one approval" in words
    assert "warning: The copy from before a claim accepts the claim again." in words
    assert "The ledger's own status: no witness" in words
    assert "SQLite said: journal DELETE, synchronous EXTRA" in words
    assert "Production authorization: not assessed" in words
    assert max(map(len, (ended.out + ended.err).splitlines())) <= 80
    assert is_safe(ended.out)


# -- what is seen, without processes -----------------------------------------------------------------------------------


def _seen(monkeypatch: pytest.MonkeyPatch, folder: Path, exercise: Callable[[Desk], Seen], *reports: Report) -> Seen:
    """What an exercise makes of these reports."""
    waiting: Iterator[Report] = iter(reports)

    def run(order: Order, *_: object) -> Report:
        if order.role is Role.COPY:
            Path(order.copy_to).write_bytes(b"")
            return Report()
        return next(waiting)

    monkeypatch.setattr(exercises, "run", run)
    monkeypatch.setattr(exercises, "race", lambda orders, *_: [next(waiting) for _ in orders])
    (folder / "ledger.db").write_bytes(b"")
    seen = exercise(Desk(folder))
    assert list(waiting) == []
    assert seen.reports == reports
    return seen


BEFORE, AFTER = exercises.exit_before_the_commit, exercises.exit_after_preparation
RACE, OLD = exercises.race_for_one_claim, exercises.old_copy_put_back
PREPARED_REFUSAL = replace(NO, code="prepared")


@pytest.mark.parametrize(
    ("exercise", "reports", "expected", "unsafe"),
    [
        (RACE, (NO, NO, YES, NO, NO, NO, NO, NO), True, False),
        (RACE, (NO, YES, YES, NO, NO, NO, NO, NO), False, False),
        (RACE, (NO, NO, NO, NO, NO, NO, NO, NO), False, False),
        (RACE, (NO, NO, YES, NO, NO, LATE, NO, NO), False, False),
        (BEFORE, (DURABLE, AVAILABLE, YES), True, False),
        (BEFORE, (DURABLE, AVAILABLE, LATE), False, False),
        (BEFORE, (DURABLE, YES, NO), False, False),
        (BEFORE, (DURABLE, PREPARED, YES), False, False),
        (AFTER, (DURABLE, PREPARED, PREPARED_REFUSAL), True, False),
        (AFTER, (DURABLE, PREPARED, YES), False, False),
        (AFTER, (DURABLE, PREPARED, LATE), False, False),
        (AFTER, (DURABLE, AVAILABLE, PREPARED_REFUSAL), False, False),
        (OLD, (YES, YES), True, True),
        (OLD, (YES, NO), False, False),
        (OLD, (LATE, YES), False, False),
    ],
)
def test_an_exercise_tells_what_is_expected_from_what_is_not(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    exercise: Callable[[Desk], Seen],
    reports: tuple[Report, ...],
    expected: bool,
    unsafe: bool,
) -> None:
    seen = _seen(monkeypatch, tmp_path, exercise, *reports)
    assert (seen.expected, seen.unsafe) == (expected, unsafe)


ALL = (
    Seen(
        exercise="race",
        words="one",
        facts={"race_accepted_claims": 1, "race_rejected_claims": 7},
        expected=True,
        reports=(YES, NO),
    ),
    Seen(
        exercise="exit_after_preparation",
        words="prepared",
        facts={"crash_recovered_state": "prepared", "replacement_claim_accepted": False},
        expected=True,
        reports=(NO,),
    ),
    Seen(
        exercise="old_copy",
        words="again",
        facts={"old_database_copy_reaccepted_claim": True},
        expected=True,
        reports=(YES,),
        unsafe=True,
    ),
)


def test_all_must_be_as_expected_and_every_connection_durable() -> None:
    assert runner.compare(ALL).summary == EXPECTED
    assert runner.compare(ALL).as_expected
    for at, one in enumerate(ALL):
        for other in (
            replace(one, expected=False),
            replace(one, reports=(*one.reports, replace(YES, synchronous=2))),
            replace(one, reports=(*one.reports, replace(YES, journal_mode="wal"))),
        ):
            outcome = runner.compare((*ALL[:at], other, *ALL[at + 1 :]))
            assert outcome.summary == {**EXPECTED, "expected_lab_observations": False}
            assert not outcome.as_expected
    assert not runner.compare(()).as_expected


# -- how it ends -------------------------------------------------------------------------------------------------------


def _ending_with(monkeypatch: pytest.MonkeyPatch, seen: tuple[Seen, ...]) -> None:
    def run_lab(_output: Path, *, tell: Callable[[str], None], server: str | None) -> runner.Outcome:
        tell("1/1")
        return runner.compare(seen)

    monkeypatch.setattr(runner, "run_lab", run_lab)


def test_with_json_it_prints_the_summary_alone(monkeypatch: pytest.MonkeyPatch, arl: Arl) -> None:
    _ending_with(monkeypatch, ALL)
    told = arl("lab", "--output", "new", "--json")
    assert (told.code, told.json, told.err) == (0, EXPECTED, "")


def test_what_is_not_expected_ends_with_one(monkeypatch: pytest.MonkeyPatch, arl: Arl) -> None:
    _ending_with(monkeypatch, (replace(ALL[0], expected=False), *ALL[1:]))
    assert arl("lab", "--output", "new", "--json").json == {**EXPECTED, "expected_lab_observations": False}
    told = arl("lab", "--output", "new")
    assert told.code == 1
    assert "NOT EXPECTED race: one" in " ".join(told.out.split())


def test_the_unsafe_observation_is_never_green(monkeypatch: pytest.MonkeyPatch, arl: Arl) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    for seen in (ALL, (*ALL[:2], replace(ALL[2], expected=False))):
        _ending_with(monkeypatch, seen)
        lines = arl("lab", "--output", "new").out.splitlines()
        green = [line for line in lines if "\x1b[32m" in line or "\x1b[1;32m" in line]
        assert len(green) == 2
        assert all("as expected" in line for line in green)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in arl("lab", "--output", "new").out


@pytest.mark.parametrize(
    ("output", "code"), [("there", "output_exists"), ("no/new", "no_parent"), ("f/x", "no_parent")]
)
def test_a_folder_that_exists_or_has_no_parent_ends_with_two(arl: Arl, tmp_path: Path, output: str, code: str) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "f").touch()
    told = arl("lab", "--output", output, "--json")
    assert (told.code, told.error["code"], told.out) == (2, code, "")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["f", "there"]


def test_a_folder_whose_name_is_no_text_is_refused_before_it_is_made(tmp_path: Path) -> None:
    with pytest.raises(Misuse) as refusal:
        runner.run_lab(tmp_path / "half \udc80", tell=lambda line: None)
    assert refusal.value.code == "bad_output"
    assert list(tmp_path.iterdir()) == []


def test_a_closed_output_ends_with_two_before_anything_is_made(tmp_path: Path) -> None:
    command = ["sh", "-c", '"$@" >&-', "sh", *COMMAND, "lab", "--output", str(tmp_path / "lab")]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])
    assert "the standard output is closed" in done.stderr


def test_the_summary_has_its_name_only_when_its_bytes_are_on_the_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    synced: list[tuple[bytes, bool]] = []

    def sync(descriptor: int) -> None:
        partial = tmp_path / "lab" / "summary.json.partial"
        assert os.fstat(descriptor).st_ino == partial.stat().st_ino
        synced.append((partial.read_bytes(), (tmp_path / "lab" / "summary.json").exists()))
        if len(synced) > 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(runner, "EXERCISES", ())
    monkeypatch.setattr(runner.os, "fsync", sync)
    runner.run_lab(tmp_path / "lab", tell=lambda line: None)
    assert synced == [((tmp_path / "lab" / "summary.json").read_bytes(), False)]
    (tmp_path / "lab").rename(tmp_path / "first")
    with pytest.raises(Incomplete, match=os.strerror(errno.EIO)):
        runner.run_lab(tmp_path / "lab", tell=lambda line: None)
    assert not (tmp_path / "lab" / "summary.json").exists()


def test_without_a_folder_it_ends_with_two(arl: Arl) -> None:
    assert arl("lab").code == 2


def test_processes_that_cannot_work_end_with_two_and_what_was_written_stays(
    monkeypatch: pytest.MonkeyPatch, arl: Arl, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    told = arl("lab", "--output", "new", "--json")
    assert (told.code, told.error["code"]) == (2, "lab_incomplete")
    assert "exit code 1" in told.error["message"]
    assert sorted(path.relative_to(tmp_path / "new").as_posix() for path in (tmp_path / "new").rglob("*")) == [
        "race", "race/log.jsonl", "request.json",
    ]  # fmt: skip
    assert (tmp_path / "new" / "request.json").read_bytes() == request_bytes()
    assert json.loads(request_bytes()) == REQUEST


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (KeyboardInterrupt(), "it was interrupted"),
        (OSError(errno.ENOSPC, "No space left on device", "ledger.db"), "No space left"),
        (Incomplete("a process died"), "a process died"),
    ],
)
def test_an_exercise_that_is_broken_off_ends_with_two(
    monkeypatch: pytest.MonkeyPatch, arl: Arl, raised: BaseException, said: str
) -> None:
    def broken(*_: Any) -> Seen:
        raise raised

    monkeypatch.setattr(runner, "carry_out", broken)
    before = os.umask(0o022)
    try:
        told = arl("lab", "--output", "new", "--json")
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)
    assert (told.code, told.error["code"], told.out) == (2, "lab_incomplete", "")
    assert said in told.error["message"]
    assert not Path("new/summary.json").exists()


def test_a_process_that_does_not_die_where_it_must_is_no_observation(tmp_path: Path) -> None:
    order = Order(role=Role.SEED, database=str(tmp_path / "ledger.db"), worker="lab", tick=5, die_at="nowhere")
    with pytest.raises(Incomplete, match="exit code 0"):
        processes.run(order, tmp_path / "log.jsonl")


def test_a_process_that_hangs_is_killed_and_is_no_observation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hanging = tmp_path / "hanging"
    hanging.write_text("#!/bin/sh\nexec sleep 600\n")
    hanging.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(hanging))
    monkeypatch.setattr(processes, "LIMIT_S", 0.1)
    order = Order(role=Role.CLAIM, database="ledger.db", worker="w", tick=5, die_at="commit.before")
    with pytest.raises(Incomplete, match="killed by signal 9 after"):
        processes.run(order, tmp_path / "log.jsonl")


# -- what it must not be -----------------------------------------------------------------------------------------------


def test_the_demo_approval_is_in_the_lab_and_nowhere_else() -> None:
    naming = {path.relative_to(SRC).parts[0] for path in python_sources() if "seed_demo" in path.read_text("utf-8")}
    assert naming == {"lab"}
    assert not hasattr(agent_run_ledger, "seed_demo_approval")
    assert not hasattr(EffectLedger, "seed_demo_approval")


def test_it_loads_nothing_that_could_reach_a_network() -> None:
    program = "import sys, agent_run_ledger.lab.runner, agent_run_ledger.lab.worker; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert "agent_run_ledger.lab.worker" in loaded
    assert {"socket", "_socket", "ssl", "http", "http.client", "urllib.request", "asyncio"} & set(loaded) == set()
