"""Where a kit's ledger is: a file in the folder of its scenario, or a database of its own at a server."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.store_urls import without_secrets
from agent_run_ledger.store.opening import databases_at, open_store

LEDGER_FILE: Final = "ledger.db"
DB_VARIABLE: Final = "AGENT_RUN_LEDGER_DB"

SERVER_VARIABLE: Final = "ARL_KIT_SERVER"
"""By which a process of a kit knows that AGENT_RUN_LEDGER_DB names a database that the kit made, and where."""

OLDER_FILE: Final = "older.db"
_NEWER_FILE: Final = "newer.db"
_MADE_OF: Final = ("", "-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerPlace:
    """The place of one ledger. `server` and `url` are empty for a file in `folder`."""

    folder: Path
    server: str = ""
    url: str = ""

    @staticmethod
    def here(folder: Path) -> LedgerPlace:
        """Return the place that this process was told, the file in `folder` where it was told none."""
        server = os.environ.get(SERVER_VARIABLE, "")
        return LedgerPlace(folder=folder, server=server, url=os.environ[DB_VARIABLE] if server else "")

    @property
    def named(self) -> str:
        """The path or the URL, by which the ledger is opened."""
        return self.url or str(self.folder / LEDGER_FILE)

    @property
    def shown(self) -> str:
        """The same for people, without a password."""
        return without_secrets(self.named)

    def env(self) -> dict[str, str]:
        """Return how a child process is told."""
        return {DB_VARIABLE: self.url, SERVER_VARIABLE: self.server} if self.url else {}

    def is_there(self) -> bool:
        """Return whether anything lies there that `check_ledger` is to look at."""
        if not self.url:
            return os.path.exists(self.named)
        try:
            open_store(self.url, create=False, readonly=True).close()
        except Refused as error:
            return error.code != "no_store"
        return True

    def keep_a_copy(self) -> str:
        """Copy a ledger that nobody has open by now, and return the name of the copy."""
        if self.url:
            return databases_at(self.server).keep_a_copy(self.url)
        _copy(self.folder / LEDGER_FILE, self.folder / OLDER_FILE)
        return str(self.folder / OLDER_FILE)

    def put_the_copy_back(self) -> None:
        """Put the copy in the place of the ledger, as a restore does. In a folder the newer one stays beside it."""
        if self.url:
            databases_at(self.server).put_the_copy_back(self.url)
            return
        for made in _MADE_OF:
            if os.path.exists(found := f"{self.named}{made}"):
                os.rename(found, f"{self.folder / _NEWER_FILE}{made}")
        _copy(self.folder / OLDER_FILE, self.folder / LEDGER_FILE)

    def remove(self) -> None:
        """Drop the database and its copy; a file stays, as its folder is the caller's."""
        if self.url:
            databases_at(self.server).drop(self.url)


def new_place(folder: Path, server: str | None) -> LedgerPlace:
    """Return a place where nothing lies yet: in an empty folder, or in a new database at the server of a URL."""
    if server is None:
        return LedgerPlace(folder=folder)
    return LedgerPlace(folder=folder, server=server, url=databases_at(server).new())


@contextmanager
def ledger_place(folder: Path, server: str | None) -> Generator[LedgerPlace]:
    """A new place, whose database is gone after the block."""
    place = new_place(folder, server)
    try:
        yield place
    finally:
        place.remove()


def _copy(source: Path, destination: Path) -> None:
    for made in _MADE_OF:
        if os.path.exists(f"{source}{made}"):
            shutil.copyfile(f"{source}{made}", f"{destination}{made}")
