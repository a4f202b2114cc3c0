"""An MCP server without any library, whose tools misbehave on purpose; each call of one is a line in a file."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

LOG = os.environ["SERVER_LOG"]
TOOLS: dict[str, dict[str, Any]] = {
    "echo": {},
    "place_order": {},
    "read_stock": {"readOnlyHint": True},
    "start_job": {},
    "create_site": {},
    "wall": {},
    "order": {},
    "fails": {},
    "errors": {},
    "same": {},
    "slow": {},
    "die": {},
    "die_reading": {"readOnlyHint": True},
    "garbage": {},
    "huge": {},
    "run.tests": {},
    "quiet": {},
    "acknowledge": {},
    "surrogate": {},
    "deep": {},
    "slow_error": {},
    "says": {},
}


def log(what: str) -> None:
    with open(LOG, "a", encoding="utf-8") as file:
        file.write(what + "\n")


def logged() -> list[str]:
    with open(LOG, encoding="utf-8") as file:
        return file.readlines()


def say(message: Any) -> None:
    text = message if isinstance(message, str) else json.dumps({"jsonrpc": "2.0", **message})
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}], "isError": False, **more}


def late(message_id: Any, seconds: float, name: str) -> None:
    def answer() -> None:
        time.sleep(seconds)
        if name == "slow_error":
            say({"id": message_id, "error": {"code": 0, "message": "cancelled"}})
        else:
            say({"id": message_id, "result": text("started")})
        log(f"done {name}")  # who reads this knows that the answer is on its way, before every later one

    threading.Thread(target=answer, daemon=True).start()


def call(message_id: Any, name: str, given: dict[str, Any]) -> None:
    log(f"call {name} {json.dumps(given, sort_keys=True)}")
    if name in ("die", "die_reading") or given.get("die"):
        os._exit(7)
    if name in ("start_job", "slow") or "seconds" in given:
        late(message_id, float(given.get("seconds", 3)), name)
    elif name == "quiet":
        return
    elif name == "fails":
        say({"id": message_id, "result": text(f"no such thing: {given}", isError=True)})
    elif name == "errors":
        say({"id": message_id, "error": {"code": -32050, "message": "the shelf is empty", "data": {"shelf": 3}}})
    elif name == "same":
        say({"id": message_id, "result": text("the list of open orders: nothing has changed since the last look")})
    elif name == "surrogate":
        say({"id": message_id, "result": text("half \ud800")})
    elif name == "says":  # whatever the test wants to be said
        say({"id": message_id, **given["answer"]})
    elif name == "deep":
        say(f'{{"jsonrpc":"2.0","id":{message_id},"result":{{"content":[],"x":{"[" * 900}{"]" * 900}}}}}')
    elif name == "acknowledge":
        say({"id": message_id, "result": text("accepted")})
    elif name == "garbage":
        say("this is no JSON")
        say("[1, 2]")
        say({"id": message_id, "result": text("after garbage")})
    elif name == "huge":
        say({"id": message_id, "result": text("x" * int(given["bytes"]))})
    else:
        say({"id": message_id, "result": text(f"{name} {len(logged())}", count=1.5)})


def tools() -> list[dict[str, Any]]:
    changed = {
        "place_order": os.environ.get("SERVER_DESCRIPTION", ""),
        "read_stock": os.environ.get("SERVER_READ_STOCK", ""),
    }
    return [
        {
            "name": name,
            "description": f"{name} {changed.get(name, '')}".strip(),
            "inputSchema": {"type": "object"},
            "annotations": annotations,
        }
        for name, annotations in TOOLS.items()
    ]


def answer(message: dict[str, Any]) -> None:
    method, message_id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
        say({"id": message_id, "result": {**result, "serverInfo": {"name": "plain", "version": "1"}}})
    elif method == "tools/list":
        log("list")
        if "cursor" in params:
            say({"id": message_id, "result": {"tools": tools()[3:]}})
        else:
            say({"id": message_id, "result": {"tools": tools()[:3], "nextCursor": "3"}})
    elif method == "tools/call":
        beside = sorted(params.keys() - {"name", "arguments", "_meta"})
        if beside:
            log(f"beside {' '.join(beside)}")
        call(message_id, params["name"], params.get("arguments") or {})
    elif method == "x/huge":
        say({"id": message_id, "result": {"x": "y" * int(params["bytes"])}})
    elif method == "x/late-id":
        say(json.dumps({"result": "y" * int(params["bytes"]), "id": message_id}))
    elif method == "x/raw":
        say(f'{{"id":{message_id},  "jsonrpc":"2.0","result":{{"f":1.10,"e":"\\u00e9"}}}}')
    elif method == "x/twice":
        say(f'{{"id":{message_id},"jsonrpc":"2.0","result":{{"a":1,"a":NaN}}}}')
    elif method == "ping":
        say({"id": message_id, "result": {}})
    elif method and message_id is None:
        log(f"notified {method} {json.dumps(params, sort_keys=True)}")
    elif message_id is not None and method:
        say({"id": message_id, "error": {"code": -32601, "message": "no such method"}})


def main() -> None:
    log("start")
    for line in sys.stdin:
        answer(json.loads(line))


if __name__ == "__main__":
    main()
