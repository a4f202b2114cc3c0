"""The story of one refund: asked for, approved, paid, killed, found out; and the same without the ledger."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent_run_ledger.demo.history import verified
from agent_run_ledger.demo.refund.agent import DATABASE, RUN_ID
from agent_run_ledger.demo.refund.service import read_book
from agent_run_ledger.effects.signing import sign_approval
from agent_run_ledger.errors import Refused, Unavailable
from agent_run_ledger.kernel.effects.display import display
from agent_run_ledger.keys import read_key
from agent_run_ledger.ledger.authority import now_here, open_effects, trust_path_of
from agent_run_ledger.ledger.local_authority import APPROVER_KEY, make_local
from agent_run_ledger.ledger.local_trust import local_folder
from agent_run_ledger.store import open_sqlite

APPROVER: Final = "you"
NONCE_BYTES: Final = 16
MOST_FOLDERS: Final = 1_000
DEFAULT_FOLDER: Final = "arl-demo-effect"
LIFE_S: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One process of the agent: what it told, and the signal that ended it, 0 for none."""

    number: int
    events: tuple[dict[str, Any], ...]
    signal: int

    @property
    def thoughts(self) -> int:
        """How many model calls it paid."""
        return sum(one["event"] == "thought" for one in self.events)

    @property
    def last(self) -> dict[str, Any]:
        """What it told last."""
        return self.events[-1] if self.events else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What happened. `paid` and `paid_without`: the refunds in the service's own book, with the ledger and without.

    `shown` is what was signed, `evidence` how many pieces of it are on record, `log_size` and `root_hex` the verified
    log.
    """

    folder: Path
    database: Path
    lives: tuple[Life, ...]
    lives_without: tuple[Life, ...]
    action_id: str
    shown: str
    status: str
    evidence: int
    paid: int
    paid_without: int
    log_size: int
    root_hex: str
    not_protected: tuple[str, ...]


Tell = Callable[[str], None]


def tell_story(output: Path | None, say: Tell) -> Told:
    """Play the story in real processes and return what happened. `say` gets a sentence as each part is over.

    Everything is kept in `output`, by default a new folder here. Refused("folder_not_empty"); Unavailable for a part
    that ended otherwise than it does.
    """
    folder = _folder(output)
    database = folder / DATABASE
    store = open_sqlite(database, create=True, authority=True)
    log_id = store.log_id
    store.close()
    make_local(database, log_id, name=APPROVER, now=now_here())
    open_effects(database, trust_path=trust_path_of(database)).close()  # puts it in use
    with_ledger, without = folder / "service", folder / "service-without"
    with_ledger.mkdir()
    without.mkdir()
    with _service(with_ledger) as url:
        say("The agent reads the ticket and asks for a refund of 30.00 for order 17.")
        first = _live(folder, url, 1)
        action_id = str(first.last.get("action_id", ""))
        _expect(first, waits="approval_pending")
        say("Nothing was sent: the run is suspended, which costs nothing. You sign exactly these bytes:")
        shown = _approve(database, bytes.fromhex(action_id), say)
        second = _live(folder, url, 2, kill=True)
        if not second.signal or len(read_book(with_ledger)) != 1:
            raise Unavailable("the second life was to be killed after the service had paid", code="not_killed")
        say("The agent goes on and sends it. The service pays, and the agent is killed before it can write that down.")
        third = _live(folder, url, 3)
        _expect(third, completed=True)
        say("Started again, it sends nothing: it asks the service, finds the refund, and records that as evidence.")
    with _service(without) as url:
        lives = (_live(folder, url, 1, kill=True, without=True), _live(folder, url, 2, without=True))
        say("The same agent without the ledger, killed at the same place and started again, pays twice.")
    return _told(folder, (first, second, third), lives, action_id, shown)


def _folder(output: Path | None) -> Path:
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        if any(output.iterdir()):
            raise Refused(f"{str(output)!r} is not empty", code="folder_not_empty", hint="choose another --output")
        return output.resolve()
    for number in range(1, MOST_FOLDERS):
        folder = Path(DEFAULT_FOLDER if number == 1 else f"{DEFAULT_FOLDER}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder.resolve()
    raise Refused(f"there are {MOST_FOLDERS} folders {DEFAULT_FOLDER}-N here", code="no_folder", hint="give --output")


@contextmanager
def _service(folder: Path) -> Generator[str]:
    """Run the payment service as long as the block lasts, and give its address."""
    command = [sys.executable, "-P", "-m", "agent_run_ledger.demo.refund.service", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            line = child.stdout.readline() if child.stdout is not None else b""
            if not line:
                raise Unavailable("the demo's payment service did not start", code="no_service")
            yield f"http://127.0.0.1:{json.loads(line)['port']}"
        finally:
            if child.stdin is not None:
                child.stdin.close()
            try:
                child.wait(timeout=10)
            except subprocess.TimeoutExpired:
                child.kill()


def _live(folder: Path, url: str, number: int, *, kill: bool = False, without: bool = False) -> Life:
    command = [sys.executable, "-P", "-m", "agent_run_ledger.demo.refund.agent", "--folder", str(folder), "--url", url]
    command += [*(["--kill"] if kill else []), *(["--without"] if without else [])]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIFE_S, check=False)
    if done.returncode > 0:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise Unavailable(f"life {number} failed: {''.join(last)[:300]}", code="life_ended")
    events = tuple(json.loads(line) for line in done.stdout.splitlines())
    return Life(number=number, events=events, signal=max(0, -done.returncode))


def _expect(life: Life, *, waits: str = "", completed: bool = False) -> None:
    said = life.last
    if (waits and said.get("code") != waits) or (completed and said.get("event") != "completed"):
        raise Unavailable(f"life {life.number} ended with {said!r:.200}", code="life_ended")


def _approve(database: Path, action_id: bytes, say: Tell) -> str:
    """Sign what is asked for with the local approver's key, as `arl approvals grant` does."""
    key = read_key(local_folder(database) / APPROVER_KEY)
    with open_effects(database) as ledger:
        stored = ledger.request(action_id)
        shown = display(stored)
        say(shown.rstrip("\n"))
        statement = ledger.statement(action_id, approver=APPROVER, nonce=os.urandom(NONCE_BYTES))
        ledger.grant(sign_approval(statement, key, request=stored, display=shown.encode("utf-8")))
    return shown


def _told(folder: Path, lives: tuple[Life, ...], without: tuple[Life, ...], action_id: str, shown: str) -> Told:
    database = folder / DATABASE
    with open_effects(database) as ledger:
        view, unprotected = ledger.get(bytes.fromhex(action_id)), ledger.status().not_protected
    proof = verified(database)
    return Told(
        folder=folder,
        database=database,
        lives=lives,
        lives_without=without,
        action_id=action_id,
        shown=shown,
        status=view.status,
        evidence=len(view.evidence),
        paid=len(read_book(folder / "service")),
        paid_without=len(read_book(folder / "service-without")),
        log_size=proof.log_size,
        root_hex=proof.root_hex,
        not_protected=(view.guarantee, *unprotected),
    )


__all__ = ["RUN_ID", "Life", "Told", "tell_story"]
