"""The lock file beside a store: the turnstile before its write lock, and one byte per live run."""

from __future__ import annotations

import mmap
import os
import stat
import sys
import threading
import time
from contextlib import suppress
from hashlib import sha256

from agent_run_ledger.errors import Forked, Unavailable
from agent_run_ledger.ports import Entropy, RunLock
from agent_run_ledger.store.futex import address_of, futex

if sys.platform != "win32":
    import fcntl

FILE_MODE = 0o600
_SIZE = 4_096
_LOG_ID = slice(16, 32)
_TURNSTILE = 0
_FIRST_RUN = 1 << 20
_RUN_DIGEST_BYTES = 7
_NAP_S = 0.05  # a holder that was killed wakes nobody
_POLL_S = 0.0003


class Sidecar:
    """The one descriptor this process has of `path`: POSIX locks of a file die with the first close of any of them.

    Content: one 4-byte word at offset 0, 1 while somebody sleeps at the turnstile; from offset 16 the 16-byte id of
    the log, zeros until the store beside it was completed. Locks are byte ranges (fcntl(2)): byte 0 is the
    turnstile, byte 2**20 + the first 7 bytes of SHA-256(run_id) is a run. They end with the process.
    """

    def __init__(self, path: str, entropy: Entropy) -> None:
        """Open the file, or make it with mode 0600. OSError where that is impossible."""
        self.path = path
        self._entropy = entropy
        self._fd = _open(path)
        try:
            opened = os.fstat(self._fd)
            if opened.st_size < _SIZE:
                os.pwrite(self._fd, bytes(_SIZE), 0)  # a hole would be SIGBUS when it is touched on a full disk
            self._map = mmap.mmap(self._fd, _SIZE)
        except BaseException:
            os.close(self._fd)
            raise
        self._identity = (opened.st_dev, opened.st_ino)
        self._word = memoryview(self._map).cast("I")[:1]
        self._runs: set[int] = set()
        self._mutex = threading.Lock()
        self._pid = os.getpid()

    @property
    def log_id(self) -> bytes | None:
        """The id of the log that was completed beside this file, or None."""
        noted = bytes(self._map[_LOG_ID])
        return noted if any(noted) else None

    def note_log_id(self, log_id: bytes) -> None:
        """Keep the log's id, so that a store that was emptied later is not taken for a new one."""
        if self.log_id != log_id:
            self._map[_LOG_ID] = log_id

    def enter(self, timeout_s: float) -> bool:
        """Pass the turnstile and return True, or return False after `timeout_s` seconds.

        A plain blocking lock would be as fair but could not be bounded: a stopped process would stop all others.
        Measured with 8 processes: 6 % more transactions than with it, slowest within 2 % of the fastest.
        """
        return self._try_lock(_TURNSTILE) or self._queue(time.monotonic() + timeout_s)

    def leave(self) -> None:
        """Open the turnstile and wake the process that has slept longest, if any sleeps. Nothing in a forked child."""
        if self._fd < 0:
            return
        self._unlock(_TURNSTILE)
        if self._word[0] and (calls := futex()) is not None:
            self._word[0] = 0
            calls.wake(address_of(self._word))

    def lock_run(self, run_id: str) -> RunLock | None:
        """Return the right to be the run's live attempt, or None when it is taken, here or in another process.

        Unavailable("sidecar_replaced") when somebody deleted or replaced the file: its locks exclude nobody then.
        """
        place = _FIRST_RUN + int.from_bytes(sha256(run_id.encode()).digest()[:_RUN_DIGEST_BYTES], "big")
        with self._mutex:
            self._check_identity()
            if place in self._runs or not self._try_lock(place):
                return None
            self._runs.add(place)
        return _SidecarRunLock(self, place)

    def close(self) -> None:
        """Give up every lock. A second call does nothing."""
        with self._mutex:
            self._runs.clear()
            self._close_descriptors()

    def abandon_in_child(self) -> None:
        """Close a forked child's copy: the parent keeps its locks, they belong to the process."""
        self._close_descriptors()

    def _close_descriptors(self) -> None:
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        with suppress(BufferError):  # in a child: a thread that does not exist here was asleep on the word
            # Now and not when it is collected: a mapping has a descriptor of its own, and closing that one later
            # would take away the locks of whoever opened the file again.
            self._word.release()
            self._map.close()
        os.close(fd)

    def release_run(self, place: int) -> None:
        """Give a run's byte back. In a forked child, and after close, it is not ours to give: nothing happens."""
        if os.getpid() != self._pid:
            return
        with self._mutex:
            if self._fd >= 0 and place in self._runs:
                self._runs.discard(place)
                self._unlock(place)

    def _queue(self, deadline_s: float) -> bool:
        calls = futex()
        while (left_s := deadline_s - time.monotonic()) > 0:
            self._word[0] = 1  # before the try: who unlocks after it sees that somebody waits
            if self._try_lock(_TURNSTILE):
                return True
            if calls is None:
                time.sleep(min(left_s, _POLL_S * self._entropy.fraction()))
            else:
                calls.wait(address_of(self._word), 1, min(left_s, _NAP_S))
        return False

    def _try_lock(self, place: int) -> bool:
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except (BlockingIOError, PermissionError):
            return False
        except OSError as error:
            raise Unavailable(f"{self.path} cannot be locked: {error}", code="locks_unavailable") from error
        return True

    def _unlock(self, place: int) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, place)

    def _check_identity(self) -> None:
        if os.getpid() != self._pid:
            raise Forked(f"{self.path} is locked by the process that opened it, not by this child of it")
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self._identity:
            raise Unavailable(
                f"{self.path} was deleted or replaced while it was in use",
                code="sidecar_replaced",
                hint="end every process that uses this store, then start again; leave the file alone",
            )


class _SidecarRunLock:
    """See ports.RunLock."""

    __slots__ = ("_place", "_sidecar")

    def __init__(self, sidecar: Sidecar, place: int) -> None:
        self._sidecar: Sidecar | None = sidecar
        self._place = place

    def release(self) -> None:
        """See ports.RunLock.release."""
        sidecar, self._sidecar = self._sidecar, None
        if sidecar is not None:
            sidecar.release_run(self._place)


def _open(path: str) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, FILE_MODE)
        os.fchmod(fd, FILE_MODE)  # the umask may have taken bits away
    except FileExistsError:
        fd = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Unavailable(f"{path} is not a regular file", code="cannot_open")
    return fd
