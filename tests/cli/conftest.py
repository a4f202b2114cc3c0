"""Small real stores for the command line, made by the engine, and two ways to run it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import RunLedger
from agent_run_ledger.cli.main import main

COMMAND = [sys.executable, "-c", "import sys; sys.argv[0] = 'arl'; from agent_run_ledger.cli.main import run; run()"]
EDITOR = Path(__file__).parents[1] / "scenario" / "programs" / "edit_rows.py"
STEERING = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE", "PYTHONUNBUFFERED", "PYTHONIOENCODING")
HOSTILE_ERROR = "\x1b[2J\x1b]0;owned\x07 [red]not markup[/red]\nsecond line \u202e reversed"
HOSTILE_RUN = "[bold red]run[/bold red]"
HOSTILE_STEP = "[link=file:///x]step[/link]"
HOSTILE_VALUE = "line one\n\x1b[31mred\x1b[0m \u202e \x9b2J"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, as JSON."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """What it printed, as JSON Lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> dict[str, str]:
        """The error it printed as JSON."""
        return json.loads(self.err.splitlines()[-1])["error"]


Arl = Callable[..., Ended]


@pytest.fixture(autouse=True)
def _untouched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Take away what the caller's shell may have set, and stand in a folder of our own."""
    for name in list(os.environ):
        if name.startswith("AGENT_RUN_LEDGER") or name in STEERING:
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """The path of a store that does not exist yet."""
    return tmp_path / "runs.db"


@pytest.fixture
def arl(capsys: pytest.CaptureFixture[str]) -> Arl:
    """Run the command line in this process."""

    def run(*arguments: object) -> Ended:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ended(code=code, out=captured.out, err=captured.err)

    return run


@pytest.fixture
def shell(tmp_path: Path) -> Arl:
    """Run the real command in a process of its own."""

    def run(*arguments: object, **environment: str) -> Ended:
        done = subprocess.run(
            [*COMMAND, *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        return Ended(code=done.returncode, out=done.stdout, err=done.stderr)

    return run


class Audit:
    """A pipeline of four steps whose ways to end can be chosen; one object is one program."""

    def __init__(self, db: Path, run_id: str = "audit", *, prompt: str = "v1", ends: str = "ok") -> None:
        self.ledger = RunLedger(run_id=run_id, db_path=db)
        self.ran: list[str] = []

        @self.ledger.step
        def fetch(company: str) -> dict[str, Any]:
            self.ran.append("fetch")
            return {"company": company, "revenue": [1, 2, 3]}

        @self.ledger.step(depends_on=["fetch"], environment={"prompt": prompt})
        def review(report: dict[str, Any]) -> dict[str, Any]:
            self.ran.append("review")
            return {"note": f"{prompt} on {report['company']}", "year": 2026}

        @self.ledger.step(depends_on=["review"])
        def judge(note: dict[str, Any]) -> Any:
            self.ran.append("judge")
            if ends == "die":
                raise KeyboardInterrupt
            if ends == "fail":
                raise ValueError(HOSTILE_ERROR)
            if ends == "rescue":
                return {"paid": "for", "handle": object()}
            return ("judged", note["note"])

        @self.ledger.step(depends_on=["judge"])
        def publish(verdict: Any) -> str:
            self.ran.append("publish")
            return f"published {verdict[0]}"

    def run(self) -> Any:
        """Execute, give the store back, and return the result or the exception."""
        try:
            return self.ledger.execute(company="acme")
        except (Exception, KeyboardInterrupt) as error:
            return error
        finally:
            self.ledger.close()


@pytest.fixture(scope="session")
def finished_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store with a run for every way to end; made once, never changed."""
    db = tmp_path_factory.mktemp("store") / "runs.db"
    Audit(db, "done").run()
    Audit(db, "crashed", ends="die").run()
    Audit(db, "crashed").run()
    Audit(db, "dead", ends="die").run()
    Audit(db, "failed", ends="fail").run()
    Audit(db, "rescued", ends="rescue").run()
    Audit(db, "changed", prompt="v1", ends="fail").run()
    Audit(db, "changed", prompt="v2").run()
    hostile = RunLedger(run_id=HOSTILE_RUN, db_path=db)
    hostile.step(name=HOSTILE_STEP)(lambda: HOSTILE_VALUE)
    hostile.execute()
    hostile.close()
    return db


ALL_RUNS = ["done", "crashed", "dead", "failed", "rescued", "changed", HOSTILE_RUN]


@pytest.fixture
def store(finished_store: Path, db: Path) -> Path:
    """A store of this test's own, with every run of `finished_store`."""
    shutil.copy(finished_store, db)
    return db


def edit(db: Path, statement: str) -> None:
    """Change a store behind the library's back, from a process that opens nothing else."""
    subprocess.run([sys.executable, EDITOR, db, statement], check=True)


def is_safe(text: str) -> bool:
    """Whether a terminal shows the text and obeys nothing in it."""
    return all(character == "\n" or character.isprintable() for character in text)
