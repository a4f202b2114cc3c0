"""Tells the URL of a store from a path, and shows it without what nobody may see."""

from __future__ import annotations

import re
from os import PathLike
from typing import Final

from agent_run_ledger.errors import Misuse

_SCHEMES = ("postgresql://", "postgres://")

_OTHER_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://|postgres[a-z]*(\+[a-z0-9]+)?:/", re.IGNORECASE)
"""What no path begins with. With one / it is a URL that was a pathlib.Path in between."""

_PARAMETERS: Final = (
    "user|password|passfile|host|hostaddr|port|dbname|service|options|application_name|fallback_application_name|"
    "connect_timeout|client_encoding|keepalives\\w*|tcp_user_timeout|replication|target_session_attrs|"
    "load_balance_hosts|channel_binding|require_auth|requirepeer|ssl\\w*|gss\\w*|krb\\w*|min_protocol_version|"
    "max_protocol_version"
)
_PAIR: Final = re.compile(rf"(?:^|\s)({_PARAMETERS})\s*=")
_ONE_PARAMETER: Final = re.compile(rf"(?:{_PARAMETERS})=.*", re.DOTALL)
MOST_WAIT_S: Final = 7 * 24 * 3_600
"""The longest wait for a lock of a store: twice that in milliseconds is still a setting of a server."""

_PORT: Final = re.compile(r"\d*")


def is_url(named: object) -> bool:
    """Return whether this names a store at a server, and not one in a file.

    Misuse("bad_url") for what is neither: a URL of another kind, or what a PostgreSQL client is told in pairs of
    name=value. Taken for the name of a file it would be shown, with its password. The message does not repeat it.
    """
    if isinstance(named, str) and named.startswith(_SCHEMES):
        return True
    if _reads_as_server(named):
        raise Misuse(
            "the name of the store is neither a path nor a URL that begins with postgresql://",
            code="bad_url",
            hint="postgresql://user@host:5432/database; a file of that name can be given as ./NAME",
        )
    return False


def without_secrets(named: str) -> str:
    """Return the name of a store for people: a path as it is, a URL without its password and its parameters.

    What may be a password, as something stands between it and an @ that should be encoded, is not shown either. Of
    what only reads like the address of a server nothing is shown.
    """
    if _reads_as_server(named):
        return "(a server that is not named by a URL)"
    if not named.startswith(_SCHEMES):
        return named
    scheme, _, rest = named.partition("://")
    where, _, parameters = rest.partition("?")
    if "@" in parameters and not all(map(_ONE_PARAMETER.fullmatch, parameters.split("&"))):
        where = rest  # a ? in a password
    where = where if "@" in where else where.partition("#")[0]
    who, at, where = where.rpartition("@")
    user = who.partition(":")[0] + at
    where = where.partition("?")[0].partition("#")[0]
    hosts, slash, database = where.partition("/")
    if not all(map(_has_a_port_or_none, hosts.split(","))):  # a password whose @ is missing
        return f"{scheme}://{user}{hosts.partition(':')[0]}"
    return f"{scheme}://{user}{hosts}{slash}{database}"


def check_wait(wait_s: float) -> None:
    """Misuse("bad_setting") for what is no time to wait for a lock of a store: at most a week, and no NaN."""
    if not 0 <= wait_s <= MOST_WAIT_S:
        raise Misuse(f"wait_s is a number of seconds from 0 to {MOST_WAIT_S:,}, not {wait_s!r}", code="bad_setting")


def _reads_as_server(named: object) -> bool:
    text = str(named)
    if not isinstance(named, str | PathLike):
        return False
    if text.startswith(_SCHEMES):
        return False
    pairs = _PAIR.findall(text)
    told = _PAIR.match(text.lstrip()) is not None and (len(pairs) > 1 or "/" not in text or pairs == ["password"])
    return told or _OTHER_SCHEME.match(text) is not None


def _has_a_port_or_none(host: str) -> bool:
    name, colon, port = host.rpartition(":")
    return (
        not colon
        or host.endswith("]")
        or (_PORT.fullmatch(port) is not None and (":" not in name or name.endswith("]")))
    )
