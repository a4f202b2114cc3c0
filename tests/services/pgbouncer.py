"""Finds PgBouncer and runs one in front of a server for as long as somebody needs it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from unittest import SkipTest

from tests.services.postgres import SUPERUSER, _die_with_us, _free_port, _unprivileged, find_pooler

MISSING = "no PgBouncer on this machine: as root `make postgres` installs it"
_STARTING_S = 30.0


@contextmanager
def bouncing(port: int, mode: str, *, ignoring: str = "", first: str = "") -> Iterator[int]:
    """The port of a PgBouncer before the server at `port`, in a pool mode; it lets everybody in as the superuser.

    `ignoring`: what of a client's start it drops in place of refusing it. `first`: what each session of it begins with.
    """
    program = find_pooler()
    if program is None:
        raise SkipTest(MISSING)
    who, own, folder = _unprivileged(), _free_port(), Path(mkdtemp(prefix="arl-bouncer-"))
    settings = {
        "listen_addr": "127.0.0.1", "listen_port": own, "unix_socket_dir": "", "auth_type": "any", "pool_mode": mode,
        "ignore_startup_parameters": ignoring, "logfile": folder / "log", "max_client_conn": 50,
        "default_pool_size": 5,
    }  # fmt: skip
    written = "\n".join(f"{name} = {value}" for name, value in settings.items() if value != "")
    way = f"* = host=127.0.0.1 port={port} user={SUPERUSER}" + (f" connect_query='{first}'" if first else "")
    (folder / "ini").write_text(f"[databases]\n{way}\n[pgbouncer]\n{written}\n", encoding="ascii")
    if who:
        for path in (folder, folder / "ini"):
            os.chown(path, who["user"], who["group"])
    process = subprocess.Popen(
        [program, "-q", str(folder / "ini")],
        cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        preexec_fn=_die_with_us,  # noqa: PLW1509 - see Cluster
        **who,
    )  # fmt: skip
    try:
        _wait(process, own, folder / "log")
        yield own
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        shutil.rmtree(folder, ignore_errors=True)


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _STARTING_S
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"PgBouncer did not start\n{log.read_text() if log.exists() else ''}")
        time.sleep(0.02)
