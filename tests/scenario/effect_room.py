"""One ledger with one action for the tests of the execution lab, a clock of ticks in a file, and worker processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

from agent_run_ledger.kernel.effects import Action, ActionState, Role, TargetClass
from agent_run_ledger.kernel.effects.approval import VerifiedApproval, statement_sha256
from agent_run_ledger.kernel.effects.commands import Actor
from agent_run_ledger.kernel.effects.reading import Sample
from agent_run_ledger.kernel.effects.record import transition_from
from agent_run_ledger.ledger.effect_ledger import ActionView, EffectLedger, Grant, Intent
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.testing import check_ledger

ROOT = Path(__file__).resolve().parents[2]
EDITOR = ROOT / "tests" / "scenario" / "programs" / "edit_rows.py"

DURABILITY = "extra"
KEY = "ticket-7/close"
EXECUTOR = "exe"
REQUEST = b'{"authorization":"not_established","close":7}'
REQUEST_SHA256 = sha256(REQUEST).digest()
BEFORE, BEGIN, INSIDE, LAST, END = 5, 10, 12, 19, 20
"""Ticks: the window is BEGIN <= now < END."""

REQUESTER = Actor("ann", frozenset({Role.REQUESTER}))
APPROVER = Actor("bob", frozenset({Role.APPROVER}))
REVOKER = Actor("rev", frozenset({Role.REVOKER}))
OPERATOR = Actor("ops", frozenset({Role.OPERATOR}))


def executor(name: str = EXECUTOR) -> Actor:
    """Who carries things out."""
    return Actor(name, frozenset({Role.EXECUTOR}))


def intent(request: bytes = REQUEST) -> Intent:
    """What is asked for with these bytes."""
    return Intent(
        request=request,
        executor=EXECUTOR,
        audience="https://tickets.example",
        target_class=TargetClass.N,
        not_before_ms=BEGIN,
        dispatch_before_ms=END,
        policy_sha256=bytes(32),
        display_sha256=bytes(32),
    )


def approval_of(ledger: EffectLedger, action_id: bytes, approval_id: bytes = b"approval of bob.") -> VerifiedApproval:
    """Bob's approval of an action, whose signature nobody verifies here."""
    statement = ledger.statement(action_id, approver="bob", nonce=b"one instance, 16")
    return VerifiedApproval(
        approval_id=approval_id, statement=statement, signed_sha256=statement_sha256(statement), principal="bob"
    )


class FileTicks:
    """A clock of ticks that all processes read from one file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def put(self, tick: int) -> None:
        """Let it be `tick` for everybody."""
        partial = self._path.with_suffix(f".{os.getpid()}")
        partial.write_text(str(tick))
        partial.replace(self._path)

    def sample(self) -> Sample:
        """See ports.effects.TimeSource.sample."""
        tick = int(self._path.read_text())
        return Sample(wall_ms=tick, uptime_ms=tick, boot="room")


class Room:
    """A folder with a ledger, whose one action is proposed, and approved where `approved`, before its window."""

    def __init__(self, folder: Path, *, approved: bool = True) -> None:
        self.folder = folder
        self.db = folder / "ledger.db"
        self.clock = FileTicks(folder / "clock")
        self.clock.put(BEFORE)
        open_sqlite(self.db, create=True, authority=True, durability=DURABILITY).close()
        with self.open() as ledger:
            self.action_id = ledger.propose(REQUESTER, KEY, intent()).action_id
            if approved:
                ledger.approve(APPROVER, self.action_id, approval_of(ledger, self.action_id))
        self.clock.put(INSIDE)

    def open(self) -> EffectLedger:
        """The ledger, opened in this process."""
        return EffectLedger(self.db, durability=DURABILITY, time=self.clock)

    def claim(self, ledger: EffectLedger, worker: str = "w1", **changes: Any) -> Grant:
        """Claim it in this process."""
        asked: dict[str, Any] = {"actor": executor(), "request_sha256": REQUEST_SHA256, **changes}
        return ledger.claim(action_id=self.action_id, worker=worker, **asked)

    def prepare(self, ledger: EffectLedger, grant: Grant, worker: str = "w1") -> ActionView:
        """Prepare a claim in this process."""
        return ledger.prepare(executor(), self.action_id, claim_id=grant.claim_id, worker=worker)

    def worker(self, name: str, *, wait_s: float = 60.0) -> WorkerProcess:
        """A process of its own that has the ledger open."""
        return WorkerProcess(self.folder, name, wait_s)

    def view(self) -> ActionView:
        """Where the action stands, through an opening of its own."""
        with self.open() as ledger:
            return ledger.get(self.action_id)

    @property
    def state(self) -> ActionState:
        """Its state."""
        return self.view().state

    def behind_its_back(self, statement: str) -> None:
        """Change the database in a process that knows no ledger."""
        subprocess.run([sys.executable, EDITOR, self.db, statement], check=True, capture_output=True)

    def standing(self) -> tuple[int, Action]:
        """The number of leaves and the row; the row is what its last transition left, and each has a leaf."""
        check_ledger(self.db)
        with closing(open_sqlite(self.db, create=False, durability=DURABILITY)) as store:
            reader = store.reader()
            rows = [one.action for one in reader.effects.members(KEY)]
            records = [one for row in rows for one in reader.effects.transitions(row.action_id)]
            assert len(records) == reader.effects.count_transitions() == reader.head().size - LEAVES_OF_A_STORE
            assert {one.leaf_index for one in records} == set(range(LEAVES_OF_A_STORE, reader.head().size))
            for row in rows:
                last = reader.effects.transitions(row.action_id)[-1]
                assert transition_from(last.payload).row == row
            return reader.head().size, rows[-1]


LEAVES_OF_A_STORE = 2
"""Its creation, and its authority."""


class WorkerProcess:
    """See programs.effect_worker. Use as a context manager: it never outlives its test."""

    def __init__(self, folder: Path, name: str, wait_s: float) -> None:
        command = [sys.executable, "-m", "tests.scenario.programs.effect_worker", str(folder), name, str(wait_s)]
        pipe = subprocess.PIPE
        self._child = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def __enter__(self) -> WorkerProcess:
        assert self.hear() == {"open": True}
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.communicate()

    def say(self, **words: Any) -> None:
        """Send one line."""
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(words) + "\n")
        self._child.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """The next thing it says."""
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            _, errors = self._child.communicate()
            raise AssertionError(f"the worker ended with {self._child.returncode}: {errors[-2000:]}")
        return json.loads(line)

    def answer(self) -> dict[str, Any]:
        """What came of the last order."""
        while "code" not in (said := self.hear()):
            pass
        return said

    def do(self, deed: str, **words: Any) -> dict[str, Any]:
        """Order something and wait for what comes of it."""
        self.say(do=deed, **words)
        return self.answer()

    def die(self, deed: str, at: str) -> None:
        """Order something in the middle of which it kills itself."""
        self.say(do=deed, die_at=at)
        self._child.wait(timeout=120)
        assert self._child.returncode == -signal.SIGKILL
