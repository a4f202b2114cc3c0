"""Keeps a process off the network: what reaches for it is noted, and refused."""

from __future__ import annotations

import ipaddress
import socket
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

_TO_ADDRESS: Final = ("socket.connect", "socket.sendto", "socket.sendmsg")
_TO_NAME: Final = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo")


class NetworkRefused(OSError):
    """The process may not reach for the network."""


def refuse_network(note: Callable[[str], object]) -> None:
    """From now on refuse every connection and every question for an address in this process, for ever.

    Allowed are sockets of this machine that have no network (AF_UNIX), and loopback ports that this process listens on.
    `note` is told of each refusal, as the code that reached out may not mind: NetworkRefused is an OSError. A child
    that is forked is refused too, one that is started anew is not; nor is native code that uses no sockets of Python.
    """
    bound: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def hear(event: str, args: tuple[Any, ...]) -> None:
        if event == "socket.bind":
            bound.add(args[0])
        elif event in _TO_ADDRESS:
            if args[1] is not None and not _is_here(args[0], args[1], bound):
                refuse(event, args[1])
        elif event in _TO_NAME and not _is_loopback(_host(args[0])):
            refuse(event, args[0])

    def refuse(event: str, where: object) -> None:
        words = f"{event.removeprefix('socket.')} {_host(where)}"
        note(words)
        raise NetworkRefused(f"this process may not reach for the network: {words}")

    sys.addaudithook(hear)


def _host(where: object) -> object:
    return cast("tuple[object, ...]", where)[0] if isinstance(where, tuple) else where


def _is_here(one: socket.socket, address: object, bound: weakref.WeakSet[socket.socket]) -> bool:
    if one.family == socket.AF_UNIX:
        return True
    if not isinstance(address, tuple) or not _is_loopback(_host(cast("object", address))):
        return False
    return cast("tuple[object, ...]", address)[1] in {_port(other) for other in [*bound]}


def _port(bound: socket.socket) -> object:
    with suppress(OSError):
        name: object = bound.getsockname()
        return cast("tuple[object, ...]", name)[1] if isinstance(name, tuple) else None
    return None


def _is_loopback(host: object) -> bool:
    said = host.decode("ascii", "replace") if isinstance(host, bytes) else host
    if said is None or said in ("", "localhost"):
        return True
    try:
        return ipaddress.ip_address(str(said)).is_loopback
    except ValueError:
        return False
