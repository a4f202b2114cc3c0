"""Requests, keys and reports in values that never change: what their golden files are made of."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from agent_run_ledger.kernel.effects.display import display, display_sha256
from agent_run_ledger.kernel.effects.evidence import Found
from agent_run_ledger.kernel.effects.idempotency import idempotency_key
from agent_run_ledger.kernel.effects.report import Answered, report_bytes
from agent_run_ledger.kernel.effects.request import Call, Request, request_bytes

REQUESTS: tuple[Request | Call, ...] = (
    Request.json(
        "POST",
        "/v1/refunds?dry=no",
        {"order": "17", "cents": 3000, "note": "für Ann\u202e\n", "lines": [1, [], {"a": {}}]},
        headers={"X-Tenant": "7"},
    ),
    Request.bytes("DELETE", "/v1/orders/17"),
    Request.bytes("PUT", "/notes/a%20b", b"one\\two\r\n| POST /evil\n", content_type="text/plain"),
    Request.bytes("PUT", "/raw", bytes(range(250, 256)) + b"raw" * 12),
    Request.bytes("POST", "/twice", b'{"a":1,"a":2}', content_type="application/json"),
    Call.of("shop.refund", {"order": "17", "share": 0.5}),
)
LEDGER_ID = bytes.fromhex("00112233445566778899aabbccddeeff")
KEYS = ((LEDGER_ID, "tenant-7/invoice-0042", 1), (LEDGER_ID, "tenant-7/invoice-0042", 2), (bytes(16), "für", 1))
REPORTS = (
    Answered(found=Found.EXECUTED, status=201, body_sha256=sha256(b"done").digest(), body=b"done"),
    Answered(found=Found.UNKNOWN, status=409, body_sha256=sha256(b"").digest()),
    Answered(found=Found.EXECUTED, status=None, body_sha256=sha256(b"null").digest(), body=b"null"),
)


def written() -> dict[str, list[dict[str, Any]]]:
    """What this version writes, for `request.json`, `idempotency.json` and `report.json`."""
    stored = [request_bytes(request) for request in REQUESTS]
    return {
        "request": [
            {
                "stored": one.decode("latin-1"),
                "sha256": sha256(one).hexdigest(),
                "display": display(one),
                "display_sha256": display_sha256(one).hex(),
            }
            for one in stored
        ],
        "idempotency": [
            {
                "ledger_id": ledger_id.hex(),
                "action_key": key,
                "generation": number,
                "key": idempotency_key(ledger_id, key, number),
            }
            for ledger_id, key, number in KEYS
        ],
        "report": [
            {"report": report_bytes(one).decode(), "sha256": sha256(report_bytes(one)).hexdigest()} for one in REPORTS
        ],
    }
