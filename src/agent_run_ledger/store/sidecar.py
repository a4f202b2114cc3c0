"""The lock file beside a store: the turnstile before its write lock, and one byte per live run."""

from __future__ import annotations

import os
import stat
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256

from agent_run_ledger.errors import Forked, Refused, Unavailable
from agent_run_ledger.ports import Entropy, RunLock

if sys.platform != "win32":
    import fcntl

FILE_MODE = 0o600
_LOG_ID_AT, _LOG_ID_BYTES = 16, 16
_MOST_BYTES = 4_096
_TURNSTILE = 0
_WAITING = 8
_FIRST_RUN = 1 << 20
_RUN_DIGEST_BYTES = 7

# Chosen by measurement: docs/internals/store.md.
_TURN_S = 0.025
_YIELD_S = 0.002
_LONGEST_NAP_S = 0.010
_SHORTEST_NAP_S = 0.001
_NAP_LOSS = 0.08

# struct flock of fcntl(2) on 64-bit Linux; elsewhere its layout is not known here.
_FLOCK = struct.Struct("hhqqi4x") if sys.platform == "linux" and sys.maxsize > 1 << 32 else None


class Sidecar:
    """The one descriptor this process has of `path`: POSIX locks of a file die with the first close of any of them.

    Content: nothing, until the store beside it was completed; then 16 zeros and the 16-byte id of its log. Locks are
    byte ranges (fcntl(2)): byte 0 is the turnstile, byte 8 is shared by those who wait at it, byte 2**20 + the first
    7 bytes of SHA-256(run_id) is a run. They end with the process.
    """

    def __init__(self, path: str, entropy: Entropy) -> None:
        """Open the file, or make it with mode 0600. OSError where that is impossible; Refused for a foreign file."""
        self.path = path
        self._entropy = entropy
        self._fd, self._identity = _open(path)
        self._runs: dict[int, object] = {}
        self._mutex = threading.RLock()  # a run's lock that is collected comes in while the same thread is inside
        self._turn_ends_s = 0.0
        self._pid = os.getpid()
        self.leave: Callable[[], None] = partial(fcntl.lockf, self._fd, fcntl.LOCK_UN, 1, _TURNSTILE)
        """Open the turnstile, in one call that no interrupt can divide. Nothing after close and in a forked child."""

    @property
    def log_id(self) -> bytes | None:
        """The id of the log that was completed beside this file, or None."""
        noted = os.pread(self._fd, _LOG_ID_BYTES, _LOG_ID_AT)
        return noted if any(noted) else None

    def note_log_id(self, log_id: bytes) -> None:
        """Keep the log's id, so that a store that was emptied later is not taken for a new one."""
        if self.log_id != log_id:
            os.pwrite(self._fd, bytes(_LOG_ID_AT) + log_id, 0)

    def enter(self, timeout_s: float) -> bool:
        """Pass the turnstile and return True, or return False after `timeout_s` seconds.

        Whoever comes again within its turn passes at once: what it has in its cache is still good. After a turn it
        lets others go first. A blocking lock could not be bounded: a stopped process would stop all others.
        """
        began_s = time.monotonic()
        if began_s >= self._turn_ends_s:
            if self._is_held_elsewhere(_WAITING):
                time.sleep(min(_YIELD_S, timeout_s))
            self._turn_ends_s = began_s + _TURN_S
        return self._try_lock(_TURNSTILE) or self._queue(began_s, timeout_s)

    def lock_run(self, run_id: str) -> RunLock | None:
        """Return the right to be the run's live attempt, or None when it is taken, here or in another process.

        Unavailable("sidecar_replaced") when somebody deleted or replaced the file: its locks exclude nobody then.
        """
        lock = _SidecarRunLock(self, _place_of(run_id))
        try:
            return lock if self._take(lock) else None
        except BaseException:
            lock.release()
            raise

    def is_run_live(self, run_id: str) -> bool:
        """Return whether an attempt of the run lives in some process, without disturbing one. Errors as lock_run."""
        place = _place_of(run_id)
        with self._mutex:
            self._check_identity()
            return place in self._runs or self._is_held_elsewhere(place)

    def live_runs(self, run_ids: Sequence[str]) -> frozenset[str]:
        """Return those of these runs that are live. A lock of a file is asked for without a round trip."""
        return frozenset(run_id for run_id in run_ids if self.is_run_live(run_id))

    def release_run(self, lock: _SidecarRunLock) -> None:
        """Give a run's byte back. In a forked child, after close, and for a lock that has none: nothing happens."""
        if os.getpid() != self._pid:
            return
        with self._mutex:
            if self._fd >= 0 and self._runs.get(lock.place) is lock.token:
                self._unlock(lock.place)
                del self._runs[lock.place]

    def close(self) -> None:
        """Give up every lock. A second call does nothing."""
        with self._mutex:
            self._runs.clear()
            self.abandon_in_child()

    def abandon_in_child(self) -> None:
        """Close a forked child's copy: the parent keeps its locks, they belong to the process."""
        self.leave = _nothing
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _take(self, lock: _SidecarRunLock) -> bool:
        with self._mutex:
            self._check_identity()
            if lock.place in self._runs:
                return False
            self._runs[lock.place] = lock.token  # first: whatever comes between, a release gives both back
            taken = self._try_lock(lock.place)
            if not taken:
                del self._runs[lock.place]
            return taken

    def _queue(self, began_s: float, timeout_s: float) -> bool:
        """Look again and again, the more often the longer it has been: who has waited longest is served soonest."""
        try:
            with suppress(BlockingIOError, PermissionError):  # somebody looks, where that takes the lock
                fcntl.lockf(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, _WAITING)
            while (waited_s := time.monotonic() - began_s) < timeout_s:
                nap_s = max(_SHORTEST_NAP_S, _LONGEST_NAP_S - _NAP_LOSS * waited_s)
                time.sleep(min(nap_s * (0.5 + 0.5 * self._entropy.fraction()), timeout_s - waited_s))
                if self._try_lock(_TURNSTILE):
                    self._turn_ends_s = time.monotonic() + _TURN_S
                    return True
            return False
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, _WAITING)

    def _try_lock(self, place: int) -> bool:
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except (BlockingIOError, PermissionError):
            return False
        except OSError as error:
            raise self._unlockable(error) from error
        return True

    def _unlock(self, place: int) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, place)

    def _is_held_elsewhere(self, place: int) -> bool:
        """Return whether another process holds the byte, where possible without taking it."""
        if _FLOCK is None:
            free = self._try_lock(place)
            if free:
                self._unlock(place)
            return not free
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0)
        try:
            answered = _FLOCK.unpack(fcntl.fcntl(self._fd, fcntl.F_GETLK, asked))
        except OSError as error:
            raise self._unlockable(error) from error
        return bool(answered[0] != fcntl.F_UNLCK)

    def _unlockable(self, error: OSError) -> Unavailable:
        return Unavailable(f"{self.path} cannot be locked: {error}", code="locks_unavailable")

    def _check_identity(self) -> None:
        if os.getpid() != self._pid:
            raise Forked(f"{self.path} is locked by the process that opened it, not by this child of it")
        if _identity_at(self.path) != self._identity:
            raise Unavailable(
                f"{self.path} was deleted or replaced while it was in use",
                code="sidecar_replaced",
                hint="end every process that uses this store, then start again; leave the file alone",
            )


class _SidecarRunLock:
    """See ports.RunLock. One that nobody keeps is given back: an interrupt may come before its receiver has it."""

    _sidecar: Sidecar | None = None

    def __init__(self, sidecar: Sidecar, place: int) -> None:
        self.place = place
        self.token = object()
        self._sidecar = sidecar  # last: what was not completed has nothing to give back

    def release(self) -> None:
        """See ports.RunLock.release."""
        if self._sidecar is not None:
            self._sidecar.release_run(self)

    __del__ = release


def _place_of(run_id: str) -> int:
    return _FIRST_RUN + int.from_bytes(sha256(run_id.encode()).digest()[:_RUN_DIGEST_BYTES], "big")


def _nothing() -> None:
    """Stand in for what a closed file has no use for."""


def _identity_at(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _open(path: str) -> tuple[int, tuple[int, int]]:
    """Return a descriptor and what it leads to. A file that is not ours is not written to."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, FILE_MODE)
        os.fchmod(fd, FILE_MODE)  # the umask may have taken bits away
    except FileExistsError:
        fd = os.open(path, flags)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise Unavailable(f"{path} is not a regular file", code="cannot_open")
        if not _is_ours(os.pread(fd, _MOST_BYTES + 1, 0)):
            raise Refused(
                f"{path} is not the lock file of a store", code="foreign_file", hint="rename the file, or the store"
            )
    except BaseException:
        os.close(fd)
        raise
    return fd, (found.st_dev, found.st_ino)


def _is_ours(content: bytes) -> bool:
    """Return whether a file holds nothing, or zeros around the place of a log id."""
    if not content:
        return True
    around = content[:_LOG_ID_AT] + content[_LOG_ID_AT + _LOG_ID_BYTES :]
    return _LOG_ID_AT + _LOG_ID_BYTES <= len(content) <= _MOST_BYTES and not any(around)
