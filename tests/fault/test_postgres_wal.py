"""The disk of a server's write-ahead log is full: it falls, nothing that was confirmed is lost, and all goes on."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp

import pytest

from agent_run_ledger import RunLedger
from agent_run_ledger.errors import LedgerError, Unavailable, Uncertain
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.testing import check_ledger
from tests.contract.run_kit import records_of
from tests.fault.postgres_kit import make_store
from tests.services.servers import Server, new_server

pytestmark = pytest.mark.fault

STEPS = 120
_SMALL = {"max_wal_size": "8MB", "min_wal_size": "2MB", "wal_recycle": "off"}


@contextmanager
def small_log() -> Iterator[tuple[Server, Path]]:
    """A server whose write-ahead log is alone on a disk in memory, which another file may fill."""
    folder = Path(mkdtemp(prefix="arl-wal-"))
    command = ("mount", "-t", "tmpfs", "-o", "size=24m", "arl-test", str(folder))
    mounted = subprocess.run(command, check=False, capture_output=True).returncode == 0
    try:
        if not mounted:
            pytest.skip("no permission to mount")
        with new_server(**_SMALL) as server:
            (folder / "wal").mkdir()
            server.own(folder)
            server.own(folder / "wal")
            server.initialise("-X", str(folder / "wal"), "--wal-segsize=1")
            server.start()
            yield server, folder / "filler"
    finally:
        if mounted:
            subprocess.run(("umount", str(folder)), check=True)
        folder.rmdir()


def test_a_full_disk_of_the_log_loses_nothing_and_is_told_as_a_server_that_is_away() -> None:
    ran: Counter[int] = Counter()
    recorded: set[int] = set()
    with small_log() as (server, filler):
        url = make_store(server.url(server.new_database()))
        with RunLedger("r", url=url) as ledger:

            @ledger.step
            def work(at: int) -> bytes:
                ran[at] += 1
                return os.urandom(20_000)

            def whole() -> None:
                with ledger.run():
                    for at in range(STEPS):
                        work(at)
                        recorded.add(at)

            with suppress(OSError), filler.open("wb", buffering=0) as file:
                while file.write(bytes(1 << 16)):
                    pass
            with pytest.raises((Unavailable, Uncertain)):
                whole()
            server.until_it_fell()
            with pytest.raises(LedgerError) as caught:
                whole()
            assert (type(caught.value), caught.value.code) == (Unavailable, "unreachable")
            confirmed = len(recorded)
            assert 0 < confirmed < STEPS
            filler.unlink()
            server.start()
            whole()
            assert ran.total() <= STEPS + 1, "only what was under way ran again"
            assert all(ran[at] == 1 for at in range(confirmed))
            assert len(records_of(ledger, RecordKind.RESULT, run_id="r")) == STEPS
        check_ledger(url)
