"""Opens a store by what it is named with: a path for one in a file, a URL for one at a server."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from agent_run_ledger.errors import Misuse, Refused
from agent_run_ledger.kernel.store_urls import is_url, without_secrets
from agent_run_ledger.ports import Clock, Entropy, Store
from agent_run_ledger.store.moves import Move
from agent_run_ledger.store.rows import Rows
from agent_run_ledger.store.sqlite import Durability
from agent_run_ledger.store.sqlite_stats import Migration
from agent_run_ledger.store.sqlite_store import WAIT_S, Copied, SqliteStore, open_sqlite, stored_durability

if TYPE_CHECKING:
    from agent_run_ledger.store.postgres_databases import Databases


class AnyStore(Store, Protocol):
    """What every kind of store can do beside `ports.Store`."""

    @property
    def created_at_ms(self) -> int:
        """When the store was created, Unix milliseconds."""
        ...

    @property
    def is_copy(self) -> bool:
        """Whether the store says of itself that it is a copy."""
        ...

    @property
    def copied(self) -> Copied | None:
        """Of what a copy was made; None for a store that is none."""
        ...

    @property
    def move(self) -> Move:
        """What the store says of a move of its ledger."""
        ...

    def read_move(self) -> Move:
        """Return what the store says of a move now."""
        ...

    @property
    def created_here(self) -> bool:
        """Whether it was this process that created the store."""
        ...

    def query(self, sql: str) -> Rows:
        """Run people's own SQL on a store opened with readonly=True. Refused: "not_a_read", "bad_sql"."""
        ...

    def journal(self) -> tuple[str, int | str]:
        """Return what makes commits durable, as the connection that is written through says it now."""
        ...

    def migrations(self) -> list[Migration]:
        """Return the migrations that made this store what it is, in order."""
        ...

    def grant_authority(self) -> bool:
        """Let this store hold effects, with a leaf that says so; False when it already could."""
        ...


def open_store(
    named: str | os.PathLike[str],
    *,
    create: bool,
    authority: bool = False,
    durability: str = Durability.FULL,
    readonly: bool = False,
    wait_s: float = WAIT_S,
    clock: Clock | None = None,
    entropy: Entropy | None = None,
    moving: bool = False,
) -> AnyStore:
    """Open the store at a path or a URL (postgresql://…). See open_sqlite and open_postgres for settings and errors.

    Misuse: "bad_settings" for another durability than "full" at a server, "extra_missing" without its driver.
    """
    if not is_url(named):
        return open_sqlite(
            named,
            create=create,
            authority=authority,
            durability=durability,
            readonly=readonly,
            wait_s=wait_s,
            clock=clock,
            entropy=entropy,
            moving=moving,
        )
    if durability != Durability.FULL:
        raise Misuse(f"durability={durability!r} is for a store in a file", code="bad_settings")
    with _driver():
        from agent_run_ledger.store.postgres_store import open_postgres
    return open_postgres(
        os.fspath(named),
        create=create,
        authority=authority,
        readonly=readonly,
        wait_s=wait_s,
        clock=clock,
        entropy=entropy,
        moving=moving,
    )


def upgraded_from(url: str) -> int | None:
    """Bring a store at a server to this program's schema version; return which one it had, None for the same one."""
    with _driver():
        from agent_run_ledger.store.postgres_upgrade import upgrade_postgres
    return upgrade_postgres(url)


def databases_at(server: str) -> Databases:
    """Return what makes databases for kits at the server of a URL. Misuse: "bad_url", "extra_missing"."""
    if not is_url(server):
        raise Misuse("the URL of a server begins with postgresql://", code="bad_url")
    with _driver():
        from agent_run_ledger.store.postgres_databases import Databases
    return Databases(server)


@contextmanager
def _driver() -> Generator[None]:
    try:
        yield
    except ImportError as error:
        raise Misuse(
            f"a store at a server needs a driver that is not there: {error}",
            code="extra_missing",
            hint='pip install "agent-run-ledger[postgres]"',
        ) from error


def named_store(db_path: str | os.PathLike[str] | None, url: str | None) -> str | os.PathLike[str]:
    """Return the name of a store that is given. Misuse: "bad_path" for two or none, "bad_url" for no URL."""
    if (db_path is None) is (url is None):
        raise Misuse("a store has either a db_path or a url", code="bad_path")
    if db_path is not None:
        return db_path
    if not is_url(url):
        raise Misuse("the url of a store begins with postgresql://", code="bad_url")
    return str(url)


def durability_of(named: str | os.PathLike[str], *, wait_s: float = WAIT_S) -> str:
    """Return the durability to open a store with: as stored_durability says for a file, "full" for a server."""
    return Durability.FULL if is_url(named) else stored_durability(named, wait_s=wait_s)


def only_in_file(store: AnyStore, what: str, *, hint: str) -> SqliteStore:
    """Return a store that is in a file. Refused("only_in_file") for one at a server; `what` cannot be done there."""
    if isinstance(store, SqliteStore):
        return store
    raise Refused(f"{store.location} is at a server: {what}", code="only_in_file", hint=hint)


def refuse_server(named: str | os.PathLike[str], what: str, *, hint: str) -> None:
    """Refused("only_in_file") where a URL is named for what only a store in a file can do."""
    if is_url(named):
        raise Refused(f"{without_secrets(str(named))} is at a server: {what}", code="only_in_file", hint=hint)
