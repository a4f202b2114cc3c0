"""A way of HTTP to a target on this machine that can repeat, hold, cut, refuse and answer what passes when told to."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Final
from urllib.parse import SplitResult, urlsplit

from agent_run_ledger.errors import Misuse, Unavailable

LIMIT_S: Final = 20.0
"""How long the target may take for an answer, and what is under way to come to rest, in seconds."""

PATIENCE_S: Final = 5.0
"""How long a way that gives no answer waits for the tool to hang up before it does."""

_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_RESET: Final = struct.pack("ii", 1, 0)
_PART: Final = 65_536


class OnTheWay(StrEnum):
    """What happens to the next request that comes by. An answer of 503 is for one that is not handed on."""

    PASSES = "passes"
    TWICE = "twice"
    TWICE_AT_ONCE = "twice_at_once"
    REPLY_CUT = "reply_cut"
    REPLY_LATE = "reply_late"
    REQUEST_LATE = "request_late"
    ANSWERED_503 = "answered_503"
    ANSWERED_502 = "answered_502"


def can_be_cut(url: str) -> bool:
    """Return whether the kit can stand on the way to a URL: plain HTTP on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname in _LOOPBACK


class CutPath:
    """Listens on loopback and hands each request on, one to a connection, as whole bytes.

    `url`: what a tool is to reach; it stays while the target is started anew. `seen`: how many whole requests came.
    `struck`: how many of them met what `strike` told. Thread-safe; `close` when done.
    """

    def __init__(self, url: str) -> None:
        """Misuse("bad_case") for a URL that cannot be cut: see `can_be_cut`."""
        self._to = _parts(url)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._port: int = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}{self._to.path.rstrip('/')}"
        self.seen = 0
        self.struck = 0
        self._next = OnTheWay.PASSES
        self._then = OnTheWay.PASSES
        self._last = b""
        self._released = threading.Event()
        self._state = threading.Condition()
        self._busy = 0
        self._taken = set[int]()
        self._listen()

    def lead_to(self, url: str) -> None:
        """Hand what comes on to another address, as after a new start of the target."""
        self._to = _parts(url)

    def strike(self, fault: OnTheWay, *, always: bool = False) -> None:
        """Let this happen to the next request; those after it pass, or `always` meet it too."""
        with self._state:
            self._next, self._then = fault, fault if always else OnTheWay.PASSES

    def release(self) -> None:
        """Let what is held go on to the target."""
        self._released.set()

    def repeat(self) -> None:
        """Send the last request once more, as something that kept it would. Misuse where none came by."""
        if not self._last:
            raise Misuse("no request came by that could be repeated", code="bad_case", hint=BY_URL)
        self._forward(self._last)

    def refuse(self) -> None:
        """Refuse connections until `accept`."""
        _hang_up(self._listening)
        self._accepting.join(LIMIT_S)

    def accept(self) -> None:
        """Take connections again, at the same address."""
        self._listening = socket.create_server(("127.0.0.1", self._port))
        self._listen()

    def rest(self) -> None:
        """Return when nothing is under way any more. Unavailable("target_hangs") where that does not come.

        What a dead tool sent may still wait to be taken: connections are taken in their order, so one of ours comes
        after all of those.
        """
        with socket.create_connection(("127.0.0.1", self._port), LIMIT_S) as mine:
            port: int = mine.getsockname()[1]
            self._wait_for(lambda: port in self._taken)
        self._wait_for(lambda: self._busy == 0)

    def close(self) -> None:
        """Stop listening, and let what is held go nowhere."""
        self._last = b""
        _hang_up(self._listening)

    def _wait_for(self, holds: Callable[[], bool]) -> None:
        with self._state:
            if not self._state.wait_for(holds, LIMIT_S):
                raise Unavailable(f"the target took longer than {LIMIT_S:g} s", code="target_hangs")

    def _listen(self) -> None:
        self._accepting = threading.Thread(target=self._accept, args=(self._listening,), daemon=True)
        self._accepting.start()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, (_, port) = listening.accept()
            except OSError:
                return
            with self._state:
                self._busy += 1
                self._taken.add(port)
                self._state.notify_all()
            threading.Thread(target=self._serve, args=(connection, port), daemon=True).start()

    def _serve(self, connection: socket.socket, port: int) -> None:
        try:
            with connection, suppress(OSError):
                connection.settimeout(LIMIT_S)
                if request := read_request(connection):
                    with self._state:
                        self.seen += 1
                        fault, self._next = self._next, self._then
                        self.struck += fault is not OnTheWay.PASSES
                        self._last = request
                    self._pass(connection, request, fault)
        finally:
            with self._state:
                self._busy -= 1
                self._taken.discard(port)
                self._state.notify_all()

    def _pass(self, connection: socket.socket, request: bytes, fault: OnTheWay) -> None:
        if fault is OnTheWay.REQUEST_LATE:
            _until_hung_up(connection)
            connection.close()
            if self._released.wait(LIMIT_S):
                self._forward(request)
            return
        if fault in (OnTheWay.TWICE, OnTheWay.ANSWERED_502):
            self._forward(request)
        if said := _SAID.get(fault):
            connection.sendall(said)
            return
        answer = self._forward_at_once(request) if fault is OnTheWay.TWICE_AT_ONCE else self._forward(request)
        if fault is OnTheWay.REPLY_LATE:
            _until_hung_up(connection)
        elif fault is OnTheWay.REPLY_CUT:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        else:
            connection.sendall(answer)

    def _forward_at_once(self, request: bytes) -> bytes:
        """Send it over two connections together, and return the answer of one."""
        together = threading.Barrier(2, timeout=PATIENCE_S)
        other = threading.Thread(target=self._forward, args=(request, together.wait), daemon=True)
        other.start()
        answer = self._forward(request, together.wait)
        other.join(LIMIT_S)
        return answer

    def _forward(self, request: bytes, ready: Callable[[], object] = lambda: None) -> bytes:
        """Send a request to the target and return all that it answers, nothing where it does not."""
        parts = b""
        with (
            suppress(OSError, threading.BrokenBarrierError),
            socket.create_connection((self._to.hostname or "", self._to.port or 80), LIMIT_S) as target,
        ):
            ready()
            target.sendall(request)
            while part := target.recv(_PART):
                parts += part
        return parts


def _said(status: str) -> bytes:
    """Return an answer of ours, as a gateway or a service that is too busy gives it."""
    body = b'{"error":"%s"}' % status.encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close"
    return b"\r\n\r\n".join([head.encode(), body])


_SAID: Final = {
    OnTheWay.ANSWERED_503: _said("503 Service Unavailable"),
    OnTheWay.ANSWERED_502: _said("502 Bad Gateway"),
}

BY_URL: Final = "the tool must reach its target by place.url"


def read_request(connection: socket.socket) -> bytes:
    """Return a whole request that asks for the connection's end after it, nothing where it does not come whole."""
    seen = b""
    while b"\r\n\r\n" not in seen:
        if not (part := connection.recv(_PART)):
            return b""
        seen += part
    head, _, body = seen.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    named = [(line.partition(b":")[0].strip().lower(), line) for line in lines]
    fields = {name: line.partition(b":")[2].strip().lower() for name, line in named}
    whole = _chunked if fields.get(b"transfer-encoding") == b"chunked" else _sized(fields.get(b"content-length", b"0"))
    if fields.get(b"expect") == b"100-continue":
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    while not whole(body):
        if not (part := connection.recv(_PART)):
            return b""
        body += part
    kept = [line for name, line in named if name not in (b"connection", b"keep-alive", b"expect")]
    return b"\r\n".join([first, *kept, b"connection: close", b"", body])


def _sized(length: bytes) -> Callable[[bytes], bool]:
    size = int(length) if length.isdigit() else 0
    return lambda body: len(body) >= size


def _chunked(body: bytes) -> bool:
    return body.endswith(b"0\r\n\r\n")


def _parts(url: str) -> SplitResult:
    if not can_be_cut(url):
        raise Misuse(f"the kit can stand on the way to http://127.0.0.1 only, not to {url}", code="bad_case")
    return urlsplit(url)


def _until_hung_up(connection: socket.socket) -> None:
    """Wait for the other side to give up, for PATIENCE_S at most."""
    connection.settimeout(PATIENCE_S)
    with suppress(OSError):
        connection.recv(1)


def _hang_up(listening: socket.socket) -> None:
    """Close a listening socket so that the thread that waits for it is told."""
    with suppress(OSError):
        listening.shutdown(socket.SHUT_RDWR)
    listening.close()
