"""Hosts in network namespaces of their own: the holder of a claim loses the database and the target, in both orders."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from urllib.parse import quote

import pytest

from tests.contract.run_kit import until
from tests.fault.postgres_kit import Host, Hosts, checked_log, doubt, make_store, newest, propose, some_hosts
from tests.fault.refund_server import Counts, RefundServer, refund_server
from tests.services.namespaces import REFUSED, Link, inside, network
from tests.services.postgres import SUPERUSER
from tests.services.servers import Server, new_server

pytestmark = pytest.mark.fault

KEY = "refund:17"


class Apart:
    """A database, a target and a host, each in a namespace; the host alone has links to the two."""

    def __init__(self, stack: ExitStack) -> None:
        net = stack.enter_context(network())
        self._at_server, self._at_target, self._at_host = net.space(), net.space(), net.space()
        self.to_database: Link = net.link(self._at_server, self._at_host)
        self.to_target: Link = net.link(self._at_target, self._at_host)
        self.server = self._serving(stack)
        with inside(self._at_target):
            self.target: RefundServer = stack.enter_context(refund_server(self.to_target.address))
        self.hosts: Hosts = stack.enter_context(some_hosts())
        self.database = f"t{os.getpid()}"
        self.url = self._here("postgres")
        with inside(self._at_server):
            self.server.run(f"CREATE DATABASE {self.database} TEMPLATE template0 ENCODING 'UTF8'")
        self.url = make_store(self._here(self.database))
        propose(self.url, KEY, target=self.target.url)

    def _serving(self, stack: ExitStack) -> Server:
        wanted = {"listen_addresses": f"127.0.0.1,{self.to_database.address}"}
        server = stack.enter_context(new_server(**wanted))
        server.initialise()
        with (server.data / "pg_hba.conf").open("w", encoding="ascii") as file:
            file.write(f"local all {SUPERUSER} trust\nhost all {SUPERUSER} 127.0.0.1/32 trust\n")
            file.write(f"host all {SUPERUSER} {self.to_database.other}/32 trust\n")
        with inside(self._at_server):
            server.start()
        return server

    def _here(self, database: str) -> str:
        """A socket of the file system, which no namespace parts from us."""
        folder = quote(str(self.server.folder), safe="")
        return f"postgresql://{SUPERUSER}@/{database}?host={folder}&port={self.server.port}"

    def holder(self, *points: str) -> Host:
        """The host that holds the claim, stopped at the first of these points."""
        far = (
            f"postgresql://{SUPERUSER}@{self.to_database.address}:{self.server.port}/{self.database}?connect_timeout=2"
        )
        stops = " ".join(points)
        with inside(self._at_host):
            host = self.hosts("dispatch", far, self.target.url, "holder", KEY, TEST_STOP_AT=stops)
        return host.stopped()

    def counts(self) -> Counts:
        with inside(self._at_target):
            return self.target.counts()

    def hold_answers(self) -> None:
        with inside(self._at_target):
            self.target.hold()

    def ends(self, *, executed: int) -> None:
        """Nobody sends it again when all is mended, and the doubt can be recorded."""
        assert newest(self.url, KEY).state == "prepared"
        self.to_database.mend()
        self.to_target.mend()
        until(self._is_reached)  # a link that is up again carries a moment later
        for worker in ("holder", "other"):
            with inside(self._at_host):
                host = self.hosts("dispatch", self._far(), self.target.url, worker, KEY)
            said = host.end()
            assert said[0].startswith("error Refused"), said
        assert doubt(self.url, KEY) == "unresolved"
        counts = self.counts()
        assert (counts.executed, counts.arrived) == (executed, executed)
        checked_log(self.url)

    def _is_reached(self) -> bool:
        with inside(self._at_host), suppress(OSError):
            socket.create_connection((self.to_database.address, self.server.port), 1).close()
            return True
        return False

    def _far(self) -> str:
        return f"postgresql://{SUPERUSER}@{self.to_database.address}:{self.server.port}/{self.database}"


@pytest.fixture
def apart() -> Iterator[Apart]:
    with ExitStack() as stack:
        try:
            made = Apart(stack)
        except (PermissionError, subprocess.CalledProcessError):
            pytest.skip(REFUSED)
        yield made


def test_the_database_is_lost_and_then_the_target(apart: Apart) -> None:
    """The permit was handed out, and its end cannot be judged without the server's clock: nothing is sent."""
    holder = apart.holder("dispatch.handed_out")
    apart.to_database.cut()
    apart.to_target.cut()
    assert holder.go_on().end() == ["error Unrecorded NotSent no_time"]
    apart.ends(executed=0)


def test_the_target_is_lost_with_its_answer_and_then_the_database(apart: Apart) -> None:
    apart.hold_answers()
    holder = apart.holder("dispatch.handed_out", "dispatch.sent")
    holder.go_on().until(lambda: apart.counts().executed == 1)
    apart.to_target.cut()
    holder.stopped()
    apart.to_database.cut()
    assert holder.go_on().end() == ["error Unrecorded Lost timeout"]
    apart.ends(executed=1)
