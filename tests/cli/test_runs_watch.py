"""`arl runs watch`: follows real processes on a terminal, as lines and as JSON Lines, cheaply, until the run ends."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import RunLedger
from agent_run_ledger.cli.watch_screens import fitting
from agent_run_ledger.ledger.run_view import RunView, view_run
from agent_run_ledger.ledger.run_watch import RunWatch, WatchEnd, changed_steps, ended, run_changed
from agent_run_ledger.ledger.step_states import StepState
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.testing import check_ledger, start_scenario
from tests.cli.conftest import COMMAND, Arl, Audit
from tests.contract.run_kit import LyingStore, until
from tests.scenario.programs import held

WAITING = f"{held.__file__}:waiting"


class Watching:
    """A real `arl runs watch` whose lines are read one by one."""

    def __init__(self, *arguments: str) -> None:
        self.child = subprocess.Popen(
            [*COMMAND, "runs", "watch", *arguments, "--interval", "0.05"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            encoding="utf-8",
        )
        self.seen: list[str] = []

    def line(self, *words: str) -> str:
        """Read on until a line has all these words; fails when the output ends first."""
        assert self.child.stdout is not None
        for line in self.child.stdout:
            self.seen.append(line.rstrip("\n"))
            if all(word in line for word in words):
                return line
        pytest.fail(f"no line with {words} in {self.seen}")

    def end(self) -> tuple[int, str]:
        """Read to the end and return the exit code and what was said on stderr."""
        out, err = self.child.communicate(timeout=60)
        self.seen += out.splitlines()
        return self.child.returncode, err

    @property
    def changes(self) -> list[dict[str, Any]]:
        """What it printed, as JSON Lines."""
        return [json.loads(line) for line in self.seen]


@contextmanager
def watching(*arguments: object) -> Iterator[Watching]:
    watch = Watching(*map(str, arguments))
    try:
        yield watch
    finally:
        watch.child.kill()
        watch.child.communicate()


class Held:
    """A run in another process, which stands still in its second step until `go_on` is opened."""

    def __init__(self, workdir: Path) -> None:
        self.db = workdir / "ledger.db"
        self.entered, self.go_on = held.Gate(workdir / held.ENTERED), held.Gate(workdir / held.GO_ON)
        self.life = start_scenario(WAITING, workdir)
        self.entered.wait()


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Held]:
    run = Held(tmp_path)
    with run.life:
        yield run
    check_ledger(run.db)


def test_json_lines_follow_a_run_in_another_process_to_its_end(live: Held) -> None:
    with watching("held", "--db", live.db, "--json") as watch:
        watch.line('"step":"third"', '"waiting"')
        live.go_on.open()
        assert live.life.wait().result == "result 4"
        assert watch.end() == (0, "")
    first = watch.changes[0]
    assert (first["change"], first["state"], first["live_attempt"], first["attempt"]) == ("run", "running", True, 1)
    steps = [(change["step"], change["state"]) for change in watch.changes if change["change"] == "step"]
    assert steps[:3] == [("first", "live"), ("second", "running"), ("third", "waiting")]
    assert watch.changes[-1] == {"change": "end", "run_id": "held", "outcome": "completed", "exit_code": 0}
    final = {change["step"]: change for change in watch.changes if change["change"] == "step"}
    assert {name: change["state"] for name, change in final.items()} == dict.fromkeys(
        ("first", "second", "third"), "live"
    )
    assert final["second"]["duration_ms"] >= 0
    assert final["second"]["record_id"] > 0


@pytest.mark.parametrize("columns", ["40", "80"])
def test_plain_lines_say_the_same_for_people(live: Held, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    with watching("held", "--db", live.db) as watch:
        watch.line("waiting", "third")
        live.go_on.open()
        assert watch.end() == (0, "")
    assert "\x1b" not in "".join(watch.seen)
    stamped = re.compile(r"^20\d\d-\d\d-\d\dT[\d:.]+Z  ")
    assert [line for line in watch.seen[:-1] if not stamped.match(line)] == []
    assert watch.seen[0].split("  ", 1)[1].startswith("run held  running")
    assert watch.seen[-1] == "run held is completed"


def test_on_a_terminal_it_is_drawn_in_place_and_the_cursor_comes_back(live: Held) -> None:
    terminal, its_end = pty.openpty()
    child = subprocess.Popen(
        [*COMMAND, "runs", "watch", "held", "--db", str(live.db), "--interval", "0.05"],
        stdin=its_end,
        stdout=its_end,
        stderr=its_end,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"},
    )
    os.close(its_end)
    said = b""
    while not (b"running" in said and b"third" in said and b"for " in said):
        said += os.read(terminal, 4096)
    live.go_on.open()
    with suppress(OSError):  # Linux says so when the other end is closed
        while more := os.read(terminal, 4096):
            said += more
    os.close(terminal)
    assert child.wait(60) == 0
    assert b"run held is completed" in said
    assert said.count(b"\x1b[?25l") == said.count(b"\x1b[?25h") == 1, "the cursor was hidden and is shown again"
    assert b"\x1b[1A" in said, "drawn anew above itself"
    assert said.rstrip().endswith(b"\x1b[?25h")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Children can be interrupted, also where this process was started with SIGINT ignored, as with `&` in a script."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_ctrl_c_ends_it_cleanly_and_the_run_goes_on(live: Held, form: tuple[str, ...]) -> None:
    with watching("held", "--db", live.db, *form) as watch:
        watch.line("waiting", "third")
        watch.child.send_signal(signal.SIGINT)
        assert watch.end() == (130, "" if form else "interrupted\n")
    live.go_on.open()
    assert live.life.wait().result == "result 4"


def test_a_killed_run_is_said_to_have_died(live: Held) -> None:
    with watching("held", "--db", live.db, "--json") as watch:
        watch.line("waiting", "third")
        live.life.send(signal.SIGKILL)
        code, _ = watch.end()
    assert code == 1
    assert watch.changes[-1]["outcome"] == "died"
    states = [change["live_attempt"] for change in watch.changes if change["change"] == "run"]
    assert states == [True, False]
    assert {c["step"]: c["state"] for c in watch.changes if c["change"] == "step"}["second"] == "uncertain"


def test_a_cancelled_run_is_watched_until_its_last_body_has_returned(live: Held, arl: Arl) -> None:
    with watching("held", "--db", live.db, "--json") as watch:
        watch.line("waiting", "third")
        assert arl("runs", "cancel", "held", "--reason", "x", "--yes", "--db", live.db).code == 0
        watch.line('"cancelled"')
        live.go_on.open()
        assert watch.end()[0] == 1
    steps = {c["step"]: c["state"] for c in watch.changes if c["change"] == "step"}
    assert (steps["second"], steps["third"]) == ("live", "waiting")
    assert watch.changes[-1]["outcome"] == "cancelled"


def test_until_completed_it_waits_through_failures(db: Path) -> None:
    Audit(db, "r", ends="fail").run()
    with watching("r", "--db", db, "--json", "--until", "completed") as watch:
        watch.line('"publish"', '"waiting"')
        Audit(db, "r").run()
        assert watch.end() == (0, "")
    assert watch.changes[0]["state"] == "failed"
    assert watch.changes[-1]["outcome"] == "completed"


@pytest.mark.parametrize(
    ("run", "outcome", "code"),
    [("done", "completed", 0), ("failed", "failed", 1), ("dead", "died", 1), ("rescued", "failed", 1)],
)
def test_a_run_that_has_ended_is_shown_and_left(arl: Arl, store: Path, run: str, outcome: str, code: int) -> None:
    before = arl("verify", "--db", store, "--json").json
    found = arl("runs", "watch", run, "--db", store, "--json")
    assert (found.code, found.lines[-1]["outcome"], found.err) == (code, outcome, "")
    assert arl("verify", "--db", store, "--json").json == before, "it only reads"


def test_a_stopped_run_ends_the_watch_and_until_completed_only_a_cancelled_one(arl: Arl, store: Path) -> None:
    arl("runs", "quarantine", "failed", "--reason", "x", "--db", store)
    assert arl("runs", "watch", "failed", "--db", store, "--json").lines[-1]["outcome"] == "quarantined"
    arl("runs", "fork", "done", "--from-step", "judge", "--as", "later", "--db", store)
    assert arl("runs", "watch", "later", "--db", store, "--json").lines[-1]["outcome"] == "suspended"
    arl("runs", "cancel", "dead", "--reason", "x", "--yes", "--db", store)
    with watching("dead", "--db", store, "--json", "--until", "completed") as watch:
        assert watch.end() == (1, "")
    assert watch.changes[-1]["outcome"] == "cancelled"


def test_an_unknown_run_and_a_bad_interval_are_refused(arl: Arl, store: Path) -> None:
    assert arl("runs", "watch", "nobody", "--db", store, "--json").error["code"] == "no_run"
    assert arl("runs", "watch", "done", "--db", store, "--interval", "0").code == 2
    assert arl("runs", "watch", "done", "--db", store, "--until", "never").code == 2


# -- how it reads ------------------------------------------------------------------------------------------------------


@contextmanager
def watched(db: Path, run_id: str, **answers: Any) -> Iterator[tuple[RunWatch, list[str]]]:
    """A watch in this process, and the names of what it has asked the store's reader since."""
    store = open_sqlite(db, create=False, readonly=True)
    asked: list[str] = []

    class Counting:
        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            return answers.get(name) or getattr(store.reader(), name)

    class Store:
        location, is_run_live = store.location, staticmethod(answers.get("is_run_live") or store.is_run_live)

        def reader(self) -> Any:
            return Counting()

    try:
        yield RunWatch(Store(), run_id), asked  # type: ignore[arg-type]
    finally:
        store.close()


def test_while_the_log_stands_still_a_poll_is_one_read_of_the_head(store: Path) -> None:
    with watched(store, "dead") as (watch, asked):
        assert watch.poll() is not None
        asked.clear()
        assert [watch.poll() for _ in range(10)] == [None] * 10
        assert asked == ["head"] * 10


def test_what_other_runs_do_is_seen_in_their_leaves_and_read_no_further(store: Path) -> None:
    with watched(store, "failed") as (watch, asked):
        watch.poll()
        Audit(store, "another").run()
        asked.clear()
        assert watch.poll() is None
        assert asked == ["head", "events"]
        Audit(store, "failed").run()
        view = watch.poll()
        assert view is not None
        assert ended(view) is WatchEnd.COMPLETED


def test_after_very_many_leaves_the_run_is_read_anew_without_a_look_at_them(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_run_ledger.ledger.run_watch.MOST_LEAVES", 2)
    with watched(store, "failed") as (watch, _):
        watch.poll()
        Audit(store, "another").run()
        assert watch.poll() is not None


def test_a_run_whose_lock_was_let_go_as_it_completed_has_not_died(db: Path) -> None:
    """The row is read, the run completes and lets its lock go, the lock is asked: that is an end, not a death."""
    Audit(db, "r", ends="die").run()
    done: list[object] = []

    def complete_and_ask(run_id: str) -> bool:
        if not done:
            done.append(Audit(db, run_id).run())
        return False

    with watched(db, "r", is_run_live=complete_and_ask) as (watch, _):
        view = watch.poll()
    assert done == ["published judged"]
    assert view is not None
    assert ended(view) is WatchEnd.COMPLETED


def test_watching_disturbs_no_start(db: Path) -> None:
    ledger = RunLedger("r", db)

    @ledger.step
    def fails() -> int:
        raise ValueError("again")

    with suppress(ValueError):
        ledger.execute()
    stop, polls = threading.Event(), list[RunView | None]()

    def poll_on() -> None:
        with watched(db, "r") as (watch, _):
            while not stop.is_set():
                polls.append(watch.poll())

    watcher = threading.Thread(target=poll_on)
    watcher.start()
    try:
        for _ in range(40):
            with pytest.raises(ValueError, match="again"):
                ledger.execute()
        until(lambda: len(polls) > 40)
    finally:
        stop.set()
        watcher.join()
        ledger.close()


def test_a_change_is_told_once(store: Path) -> None:
    readonly = open_sqlite(store, create=False, readonly=True)
    row = readonly.reader().find_run("crashed")
    assert row is not None
    view = view_run(readonly, row)
    alive = view_run(LyingStore(readonly), row)  # type: ignore[arg-type]
    readonly.close()
    assert [step.definition.name for step in changed_steps(None, view)] == ["fetch", "review", "judge", "publish"]
    assert changed_steps(view, alive) == []
    assert not run_changed(view, alive)
    assert run_changed(None, view)


def test_where_not_all_steps_fit_the_most_telling_are_kept_in_their_order(store: Path) -> None:
    readonly = open_sqlite(store, create=False, readonly=True)
    row = readonly.reader().find_run("failed")
    assert row is not None
    steps = view_run(readonly, row).steps
    readonly.close()
    assert [step.state for step in steps] == [StepState.LIVE, StepState.LIVE, StepState.FAILED, StepState.WAITING]
    assert [step.definition.name for step in fitting(steps, 2)] == ["review", "judge"]
    assert fitting(steps, 4) == list(steps)
