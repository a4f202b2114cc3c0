"""A relay between a client and a PostgreSQL server that can lose requests and replies, as a network does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_KEY_MESSAGE = b"K\0\0\0\x0c"
"""The beginning of BackendKeyData (PostgreSQL protocol 3.0): type, length 12; then the process id and a secret."""

_DONE = b"COMMIT\0"
"""The answer to COMMIT."""


class Relay:
    """Forwards every connection to `target`, a port of loopback, until it is told otherwise."""

    def __init__(self, target: int, *, renames_backend: bool = False) -> None:
        self._target = target
        self._renames_backend = renames_backend
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._cut: tuple[bytes, bool, bool] | None = None
        self._answered = True
        self.turns = 0
        """How often a request followed an answer: round trips, where one connection is in use."""
        self._down = False
        self.refused = 0
        """How many connections were not taken."""
        self._flows = threading.Event()
        self._flows.set()
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_at(self, request: bytes, *, after: bool, then_down: bool = False) -> None:
        """End the next connection that sends these bytes: before the server has them, or after its answer is lost.

        `then_down`: and take no new one.
        """
        with self._lock:
            self._cut = (request, after, then_down)

    def go_silent(self) -> None:
        """Carry nothing more, and say nothing of it: as a network does that is parted."""
        self._flows.clear()

    def go_down(self) -> None:
        """End every connection and take no new one; what waited to be carried is lost."""
        with self._lock:
            self._down = True
            self._flows.set()
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            _end(*pair)

    def come_back(self) -> None:
        """Take connections again, and carry what waited."""
        with self._lock:
            self._down = False
            self._flows.set()

    def close(self) -> None:
        """Stop."""
        self._closed = True
        self.go_down()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._down:
                self.refused += 1
                client.close()
                continue
            self._flows.wait()  # who is parted from a server does not come to it either
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._pairs.append((client, server))
            lost = threading.Event()
            self._run(lambda c=client, s=server, e=lost: self._requests(c, s, e))  # type: ignore[misc]
            self._run(lambda c=client, s=server, e=lost: self._replies(c, s, e))  # type: ignore[misc]

    def _run(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        with suppress(OSError):
            while sent := client.recv(1 << 16):
                if self._answered:
                    self.turns, self._answered = self.turns + 1, False
                cut = self._taken(sent)
                self._flows.wait()
                if cut is None:
                    server.sendall(sent)
                    continue
                if not cut:
                    break
                lost.set()  # the server does what it was asked, and nobody hears of it
                server.sendall(sent)
        _end(client, server)

    def _replies(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        with suppress(OSError):
            while said := server.recv(1 << 16):
                self._answered = True
                self._flows.wait()
                if not lost.is_set():
                    client.sendall(self._renamed(said))
                elif _DONE in said:
                    break
        _end(client, server)

    def _taken(self, sent: bytes) -> bool | None:
        """Return whether to cut after (True) or before (False) this request; None to let it pass."""
        with self._lock:
            if self._cut is None or self._cut[0] not in sent:
                return None
            (_, after, down), self._cut = self._cut, None
            self._down = self._down or down
            return after

    def _renamed(self, said: bytes) -> bytes:
        """What a pooler says of who serves: a number of its own."""
        at = said.find(_KEY_MESSAGE) if self._renames_backend else -1
        if at < 0:
            return said
        begin = at + len(_KEY_MESSAGE)
        return said[:begin] + b"\x7f\0\0\x01" + said[begin + 4 :]


def _end(*sockets: socket.socket) -> None:
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


@contextmanager
def relay(target: int, *, renames_backend: bool = False) -> Iterator[Relay]:
    """A relay for as long as the block runs."""
    made = Relay(target, renames_backend=renames_backend)
    try:
        yield made
    finally:
        made.close()
