"""`arl runs quarantine|release|takeover|cancel`: recorded with reason and actor, asked for where it is for ever."""

from __future__ import annotations

import getpass
import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, Arl


@pytest.mark.parametrize(
    ("event", "run", "state", "generation"),
    [
        ("quarantine", "failed", "quarantined", 1),
        ("takeover", "dead", "running", 2),
        ("cancel", "failed", "cancelled", 1),
    ],
)
def test_a_decision_is_recorded_with_reason_and_actor(
    arl: Arl, store: Path, event: str, run: str, state: str, generation: int
) -> None:
    yes = [] if event == "quarantine" else ["--yes"]
    ended = arl("runs", event, run, "--reason", "it loops", "--actor", "ann", "--db", store, "--json", *yes)
    assert ended.code == 0
    assert ended.json == {
        "run_id": run, "event": event, "state": state, "generation": generation, "attempt": 1,
        "reason": "it loops", "actor": "ann", "still_running": [],
    }  # fmt: skip
    (decision,) = arl("runs", "show", run, "--db", store, "--json").json["decisions"]
    assert (decision["event"], decision["reason"], decision["actor"]) == (event, "it loops", "ann")
    assert f"{event} by ann: it loops" in arl("runs", "show", run, "--db", store).out
    assert arl("verify", "--db", store).code == 0


def test_release_follows_quarantine(arl: Arl, store: Path) -> None:
    assert arl("runs", "quarantine", "dead", "--reason", "loop", "--db", store).code == 0
    assert "quarantined" in arl("runs", "list", "--db", store, "--state", "quarantined").out
    assert arl("runs", "release", "dead", "--reason", "looked", "--db", store).code == 0
    assert arl("runs", "show", "dead", "--db", store, "--json").json["state"] == "running"


def test_the_actor_is_the_user_unless_somebody_is_named(arl: Arl, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def actor(*more: str) -> str:
        ended = arl("runs", "takeover", "dead", "--reason", "x", "--yes", "--db", store, "--json", *more)
        return str(ended.json["actor"])

    assert actor() == getpass.getuser()
    monkeypatch.setenv("AGENT_RUN_LEDGER_ACTOR", "env-person")
    assert actor() == "env-person"
    assert actor("--actor", "flag-person") == "flag-person"


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("release", "failed", "--reason", "x"), 1, "bad_transition"),
        (("cancel", "done", "--reason", "x", "--yes"), 1, "bad_transition"),
        (("quarantine", "nobody", "--reason", "x"), 1, "no_run"),
        (("quarantine", "failed", "--reason", " "), 2, "no_reason"),
        (("quarantine", "failed", "--reason", "x", "--actor", ""), 2, "no_actor"),
        (("quarantine", "failed"), 2, "usage"),
        (("cancel", "failed", "--reason", "x"), 2, "not_confirmed"),
        (("takeover", "dead", "--reason", "x"), 2, "not_confirmed"),
    ],
)
def test_what_cannot_be_decided_changes_nothing(
    arl: Arl, store: Path, arguments: tuple[str, ...], code: int, word: str
) -> None:
    before = arl("verify", "--db", store, "--json").json["leaves"]
    ended = arl("runs", *arguments, "--db", store, "--json")
    assert (ended.code, ended.error["code"], ended.out) == (code, word, "")
    assert arl("verify", "--db", store, "--json").json["leaves"] == before


def _answered(store: Path, answer: bytes, *arguments: str) -> tuple[int, str]:
    """Run a command on a terminal and answer its question."""
    terminal, its_end = pty.openpty()
    child = subprocess.Popen(
        [*COMMAND, "runs", *arguments, "--db", str(store)], stdin=its_end, stdout=its_end, stderr=its_end
    )
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
    return child.wait(60), said.decode()


def test_on_a_terminal_cancel_asks_and_no_means_no(arl: Arl, store: Path) -> None:
    code, said = _answered(store, b"\n", "cancel", "dead", "--reason", "x")
    assert code == 1
    assert "That is for ever" in said
    assert "nothing was done" in said
    assert arl("runs", "show", "dead", "--db", store, "--json").json["state"] == "running"


def test_on_a_terminal_takeover_explains_and_yes_does_it(arl: Arl, store: Path) -> None:
    code, said = _answered(store, b"y\n", "takeover", "dead", "--reason", "x")
    assert code == 0
    assert "it can write nothing more" in " ".join(said.split())
    assert arl("runs", "show", "dead", "--db", store, "--json").json["generation"] == 2


def test_a_taken_over_attempt_can_write_nothing_more(arl: Arl, db: Path) -> None:
    import threading

    from agent_run_ledger import RunLedger, Superseded

    entered, leave = threading.Event(), threading.Event()
    ledger = RunLedger(run_id="stuck", db_path=db)
    ended: list[BaseException] = []

    @ledger.step
    def hang() -> int:
        entered.set()
        leave.wait(60)
        return 1

    def work() -> None:
        try:
            ledger.execute()
        except Superseded as error:
            ended.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        assert entered.wait(60)
        assert arl("runs", "takeover", "stuck", "--reason", "hangs", "--yes", "--db", db).code == 0
    finally:
        leave.set()
        worker.join()
    assert len(ended) == 1
    assert arl("runs", "show", "stuck", "--db", db, "--json").json["attempts"][0]["end"] == "taken over"
    ledger.close()


def test_after_a_takeover_of_a_live_run_the_next_execute_goes_on_and_the_words_say_so(arl: Arl, db: Path) -> None:
    import threading
    from contextlib import suppress

    from agent_run_ledger import RunLedger, Superseded

    entered, leave = threading.Event(), threading.Event()

    def program(hangs: bool) -> RunLedger:
        ledger = RunLedger(run_id="stuck", db_path=db)

        @ledger.step
        def work() -> str:
            if hangs:
                entered.set()
                leave.wait(60)
            return "done"

        return ledger

    def work() -> None:
        with suppress(Superseded):
            stuck.execute()

    stuck = program(hangs=True)
    worker = threading.Thread(target=work)
    worker.start()
    try:
        assert entered.wait(60)
        busy = arl("runs", "explain", "stuck", "--db", db)
        assert f"or at once after `arl runs takeover stuck --reason ... --db {db}`" in busy.out
        said = arl("runs", "takeover", "stuck", "--reason", "hangs", "--yes", "--db", db)
        assert "and the next execute() goes on" in said.out
        told = arl("runs", "explain", "stuck", "--db", db, "--json").json
        assert (told["live_attempt"], told["next_execute"]) == (True, "goes_on")
        out = arl("runs", "show", "stuck", "--db", db).out
        assert "running (taken over)" in out
        assert "? uncertain  work" in out
        with program(hangs=False) as other:
            assert other.execute() == "done"
    finally:
        leave.set()
        worker.join()
        stuck.close()
    assert arl("runs", "list", "--db", db, "--json").json["runs"][0]["state"] == "completed"


def test_a_decision_leaves_the_durability_of_a_store_as_it_was_made(arl: Arl, db: Path) -> None:
    from agent_run_ledger import RunLedger

    with RunLedger(run_id="r", db_path=db, durability="extra") as ledger:
        ledger.step(name="one")(lambda: 1)
        ledger.execute()
    for arguments in (("init",), ("runs", "list"), ("runs", "cancel", "r", "--reason", "x", "--yes")):
        arl(*arguments, "--db", db)
    assert arl("doctor", "--db", db, "--json").json["numbers"]["journal_mode"] == "delete"
