"""Lives of an agent that thinks, refunds and thinks again, and of the person who grants the refund."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from pathlib import Path
from typing import Any

from agent_run_ledger import EffectSettings, Found, LedgerError, Lookup, Opaque, Request, RunLedger, probes
from agent_run_ledger.ledger.authority import open_effects
from agent_run_ledger.probes import reach
from agent_run_ledger.store.ledger_place import LEDGER_FILE
from agent_run_ledger.targets import http
from agent_run_ledger.testing import BodyCounter
from tests.contract.effect_run_kit import sign
from tests.fault.refund_server import HEADER

KEY, ORDER = "refund:17", 17
TRUST_FILE = "trust.json"
URL_VARIABLE, CLASS_VARIABLE, PROBE_VARIABLE = "TEST_TARGET_URL", "TEST_TARGET_CLASS", "TEST_PROBE"
WAIT_VARIABLE, RUN_VARIABLE, TAKEOVER_VARIABLE = "TEST_WAIT_S", "TEST_RUN", "TEST_TAKEOVER"
STOP_VARIABLE = "TEST_STOP_AT"
"""The point at which a life stops itself, until somebody lets it go on."""

CLASSES = ("N", "I", "opaque")
CALLED, RETURNING = "opaque.called", "opaque.returning"
"""Points within the function that is the effect."""


def executed(order: int) -> int:
    """What the server says."""
    with urllib.request.urlopen(f"{os.environ[URL_VARIABLE]}/orders/{order}", timeout=30) as answer:
        return int(json.load(answer)["executed"])


def look(lookup: Lookup) -> Found:
    """The probe: a server that has executed nothing may yet do so, which is for the ledger to know."""
    return Found.EXECUTED if executed(int(lookup.action_key.rpartition(":")[2])) else Found.NOTHING


def stop_at(point: str) -> None:
    """Let this process stop where it comes to a point, and go on from there."""
    before = probes.install(None)

    def hook(reached: str) -> None:
        if before is not None:
            before(reached)
        if reached == point:
            os.kill(os.getpid(), signal.SIGSTOP)

    probes.install(hook)


def agent(workdir: Path) -> dict[str, Any]:
    """Run the agent once; return its effect's result, or the code with which the run ends."""
    if os.environ.get(STOP_VARIABLE):
        stop_at(os.environ[STOP_VARIABLE])
    url, target_class = os.environ[URL_VARIABLE], os.environ.get(CLASS_VARIABLE, "N")
    bodies = BodyCounter(workdir / "bodies.log")
    ledger = RunLedger(
        os.environ.get(RUN_VARIABLE) or "ticket-17",
        workdir / LEDGER_FILE,
        effects=EffectSettings(trust=workdir / TRUST_FILE),
    )
    settings: dict[str, Any] = {
        "key": "refund:{order}",
        "approval": "finance",
        "successors": 3,
        "observe": look if os.environ.get(PROBE_VARIABLE) else None,
        "wait_s": float(os.environ.get(WAIT_VARIABLE) or 0),
    }

    @ledger.step
    def think(about: str) -> str:
        bodies.ran("think")
        return f"thought about {about}"

    @ledger.step
    def tell(about: str) -> str:
        bodies.ran("tell")
        return f"told about {about}"

    if target_class == "opaque":

        @ledger.effect(target=Opaque(), **settings)
        def refund(order: int) -> Any:
            body = json.dumps({"order": order}).encode()
            reach(CALLED)
            with urllib.request.urlopen(f"{url}/plain/refunds", data=body, timeout=60) as answer:
                said = json.load(answer)
            reach(RETURNING)
            return said
    else:
        keyed = target_class == "I"

        @ledger.effect(target=http(url + ("/keyed" if keyed else "/plain"), HEADER if keyed else None), **settings)
        def refund(order: int) -> Request:
            return Request.json("POST", "/refunds", {"order": order})

    try:
        with ledger, ledger.bind(ledger.run_id, takeover=bool(os.environ.get(TAKEOVER_VARIABLE))).run():
            think("order 17")
            result = refund(ORDER)
            tell(result.action_id)
    except LedgerError as error:
        return {"code": error.code}
    answer = None if result.answer is None else result.answer.decode()
    return {"action_id": result.action_id, "generation": result.generation, "answer": answer}


def person(workdir: Path) -> str:
    """Grant the newest member of the key."""
    with open_effects(workdir / LEDGER_FILE, trust_path=workdir / TRUST_FILE) as effects:
        sign(effects, KEY)
        return str(effects.inspect(KEY)[-1].state)
