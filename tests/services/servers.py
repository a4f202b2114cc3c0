"""PostgreSQL servers that can be stopped in every way, killed, started again, followed by a standby and promoted."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from urllib.parse import quote

from tests.services.postgres import SUPERUSER, _die_with_us, _free_port, _unprivileged, needed_bin

STARTING_S = 60.0
STANDBY = "arl_standby"
_HBA = f"""local all all scram-sha-256
host all {SUPERUSER} 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
host replication {SUPERUSER} 127.0.0.1/32 trust
"""
_QUICK = {
    "listen_addresses": "127.0.0.1", "shared_buffers": "32MB", "max_connections": "60", "logging_collector": "off",
    "dynamic_shared_memory_type": "mmap", "checkpoint_timeout": "1h",
}  # fmt: skip


class Stop(IntEnum):
    """How a server is asked to stop: the signals of its three ways."""

    SMART = signal.SIGTERM
    FAST = signal.SIGINT
    IMMEDIATE = signal.SIGQUIT


class Server:
    """One server in a folder of ours. Its superuser needs no password, everybody else does."""

    def __init__(self, binaries: Path, folder: Path, settings: dict[str, str]) -> None:
        self.folder, self.data, self.port = folder, folder / "data", _free_port()
        self._binaries = binaries
        self._settings = {**_QUICK, "unix_socket_directories": str(folder), "port": str(self.port), **settings}
        self._who = _unprivileged()
        self._process: subprocess.Popen[bytes] | None = None
        self._names = itertools.count()

    def url(self, database: str = "postgres", *, user: str = SUPERUSER, password: str = "", port: int = 0) -> str:
        """The address of a database; with `port` by another way."""
        secret = f":{quote(password, safe='')}" if password else ""
        return f"postgresql://{user}{secret}@127.0.0.1:{port or self.port}/{database}"

    def run(self, sql: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run a statement as the superuser on a connection of its own, and return what it finds."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(sql)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    def new_database(self, **with_: str) -> str:
        """Make a database that nobody has used, and return its name."""
        name = f"t{next(self._names)}"
        more = " ".join(f"{key} {value}" for key, value in with_.items())
        self.run(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C' {more}")
        return name

    def own(self, folder: Path) -> None:
        """Let a folder be that of the user whom the server runs as."""
        if self._who:
            os.chown(folder, self._who["user"], self._who["group"])

    def initialise(self, *more: str) -> None:
        """Make its files; `more`: what else initdb is told."""
        way = ("-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C", "-N", *more)
        self._run("initdb", "-D", str(self.data), *way)
        (self.data / "pg_hba.conf").write_text(_HBA, encoding="ascii")

    def follow(self, primary: Server) -> None:
        """Make its files as those of a standby of another one."""
        way = ("-h", "127.0.0.1", "-p", str(primary.port), "-U", SUPERUSER)
        self._run("pg_basebackup", "-D", str(self.data), *way, "-X", "stream", "-c", "fast", "-N")
        (self.data / "standby.signal").touch()
        told = f"host=127.0.0.1 port={primary.port} user={SUPERUSER} application_name={STANDBY}"
        self._settings["primary_conninfo"] = told

    def promote(self) -> None:
        """Let a standby be a primary, when it has replayed all that it got."""
        self._run("pg_ctl", "promote", "-D", str(self.data), "-w")

    def start(self) -> None:
        """Start it, and wait until it answers."""
        arguments = [f"-c{name}={value}" for name, value in self._settings.items()]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._binaries / "postgres"), "-D", str(self.data), *arguments],
                cwd=self.folder, env=_environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=_die_with_us,  # noqa: PLW1509 - a server that outlives a killed test run is worse
                **self._who,
            )  # fmt: skip
        eventually(self._answers, lambda: f"PostgreSQL did not start\n{self.log()[-2_000:]}", within_s=STARTING_S)

    def until_it_fell(self) -> None:
        """Wait until it has ended by itself."""
        assert self._process is not None
        self._process.wait(STARTING_S)
        self._process = None

    def ask_to_stop(self, way: Stop) -> None:
        """Ask it to stop; a smart stop waits for whoever is connected."""
        assert self._process is not None
        self._process.send_signal(way)

    def stop(self, way: Stop = Stop.IMMEDIATE) -> None:
        """Stop it and wait for its end."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self.ask_to_stop(way)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        self._process = None

    def kill(self) -> None:
        """Kill it and all its processes at once: nothing of it says another word."""
        process, self._process = self._process, None
        if process is None:
            return
        for pid in (process.pid, *_children(process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(30)
        self._forget_memory()

    @contextmanager
    def stands_still(self) -> Iterator[None]:
        """Stop all of it, for as long as the block runs: it says nothing, and nobody is told."""
        assert self._process is not None
        pids = (self._process.pid, *_children(self._process.pid))
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def log(self) -> str:
        """What it has said."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def _answers(self) -> bool:
        import psycopg

        assert self._process is not None
        assert self._process.poll() is None, self.log()[-2_000:]
        try:
            self.run("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def _forget_memory(self) -> None:
        """Take away the key by which servers of one folder know each other, which a killed one leaves for ever."""
        with suppress(OSError, IndexError):
            line = (self.data / "postmaster.pid").read_text(encoding="ascii").splitlines()[6]
            subprocess.run(("ipcrm", "-m", line.split()[1]), check=False, capture_output=True)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            (str(self._binaries / program), *arguments),
            cwd=self.folder, env=_environment(), check=False, capture_output=True, text=True, **self._who,
        )  # fmt: skip
        assert done.returncode == 0, f"{program}: {done.stderr}"


@contextmanager
def new_server(**settings: str) -> Iterator[Server]:
    """A server's empty folder, for as long as the block runs; whatever runs in it then is stopped."""
    binaries = needed_bin()
    memory = "/dev/shm"
    folder = Path(mkdtemp(prefix="arl-pg-", dir=memory if os.access(memory, os.W_OK) else None))
    try:
        server = Server(binaries, folder, settings)
        server.own(folder)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def serving(**settings: str) -> Iterator[Server]:
    """A server that runs."""
    with new_server(**settings) as server:
        server.initialise()
        server.start()
        yield server


@contextmanager
def pair() -> Iterator[tuple[Server, Server]]:
    """A primary, and a standby without which it confirms no commit."""
    with serving() as primary, new_server() as standby:
        standby.follow(primary)
        standby.start()
        primary.run(f"ALTER SYSTEM SET synchronous_standby_names = '{STANDBY}'")
        primary.run("SELECT pg_reload_conf()")
        confirmed = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
        eventually(lambda: bool(primary.run(confirmed)), lambda: standby.log()[-2_000:])
        yield primary, standby


def eventually(
    true: Callable[[], bool], said: Callable[[], str] = lambda: "it never came", *, within_s: float = 30.0
) -> None:
    """Wait for something that another process does."""
    until = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < until, said()
        time.sleep(0.02)


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    return []


def _environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"}
