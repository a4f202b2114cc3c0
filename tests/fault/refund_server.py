"""A server in a process of its own that executes refunds and counts them; below /keyed it remembers their keys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
HEADER = "idempotency-key"

lock = threading.Lock()
executed: Counter[str] = Counter()
arrived: Counter[str] = Counter()
remembered: dict[str, bytes] = {}
held = threading.Event()
held.set()


class Refunds(BaseHTTPRequestHandler):
    """POST /plain/refunds or /keyed/refunds executes; GET /orders/N tells; POST /forget, /hold and /release."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.path.endswith("/refunds"):
            return self._answer(201, self._refunded(str(json.loads(body)["order"])))
        if self.path == "/forget":
            with lock:
                for kept in (executed, arrived, remembered):
                    kept.clear()
        if self.path in ("/hold", "/release"):
            (held.clear if self.path == "/hold" else held.set)()
        return self._answer(200, b"{}")

    def do_GET(self) -> None:
        order = self.path.rpartition("/")[2]
        with lock:
            told = {"executed": executed[order], "arrived": arrived[order]}
        self._answer(200, json.dumps(told).encode())

    def _refunded(self, order: str) -> bytes:
        """Execute it, unless its key is remembered; the answer is another one each time that it is executed."""
        key = self.headers.get(HEADER) or "" if self.path.startswith("/keyed/") else ""
        with lock:
            arrived[order] += 1
            if key not in remembered:
                executed[order] += 1
                said = {"order": order, "time": executed[order], "by": os.urandom(8).hex()}
                answer = json.dumps(said).encode()
                if not key:
                    return answer
                remembered[key] = answer
            return remembered[key]

    def _answer(self, status: int, body: bytes) -> None:
        if self.path.endswith("/refunds"):
            held.wait(60)
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What became of one order: requests that arrived whole, and refunds that were executed."""

    executed: int
    arrived: int


class RefundServer:
    """The server as a test sees it."""

    def __init__(self, port: int, address: str = "127.0.0.1") -> None:
        self.url = f"http://{address}:{port}"

    def counts(self, order: int = 17) -> Counts:
        with urllib.request.urlopen(f"{self.url}/orders/{order}", timeout=30) as answer:
            return Counts(**json.load(answer))

    def forget(self) -> None:
        """Begin at zero."""
        self._post("/forget")

    def hold(self) -> None:
        """Execute what comes, and answer nothing until `release`."""
        self._post("/hold")

    def release(self) -> None:
        self._post("/release")

    def _post(self, path: str) -> None:
        urllib.request.urlopen(urllib.request.Request(self.url + path, method="POST"), timeout=30).close()


@contextmanager
def refund_server(address: str = "127.0.0.1") -> Iterator[RefundServer]:
    """A server that is there within the block."""
    with subprocess.Popen([sys.executable, __file__, address], stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            yield RefundServer(int(child.stdout.readline()), address)
        finally:
            child.kill()


if __name__ == "__main__":
    server = ThreadingHTTPServer((sys.argv[1], 0), Refunds)
    print(server.server_port, flush=True)
    server.serve_forever()
