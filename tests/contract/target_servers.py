"""Small servers on loopback that count what reaches them and answer, break off, stall or flood as a test wants."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Behaviour = Callable[[socket.socket], None]


class Server:
    """One listening socket. `requests`: the bytes of each whole request that came; `connections`: how many."""

    def __init__(self, behave: Behaviour, *, wrap: Callable[[socket.socket], socket.socket]) -> None:
        self.behave = behave
        self.requests: list[bytes] = []
        self.connections = 0
        self.wrap = wrap
        self.over = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError):
            wrapped = self.wrap(connection)
            with wrapped:
                if request := read_request(wrapped):
                    self.requests.append(request)
                    self.behave(wrapped)

    def close(self) -> None:
        """Stop, and let those that stall go."""
        self.over.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in [self._accepting, *self._threads]:
            thread.join(timeout=30)


def read_request(connection: socket.socket) -> bytes:
    """A whole request, or nothing where it does not come whole."""
    seen = b""
    while b"\r\n\r\n" not in seen:
        part = connection.recv(65_536)
        if not part:
            return b""
        seen += part
    head, _, body = seen.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    size = int(lengths[0].split(b":")[1]) if lengths else 0
    while len(body) < size:
        part = connection.recv(65_536)
        if not part:
            return b""
        body += part
    return head + b"\r\n\r\n" + body


@contextmanager
def serving(behave: Behaviour, *, wrap: Callable[[socket.socket], socket.socket] = lambda one: one) -> Iterator[Server]:
    """A server that is there within the block."""
    server = Server(behave, wrap=wrap)
    try:
        yield server
    finally:
        server.close()


def answer(status: int, body: bytes = b"{}", *, head: str = "") -> Behaviour:
    """Answer, and leave the connection open until the other side hangs up."""
    lines = f"HTTP/1.1 {status} Said\r\ncontent-length: {len(body)}\r\n{head}\r\n"

    def behave(connection: socket.socket) -> None:
        connection.sendall(lines.encode() + body)
        connection.recv(1)

    return behave


def says(raw: bytes, *, reset: bool = False) -> Behaviour:
    """Send these bytes and close, or reset the connection."""

    def behave(connection: socket.socket) -> None:
        connection.sendall(raw)
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return behave


def stalls(raw: bytes = b"") -> Behaviour:
    """Send these bytes and then nothing, until the other side hangs up."""

    def behave(connection: socket.socket) -> None:
        connection.sendall(raw)
        connection.recv(1)

    return behave


def drips(raw: bytes, then: bytes, over: Callable[[], threading.Event]) -> Behaviour:
    """Send these bytes and then a hundred more, one by one, each well within any wait for one byte."""

    def behave(connection: socket.socket) -> None:
        connection.sendall(raw)
        for _ in range(100):
            if over().wait(0.05):
                return
            connection.sendall(then)

    return behave


def floods(head: bytes, size: int) -> Behaviour:
    """Send a body of that many bytes."""
    part = b"x" * (1 << 20)

    def behave(connection: socket.socket) -> None:
        connection.sendall(head)
        for _ in range(size // len(part)):
            connection.sendall(part)

    return behave
