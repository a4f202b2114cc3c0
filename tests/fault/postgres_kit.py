"""Cases at a server under fire: hosts as processes, a target that counts, approved actions, and what is on record."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

from agent_run_ledger import EffectLedger, Request
from agent_run_ledger.effects import ActionState, ActionView, DoubtBy, request_bytes
from agent_run_ledger.store import open_store
from agent_run_ledger.testing import check_ledger
from agent_run_ledger.targets import http
from tests.fault.effect_kit import OPERATOR, Line, broken, intent, log_of, ready
from tests.fault import postgres_hosts as hosts

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


def propose(url: str, *keys: str, target: str = "") -> None:
    """Have an action of each key proposed and approved: a refund at `target`, or what nobody sends."""
    with EffectLedger(url=url) as ledger:
        for key in keys:
            body = request_bytes(Request.json("POST", "/plain/refunds", {"order": 17})) if target else hosts.BODY
            wanted = intent(body, end_ms=FOREVER_MS)
            ready(ledger, key, replace(wanted, audience=http(target).audience) if target else wanted)


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


def results_of(url: str, run_id: str) -> Counter[str]:
    """How many results each step of a run has on record."""
    from agent_run_ledger import RunLedger
    from agent_run_ledger.kernel.record import RecordKind
    from tests.contract.run_kit import records_of

    with RunLedger(run_id, url=url) as ledger:
        ledger._opened.context()
        return Counter(
            f"{run_id}:{at}" if one.name == "step" else one.name
            for at, one in enumerate(records_of(ledger, RecordKind.RESULT, run_id=run_id))
        )
