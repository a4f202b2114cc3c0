"""One connection for one request: it ends at a deadline, and it knows whether a byte of the request left."""

from __future__ import annotations

import io
import ipaddress
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from agent_run_ledger.probes import reach
from agent_run_ledger.targets.address import Address

if TYPE_CHECKING:
    import ssl

    from _typeshed import ReadableBuffer, WriteableBuffer


class Over(TimeoutError):
    """The time for this dispatch is over."""


class TooLate(OSError):
    """The permit was over before the first byte."""


class Untrusted(OSError):
    """The peer could not show who it is, or speaks no TLS."""


class Deadline:
    """A moment of the monotonic clock, seconds from now."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds that are left; Over where there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise Over("the time for this dispatch is over")
        return left


def connect(address: Address, deadline: Deadline, tls: ssl.SSLContext | None) -> socket.socket:
    """Return a connection to the first of the host's addresses that takes one; OSError where none does.

    Nothing of the request is sent here. Where only loopback is allowed, other addresses are passed over.
    """
    failed: OSError = OSError("the host has no address that may be used")
    for family, kind, protocol, _, where in socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM):
        if address.loopback_only and not ipaddress.ip_address(str(where[0])).is_loopback:
            continue
        plain = socket.socket(family, kind, protocol)
        try:
            plain.settimeout(deadline.left())
            plain.connect(where)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return plain if tls is None else _secured(plain, address, deadline, tls)
        except OSError as error:
            plain.close()
            failed = error
    raise failed


def _secured(plain: socket.socket, address: Address, deadline: Deadline, tls: ssl.SSLContext) -> ssl.SSLSocket:
    """Return the connection under TLS, on which an end that the peer did not say is an error."""
    plain.settimeout(deadline.left())
    try:
        return tls.wrap_socket(plain, server_hostname=address.host, suppress_ragged_eofs=False)
    except TimeoutError:
        raise
    except (OSError, ValueError) as error:
        raise Untrusted("no TLS with a peer that is who it should be") from error


class Wire:
    """What `http.client` takes for a socket. `begun`: a byte of the request may have left.

    Every wait ends at the deadline, however slowly the bytes drip. Before the first byte it asks `in_time`, and
    raises TooLate where that says no.
    """

    def __init__(self, connection: socket.socket, deadline: Deadline, in_time: Callable[[], bool]) -> None:
        self.begun = False
        self._connection = connection
        self._deadline = deadline
        self._in_time = in_time

    def sendall(self, content: ReadableBuffer, /) -> None:
        """Send all of it."""
        left = memoryview(content).cast("B")
        while left:
            self._connection.settimeout(self._deadline.left())
            if not self.begun:
                self._begin()
            left = left[self._connection.send(left) :]

    def makefile(self, mode: str, /) -> io.BufferedReader:
        """Return the stream of the answer."""
        return io.BufferedReader(_Answer(self._connection, self._deadline))

    def close(self) -> None:
        """Do nothing: `http.client` lets go of it before the answer is read."""

    def hang_up(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _begin(self) -> None:
        reach("target.connected")
        if not self._in_time():
            raise TooLate("the permit is over")
        self.begun = True


class _Answer(io.RawIOBase):
    """The raw bytes of an answer, each read of them before the deadline."""

    def __init__(self, connection: socket.socket, deadline: Deadline) -> None:
        self._connection = connection
        self._deadline = deadline

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read what is there, at least a byte but at the end."""
        self._connection.settimeout(self._deadline.left())
        return self._connection.recv_into(buffer)
