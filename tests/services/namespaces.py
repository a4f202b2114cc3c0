"""Network namespaces of Linux: machines of their own on one machine, whose links can be cut."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

REFUSED = "no permission to make network namespaces"
_NEWNET = 0x40000000


class Network:
    """Namespaces that nobody else is in, and links between two of them. None outlives the block that made it."""

    def __init__(self) -> None:
        self._made: list[int] = []
        self._links = 0

    def space(self) -> int:
        """A new namespace with a loopback of its own. PermissionError where the machine permits none."""
        if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
            raise PermissionError(REFUSED)
        before = _here()
        try:
            if ctypes.CDLL(None, use_errno=True).unshare(_NEWNET) != 0:
                raise PermissionError(REFUSED)
            self._made.append(_here())
        finally:
            _enter(before)
            os.close(before)
        with inside(self._made[-1]):
            _ip("link", "set", "lo", "up")
        return self._made[-1]

    def link(self, one: int, other: int) -> Link:
        """Two namespaces that reach each other at addresses of theirs."""
        self._links += 1
        ends = f"arl{self._links}a", f"arl{self._links}b"
        made = Link(one, ends[0], f"10.231.{self._links}.1", f"10.231.{self._links}.2")
        with inside(one):
            _ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
            _ip("link", "set", ends[1], "netns", f"/proc/{os.getpid()}/fd/{other}")
            _ip("addr", "add", f"{made.address}/30", "dev", ends[0])
            _ip("link", "set", ends[0], "up")
        with inside(other):
            _ip("addr", "add", f"{made.other}/30", "dev", ends[1])
            _ip("link", "set", ends[1], "up")
        return made

    def close(self) -> None:
        """Leave nothing."""
        for space in self._made:
            os.close(space)


@dataclass(frozen=True)
class Link:
    """A link whose end in a namespace has `address`, and whose other end `other`."""

    space: int
    name: str
    address: str
    other: str

    def cut(self) -> None:
        """Carry nothing more, and say nothing of it."""
        with inside(self.space):
            _ip("link", "set", self.name, "down")

    def mend(self) -> None:
        """Carry again."""
        with inside(self.space):
            _ip("link", "set", self.name, "up")


@contextmanager
def network() -> Iterator[Network]:
    """A maker of namespaces."""
    made = Network()
    try:
        yield made
    finally:
        made.close()


@contextmanager
def inside(space: int) -> Iterator[None]:
    """Let this thread, and the processes that it starts, be in a namespace."""
    before = _here()
    _enter(space)
    try:
        yield
    finally:
        _enter(before)
        os.close(before)


def _here() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _enter(space: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(space, _NEWNET) != 0:
        raise PermissionError(REFUSED)


def _ip(*arguments: str) -> None:
    try:
        subprocess.run(("ip", *arguments), check=True, capture_output=True)
    except FileNotFoundError as error:
        raise PermissionError(REFUSED) from error
