"""Finds PostgreSQL, or installs Debian's, and runs a cluster of its own for as long as somebody needs it."""

from __future__ import annotations

import ctypes
import itertools
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from unittest import SkipTest
from urllib.parse import quote

BIN_VARIABLE = "ARL_POSTGRES_BIN"
SUPERUSER = "arl_test"
INSTALL = "make postgres"
"""What a person types who has none."""

MISSING = f"no PostgreSQL server on this machine: as root `{INSTALL}` installs it, or set {BIN_VARIABLE}"
_DEBIAN = Path("/usr/lib/postgresql")
_NEEDED = ("initdb", "postgres")
_STARTING_S = 60.0
_PR_SET_PDEATHSIG = 1
_APT = ("apt-get", "install", "-y", "-q", "--no-install-recommends", "-o", "Dpkg::Options::=--force-confold")


def find_bin() -> Path | None:
    """Return the directory of initdb and postgres: the one that is named, the newest of Debian's, the path's."""
    named = os.environ.get(BIN_VARIABLE)
    debian = sorted(_DEBIAN.glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
    on_path = shutil.which("postgres")
    found = [Path(named)] if named else [*debian, *([Path(on_path).resolve().parent] if on_path else [])]
    return next((folder for folder in found if all((folder / name).is_file() for name in _NEEDED)), None)


def needed_bin() -> Path:
    """Return it too. SkipTest where there is none: that is a visible skip, with what to do as its reason."""
    found = find_bin()
    if found is None:
        raise SkipTest(MISSING)
    return found


def install() -> None:
    """Install Debian's server, without the cluster that comes with it. Needs root and apt-get."""
    settings = Path("/etc/postgresql-common/createcluster.conf")
    if not settings.exists():
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text("create_main_cluster = false\n", encoding="utf-8")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(("apt-get", "update", "-q"), env=environment, check=True, stdout=subprocess.DEVNULL)
    subprocess.run((*_APT, "postgresql"), env=environment, check=True, stdout=subprocess.DEVNULL)


def install_pooler() -> None:
    """Install Debian's PgBouncer without starting the service that comes with it. Where that fails its tests skip."""
    service = Path("/etc/systemd/system/pgbouncer.service")
    if service.parent.is_dir() and not service.is_symlink():
        service.symlink_to(os.devnull)  # as `systemctl mask` does
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run((*_APT, "pgbouncer"), env=environment, check=False, stdout=subprocess.DEVNULL)


def find_pooler() -> str | None:
    """Return where PgBouncer is."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A server that is ours alone."""

    folder: Path
    port: int
    password: str = field(repr=False)
    process: subprocess.Popen[bytes] = field(repr=False)
    names: Iterator[int] = field(default_factory=itertools.count, repr=False)

    def url(self, database: str = "postgres", *, user: str = SUPERUSER, password: str | None = None) -> str:
        """The address of a database."""
        secret = quote(self.password if password is None else password, safe="")
        return f"postgresql://{user}:{secret}@127.0.0.1:{self.port}/{database}"

    def run(self, sql: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run a statement as the superuser on a connection of its own, and return what it finds."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(sql)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    def new_database(self, template: str = "template0") -> str:
        """Make a database that nobody has used, and return its name."""
        name = f"t{next(self.names)}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {template} ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'")
        return name

    def drop(self, name: str) -> None:
        """Remove a database with whoever is still in it."""
        self.run(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@contextmanager
def running(*, in_memory: bool = True, **settings: str) -> Iterator[Cluster]:
    """A cluster in a folder in memory, or on a disk, as a user without rights, on a free port of loopback.

    `settings` are those of the server. Only the process that was started here is stopped, and all is gone at the end.
    """
    binaries = needed_bin()
    memory = "/dev/shm"
    folder = Path(mkdtemp(prefix="arl-pg-", dir=memory if in_memory and os.access(memory, os.W_OK) else None))
    try:
        cluster = _start(binaries, folder, settings)
        try:
            yield cluster
        finally:
            _stop(cluster.process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _start(binaries: Path, folder: Path, settings: dict[str, str]) -> Cluster:
    who = _unprivileged()
    if who:
        os.chown(folder, who["user"], who["group"])
    data, password = folder / "data", secrets.token_urlsafe(12) + "%/@:"
    secret = folder / "password"
    secret.write_text(password, encoding="utf-8")
    secret.chmod(0o600)
    if who:
        os.chown(secret, who["user"], who["group"])
    made = (binaries / "initdb", "-D", data, "-U", SUPERUSER, "-A", "scram-sha-256", f"--pwfile={secret}")
    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"}
    subprocess.run(
        [*map(str, made), "-E", "UTF8", "--locale=C", "--no-sync"],
        cwd=folder, env=environment, check=True, capture_output=True, **who,
    )  # fmt: skip
    secret.unlink()
    # The superuser of a test's own cluster comes in without a password, which costs a third of most tests: a scram
    # login is 4,096 rounds of SHA-256 on both sides. Everybody else needs one.
    hosts = f"host all {SUPERUSER} 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
    (data / "pg_hba.conf").write_text(f"local all all scram-sha-256\n{hosts}", encoding="utf-8")
    port = _free_port()
    wanted = {
        "listen_addresses": "127.0.0.1", "port": str(port), "unix_socket_directories": str(folder),
        "shared_buffers": "32MB", "max_connections": "60", "logging_collector": "off", "autovacuum_naptime": "5s",
        **settings,
    }  # fmt: skip
    arguments = [f"-c{name}={value}" for name, value in wanted.items()]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(binaries / "postgres"), "-D", str(data), *arguments],
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            preexec_fn=_die_with_us,  # noqa: PLW1509 - a server that outlives a killed test run is worse
            **who,
        )  # fmt: skip
    cluster = Cluster(folder=folder, port=port, password=password, process=process)
    _wait(cluster)
    return cluster


def _unprivileged() -> dict[str, Any]:
    """Whom the server runs as: it refuses root."""
    if os.getuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            found = pwd.getpwnam(name)
            return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
    raise LookupError("no user postgres and no user nobody to run a server as")


def _die_with_us() -> None:
    """Let the kernel end the server when this process is killed (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        port: int = asked.getsockname()[1]
        return port


def _wait(cluster: Cluster) -> None:
    import psycopg

    deadline = time.monotonic() + _STARTING_S
    while True:
        try:
            cluster.run("SELECT 1")
            return
        except psycopg.OperationalError as error:
            if cluster.process.poll() is not None or time.monotonic() > deadline:
                _stop(cluster.process)
                said = (cluster.folder / "log").read_text(encoding="utf-8", errors="replace")
                raise RuntimeError(f"PostgreSQL did not start: {error}\n{said[-2000:]}") from error
        time.sleep(0.02)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop at once: nobody needs the data any more."""
    for asked in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(asked)
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)


def main() -> None:
    """Install what is missing where that is possible, and say what there is."""
    may_install = os.getuid() == 0 and shutil.which("apt-get") is not None
    if find_bin() is None:
        if not may_install:
            print(f"PostgreSQL: {MISSING}")
            return
        print("PostgreSQL: installing Debian's, about half a minute ...", flush=True)
        install()
    if find_pooler() is None and may_install:
        install_pooler()
    print(f"PostgreSQL: {find_bin()}; PgBouncer: {find_pooler() or 'none, its tests are skipped'}")


if __name__ == "__main__":
    main()
