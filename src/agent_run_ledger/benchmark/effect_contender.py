"""A child process that is one of many workers of one store's actions, and tells what it claimed and when."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Sequence

from agent_run_ledger.benchmark.children import READY
from agent_run_ledger.benchmark.effect_work import Approved, carry_out, claim
from agent_run_ledger.errors import LedgerError, Refused
from agent_run_ledger.ledger.effect_ledger import EffectLedger


def work(ledger: EffectLedger, actions: Sequence[Approved], worker: str) -> tuple[list[str], Counter[str]]:
    """Take every action that nobody took yet to its end; return the keys claimed, and other refusals by code."""
    claimed: list[str] = []
    errors: Counter[str] = Counter()
    for one in actions:
        try:
            claim_id = claim(ledger, one, worker)
            claimed.append(one.key)
            carry_out(ledger, one, claim_id, worker, hand_out=False)
        except Refused as refused:
            if refused.code not in ("claimed", "prepared", "succeeded"):
                errors[refused.code] += 1
        except LedgerError as error:
            errors[error.code] += 1
    return claimed, errors


def main(arguments: Sequence[str]) -> None:
    """Set up, say READY, wait for the end of standard input, work, and print as JSON: PATH WORKER ACTIONS."""
    path, worker = arguments[0], arguments[1]
    with open(arguments[2], encoding="utf-8") as listed:
        actions = [Approved(key=key, action_id=bytes.fromhex(action_id)) for key, action_id in json.load(listed)]
    with EffectLedger(path) as ledger:
        print(READY, flush=True)
        sys.stdin.read()
        started = time.monotonic()
        claimed, errors = work(ledger, actions, worker)
        ended = time.monotonic()
    print(json.dumps({"started_s": started, "ended_s": ended, "claimed": claimed, "errors": errors}))


if __name__ == "__main__":
    main(sys.argv[1:])
