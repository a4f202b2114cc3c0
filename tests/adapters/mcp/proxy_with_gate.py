"""The proxy with a gate that reads its decisions from a file: what has no line there waits."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from agent_run_ledger import RunLedger
from agent_run_ledger.adapters.gate import Answer, Permission, ToolRequest
from agent_run_ledger.adapters.mcp import Policy, ServerTool, Settings, serve
from agent_run_ledger.adapters.rules import ToolRules

DECISIONS = Path(os.environ["DECISIONS"])


def gate(request: ToolRequest) -> Answer:
    approval = f"{request.tool}-{json.dumps(request.arguments, sort_keys=True)}-{request.call_id.rsplit(':', 1)[-1]}"
    said = json.loads(DECISIONS.read_text(encoding="utf-8")).get(approval, "pending")
    return Answer(permission=Permission(said), approval_id=approval, reason="the shop decides")


def main() -> None:
    db, *command = sys.argv[1:]
    with RunLedger("r1", db) as ledger:
        denied = {name: ServerTool(rules=ToolRules(deny="not here")) for name in os.environ.get("DENY", "").split()}
        settings = Settings(
            command=command,
            run_id="r1",
            report=lambda words: print(words, file=sys.stderr),
            gate=gate,
            policy=Policy(denied),
            complete="COMPLETE" in os.environ,
        )
        asyncio.run(serve(ledger, settings))


if __name__ == "__main__":
    main()
