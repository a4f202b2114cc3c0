"""A layer between SQLite and the operating system that records what a power cut could take back."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

import apsw

from agent_run_ledger.store import sqlite
from agent_run_ledger.store.sidecar import Sidecar
from agent_run_ledger.store.sqlite_driver import Connection
from agent_run_ledger.store.sqlite_tx import SqliteTx
from agent_run_ledger.store.sqlite_writer import SqliteWriter
from agent_run_ledger.testing.power_trace import Acknowledged, ActKind, DiskAct, PowerTrace

VFS_NAME = "arl-power-disk"

_JOURNALS = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL
_LOG_ID_AT = 16
_NOT_KEPT = ("-shm",)

T = TypeVar("T")


@contextmanager
def recorded_disk(directory: str | os.PathLike[str]) -> Generator[PowerTrace]:
    """Record what happens, inside the block, to every ledger in `directory` that is opened inside the block.

    The unix layer of SQLite syncs a directory in two places, and only these make names durable: at the first sync of
    a journal or WAL that it may have made, and in a deletion that asks for it (os_unix.c: unixSync, unixDelete). The
    lock file is none of SQLite's: it is seen here too, and nothing ever syncs it. Close what you opened before the
    block ends; one block at a time.
    """
    recorder = _Recorder(os.path.realpath(directory))
    vfs = _PowerVfs(recorder, apsw.vfs_names()[0])
    try:
        with _promises(recorder):
            yield recorder.trace
    finally:
        vfs.unregister()


class _Recorder:
    """Keeps the acts of all threads in one order."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.trace = PowerTrace(before=files_in(directory))
        self.lock = threading.RLock()
        self._names = set(self.trace.before)

    def name_of(self, path: str | apsw.URIFilename | None) -> str | None:
        """Return the name that a file of ours has in the directory, None for anything else."""
        full = path.filename() if isinstance(path, apsw.URIFilename) else path
        if full is None or os.path.dirname(full) != self.directory or full.endswith(_NOT_KEPT):
            return None
        return os.path.basename(full)

    def act(self, kind: ActKind, name: str, do: Callable[[], T], **fields: Any) -> T:
        """Do something and note it, unless it raises."""
        with self.lock:
            done = do()
            self._note(DiskAct(kind=kind, name=name, **fields))
            return done

    def exists(self, name: str) -> None:
        """Note the creation of a file that is there and was not known."""
        with self.lock:
            if name not in self._names and os.path.lexists(os.path.join(self.directory, name)):
                self._note(DiskAct(kind=ActKind.CREATE, name=name))

    def told(self, op_id: bytes, synced: bool) -> None:
        """Note that a transaction's caller is being told of its success."""
        with self.lock:
            self.trace.acknowledged.append(Acknowledged(after_acts=len(self.trace.acts), op_id=op_id, synced=synced))

    def opened(self, log_id: bytes) -> None:
        """Note that a store is open for writing."""
        with self.lock:
            self.trace.opened.setdefault(log_id, len(self.trace.acts))

    def _note(self, act: DiskAct) -> None:
        if act.kind is ActKind.CREATE:
            self._names.add(act.name)
        elif act.kind is ActKind.DELETE:
            self._names.discard(act.name)
        self.trace.acts.append(act)


def files_in(directory: str) -> dict[str, bytes]:
    """Return the content of a directory's files by name, without the shared memory of SQLite.

    No ledger in it may be open in this process: closing its file here would take its locks away.
    """
    with os.scandir(directory) as entries:
        names = [entry.name for entry in entries if entry.is_file() and not entry.name.endswith(_NOT_KEPT)]
    found: dict[str, bytes] = {}
    for name in names:
        with open(os.path.join(directory, name), "rb") as file:
            found[name] = file.read()
    return found


class _PowerFile(apsw.VFSFile):
    def __init__(
        self, recorder: _Recorder, name: str, base: str, path: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        super().__init__(base, path, flags)
        self._recorder, self._name = recorder, name
        self._syncs_directory = bool(flags[0] & _JOURNALS and flags[0] & apsw.SQLITE_OPEN_CREATE)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 - the name of the interface
        content, write = bytes(data), super().xWrite  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        self._recorder.act(ActKind.WRITE, self._name, lambda: write(content, offset), offset=offset, content=content)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        truncate = super().xTruncate
        self._recorder.act(ActKind.TRUNCATE, self._name, lambda: truncate(newsize), size=newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        sync = super().xSync
        with self._recorder.lock:
            self._recorder.act(ActKind.SYNC, self._name, lambda: sync(flags))
            if self._syncs_directory:
                self._recorder.act(ActKind.SYNC_DIRECTORY, "", lambda: None)
                self._syncs_directory = False


class _PowerVfs(apsw.VFS):
    def __init__(self, recorder: _Recorder, base: str) -> None:
        super().__init__(VFS_NAME, base, makedefault=True)
        self._recorder, self._base = recorder, base

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        ours = self._recorder.name_of(name)
        if ours is None:
            return super().xOpen(name, flags)
        file = _PowerFile(self._recorder, ours, self._base, name, flags)
        self._recorder.exists(ours)
        return file

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        ours, delete = self._recorder.name_of(filename), super().xDelete
        if ours is None:
            delete(filename, syncdir)
            return
        with self._recorder.lock:
            self._recorder.act(ActKind.DELETE, ours, lambda: delete(filename, syncdir))
            if syncdir:
                self._recorder.act(ActKind.SYNC_DIRECTORY, "", lambda: None)


@contextmanager
def _promises(recorder: _Recorder) -> Generator[None]:
    """Note what callers of the store are told, and what happens to its lock file, which SQLite does not know."""
    start, transact, note = SqliteWriter.start, SqliteWriter.transact_with, Sidecar.note_log_id
    make, sync_name = Sidecar.__init__, sqlite.sync_name

    def started(
        self: SqliteWriter, connection: Connection, fill: Callable[[Connection], None]
    ) -> dict[str, bytes | str | int]:
        meta = start(self, connection, fill)
        recorder.opened(self.log_id)
        return meta

    def transacted(self: SqliteWriter, op_id: bytes, fn: Callable[[SqliteTx], T], *, sync: bool = True) -> T:
        value = transact(self, op_id, fn, sync=sync)
        recorder.told(op_id, sync)
        return value

    def made(self: Sidecar, *settings: Any) -> None:
        make(self, *settings)
        if (name := recorder.name_of(self.path)) is not None:
            recorder.exists(name)

    def noted(self: Sidecar, log_id: bytes) -> None:
        name = recorder.name_of(self.path)
        if name is None or self.log_id == log_id:
            note(self, log_id)
        else:
            content = bytes(_LOG_ID_AT) + log_id
            recorder.act(ActKind.WRITE, name, lambda: note(self, log_id), content=content)

    def synced(location: str) -> None:
        sync_name(location)
        if (name := recorder.name_of(location)) is not None:
            recorder.exists(name)
            recorder.act(ActKind.SYNC_DIRECTORY, "", lambda: None)

    with ExitStack() as replaced:
        replaced.enter_context(patch.object(sqlite, "sync_name", synced))
        replaced.enter_context(patch.object(SqliteWriter, "start", started))
        replaced.enter_context(patch.object(SqliteWriter, "transact_with", transacted))
        replaced.enter_context(patch.object(Sidecar, "__init__", made))
        replaced.enter_context(patch.object(Sidecar, "note_log_id", noted))
        yield
