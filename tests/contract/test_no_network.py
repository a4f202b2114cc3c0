"""A process that is kept off the network: what is refused and noted, and what it may still do."""

from __future__ import annotations

import subprocess
import sys

import pytest

REFUSED = {
    "connect": "socket.socket().connect(('192.0.2.1', 443))",
    "a loopback port of somebody else": "socket.socket().connect(('127.0.0.1', 9))",
    "another family": "socket.socket(socket.AF_INET6).connect(('2001:db8::1', 443))",
    "a datagram": "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))",
    "a message": "socket.socket(type=socket.SOCK_DGRAM).sendmsg([b'x'], [], 0, ('192.0.2.1', 53))",
    "a name": "socket.getaddrinfo('example.org', 443)",
    "a name in bytes": "socket.getaddrinfo(b'example.org', 443)",
    "an old way to ask": "socket.gethostbyname('example.org')",
    "an address": "socket.gethostbyaddr('192.0.2.1')",
    "an address with a port": "socket.getnameinfo(('192.0.2.1', 80), 0)",
}
ALLOWED = {
    "a pair": "one, other = socket.socketpair(); one.sendall(b'x'); assert other.recv(1) == b'x'",
    "its own server": "one = socket.create_server(('127.0.0.1', 0)); socket.create_connection(one.getsockname())",
    "its own name": "socket.getnameinfo(('127.0.0.1', 80), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)",
    "an event loop": "import asyncio; asyncio.run(asyncio.sleep(0))",
}


def _said(act: str) -> str:
    program = "import socket\nfrom agent_run_ledger.testing.no_network import refuse_network\n"
    program += f"refuse_network(lambda words: print('noted', words))\ntry:\n    {act}\n    print('done')\n"
    program += "except OSError as error:\n    print(type(error).__name__)\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_and_noted(what: str) -> None:
    noted, raised = _said(REFUSED[what]).splitlines()
    assert noted.startswith("noted ")
    assert raised == "NetworkRefused"


@pytest.mark.parametrize("what", ALLOWED)
def test_it_is_allowed(what: str) -> None:
    assert _said(ALLOWED[what]) == "done\n"
