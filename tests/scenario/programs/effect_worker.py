"""Another process for tests of effects: it has the ledger open and does what each line on stdin says."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from agent_run_ledger import probes
from agent_run_ledger.errors import LedgerError
from agent_run_ledger.kernel.effects.reading import Sample
from agent_run_ledger.ledger.effect_ledger import EffectLedger
from agent_run_ledger.store import open_sqlite
from tests.scenario.effect_room import DURABILITY, EXECUTOR, KEY, REQUEST_SHA256, FileTicks, executor


class Worker:
    """One worker of the one action: it keeps the claim that it was given."""

    def __init__(self, folder: Path, name: str, wait_s: float) -> None:
        self.name = name
        self.trace: list[str] = []
        self.action_id = self.claim_id = b""
        self._db = folder / "ledger.db"
        self._clock = FileTicks(folder / "clock")
        self.ledger = EffectLedger(self._db, durability=DURABILITY, time=self, wait_s=wait_s)

    def sample(self) -> Sample:
        """See ports.effects.TimeSource.sample; the trace has when it was asked."""
        self.trace.append("clock")
        return self._clock.sample()

    def reached(self, point: str, die_at: str) -> None:
        """Be the probes' hook."""
        self.trace.append(point)
        if point == "effect.before":
            _say({"asking": True})
        if point == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def look(self) -> None:
        """Find the action as it is now."""
        self.action_id = self.ledger.inspect(KEY)[-1].action_id

    def claim(self, claim_key: str | None = None) -> dict[str, Any]:
        """Claim the action."""
        grant = self.ledger.claim(
            executor(EXECUTOR),
            self.action_id,
            worker=self.name,
            request_sha256=REQUEST_SHA256,
            claim_key=None if claim_key is None else claim_key.encode(),
        )
        self.claim_id = grant.claim_id
        return {"granted": grant.granted_now, "claim_id": grant.claim_id.hex()}

    def prepare(self) -> dict[str, Any]:
        """Prepare the claim."""
        self.ledger.prepare(executor(EXECUTOR), self.action_id, claim_id=self.claim_id, worker=self.name)
        return {"prepared": True}

    def hold(self) -> dict[str, Any]:
        """Stand in a transaction until the next line, whose tick it is from then on, and change nothing."""

        def inside(_: object) -> None:
            _say({"holding": True})
            self._clock.put(json.loads(sys.stdin.readline())["tick"])

        with closing(open_sqlite(self._db, create=False, durability=DURABILITY)) as store:
            store.transact(os.urandom(16), inside)
        return {"held": True}


def _say(words: dict[str, Any]) -> None:
    print(json.dumps(words), flush=True)


def main(folder: str, name: str, wait_s: str) -> None:
    """Serve one parent until it closes stdin."""
    worker = Worker(Path(folder), name, float(wait_s))
    deeds: dict[str, Callable[..., dict[str, Any]]] = {
        "claim": worker.claim,
        "prepare": worker.prepare,
        "hold": worker.hold,
    }
    _say({"open": True})
    for line in sys.stdin:
        asked = json.loads(line)
        deed, die_at = deeds[asked.pop("do")], asked.pop("die_at", "")
        worker.look()  # a view reads the clock too: before the trace
        worker.trace.clear()
        probes.install(lambda point, die_at=die_at: worker.reached(point, die_at))  # type: ignore[misc]
        try:
            answer = {"code": "", **deed(**asked)}
        except LedgerError as error:
            answer = {"code": error.code, "error": type(error).__name__}
        probes.install(None)
        _say({**answer, "trace": worker.trace})


if __name__ == "__main__":
    main(*sys.argv[1:])
