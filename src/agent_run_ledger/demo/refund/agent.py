"""One life of the refunding agent: with the ledger, or, for comparison, with nothing but the same calls."""

from __future__ import annotations

import argparse
import json
import os
import signal
import urllib.request
from pathlib import Path
from typing import Any

from agent_run_ledger import (
    EffectPending,
    EffectResult,
    Found,
    Lookup,
    Request,
    RunLedger,
    http,
    probes,
    report_usage,
)
from agent_run_ledger.ledger.local_authority import POLICY

RUN_ID = "ticket-17"
ORDER, CENTS = 17, 3_000
DATABASE = "refund.db"
THOUGHT_TOKENS = 1_200


def say(**words: Any) -> None:
    """Tell the driver something."""
    print(json.dumps(words), flush=True)


def die() -> None:
    """Be killed as a machine kills: nothing is cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)


def paid_for(url: str, order: int) -> list[dict[str, Any]]:
    """Ask the service which refunds of an order it paid."""
    with urllib.request.urlopen(f"{url}/refunds?order={order}", timeout=10) as answer:
        found: list[dict[str, Any]] = json.load(answer)
    return found


def with_ledger(folder: Path, url: str, *, kill: bool) -> None:
    """Read the ticket, refund, tell the customer. `kill`: after the service paid, before that is on record."""
    ledger = RunLedger(RUN_ID, folder / DATABASE)

    @ledger.step
    def think(about: str) -> str:
        say(event="thought", about=about)
        report_usage(model="scripted", input_tokens=THOUGHT_TOKENS, output_tokens=80)
        return f"decided about {about}"

    def look(lookup: Lookup) -> Found:
        paid = paid_for(url, ORDER)
        say(event="looked", paid=len(paid))
        return Found.EXECUTED if paid else Found.UNKNOWN

    @ledger.effect(key="refund:{order}", target=http(url), approval=POLICY, observe=look)
    def refund(order: int, cents: int) -> Request:
        return Request.json("POST", "/refunds", {"order": order, "cents": cents})

    if kill:
        probes.install(lambda point: die() if point == "dispatch.sent" else None)
    try:
        with ledger, ledger.run():
            think("the ticket")
            result: EffectResult = refund(ORDER, CENTS)
            think("the answer to the customer")
    except EffectPending as waits:
        say(event="waits", code=waits.code, action_id=waits.action_id)
        return
    say(event="completed", action_id=result.action_id, answer=result.json())


def without(folder: Path, url: str, *, kill: bool) -> None:
    """Do the same with nothing in between."""
    say(event="thought", about="the ticket")
    body = json.dumps({"order": ORDER, "cents": CENTS}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{url}/refunds", body), timeout=10) as answer:
        paid = json.load(answer)
    if kill:
        die()
    say(event="thought", about="the answer to the customer")
    say(event="completed", answer=paid)


def main() -> None:
    """Live once."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--without", action="store_true")
    chosen = parser.parse_args()
    (without if chosen.without else with_ledger)(chosen.folder, chosen.url, kill=chosen.kill)


if __name__ == "__main__":
    main()
