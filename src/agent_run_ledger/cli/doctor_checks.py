"""The findings of `arl doctor`: what was looked at, how it looks, and what to do about it."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from agent_run_ledger.cli.copies import copied_words, moved_words
from agent_run_ledger.cli.disk_probe import TRIES, sync_median_us
from agent_run_ledger.cli.doctor_trust import look_at_trust
from agent_run_ledger.cli.next_steps import no_store_hint, with_store
from agent_run_ledger.cli.settings import Setting
from agent_run_ledger.cli.version import versions
from agent_run_ledger.cli.words import counted, leaves_words, size_words
from agent_run_ledger.errors import LedgerError, Tampered
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.kernel.store_urls import is_url

if TYPE_CHECKING:
    from agent_run_ledger.store import AnyStore, StoreStats

OLDEST_SQLITE = (3, 51, 3)
"""The first SQLite without the WAL-reset fault."""

SLOW_SYNC_US = 20_000.0
UNBELIEVABLE_SYNC_US = 15.0
LARGE_WAL_BYTES = 64 * 1024 * 1024
PROBED_RUNS = 1000
BAD_ENVIRONMENT = 5
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_CHMOD = "chmod 600 it: records hold what your steps returned"


Figure = float | int | str | bool | None | Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding. `level` is ok, note, warn or bad; `advice` is what to do, empty where nothing is to be done."""

    level: str
    subject: str
    words: str
    advice: str = ""


@dataclass(slots=True, kw_only=True)
class Findings:
    """Everything found about one location. `exit_code` is 0 unless something is bad; `numbers` are for programs."""

    setting: Setting
    findings: list[Finding] = field(default_factory=list[Finding])
    numbers: dict[str, Figure] = field(default_factory=dict[str, Figure])
    exit_code: int = 0

    @property
    def location(self) -> str:
        """The absolute path of the store, which need not exist; of one at a server its URL without the password."""
        return self.setting.shown if is_url(self.setting.value) else os.path.realpath(self.setting.value)

    def add(self, level: str, subject: str, words: str, advice: str = "", *, exit_code: int = BAD_ENVIRONMENT) -> None:
        """Note one finding; the first bad one decides the exit code. Commands in `advice` are completed with `--db`."""
        advice = with_store(advice, self.setting)
        self.findings.append(Finding(level=level, subject=subject, words=words, advice=advice))
        if level == "bad" and self.exit_code == 0:
            self.exit_code = exit_code


def examine(setting: Setting, *, sizes: bool = False) -> Findings:
    """Look at everything and return the findings; never raises a LedgerError. Works without a store too.

    `sizes`: also at every page of the store, for the size of each table and index.
    """
    found = Findings(setting=setting)
    _look_at_program(found)
    if is_url(setting.value):
        _look_at_server(found)
        return found
    found.add("ok", "store path", f"{found.location} (from {setting.source})")
    folder = os.path.dirname(found.location)
    if not os.path.isdir(folder):
        found.add("bad", "folder", f"{folder} does not exist", "make it, or choose another path with --db")
        return found
    _look_at_filesystem(found)
    if os.path.lexists(found.location):
        _look_at_file(found, "mode", found.location)
        _look_at_store(found, sizes=sizes)
    else:
        advice = f"the first run makes it. Are your runs elsewhere? {no_store_hint(setting)}"
        found.add("note", "store", "there is none yet", advice)
    _look_at_disk(found, folder)
    found.add(
        "note",
        "limits",
        "anything else in a process of yours that opens and closes this file (another SQLite library, a copy, a "
        "backup tool) takes its locks away",
        "look with `arl sql --readonly`; keep other hands off the file, -wal, -shm and -lock",
    )
    return found


def _look_at_server(found: Findings) -> None:
    """Look at a store at a server, as far as its tables say it: its files and its disk are the server's."""
    from agent_run_ledger.store import open_store

    found.add("ok", "store url", f"{found.location} (from {found.setting.source})")
    try:
        store = open_store(found.setting.value, create=False, readonly=True)
    except LedgerError as error:
        found.add("bad", "store", error.message, error.hint, exit_code=error.exit_code)
        return
    try:
        reader = store.reader()
        runs, leaves = sum(reader.run_states().values()), reader.head().size
        found.numbers |= {"runs": runs, "leaves": leaves}
        found.add("ok", "store", f"{counted(runs, 'run')}, {leaves_words(leaves)}")
        _look_at_meaning(found, store)
    except LedgerError as error:
        found.add("bad", "store", error.message, error.hint or "run `arl verify`", exit_code=error.exit_code)
    finally:
        store.close()
    found.add("note", "files", "disk, growth and backups are the server's: nothing is looked at here")


def _look_at_program(found: Findings) -> None:
    named = versions()
    found.numbers |= named
    found.add("ok", "versions", ", ".join(f"{name} {number}" for name, number in named.items()))
    sqlite = tuple(int(part) for part in named["sqlite"].split(".") if part.isdigit())
    if sqlite < OLDEST_SQLITE:
        found.add("bad", "sqlite", f"{named['sqlite']} can lose a WAL that was reset", "pip install --upgrade apsw")
    if sys.platform == "win32":
        found.add("bad", "platform", "stores are not tested on Windows yet", "use WSL")


def _look_at_filesystem(found: Findings) -> None:
    from agent_run_ledger.store import filesystem, is_network_filesystem

    kind = filesystem(found.location)
    found.numbers["filesystem"] = kind
    if is_network_filesystem(kind):
        found.add(
            "warn",
            "filesystem",
            f"{kind}: other machines or kernels may reach it, and its locks may not keep them apart",
            "keep the store on a local disk; a store here can never hold effects",
        )
    elif kind in ("tmpfs", "ramfs"):
        found.add("warn", "filesystem", f"{kind}: it is memory, and gone with the machine", "use a disk for real runs")
    elif kind == "unknown":
        found.add("note", "filesystem", "its type cannot be found out here", "make sure that it is a local disk")
    else:
        found.add("ok", "filesystem", f"{kind}, local")


def _look_at_file(found: Findings, subject: str, path: str) -> None:
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        found.add("bad", subject, f"{path}: {error.strerror}")
        return
    words = f"{stat.S_IMODE(mode):04o} {Path(path).name}"
    if mode & _OTHERS:
        found.add("warn", subject, f"{words}: other users of this machine have rights on it", _CHMOD)
    else:
        found.add("ok", subject, f"{words}: only its owner")


def _look_at_store(found: Findings, *, sizes: bool) -> None:
    from agent_run_ledger.cli.doctor_growth import look_at_growth, look_at_sizes
    from agent_run_ledger.store import open_sqlite

    try:
        store = open_sqlite(found.location, create=False, readonly=True)
    except LedgerError as error:
        found.add("bad", "store", error.message, error.hint, exit_code=error.exit_code)
        return
    try:
        stats = store.stats()
        _look_at_numbers(found, stats)
        look_at_growth(found, stats, store.reader(), time.time_ns() // 1_000_000)
        if sizes:
            look_at_sizes(found, store.sizes())
        _look_at_meaning(found, store)
    except LedgerError as error:
        found.add("bad", "store", error.message, error.hint or "run `arl verify`", exit_code=error.exit_code)
    finally:
        store.close()
    _look_at_sidecar(found)


def _look_at_numbers(found: Findings, stats: StoreStats) -> None:
    total = stats.database_bytes + stats.wal_bytes
    found.numbers |= {
        "database_bytes": stats.database_bytes,
        "wal_bytes": stats.wal_bytes,
        "page_bytes": stats.page_bytes,
        "pages": stats.pages,
        "free_pages": stats.free_pages,
        "journal_mode": stats.journal_mode,
        "schema_version": stats.schema_version,
        "runs": stats.runs,
        "records": stats.records,
        "leaves": stats.leaves,
        "tiles": stats.tiles,
        "in_flight": stats.in_flight,
        "bytes_per_record": round(total / stats.records) if stats.records else None,
        "bytes_per_run": round(total / stats.runs) if stats.runs else None,
    }
    rows = f"{counted(stats.runs, 'run')}, {counted(stats.records, 'record')}, {leaves_words(stats.leaves)}"
    found.add("ok", "store", f"schema {stats.schema_version}, {rows}, {stats.in_flight} in flight")
    if stats.journal_mode == "wal":
        found.add("ok", "durability", "WAL; every commit that is answered was synced (synchronous FULL)")
    else:
        found.add("note", "durability", f"journal mode {stats.journal_mode}: slower than WAL, and as safe")
    level = "warn" if stats.wal_bytes > LARGE_WAL_BYTES else "ok"
    advice = "" if level == "ok" else "a reader or a stuck process keeps it from being folded in: end it"
    sizes = f"{size_words(stats.database_bytes)}, and {size_words(stats.wal_bytes)} in the WAL"
    found.add(level, "size", sizes, advice)


def _look_at_meaning(found: Findings, store: AnyStore) -> None:
    found.numbers |= {"authority": store.authority, "is_copy": store.is_copy}
    if store.copied is not None:
        found.numbers |= {"copied_at_ms": store.copied.at_ms, "copied_size": store.copied.size}
        words = f"this file is a copy, {copied_words(store.copied)}"
        found.add("warn", "copy", words, "runs may go on in it, if the original never runs again beside it")
    if moved := moved_words(store):
        found.numbers["move"] = store.move.standing.name.lower()
        found.add("warn", "move", f"this store {moved}", "nothing is written here: name that store")
    if store.authority and not moved:
        found.add("ok", "authority", "yes: it may hold effects")
    elif moved:
        found.add("note", "authority", "no: the ledger takes it along")
    elif store.is_copy:
        found.add(
            "note", "authority", "no: a copy grants nothing until people admit it, which this version cannot record yet"
        )
    else:
        found.add("note", "authority", "no: runs need none", "`arl init` grants it")
    _look_at_actions(found, store)
    look_at_trust(found, store)
    running = store.reader().list_runs(state=RunState.RUNNING, before_row_id=None, limit=PROBED_RUNS)
    found.numbers["runs_running"] = len(running)
    advice = "`arl runs list --state running` says which of them live" if running else ""
    found.add("ok", "running", f"{counted(len(running), 'run')} in state running", advice)


def _look_at_actions(found: Findings, store: AnyStore) -> None:
    counts = {str(state): number for state, number in store.reader().effects.counts().items()}
    in_doubt = counts.get("unresolved", 0)
    found.numbers |= {"actions_by_state": counts, "actions_in_doubt": in_doubt}
    words = ", ".join(f"{number:,} {state}" for state, number in counts.items()) or "none yet"
    words = "; ".join((words, *_unprotected(store)))
    if in_doubt:
        advice = "`arl effects list --doubt` shows them: nothing but evidence of what became of them ends a doubt"
        found.add("warn", "actions", f"{words}; {in_doubt:,} in doubt", advice)
    else:
        found.add("ok", "actions", words)


def _unprotected(store: AnyStore) -> tuple[str, ...]:
    """Return what nothing guards actions against, as of their latest transition; nothing before the first."""
    latest = store.reader().effects.latest()
    if latest is None:
        return ()
    from agent_run_ledger.effects.views import unprotected
    from agent_run_ledger.kernel.effects.record import transition_from

    try:
        return unprotected(transition_from(latest.payload).ledger.witness)
    except (ValueError, KeyError, TypeError) as error:
        raise Tampered(f"the record of the latest transition cannot be read: {error}", code="corrupt") from error


def _look_at_sidecar(found: Findings) -> None:
    path = f"{found.location}-lock"
    if os.path.lexists(path):
        _look_at_file(found, "lock file", path)
    else:
        found.add("note", "lock file", "none: nothing has written to this store here yet", "it is made when needed")


def _look_at_disk(found: Findings, folder: str) -> None:
    try:
        median_us = sync_median_us(folder)
    except OSError as error:
        found.add("bad", "disk", f"{folder} cannot be written: {error.strerror}", "runs need to write here")
        return
    found.numbers["sync_median_us"] = round(median_us, 1)
    words = f"{median_us:,.0f} µs for one synced write (median of {TRIES})"
    if median_us > SLOW_SYNC_US:
        found.add("warn", "disk", words, "every step waits for one: a faster or less busy disk helps")
    elif median_us < UNBELIEVABLE_SYNC_US:
        found.add("note", "disk", words, "too fast for a disk: what is confirmed here may not survive a power cut")
    else:
        found.add("ok", "disk", words)
