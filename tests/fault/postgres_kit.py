"""Cases at a server under fire: hosts as processes, a target that counts, approved actions, and what is on record."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

from agent_run_ledger import EffectLedger, Request, RunLedger
from agent_run_ledger.effects import ActionState, ActionView, DoubtBy, request_bytes
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.store import open_store
from agent_run_ledger.testing import check_ledger
from tests.contract.run_kit import records_of
from tests.fault import postgres_hosts as hosts
from tests.fault.effect_kit import OPERATOR, Line, broken, intent, log_of, ready

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60.0
FOREVER_MS = 1 << 52


class Host:
    """One process of postgres_hosts, whose lines are read as they come."""

    def __init__(self, what: str, url: str, *arguments: object, **environment: str) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-m", hosts.__name__, what, url, *map(str, arguments)],
            cwd=ROOT, env={**os.environ, **environment}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.lines: list[str] = []
        self._wrong: list[str] = []
        self._readers = [
            threading.Thread(target=lambda: self.lines.extend(self._of(self.child.stdout)), daemon=True),
            threading.Thread(target=lambda: self._wrong.extend(self._of(self.child.stderr)), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _of(self, stream: object) -> Iterator[str]:
        for line in stream:  # type: ignore[attr-defined]
            yield line.rstrip("\n")

    def said(self, word: str) -> list[str]:
        """What it said after a word, in order."""
        return [line.partition(" ")[2] for line in list(self.lines) if line.partition(" ")[0] == word]

    def until(self, true: Callable[[], bool]) -> Self:
        """Wait for something while it lives, or at its end."""
        deadline = time.monotonic() + TIMEOUT_S
        while not true():
            over = self.child.poll() is not None
            if over and not true():
                self._join()
                assert true(), self.story()
                return self
            assert time.monotonic() < deadline, self.story()
            time.sleep(0.01)
        return self

    def until_said(self, *words: object) -> Self:
        """Wait for a line."""
        line = " ".join(map(str, words))
        return self.until(lambda: any(one.startswith(line) for one in list(self.lines)))

    def stopped(self) -> Self:
        """Wait until it has stopped itself."""
        status = Path(f"/proc/{self.child.pid}/stat")
        return self.until(lambda: status.read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "T")

    def stop(self) -> Self:
        """Let it stand still, as a host that is paused."""
        self.child.send_signal(signal.SIGSTOP)
        return self.stopped()

    def go_on(self) -> Self:
        """Let it go on where it was."""
        self.child.send_signal(signal.SIGCONT)
        return self

    def tell(self) -> Self:
        """Let a body that stands still go on."""
        assert self.child.stdin is not None
        self.child.stdin.write("go\n")
        self.child.stdin.flush()
        return self

    def kill(self) -> Self:
        """Kill it."""
        self.child.kill()
        return self.until_over()

    def until_over(self) -> Self:
        """Wait until it has ended, however."""
        self.child.wait(TIMEOUT_S)
        self._join()
        return self

    def end(self) -> list[str]:
        """Wait for its end and return its lines."""
        self.until_over()
        assert self.child.returncode == 0, self.story()
        return self.lines

    def story(self) -> str:
        """All that it said."""
        return "\n".join([*self.lines, *self._wrong])

    def _join(self) -> None:
        for reader in self._readers:
            reader.join(TIMEOUT_S)

    def clean(self) -> None:
        """Leave nothing of it."""
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()
        self._join()
        for stream in (self.child.stdin, self.child.stdout, self.child.stderr):
            if stream is not None:
                stream.close()


class Hosts:
    """All hosts of a test; none outlives it."""

    def __init__(self) -> None:
        self._made: list[Host] = []

    def __call__(self, what: str, url: str, *arguments: object, **environment: str) -> Host:
        self._made.append(Host(what, url, *arguments, **environment))
        return self._made[-1]

    def clean(self) -> None:
        """Kill them all."""
        for host in self._made:
            host.clean()


@contextmanager
def some_hosts() -> Iterator[Hosts]:
    """A maker of hosts."""
    made = Hosts()
    try:
        yield made
    finally:
        made.clean()


def make_store(url: str) -> str:
    """A store with authority, closed; its URL."""
    open_store(url, create=True, authority=True).close()
    return url


def propose(url: str, *keys: str, target: str = "", end_ms: int = FOREVER_MS) -> None:
    """Have an action of each key proposed and approved: a refund at `target`, or what nobody sends."""
    with EffectLedger(url=url) as ledger:
        for key in keys:
            body = request_bytes(Request.json("POST", "/plain/refunds", {"order": 17})) if target else hosts.BODY
            wanted = intent(body, end_ms=end_ms)
            ready(ledger, key, replace(wanted, audience=hosts.way_to(target).audience) if target else wanted)


def newest(url: str, key: str) -> ActionView:
    """The newest member of a key."""
    with EffectLedger(url=url) as ledger:
        return ledger.inspect(key)[-1]


def doubt(url: str, key: str) -> ActionState:
    """Have an operator put on record that nobody knows what became of it."""
    with EffectLedger(url=url) as ledger:
        view = ledger.inspect(key)[-1]
        return ledger.doubt(OPERATOR, view.action_id, by=DoubtBy.OPERATOR).state


def checked_log(url: str) -> list[Line]:
    """Every transition of an effect, after a look at everything: no invariant is broken, and the ledger holds."""
    check_ledger(url)
    lines = log_of(url)
    assert list(broken(lines)) == []
    return lines


def results_of(url: str, run_id: str) -> list[str]:
    """The names of a run's results, in order."""
    with RunLedger(run_id, url=url) as ledger:
        return [one.name for one in records_of(ledger, RecordKind.RESULT, run_id=run_id)]


def nothing_is_lost(url: str, running: list[Host], runs: int, *, strikes: int = 1) -> None:
    """Each step is on record once, and its body ran again only where its host had not been told that it is there.

    `strikes`: how often a host was struck, each time within one step at most.
    """
    for one in running:
        names = one.said("completed")
        assert len(names) == runs
        with RunLedger(url=url) as ledger:
            assert {ledger.bind(name).state for name in names} == {RunState.COMPLETED}
            for name in names:
                assert results_of(url, name) == ["step"] * hosts.STEPS
        told: set[str] = set()
        again = 0
        ran: set[str] = set()
        for line in one.lines:
            word, _, call = line.partition(" ")
            if word == "recorded":
                told.add(call)
            elif word == "body":
                assert call not in told, f"{call} was told to be on record, and ran again"
                again += call in ran
                ran.add(call)
        assert told == {f"{name}:{at}" for name in names for at in range(hosts.STEPS)}
        assert again <= strikes, f"{again} bodies ran again, of at most {strikes} that were under way"


def nothing_is_claimed_twice(url: str, claiming: list[Host], keys: int) -> None:
    """Each action has one claim, that of whoever was told so; every hand-out that was told is on record."""
    lines = checked_log(url)
    claims = {line.row["action_key"]: line.row["claim_id"] for line in lines if line.kind == "Claim"}
    assert len(claims) == sum(line.kind == "Claim" for line in lines) == keys
    handed = {f"{line.row['action_key']} {line.row['claim_id']}" for line in lines if line.kind == "HandOut"}
    for one in claiming:
        for told in (*one.said("claimed"), *one.said("prepared")):
            key, claim_id = told.split()
            assert claims[key] == claim_id, "what was confirmed is there, and nobody else's"
        assert set(one.said("handed")) <= handed
