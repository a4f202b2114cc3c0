"""An MCP server without any library, whose tools are those of the adapter kit's job in the folder that it is given."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from agent_run_ledger.testing.adapter_evidence import Evidence
from agent_run_ledger.testing.adapter_kit import Does, KitTool, Plan
from agent_run_ledger.testing.body_counter import LIFE_VARIABLE


def main() -> None:
    folder = Path(sys.argv[1])
    plan, evidence = Plan.read(folder), Evidence(folder)
    tools = {tool.name: KitTool(tool, evidence) for tool in plan.tools}
    deadly = {t.name for t in plan.tools if t.does is Does.KILL and str(t.kills_in) == os.environ[LIFE_VARIABLE]}
    for line in sys.stdin:
        message: dict[str, Any] = json.loads(line)
        if message.get("method") == "tools/call":
            name, given = message["params"]["name"], message["params"]["arguments"]
            if name in deadly:  # with the client and the proxy, before it dies itself
                for pid in (int(os.environ["KIT_CLIENT"]), os.getppid()):
                    os.kill(pid, signal.SIGKILL)
            text = tools[name].call(**given)
            result = {"content": [{"type": "text", "text": text}], "isError": False}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


if __name__ == "__main__":
    main()
