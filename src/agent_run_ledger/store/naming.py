"""Gives a finished file its name for good, and never the name of another file."""

from __future__ import annotations

import errno
import os
import sys

from agent_run_ledger.errors import LedgerError, Refused, Unavailable, Uncertain

SIDE_NAMES = ("-wal", "-shm", "-journal", "-lock")
"""What the names of files beside a store end with."""

_BELIEVED = ("-wal", "-journal", "-lock")  # whatever is in a -shm file, it is made anew

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_CANNOT = frozenset((errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM))


def unopenable(location: str, error: OSError) -> LedgerError:
    """Return what to raise when the operating system does not let a file be made or opened."""
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return Unavailable(f"{location} cannot be written: {error.strerror}", code="read_only")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Unavailable(f"there is no room left for {location}", code="disk_full")
    hint = "does its directory exist?" if isinstance(error, FileNotFoundError) else ""
    return Unavailable(f"{location} cannot be opened: {error.strerror}", code="cannot_open", hint=hint)


def check_free(name: str, source: str) -> None:
    """Refuse a name that is taken, or whose side files are: SQLite would take those for the new file's own.

    Refused: destination_exists, side_file. Unavailable("cannot_open") where its directory does not exist.
    """
    if name.endswith(SIDE_NAMES):
        raise Refused(
            f"{name} would be taken for a file beside a database", code="side_file", hint="choose another name"
        )
    if name == source:
        raise Refused(f"{name} is the store itself", code="destination_exists", hint="choose another name")
    if os.path.lexists(name):
        raise Refused(f"{name} exists, and nothing is ever replaced", code="destination_exists", hint=_other(name))
    for path in (name + side for side in _BELIEVED):
        if os.path.lexists(path):
            raise Refused(
                f"{path} was left by a file of that name",
                code="destination_exists",
                hint=f"delete it if it is of no use, or choose another name than {name}",
            )
    folder = os.path.dirname(name)
    if not os.path.isdir(folder):
        raise Unavailable(f"{folder} is no directory", code="cannot_open", hint="make it first")


def check_alone(path: str) -> None:
    """Unavailable("store_failed") where the file at `path` needs another one beside it to be whole."""
    for side in SIDE_NAMES:
        if os.path.lexists(path + side):
            raise Unavailable(f"{path} is not all in one file: {path}{side} is left", code="store_failed")


def make_lasting(path: str) -> None:
    """Return when the content of a file, or the names in a directory, survive a power cut. OSError where they may not.

    On macOS fsync(2) does not reach the disk: F_FULLFSYNC does.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if sys.platform == "darwin":
            import fcntl

            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        else:
            os.fsync(fd)
    finally:
        os.close(fd)


def give_name(path: str, name: str) -> None:
    """Give a finished file of ours its name, for good. It keeps the old one where that cannot be.

    Refused("destination_exists") where the name is taken, at whatever moment. Unavailable as `unopenable`.
    Uncertain("name_not_synced") when the file has its name and nobody can say whether a power cut takes it away.
    """
    try:
        _take_name(path, name)
    except FileExistsError as error:
        raise Refused(
            f"{name} came to be meanwhile, and nothing is ever replaced", code="destination_exists", hint=_other(name)
        ) from error
    except OSError as error:
        raise unopenable(name, error) from error
    try:
        make_lasting(os.path.dirname(name))
    except OSError as error:
        raise Uncertain(
            f"{name} is whole, but its name may not survive a power cut: {error.strerror}", code="name_not_synced"
        ) from error


def _take_name(path: str, name: str) -> None:
    """Rename in one step where the system can, else by a second name for the file and the removal of the first.

    A process that dies in between leaves both names, each of them of the whole file.
    """
    if not _renamed(path, name):
        os.link(path, name, follow_symlinks=False)
        os.unlink(path)


def _renamed(path: str, name: str) -> bool:
    """Rename by renameat2(2) with RENAME_NOREPLACE; False where kernel, library or file system cannot."""
    if sys.platform != "linux":
        return False
    import ctypes

    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(_AT_FDCWD, os.fsencode(path), _AT_FDCWD, os.fsencode(name), _RENAME_NOREPLACE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT:
        return False
    raise OSError(number, os.strerror(number), name)


def _other(path: str) -> str:
    return "name a file inside it" if os.path.isdir(path) else "choose another name, or move it away"
