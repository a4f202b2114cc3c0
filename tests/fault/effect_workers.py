"""One worker process that tries to claim every listed action once and says which it was granted."""

from __future__ import annotations

import json
import sys
from hashlib import sha256
from pathlib import Path

from agent_run_ledger import EffectLedger, Refused
from agent_run_ledger.effects import Actor, Role

EXE = Actor("exe", frozenset({Role.EXECUTOR}))


def main(path: str, listed: str, name: str, whole: str) -> None:
    """Claim them in an order of its own; with `whole` each one goes on to its preparation and hand-out."""
    ids = [bytes.fromhex(line) for line in Path(listed).read_text(encoding="ascii").split()]
    turn = int(name) * len(ids) // 10
    granted, refused, errors = [], 0, []
    digest = sha256(b"{}").digest()
    with EffectLedger(path, wait_s=120.0) as ledger:
        print("ready", flush=True)
        sys.stdin.readline()
        for action_id in ids[turn:] + ids[:turn]:
            try:
                grant = ledger.claim(EXE, action_id, worker=name, request_sha256=digest)
                if whole:
                    ledger.prepare(EXE, action_id, claim_id=grant.claim_id, worker=name)
                    ledger.hand_out(EXE, action_id, claim_id=grant.claim_id, worker=name)
                granted.append(action_id.hex())
            except Refused as error:
                refused += error.code in ("claimed", "prepared")
            except Exception as error:
                errors.append(repr(error))
    print(json.dumps({"granted": granted, "refused": refused, "errors": errors}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
