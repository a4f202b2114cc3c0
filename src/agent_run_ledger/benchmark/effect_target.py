"""A child process that answers every HTTP request at once, and ends with its standard input."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress

from agent_run_ledger.benchmark.children import command

ANSWER = b'HTTP/1.1 201 Created\r\ncontent-length: 16\r\nconnection: close\r\n\r\n{"refund":"r-1"}'
_END = b"\r\n\r\n"
_LENGTH = b"content-length:"


@contextmanager
def target() -> Generator[str]:
    """Keep such a process inside the block, and yield its URL."""
    with subprocess.Popen(command("effect_target"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            port = "" if child.stdout is None else child.stdout.readline().strip()
            yield f"http://127.0.0.1:{port}"
        finally:
            if child.stdin is not None:
                child.stdin.close()


def serve(listening: socket.socket) -> None:
    """Answer one connection after the other, each once its request is there."""
    while True:
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if _read(connection):
                connection.sendall(ANSWER)


def _read(connection: socket.socket) -> bool:
    """Read a whole request; False where it does not come whole."""
    seen = b""
    while True:
        head, end, body = seen.partition(_END)
        if end and len(body) >= _size(head):
            return True
        part = connection.recv(1 << 16)
        if not part:
            return False
        seen += part


def _size(head: bytes) -> int:
    lines = (line for line in head.lower().split(b"\r\n") if line.startswith(_LENGTH))
    return int(next(lines, _LENGTH + b"0").removeprefix(_LENGTH))


def main() -> None:
    """Print the port, and serve until standard input ends."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=128)
    threading.Thread(target=serve, args=(listening,), daemon=True).start()
    print(listening.getsockname()[1], flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
