"""The lab's request: a conditional change of one ConfigMap, as a file that authorises nothing."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any, Final

from agent_run_ledger.effects.intents import Intent
from agent_run_ledger.kernel.effects import TargetClass
from agent_run_ledger.lab.ticks import DISPATCH_BEFORE, NOT_BEFORE

ACTION_KEY: Final = "retention-fixture/keep-days/30-to-45"
REQUESTER: Final = "lab-requester"
EXECUTOR: Final = "lab-executor"
AUDIENCE: Final = "https://kubernetes.invalid"

_UID: Final = "7d2b4c1e-5a90-4f6d-9c38-1b0e6f2a8d47"
_RESOURCE_VERSION: Final = "18204"
_PATH: Final = "/api/v1/namespaces/lab/configmaps/retention-fixture"
_DAYS: Final = "/data/retention_days"

REQUEST: Final[dict[str, Any]] = {
    "authorization": "not_established",
    "object": {"kind": "ConfigMap", "namespace": "lab", "name": "retention-fixture"},
    "method": "PATCH",
    "url": AUDIENCE + _PATH,
    "content_type": "application/json-patch+json",
    "body": [
        {"op": "test", "path": "/metadata/uid", "value": _UID},
        {"op": "test", "path": "/metadata/resourceVersion", "value": _RESOURCE_VERSION},
        {"op": "test", "path": "/data", "value": {"retention_days": "30"}},
        {"op": "replace", "path": _DAYS, "value": "45"},
    ],
}
"""RFC 6902: the change is made only to this object, at this version, with this starting data. Nobody sends it."""


def request_bytes() -> bytes:
    """Return the exact bytes of the request: what is written to request.json, hashed, and approved."""
    return json.dumps(REQUEST, indent=2).encode("ascii") + b"\n"


def intent_of(request: bytes) -> Intent:
    """Return what is asked for with these bytes. A class N target: nothing at the other end fences."""
    return Intent(
        request=request,
        executor=EXECUTOR,
        audience=AUDIENCE,
        target_class=TargetClass.N,
        not_before_ms=NOT_BEFORE,
        dispatch_before_ms=DISPATCH_BEFORE,
        policy_sha256=sha256(b"lab: one approver").digest(),
        display_sha256=sha256(request).digest(),
        preconditions=(
            ("metadata.uid", _UID),
            ("metadata.resourceVersion", _RESOURCE_VERSION),
            ("data.retention_days", "30"),
        ),
    )
