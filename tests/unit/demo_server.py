"""A chat endpoint on the loopback whose replies a test decides."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-test-hunter2"
GOOD = {"choices": [{"message": {"content": "answer"}}], "usage": {"prompt_tokens": 11, "completion_tokens": 7}}

Reply = Callable[[BaseHTTPRequestHandler], object]


@dataclass
class Endpoint:
    """What was asked so far, and the next replies: those of the queue first, then `otherwise` for ever."""

    url: str = ""
    replies: list[Reply] = field(default_factory=list)
    otherwise: Reply | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    hold: threading.Event = field(default_factory=threading.Event)

    def next_reply(self) -> Reply:
        with self.lock:
            reply = self.replies.pop(0) if self.replies else self.otherwise
        assert reply is not None, "asked more often than the test foresaw"
        return reply


@contextmanager
def serving() -> Iterator[Endpoint]:
    """Serve while the block runs; `hold` is set at its end, so that no reply waits for ever."""
    served = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with served.lock:
                served.asked.append({"path": self.path, "headers": dict(self.headers), "body": json.loads(body)})
            served.next_reply()(self)

        def log_message(self, format: str, *args: object) -> None:
            """Stay quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01), daemon=True)
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield served
    finally:
        served.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()


def status(code: int, body: bytes = b"", **headers: str) -> Reply:
    """Answer with a status, a body and more headers."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        handler.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return reply


def answered(document: object) -> Reply:
    """Answer 200 with JSON."""
    return status(200, json.dumps(document).encode())
