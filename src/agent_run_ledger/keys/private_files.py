"""Files that only their owner can read: made so from their first moment, and refused when they are not so."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from agent_run_ledger.errors import Refused
from agent_run_ledger.keys.secret import Secret

MODE: Final = 0o600
MAX_BYTES: Final = 1 << 14


def write_private(path: Path, secret: Secret) -> None:
    """Make a file of mode 0600 under any umask, on disk when this returns. It replaces none: Refused("file_exists").

    Refused("unwritable") where it cannot be made; then nothing of it is left.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE)
    except FileExistsError:
        raise Refused(f"{path} is there already", code="file_exists", hint="no key is overwritten") from None
    except OSError as error:
        raise Refused(f"{path} cannot be made: {error.strerror}", code="unwritable") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), MODE)
            file.write(secret.reveal())
            file.flush()
            os.fsync(file.fileno())
        sync_folder(path)
    except BaseException as error:
        with suppress(OSError):
            path.unlink()
        if isinstance(error, OSError):
            raise Refused(f"{path} cannot be written: {error.strerror}", code="unwritable") from None
        raise


def read_private(path: Path) -> Secret:
    """Return what a file holds. Refused: "exposed" when others may read it, "unreadable" when nobody can.

    The file that was looked at is the one that is read. A link to it is followed.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise Refused(f"{path} is no file", code="unreadable")
            if exposed(status.st_mode, status.st_uid, os.geteuid()):
                hint = f"chmod 600 {path}, and think of who may have read it"
                raise Refused(f"{path} can be read by others", code="exposed", hint=hint)
            if status.st_size > MAX_BYTES:
                raise Refused(f"{path} has {status.st_size} bytes; at most {MAX_BYTES}", code="unreadable")
            return Secret(os.read(descriptor, MAX_BYTES))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}", code="unreadable") from None


def exposed(mode: int, owner: int, reader: int) -> bool:
    """Return whether a file lets anybody but the reader and the superuser see or change it."""
    return bool(mode & 0o077) or owner not in (reader, 0)


def sync_folder(path: Path) -> None:
    """Put on disk that a path is in its folder."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
