"""Copies a SQLite store page by page while it is in use, and marks the copy as one before it gets its name."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import apsw

from agent_run_ledger.errors import LedgerError, Misuse, Unavailable
from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.kernel.merkle import root
from agent_run_ledger.ports import Clock, Head, Reader
from agent_run_ledger.store.fair_lock import FairLock
from agent_run_ledger.store.forks import forked
from agent_run_ledger.store.leaves import leaf_behind
from agent_run_ledger.store.moves import MOVING_STATE, RETIRED_STATE, STANDING, Standing
from agent_run_ledger.store.naming import SIDE_NAMES, check_alone, check_free, give_name, make_lasting, unopenable
from agent_run_ledger.store.rows import head_from
from agent_run_ledger.store.sqlite import (
    Place,
    close_reader,
    connect_reader,
    connect_writer,
    create_file,
    identify,
)
from agent_run_ledger.store.sqlite_driver import Backup, Connection
from agent_run_ledger.store.sqlite_failures import translated
from agent_run_ledger.store.sqlite_migrations import QUERIES_FILE
from agent_run_ledger.store.sqlite_reader import SqliteReader
from agent_run_ledger.store.sqlite_writer import append_event
from agent_run_ledger.store.statements import statements

T = TypeVar("T")

Progress = Callable[[int, int], None]
Check = Callable[[Reader], None]

STEP_PAGES = 256
_CACHE_KIB = 4_000
_MOST_FORKS = 5
_MOVED = {Standing.MOVING: MOVING_STATE, Standing.RETIRED: RETIRED_STATE}

# Of what SQLite says while pages are copied: this is about the file that is read, a failing disk may be either's.
_ABOUT_THE_SOURCE = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError, apsw.BusyError)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupReport:
    """What was copied. The copy's log begins with the `size` leaves of the source under `root` (32 bytes).

    Behind them it has one leaf of its own, which says that it is a copy: from there its log goes its own way.
    `made_at_ms` is that leaf's time, `file_bytes` the size of the file `destination`.
    """

    destination: str
    log_id: bytes
    size: int
    root: bytes
    made_at_ms: int
    file_bytes: int


class _LetGo(Exception):
    """The connections were closed for a fork."""


class SqliteBackup:
    """Makes backups of one store, one at a time. See SqliteStore.backup.

    It holds two connections while it copies: one in a read transaction on the store, so that all pages are of one
    moment whoever writes meanwhile, and one on the new file, which nobody else knows. Both are used under `lock`, a
    step at a time. A fork closes them in between, and the copying begins anew.
    """

    def __init__(self, place: Place, clock: Clock) -> None:
        self.lock = FairLock()
        self._place = place
        self._clock = clock
        self._turn = FairLock()
        self._source: Connection | None = None
        self._target: Connection | None = None
        self._backup: Backup | None = None
        self._closed = False
        self._pid = os.getpid()

    def run(self, destination: str, *, progress: Progress | None, check: Check | None) -> BackupReport:
        """Make one backup at an absolute path that is free."""
        if self._turn.is_mine():
            raise Misuse(f"a backup of {self._place.location} was begun inside another one", code="nested_backup")
        try:
            if not self._turn.acquire(self._place.wait_s):
                raise Unavailable(f"another backup of {self._place.location} is being made", code="store_busy")
            for _ in range(_MOST_FORKS):
                with suppress(_LetGo):
                    return self._make(destination, progress, check)
            raise Unavailable(
                f"{destination} was not made: this process forked {_MOST_FORKS} times meanwhile", code="interrupted"
            )
        finally:
            try:  # noqa: SIM105 - see FairLock
                self._turn.release()
            except RuntimeError:
                pass

    def let_go(self) -> None:
        """Before a fork, with `lock` held: give up what was copied."""
        self._drop()

    def close(self) -> None:
        """Make a backup that is under way fail, after its step. A second call does nothing."""
        try:
            self.lock.acquire(self._place.wait_s)
            self._closed = True
            self._drop()
        finally:
            try:  # noqa: SIM105 - see FairLock
                self.lock.release()
            except RuntimeError:
                pass

    def leak(self) -> object:
        """See SqliteWriter.leak."""
        leaked = (self._source, self._target, self._backup)
        self._source, self._target, self._backup = None, None, None
        return None if leaked == (None, None, None) else leaked

    def _make(self, destination: str, progress: Progress | None, check: Check | None) -> BackupReport:
        partial = f"{destination}.partial-{self._place.entropy.token(4).hex()}"
        try:
            check_free(destination, self._place.location)
            made = self._copied(partial, destination, progress)
            if check is not None:
                self._checked(partial, check)
            give_name(partial, destination)
            return made
        except BaseException as error:
            if os.getpid() == self._pid:  # in a forked child the file is the parent's
                self._tidy_up(partial, error)
            raise

    def _copied(self, partial: str, destination: str, progress: Progress | None) -> BackupReport:
        """Copy everything into the file `partial`, mark it, and return when it is on the disk, closed and whole."""
        self._locked(lambda: self._begin(partial), destination)
        pages = _Pages()
        while not self._locked(lambda: self._step(pages), destination):
            if progress is not None:
                progress(pages.done, pages.total)
        head, log_id, now_ms = self._locked(self._finish, destination)
        if progress is not None:
            progress(pages.total, pages.total)
        check_alone(partial)
        try:
            make_lasting(partial)
            size = os.stat(partial).st_size
        except OSError as error:
            raise unopenable(partial, error) from error
        return BackupReport(
            destination=destination,
            log_id=log_id,
            size=head.size,
            root=root(head.size, head.frontier),
            made_at_ms=now_ms,
            file_bytes=size,
        )

    def _begin(self, partial: str) -> None:
        q = statements(QUERIES_FILE)
        source = self._source = connect_reader(self._place)
        source.execute(q["begin_read"])
        source.execute(q["select_head"]).fetchall()  # only now SQLite keeps to this moment
        create_file(partial)
        target = self._target = connect_writer(_place_of(partial, self._place), create=True)
        # What fails or dies is thrown away, and what is whole is synced once: no journal, no syncs, no -shm file.
        for name, value in (("locking_mode", "EXCLUSIVE"), ("journal_mode", "OFF"), ("synchronous", 0)):
            target.pragma(name, value)
        target.pragma("cache_size", -_CACHE_KIB)
        self._backup = target.backup("main", source, "main")

    def _step(self, pages: _Pages) -> bool:
        if self._backup is None:
            raise _LetGo
        done = self._backup.step(STEP_PAGES)
        pages.total = self._backup.page_count
        pages.done = pages.total - self._backup.remaining
        return done

    def _finish(self) -> tuple[Head, bytes, int]:
        """Mark the copy and leave it as one file; return the head it was copied with, its log and the time."""
        target, backup = self._target, self._backup
        if target is None or backup is None:
            raise _LetGo
        backup.finish()
        head, log_id, now_ms = self._mark(target)
        target.execute(statements(QUERIES_FILE)["empty_wal"]).fetchall()
        target.close()  # what cannot be folded in stays beside it: see check_alone
        self._drop()
        return head, log_id, now_ms

    def _mark(self, target: Connection) -> tuple[Head, bytes, int]:
        """Say in the copy, in one transaction with a leaf of its own, that it is one."""
        q, location = statements(QUERIES_FILE), self._place.location
        cursor = target.cursor()
        cursor.execute(q["begin"])
        meta: dict[str, Any] = dict(cursor.execute(q["select_meta"]).fetchall())
        head = head_from(cursor.execute(q["select_head"]).fetchall(), location)
        now_ms = max(self._clock.now_ms(), head.time_ms)
        for line in (("is_copy", 1), ("copied_size", head.size), ("copied_at_ms", now_ms)):
            cursor.execute(q["put_meta"], line)
        was = _MOVED.get(meta.get(STANDING, 0)) or ("authority" if meta["authority"] else "created")
        was = "copy" if meta["is_copy"] else was
        log_id, op_id = meta["log_id"], self._place.entropy.uuid7()
        change = Change(type="store", id=log_id, old=was, new="copy", generation=0)
        append_event(cursor, leaf_behind(head, (change,), log_id=log_id, op_id=op_id, now_ms=now_ms), now_ms)
        cursor.execute(q["commit"])
        return head, log_id, now_ms

    def _checked(self, partial: str, check: Check) -> None:
        reader = SqliteReader(_place_of(partial, self._place), alone=True)
        try:
            check(reader)
        finally:
            reader.close()

    def _locked(self, fn: Callable[[], T], destination: str) -> T:
        source = self._place.location
        if os.getpid() != self._pid:
            raise forked(source)
        try:
            if not self.lock.acquire(self._place.wait_s):
                raise Unavailable(f"{source} is being closed, or this process forks, for too long", code="store_busy")
            if self._closed:
                raise Misuse(f"{source} was closed while it was copied", code="store_closed")
            return fn()
        except apsw.Error as error:
            raise translated(error, _concerned(error, source, destination)) from error
        finally:
            try:  # noqa: SIM105 - see FairLock
                self.lock.release()
            except RuntimeError:
                pass

    def _tidy_up(self, partial: str, error: BaseException) -> None:
        """Close what is open and remove the partial file; where that fails, the error says what is left."""
        try:
            self.lock.acquire(self._place.wait_s)
            self._drop()
        finally:
            try:  # noqa: SIM105 - see FairLock
                self.lock.release()
            except RuntimeError:
                pass
        for path in (partial, *(partial + side for side in SIDE_NAMES)):
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass
            except OSError:
                if isinstance(error, LedgerError):
                    error.hint = f"{error.hint}; delete {path}, which is useless".removeprefix("; ")

    def _drop(self) -> None:
        source, target, backup = self._source, self._target, self._backup
        self._source, self._target, self._backup = None, None, None
        if backup is not None:
            backup.close(force=True)
        if target is not None:
            target.close(force=True)
        if source is not None:
            close_reader(source)


@dataclass(slots=True)
class _Pages:
    """How far the copying is."""

    done: int = 0
    total: int = 0


def _concerned(error: apsw.Error, source: str, destination: str) -> str:
    if isinstance(error, apsw.IOError):
        return f"{source} or {destination}"
    return source if isinstance(error, _ABOUT_THE_SOURCE) else destination


def _place_of(path: str, source: Place) -> Place:
    identity = identify(path)
    if identity is None:
        raise Unavailable(f"{path} was deleted while it was written", code="cannot_open")
    return replace(source, location=path, identity=identity)
