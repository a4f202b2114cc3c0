"""A small payment service on loopback: it does what it is asked, and remembers keys as well as it is told to."""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

KEY_HEADER = "Idempotency-Key"


class Service(ThreadingHTTPServer):
    """Refunds, one line of a file each. `keys`: "none", "memory" (gone when it restarts) or "file"."""

    daemon_threads = True

    def __init__(self, folder: Path, keys: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.effects = folder / "refunds.txt"
        self.keys = folder / "keys.txt"
        self.remembers = keys
        self.known = set(self.keys.read_text().split()) if keys == "file" and self.keys.exists() else set[str]()
        self.lock = threading.Lock()

    def refund(self, number: int, key: str) -> None:
        """Do it, unless the key is known. Key and effect are one step for whoever asks beside."""
        with self.lock:
            if self.remembers != "none" and key in self.known:
                return
            if self.remembers == "file":
                # In two files, so not atomic where this process dies in between: such a key is spent for nothing.
                append(self.keys, key)
            self.known.add(key)
            append(self.effects, str(number))


class Handler(BaseHTTPRequestHandler):
    """POST /refunds {"n": NUMBER} does one; GET /refunds/NUMBER tells whether it is there."""

    server: Service  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_POST(self) -> None:
        """Do a refund and say so."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.refund(asked["n"], self.headers.get(KEY_HEADER, ""))
        self._say(201)

    def do_GET(self) -> None:
        """Say 200 where the refund is there, else 404."""
        number = self.path.rpartition("/")[2]
        done = self.server.effects.exists() and number in self.server.effects.read_text().split()
        self._say(200 if done else 404)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _say(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()


def append(path: Path, line: str) -> None:
    """Write a line so that it survives the death of this process."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    service = Service(Path(sys.argv[1]), sys.argv[2])
    print(f"http://127.0.0.1:{service.server_address[1]}", flush=True)
    service.serve_forever()
