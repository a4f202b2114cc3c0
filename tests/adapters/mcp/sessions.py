"""A scripted MCP client that speaks to the proxy line by line, so that a test sees exactly what passes."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from tests.adapters.offline import OFFLINE
from tests.contract.engine_kit import new_place

HERE = Path(__file__).parent
PLAIN = [*OFFLINE, str(HERE / "plain_server.py")]
PATIENCE_S = 30


class Place:
    """A folder with a store, a log of what reached the server, and policies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.db = new_place(folder, "runs.db")
        self.log = folder / "server.log"
        self.log.touch()

    def lines(self, start: str = "") -> list[str]:
        return [line for line in self.log.read_text(encoding="utf-8").splitlines() if line.startswith(start)]

    def calls(self, tool: str = "") -> int:
        """How many calls of this tool, or of all, have reached the server."""
        return len([line for line in self.lines("call ") if not tool or line.split()[1] == tool])

    def until(self, what: str, count: int = 1) -> None:
        """Return when the server has logged this so many times."""
        until = time.monotonic() + PATIENCE_S
        while len(self.lines(what)) < count:
            assert time.monotonic() < until, self.lines()
            time.sleep(0.01)

    def policy(self, text: str) -> str:
        path = self.folder / "policy.toml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    def command(self, *options: str, run: str = "r1", server: Sequence[str] = PLAIN) -> list[str]:
        proxy = [*OFFLINE, "-m", "agent_run_ledger", "proxy", "mcp"]
        return [*proxy, "--db", str(self.db), *(["--run", run] if run else []), *options, "--", *server]

    def environment(self, **more: str) -> dict[str, str]:
        return {**os.environ, "SERVER_LOG": str(self.log), **more}

    def session(self, *options: str, run: str = "r1", server: Sequence[str] = PLAIN, **more: str) -> Session:
        return Session(self.command(*options, run=run, server=server), self.environment(**more))

    def arl(self, *arguments: str) -> str:
        command = [*OFFLINE, "-m", "agent_run_ledger", *arguments, "--db", str(self.db)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        return done.stdout


class Session:
    """One proxy process with this client at its pipes."""

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        )
        self.said: list[dict[str, Any]] = []
        self._news: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._stderr: list[bytes] = []
        self._next = 0
        self._threads = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._hear, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    # -- speaking ---------------------------------------------------------------------------------------------

    def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def send(self, method: str, params: dict[str, Any] | None = None, *, message_id: Any = None) -> Any:
        """Send a request and return its id."""
        if message_id is None:
            self._next += 1
            message_id = self._next
        self.write(json.dumps({"jsonrpc": "2.0", "id": message_id, "method": method, "params": params or {}}).encode())
        return message_id

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())

    def begin(self, tool: str, arguments: dict[str, Any] | None = None, *, call_id: str = "", **more: Any) -> Any:
        """Send a call of a tool and return the request's id."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments or {}, **more}
        if call_id:
            params["_meta"] = {"agent-run-ledger/call-id": call_id}
        return self.send("tools/call", params)

    # -- hearing ----------------------------------------------------------------------------------------------

    def answer(self, message_id: Any) -> dict[str, Any]:
        """The answer to a request; other messages stay in `said`."""
        return self.hear(lambda one: one.get("id") == message_id and "method" not in one)

    def hear(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        for message in self.said:
            if wanted(message):
                self.said.remove(message)
                return message
        while True:
            line = self._news.get(timeout=PATIENCE_S)
            assert line is not None, f"the proxy ended: {self.stderr()}"
            message = json.loads(line)
            if wanted(message):
                return dict(message)
            self.said.append(message)

    def raw(self) -> bytes:
        """The next line as it came."""
        line = self._news.get(timeout=PATIENCE_S)
        assert line is not None, self.stderr()
        return line

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        return self.answer(self.send(method, params))

    def call(self, tool: str, arguments: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        """Call a tool and return the result."""
        answer = self.answer(self.begin(tool, arguments, **more))
        assert "result" in answer, answer
        return dict(answer["result"])

    def stderr(self) -> str:
        return b"".join(self._stderr).decode()

    # -- ending -----------------------------------------------------------------------------------------------

    def end(self) -> int:
        """End as a client does, and return the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(PATIENCE_S)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def wait(self) -> int:
        code = self.process.wait(PATIENCE_S)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._news.put(line)
        self._news.put(None)

    def _hear(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._stderr.append(line)


def text_of(result: dict[str, Any]) -> str:
    return "\n".join(part.get("text", "") for part in result["content"])


def meta_of(result: dict[str, Any]) -> dict[str, Any]:
    """What the proxy says beside a result, without its namespace."""
    return {key.removeprefix("agent-run-ledger/"): value for key, value in result.get("_meta", {}).items()}
