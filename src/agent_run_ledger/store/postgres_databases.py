"""Databases of a kit's own at a server: new ones, a copy of one, and that copy put back in its place."""

from __future__ import annotations

import re
import secrets
from contextlib import closing
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import psycopg

from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.errors import Misuse, Refused
from agent_run_ledger.store.postgres import connect, place_of
from agent_run_ledger.store.postgres_failures import translated
from agent_run_ledger.store.statements import statements

DATABASES_FILE: Final = "postgres_databases.sql"
PREFIX: Final = "arl_scratch_"
_OLDER: Final = "_older"
_OURS: Final = re.compile(rf"{PREFIX}[0-9a-f]{{16}}(?:{_OLDER})?")
_WAIT_S: Final = 30.0


class Databases:
    """Makes databases at the server of a URL, and drops no others than its own.

    Their names begin with `arl_scratch_`. The database of the URL stays as it is: it is where the orders are given, by
    a user who may create databases. Nothing is kept open.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._place = place_of(server, wait_s=_WAIT_S, entropy=SystemEntropy())

    def new(self) -> str:
        """Make an empty database and return its URL. Refused("no_permission"), Unavailable as for a store."""
        name = f"{PREFIX}{secrets.token_hex(8)}"
        self._run("make", name)
        return self._url(name)

    def keep_a_copy(self, url: str) -> str:
        """Copy a database in which nobody has a session by now, and return the copy's URL.

        The server waits for sessions that end, as those of a dead process do. An earlier copy is gone.
        """
        name = _name(url)
        self._run("drop", name + _OLDER)
        self._run("copy", name + _OLDER, name)
        return self._url(name + _OLDER)

    def put_the_copy_back(self, url: str) -> None:
        """Put the copy in the place of its original, as a restore does; whoever is in that is thrown out."""
        name = _name(url)
        self._run("drop", name)
        self._run("copy", name, name + _OLDER)

    def drop(self, url: str) -> None:
        """Remove a database and its copy, with whoever is in them."""
        self._run("drop", _name(url))
        self._run("drop", _name(url) + _OLDER)

    def _run(self, order: str, new: str, old: str = "") -> None:
        text = statements(DATABASES_FILE)[order].replace("arl_scratch_new", new).replace("arl_scratch_old", old)
        with closing(connect(self._place)) as connection:
            try:
                connection.execute(text, prepare=False)
            except psycopg.errors.InsufficientPrivilege as error:
                raise Refused(
                    f"this user may not make databases at {self._place.location}",
                    code="no_permission",
                    hint="name one who may: ALTER ROLE name CREATEDB",
                ) from error
            except psycopg.Error as error:
                raise translated(error, self._place.location) from error

    def _url(self, name: str) -> str:
        parts = urlsplit(self._server)
        kept = [(key, value) for key, value in parse_qsl(parts.query, keep_blank_values=True) if key != "dbname"]
        return parts._replace(path=f"/{name}", query=urlencode(kept, quote_via=quote)).geturl()


def _name(url: str) -> str:
    """Return the name of a database that we made. Misuse("bad_url") for any other."""
    name = unquote(urlsplit(url).path.removeprefix("/"))
    if _OURS.fullmatch(name) is None:
        raise Misuse(f"{name!r} is no database that a kit made", code="bad_url")
    return name
