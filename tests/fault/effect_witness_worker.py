"""One worker process that hands out the listed actions under a witness which is a file, shared and slow at random."""

from __future__ import annotations

import fcntl
import json
import random
import sys
import time
from hashlib import sha256
from pathlib import Path

from agent_run_ledger import EffectLedger, Pending, Unavailable
from agent_run_ledger.effects import Actor, Heard, Role, Seen, WitnessPolicy

EXE = Actor("exe", frozenset({Role.EXECUTOR}))
JITTER_S = 0.01


class FileWitness:
    """An honest one: it keeps the largest size in a file, and its answer takes its time on the way there."""

    policy = WitnessPolicy.FILE

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    def extend(self, size: int, root: bytes) -> Heard:
        """See ports.effects.Witness."""
        time.sleep(random.random() * JITTER_S)
        with self._path.open("r+", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            known = int(file.read() or 0)
            if size < known:
                return Heard(Seen.AHEAD, known)
            file.seek(0)
            file.write(str(size))
            file.flush()
            return Heard(Seen.CURRENT, size)


def main(path: str, witness: str, listed: str) -> None:
    """Claim, prepare and hand out each action; what only waits is asked again, all else ends the process."""
    ids = [bytes.fromhex(line) for line in Path(listed).read_text(encoding="ascii").split()]
    digest, handed = sha256(b"{}").digest(), 0
    with EffectLedger(path, wait_s=120.0, witness=FileWitness(Path(witness))) as ledger:
        print("ready", flush=True)
        sys.stdin.readline()
        for action_id in ids:
            grant = ledger.claim(EXE, action_id, worker=listed, request_sha256=digest)
            while handed < len(ids):
                try:
                    ledger.prepare(EXE, action_id, claim_id=grant.claim_id, worker=listed)
                    handed += ledger.hand_out(EXE, action_id, claim_id=grant.claim_id, worker=listed).handed_now
                    break
                except (Pending, Unavailable):
                    continue
        print(json.dumps([handed, ledger.status().state]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
