"""A target that is reached by HTTP: one request for each dispatch, over a connection of its own."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Final, TypeAlias

from agent_run_ledger.errors import Misuse
from agent_run_ledger.kernel.effects.evidence import Found
from agent_run_ledger.kernel.effects.report import Answered, Lost, NotSent, Report
from agent_run_ledger.kernel.effects.request import Call, Request
from agent_run_ledger.kernel.effects.request_rules import FRAMING, REROUTING, BadRequest, check_headers, sorted_headers
from agent_run_ledger.kernel.effects.states import TargetClass
from agent_run_ledger.ports.targets import Sending
from agent_run_ledger.probes import reach
from agent_run_ledger.targets.address import Address, address_of
from agent_run_ledger.targets.wire import Deadline, TooLate, Untrusted, Wire, connect

if TYPE_CHECKING:
    import ssl
    from http.client import HTTPConnection, HTTPResponse

TIMEOUT_S: Final = 30.0
MAX_ANSWER_BYTES: Final = 1 << 20
_PART_BYTES: Final = 64 << 10
_NO_HOST: Final = "no-host.invalid"

EXECUTED: Final = frozenset(range(200, 300)) - {202, 207}
"""Statuses by which a target says that it did it. 202: it accepted it and may do it later; 207: parts of it."""

Credentials: TypeAlias = "Mapping[str, str] | Callable[[], Mapping[str, str]]"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HttpTarget:
    """See `http`, which makes it."""

    address: Address
    idempotency_header: str | None
    timeout_s: float
    max_answer_bytes: int
    executed: frozenset[int]
    fixed: tuple[tuple[str, str], ...] = field(repr=False)
    fresh: Callable[[], Mapping[str, str]] | None = field(repr=False)
    tls: ssl.SSLContext | None = field(repr=False)

    @property
    def audience(self) -> str:
        """The URL, without a slash at its end and without the scheme's own port."""
        return self.address.url

    @property
    def target_class(self) -> TargetClass:
        """I with an idempotency header, else N."""
        return TargetClass.N if self.idempotency_header is None else TargetClass.I

    def check(self, request: Request | Call) -> None:
        """Misuse("other_request") for a call of a function, or a header that is this target's own."""
        self._check(request, {self.idempotency_header, *(name for name, _ in self.fixed)})

    def send(self, sending: Sending) -> Report:
        """See ports.targets.Target.send.

        One request: no redirect is followed, nothing is sent again, no proxy of the environment is used, and the
        connection is closed. `timeout_s` bounds all of it but the look-up of the host's name.
        """
        try:
            request, headers = self._ready(sending)
        except Exception:
            return NotSent(reason="credentials")  # what was raised may hold one
        return self._exchange(sending, request, headers)

    def _check(self, request: Request | Call, taken: set[str | None]) -> Request:
        if not isinstance(request, Request):
            raise Misuse(f"{self.audience} takes requests and no calls of functions", code="other_request")
        for name, _ in request.headers:
            if name in taken:
                raise Misuse(f"the header {name!r} is the target's own", code="other_request")
        return request

    def _ready(self, sending: Sending) -> tuple[Request, list[tuple[str, str]]]:
        """Return the request with all headers that go with it."""
        own = self.fixed if self.fresh is None else _credentials(self.fresh())
        if self.idempotency_header is not None:
            own = sorted_headers([*own, (self.idempotency_header, sending.idempotency_key)])
            check_headers(own, forbidden=FRAMING | REROUTING)
        request = self._check(sending.request, {name for name, _ in own})
        return request, [*request.headers, *own]

    def _exchange(self, sending: Sending, request: Request, headers: list[tuple[str, str]]) -> Report:
        from http.client import HTTPConnection, HTTPException

        wire, status, deadline = None, None, Deadline(self.timeout_s)
        try:
            wire = Wire(connect(self.address, deadline, self.tls), deadline, sending.in_time)
            connection = HTTPConnection(_NO_HOST)
            connection.auto_open, connection.sock = 0, wire
            self._write(connection, request, headers)
            reach("target.written")
            response = connection.getresponse()
            status = response.status
            reach("target.status")
            return self._answer(response)
        except TooLate:
            return NotSent(reason="permit_expired")
        except (OSError, HTTPException, ValueError) as error:
            return _without_answer(wire, error, status)
        finally:
            if wire is not None:
                wire.hang_up()

    def _write(self, connection: HTTPConnection, request: Request, headers: list[tuple[str, str]]) -> None:
        """Write the request: method, path, headers and body as they were approved, framing and credentials."""
        path = self.address.prefix + request.path
        connection.putrequest(request.method, path, skip_host=True, skip_accept_encoding=True)
        size = str(len(request.body))
        framing = [("host", self.address.authority), ("connection", "close"), ("content-length", size)]
        for name, value in [*framing, *headers]:
            connection.putheader(name, value)
        connection.endheaders(request.body)

    def _answer(self, response: HTTPResponse) -> Report:
        """Return what an answer says, once all of it is there. Of one that does not end nothing is taken as said."""
        parts, size = list[bytes](), 0
        while part := response.read1(_PART_BYTES):
            size += len(part)
            if size > self.max_answer_bytes:
                return Lost(reason="answer_too_long", status=response.status)
            parts.append(part)
        if response.length:
            return Lost(reason="answer_cut_short", status=response.status)
        body = b"".join(parts)
        found = Found.EXECUTED if response.status in self.executed else Found.UNKNOWN
        return Answered(found=found, status=response.status, body_sha256=sha256(body).digest(), body=body)


def http(
    url: str,
    idempotency_header: str | None = None,
    *,
    headers: Credentials | None = None,
    timeout_s: float = TIMEOUT_S,
    max_answer_bytes: int = MAX_ANSWER_BYTES,
    executed: frozenset[int] = EXECUTED,
    allow_plain_http: bool = False,
    tls: ssl.SSLContext | None = None,
) -> HttpTarget:
    """Return a target at a URL; every request's path comes after the URL's own.

    `idempotency_header`: the one by which the receiver remembers a key, where it does (class I); else it is a plain
    target (class N). `headers`: credentials, or what returns them anew for each dispatch; they are never stored.
    `executed`: the statuses that say that it was done. `tls`: a context that verifies, for a CA of your own or a
    certificate; the default is the system's.

    Misuse: bad_url; plain_http, for `http://` to another machine that is not allowed; unverified_tls, for a context
    that takes any certificate; bad_target, for headers that cannot be sent, numbers that bound nothing, or statuses
    that are no success.
    """
    address = address_of(url, allow_plain_http=allow_plain_http)
    named = None if idempotency_header is None else idempotency_header.lower()
    try:
        check_headers(() if named is None else ((named, "0"),))
        own = () if headers is None or callable(headers) else _credentials(headers)
    except BadRequest as error:
        raise Misuse(f"the headers of {address.url}: {error.message}", code="bad_target") from None
    if named in {name for name, _ in own}:
        raise Misuse(f"{named!r} is the idempotency header and a credential of {address.url}", code="bad_target")
    if not 0 < timeout_s <= 3_600 or max_answer_bytes < 0 or not executed <= frozenset(range(200, 300)):
        said = "a target needs a timeout of at most an hour, a size from 0 on, and statuses from 200 to 299"
        raise Misuse(said, code="bad_target")
    return HttpTarget(
        address=address,
        idempotency_header=named,
        timeout_s=timeout_s,
        max_answer_bytes=max_answer_bytes,
        executed=executed,
        fixed=own,
        fresh=headers if callable(headers) else None,
        tls=_verifying(tls) if address.secure else None,
    )


def _credentials(given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return credentials as headers. BadRequest, without a value in it, for what is no header."""
    own = sorted_headers(given.items())
    check_headers(own, forbidden=FRAMING | REROUTING)
    return own


def _verifying(tls: ssl.SSLContext | None) -> ssl.SSLContext:
    import ssl

    if tls is None:
        tls = ssl.create_default_context()
        tls.set_alpn_protocols(["http/1.1"])
    if tls.verify_mode is not ssl.CERT_REQUIRED or not tls.check_hostname:
        raise Misuse("this TLS context takes a certificate that nobody vouches for", code="unverified_tls")
    return tls


def _without_answer(wire: Wire | None, error: Exception, status: int | None) -> Report:
    """Return what an error says: nothing was sent where no byte was, and anything may have happened where one was."""
    reason = _REASONS[next(kind for kind in _REASONS if isinstance(error, kind))]
    if status is not None and reason == _NO_HTTP:
        reason = "answer_cut_short"
    return Lost(reason=reason, status=status) if wire is not None and wire.begun else NotSent(reason=reason)


_NO_HTTP: Final = "no_http"
_REASONS: Final[dict[type[Exception], str]] = {
    TimeoutError: "timeout",
    Untrusted: "untrusted",
    ConnectionRefusedError: "refused",
    ConnectionError: "broken",
    socket.gaierror: "no_such_host",
    OSError: "failed",
    Exception: _NO_HTTP,
}
"""Words for errors, the narrower ones first. The texts of errors are left out: they may quote what was sent."""
