"""The address of an HTTP target: one host, and where plain text may go."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import SplitResult, urlsplit

from agent_run_ledger.errors import Misuse
from agent_run_ledger.kernel.effects.request_rules import BadRequest, check_path

_PORTS: Final = {"http": 80, "https": 443}
_HOST: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-._:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where an HTTP target is. `prefix` comes before every path, and is empty or begins with `/`.

    `loopback_only`: nothing is sent to a peer that is not this machine, whatever its name leads to.
    """

    url: str
    secure: bool
    host: str
    port: int
    prefix: str
    loopback_only: bool

    @property
    def authority(self) -> str:
        """The value of the header Host: the port only where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS["https" if self.secure else "http"] else f"{host}:{self.port}"


def address_of(url: str, *, allow_plain_http: bool) -> Address:
    """Return the address of a URL. Misuse("bad_url") for one that is more or less than scheme, host, port and path.

    Misuse("plain_http"): `http://` to another machine, unless it is allowed.
    """
    parts, port = _split(url)
    host = parts.hostname or ""
    if parts.scheme not in _PORTS or not host or not _HOST.issuperset(host) or "@" in parts.netloc:
        raise _bad("is `http` or `https` with a host in ASCII, and without a name or a password")
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise _bad("ends with its path: a query belongs to the request")
    prefix = parts.path.rstrip("/")
    if prefix:
        _check_prefix(prefix)
    secure = parts.scheme == "https"
    if not secure and not allow_plain_http and not is_loopback(host):
        raise Misuse(
            f"plain http to {host} can be read and changed on its way",
            code="plain_http",
            hint="use https, or say allow_plain_http=True where the way is private",
        )
    address = Address(
        url="",
        secure=secure,
        host=host,
        port=_PORTS[parts.scheme] if port is None else port,
        prefix=prefix,
        loopback_only=not secure and not allow_plain_http,
    )
    whole = f"{parts.scheme}://{address.authority}{prefix}"
    return replace(address, url=whole)


def is_loopback(host: str) -> bool:
    """Return whether a host, by its name or its number, is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _split(url: str) -> tuple[SplitResult, int | None]:
    """Return the parts of a URL, as it stands: no space, control character or backslash is taken out of it."""
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise _bad("is printable ASCII")
    try:
        parts = urlsplit(url)
        return parts, parts.port
    except ValueError as error:
        raise _bad(f"cannot be read: {error}") from None


def _check_prefix(prefix: str) -> None:
    try:
        check_path(prefix)
    except BadRequest as error:
        raise _bad(f"has a path that no request may have: {error.message}") from None


def _bad(said: str) -> Misuse:
    """Return the error of a URL, which is not quoted: it may hold a password."""
    return Misuse(f"the URL of a target {said}", code="bad_url")
