"""A small payment service in a process of its own: it pays each request that comes, and keeps a book of them."""

from __future__ import annotations

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

BOOK = "refunds.jsonl"
MAX_BODY = 64 << 10


def read_book(folder: Path) -> list[dict[str, Any]]:
    """Return every refund that was paid, in order: what the service itself says happened."""
    book = folder / BOOK
    return [json.loads(line) for line in book.read_text("utf-8").splitlines()] if book.exists() else []


class _Handler(BaseHTTPRequestHandler):
    folder: Path
    lock: Lock

    def do_POST(self) -> None:
        """Pay, write it into the book, and answer."""
        size = int(self.headers.get("content-length") or 0)
        if self.path != "/refunds" or not 0 < size <= MAX_BODY:
            return self._answer(404, {"error": "POST /refunds"})
        asked: dict[str, Any] = json.loads(self.rfile.read(size))
        with self.lock, (self.folder / BOOK).open("a", encoding="utf-8") as book:
            paid = {"refund": f"r-{len(read_book(self.folder)) + 1}", "order": asked["order"], "cents": asked["cents"]}
            book.write(json.dumps(paid) + "\n")
            book.flush()
            os.fsync(book.fileno())
        return self._answer(201, paid)

    def do_GET(self) -> None:
        """Answer which refunds of an order were paid."""
        wanted = parse_qs(urlsplit(self.path).query).get("order", [""])[0]
        return self._answer(200, [one for one in read_book(self.folder) if str(one["order"]) == wanted])

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _answer(self, status: int, tree: object) -> None:
        body = json.dumps(tree).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main(folder: str) -> None:
    """Serve on a free port of loopback until stdin is closed; the first line on stdout has the port."""
    _Handler.folder, _Handler.lock = Path(folder), Lock()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    from threading import Thread

    Thread(target=server.serve_forever, daemon=True).start()
    print(json.dumps({"port": server.server_address[1]}), flush=True)
    sys.stdin.read()
    server.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
