"""The one opener of a PostgreSQL store: nothing else in this library connects to its database."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote
from weakref import WeakSet

import psycopg
from psycopg.conninfo import conninfo_to_dict

from agent_run_ledger.errors import Misuse, Refused, Unavailable
from agent_run_ledger.kernel.store_urls import check_wait
from agent_run_ledger.ports import Entropy
from agent_run_ledger.store.forks import register
from agent_run_ledger.store.postgres_driver import Connection, connect_to
from agent_run_ledger.store.postgres_failures import translated, unconnected
from agent_run_ledger.store.statements import statements

QUERIES_FILE: Final = "postgres_queries.sql"
EFFECTS_FILE: Final = "postgres_effects.sql"
_LONGER: Final = 2
_MORE_S: Final = 0.5
"""A statement may take twice the wait for a lock, and its answer so much longer."""

OLDEST_SERVER: Final = 130_000
"""As server_version_num says it. Older ones get no corrections any more."""

_CONFIRMED: Final = ("on", "remote_apply")
_MAY_BE_STANDBY: Final = frozenset({"any", "standby", "prefer-standby", "read-only"})
"""As target_session_attrs: who says so may read what is older than what was committed."""

_PORTS: Final = re.compile(r"(\d*,)*\d*")

_SCHEMA_PATH: Final = "agent_run_ledger,pg_temp"

# What a dead peer costs: without these a lost host is noticed after two hours. The URL may say otherwise.
_DEFAULTS: Final[Mapping[str, str]] = {
    "application_name": "agent-run-ledger",
    "connect_timeout": "10",
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}

# The same for the server's side: the locks of a host that is gone are held until the server notices. What the URL's
# options say stands behind it, and above it.
_NOTICED: Final = " ".join(
    f"-c {name}={value}"
    for name, value in {
        "tcp_keepalives_idle": 10,
        "tcp_keepalives_interval": 5,
        "tcp_keepalives_count": 3,
        "tcp_user_timeout": 30_000,
    }.items()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One database and how this process uses it. `location` has no password in it, `parameters` may."""

    location: str
    wait_s: float
    entropy: Entropy
    parameters: Mapping[str, Any] = field(repr=False)


def place_of(url: str, *, wait_s: float, entropy: Entropy) -> Place:
    """Return what a URL (postgresql://…) names.

    Misuse: "bad_url" where it is none, whose message does not repeat it; "bad_setting" for a wait without an end.
    """
    check_wait(wait_s)
    named = None
    with suppress(psycopg.Error, ValueError):  # what the driver says of it may hold the password
        named = conninfo_to_dict(url)
    if named is None or not _PORTS.fullmatch(str(named.get("port") or "")):
        raise Misuse(
            "the URL of the store is not one of PostgreSQL",
            code="bad_url",
            hint="postgresql://user@host:5432/database; percent-encode what is special in a password",
        )
    parameters = {**_DEFAULTS, **named, "client_encoding": "UTF8"}
    return Place(location=_location_of(named), wait_s=wait_s, entropy=entropy, parameters=parameters)


def _location_of(named: Mapping[str, Any]) -> str:
    hosts = str(named.get("host") or named.get("hostaddr") or os.environ.get("PGHOST") or "localhost").split(",")
    ports = str(named.get("port") or os.environ.get("PGPORT") or "5432").split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    where = ",".join(f"{_in_brackets(host)}:{port or 5432}" for host, port in zip(hosts, ports, strict=False))
    user = named.get("user") or os.environ.get("PGUSER")
    database = named.get("dbname") or os.environ.get("PGDATABASE") or user or ""
    who = f"{quote(str(user), safe='')}@" if user else ""
    service = str(named.get("service") or "")  # says all that the URL does not
    more = f"?service={quote(service, safe='')}" if service else ""
    return f"postgresql://{who}{quote(where, safe=',:.[]')}/{quote(str(database), safe='')}{more}"


def _in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def connect(place: Place, *, readonly: bool = False, primary: bool = True) -> Connection:
    """Open a connection and make sure that it is what the store needs: direct, synchronous, on tables of ours.

    Of several hosts that the URL names the first one is taken that may be written. `readonly` without `primary` lets a
    standby be read, where it is the only host or the URL asks for one.
    Unavailable: unreachable, too_many_connections, server_starting, read_only. Refused: login_refused, no_database,
    pooled_connection, bad_encoding. Misuse: server_too_old, bad_url (a parameter of it that is none).
    """
    parameters = {
        **place.parameters,
        **_wanted_host(place, readonly=readonly, primary=primary),
        "options": _options(place, readonly=readonly),
    }
    connection, failed = None, None
    try:
        connection = connect_to(parameters, limit_s=_LONGER * place.wait_s + _MORE_S)
    except psycopg.Error as error:
        failed = type(error)(*error.args)  # without what the driver adds: all that it was to connect with
    if connection is None or failed is not None:
        raise unconnected(failed or psycopg.OperationalError(), place.location) from failed
    try:
        _check_session(connection, place, readonly=readonly, primary=primary)
    except BaseException as error:
        connection.close()
        if isinstance(error, psycopg.Error):
            raise translated(error, place.location) from error
        raise
    _open.add(connection)
    return connection


def _wanted_host(place: Place, *, readonly: bool, primary: bool) -> dict[str, str]:
    """Return which of several hosts will do. A session that is read-only by its own options is never "read-write"."""
    asked = str(place.parameters.get("target_session_attrs") or os.environ.get("PGTARGETSESSIONATTRS") or "")
    several = "," in f"{place.parameters.get('host') or ''}{place.parameters.get('hostaddr') or ''}"
    if asked in _MAY_BE_STANDBY and readonly and not primary:
        return {}
    if not asked and not several:
        return {}
    return {"target_session_attrs": "primary" if readonly else "read-write"}


def _options(place: Place, *, readonly: bool) -> str:
    """Return what the session begins with. It stands above what the role or the database has been given."""
    wait_ms = max(1, round(place.wait_s * 1000))
    given = str(place.parameters.get("options") or "")
    wanted = {
        "search_path": _SCHEMA_PATH,
        "lock_timeout": str(wait_ms),
        "statement_timeout": str(_LONGER * wait_ms),
        "idle_in_transaction_session_timeout": str(_LONGER * wait_ms),
        "client_min_messages": "warning",
        "default_transaction_read_only": "on" if readonly else "off",
        "default_transaction_isolation": "read\\ committed",
        "jit": "off",
        "quote_all_identifiers": "off",  # this and the next two: the text of definitions is compared
        "bytea_output": "hex",
        "standard_conforming_strings": "on",
    }
    if "synchronous_commit" not in given:
        wanted["synchronous_commit"] = "on"
    return " ".join((_NOTICED, given, *(f"-c {name}={value}" for name, value in wanted.items()))).strip()


def _check_session(connection: Connection, place: Place, *, readonly: bool, primary: bool) -> None:
    found = connection.execute(statements(QUERIES_FILE)["select_session"], prepare=False).fetchall()[0]
    pid, synchronous, path, encoding, version, standby, *_ = found
    location = place.location
    if pid != connection.info.backend_pid or path.replace(" ", "") != _SCHEMA_PATH:
        raise Refused(
            f"{location} is reached through a connection pooler: locks and settings of a session do not last there",
            code="pooled_connection",
            hint="name the server itself; every process keeps a few connections of its own",
        )
    if version < OLDEST_SERVER:
        raise Misuse(f"{location} runs PostgreSQL {version // 10_000}", code="server_too_old", hint="13 is the oldest")
    if encoding != "UTF8":
        raise Refused(
            f"{location} stores text as {encoding}", code="bad_encoding", hint="make a database with ENCODING 'UTF8'"
        )
    if standby and (primary or not readonly):
        raise Unavailable(
            f"{location} is a standby, which cannot be written", code="read_only", hint="name the primary"
        )
    if not readonly and synchronous not in _CONFIRMED:
        raise Unavailable(
            f"{location}: synchronous_commit is {synchronous}, so that a commit could be lost",
            code="cannot_open",
            hint="take it out of the URL's options",
        )


class _Fork:
    """What a fork does to connections: nothing in the parent; in a child they lead nowhere.

    The driver closes no connection of another process. But whoever comes back out of a transaction in a child, or
    reads on in it, would write into the parent's connection.
    """

    def before_fork(self) -> None:
        """See Forkable."""

    def after_fork_in_parent(self) -> None:
        """See Forkable."""

    def after_fork_in_child(self) -> None:
        """See Forkable."""
        for connection in list(_open):
            if connection.closed:
                continue
            ours, other = socket.socketpair()
            other.close()
            os.dup2(ours.fileno(), connection.fileno())
            ours.close()


_open: WeakSet[Connection] = WeakSet()

if sys.platform != "win32":
    register(_Fork())
