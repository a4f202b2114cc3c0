"""A pooler in transaction mode: each transaction of a client runs on whichever of its server sessions is next."""

from __future__ import annotations

import itertools
import select
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

SESSIONS = 3
_STARTUP, _SSL_REQUEST, _GSS_REQUEST = 196_608, 80_877_103, 80_877_104
_IDLE = b"I"


class Pooler:
    """Speaks PostgreSQL's protocol 3.0 to both sides, as far as `psycopg` needs. It lets everybody in."""

    def __init__(self, url: str, *, says_its_own: bool) -> None:
        self._sessions = [psycopg.connect(url, autocommit=True) for _ in range(SESSIONS)]
        self._turn = itertools.cycle(self._sessions)
        self._says_its_own = says_its_own
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for session in self._sessions:
            session.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError, EOFError), client:
            self._let_in(client)
            while True:
                select.select([client], [], [])
                with self._lock:
                    session = next(self._turn)
                    with socket.socket(fileno=_duplicate(session)) as server:
                        server.setblocking(True)
                        _one_transaction(client, server)

    def _let_in(self, client: socket.socket) -> None:
        """Answer the client's first message: welcome, the parameters of a session, and whose number?"""
        while True:
            (size,) = struct.unpack("!I", _exactly(client, 4))
            body = _exactly(client, size - 4)
            (code,) = struct.unpack_from("!I", body)
            if code == _STARTUP:
                break
            assert code in (_SSL_REQUEST, _GSS_REQUEST)
            client.sendall(b"N")
        first = self._sessions[0]
        parameters = b"".join(
            _message(b"S", name + b"\0" + value + b"\0")
            for name in (b"server_version", b"client_encoding", b"standard_conforming_strings", b"integer_datetimes")
            if (value := first.pgconn.parameter_status(name)) is not None
        )
        number = 0x7F00_0001 if self._says_its_own else self._sessions[-1].info.backend_pid
        key = _message(b"K", struct.pack("!II", number, 7))
        client.sendall(_message(b"R", bytes(4)) + parameters + key + _message(b"Z", _IDLE))


def _one_transaction(client: socket.socket, server: socket.socket) -> None:
    """Carry messages between a client and a session until the session is in no transaction."""
    while True:
        readable, _, _ = select.select([client, server], [], [])
        if client in readable:
            said = client.recv(1 << 16)
            if not said or said[:1] == b"X":
                raise EOFError
            server.sendall(said)
        if server in readable:
            kind, body = _answer(server)
            client.sendall(_message(kind, body))
            if (kind, body) == (b"Z", _IDLE):
                return


def _answer(server: socket.socket) -> tuple[bytes, bytes]:
    kind = _exactly(server, 1)
    (size,) = struct.unpack("!I", _exactly(server, 4))
    return kind, _exactly(server, size - 4)


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def _exactly(one: socket.socket, size: int) -> bytes:
    seen = b""
    while len(seen) < size:
        part = one.recv(size - len(seen))
        if not part:
            raise EOFError
        seen += part
    return seen


def _duplicate(session: psycopg.Connection[Any]) -> int:
    import os

    return os.dup(session.fileno())


@contextmanager
def pooler(url: str, *, says_its_own: bool) -> Iterator[int]:
    """A pooler's port, for as long as the block runs. `says_its_own`: clients get its number, not a session's."""
    made = Pooler(url, says_its_own=says_its_own)
    try:
        yield made.port
    finally:
        made.close()
