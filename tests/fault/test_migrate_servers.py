"""A move to a server that fails under it goes on when that is there again; the source is not given up early."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import probes
from agent_run_ledger.errors import LedgerError, Unavailable, Uncertain
from agent_run_ledger.ledger.migrate import migrate
from agent_run_ledger.store import Standing
from agent_run_ledger.testing import check_ledger
from tests.contract.move_kit import pipeline
from tests.contract.store_kit import quick_folder
from tests.fault.test_migrate_kills import standing
from tests.services.servers import Server, Stop, eventually, pair, serving

pytestmark = pytest.mark.fault


@pytest.fixture
def source() -> Iterator[Path]:
    with quick_folder() as folder:
        for number in range(3):
            pipeline(folder / "runs.db", f"r{number}")
        yield folder / "runs.db"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as started:
        yield started


@pytest.fixture
def reached() -> Iterator[dict[str, Any]]:
    """What is done when a point is reached, once."""
    wanted: dict[str, Any] = {}
    probes.install(lambda point: wanted.pop(point, lambda: None)())
    yield wanted
    probes.install(None)


def _ends_well(source: Path, target: str) -> None:
    assert (standing(source), standing(target)) == (Standing.RETIRED, Standing.LIVE)
    check_ledger(source)
    check_ledger(target)


@pytest.mark.parametrize("point", ["migrate.begun", "migrate.chunk", "migrate.copied", "migrate.retired"])
def test_a_target_that_is_killed_in_the_middle_is_filled_when_it_is_there_again(
    source: Path, server: Server, reached: dict[str, Any], point: str
) -> None:
    target = server.url(server.new_database())
    reached[point] = server.kill
    with pytest.raises(LedgerError) as caught:
        migrate(source, target)
    assert isinstance(caught.value, Unavailable | Uncertain), caught.value
    server.start()
    left = Standing.RETIRED if point == "migrate.retired" else Standing.MOVING
    assert (standing(source), standing(target)) == (left, Standing.ARRIVING)
    assert migrate(source, target).resumed
    _ends_well(source, target)


def test_a_source_does_not_retire_for_a_target_that_its_standby_did_not_confirm(source: Path) -> None:
    """Somebody cancels each wait for the standby: what is committed there alone is not enough."""
    with pair() as (primary, standby):
        target = primary.url(primary.new_database())
        standby.stop(Stop.IMMEDIATE)
        failed: list[BaseException] = []

        def move() -> None:
            try:
                migrate(source, target)
            except LedgerError as error:
                failed.append(error)

        thread = threading.Thread(target=move)
        thread.start()
        waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        eventually(lambda: bool(primary.run(waiting)))
        assert standing(source) is not Standing.RETIRED
        while thread.is_alive():
            primary.run(f"SELECT pg_cancel_backend(pid) FROM ({waiting}) AS those")
            thread.join(0.05)
        assert [(type(error), error.code) for error in failed] == [(Uncertain, "commit_unconfirmed")]  # type: ignore[attr-defined]
        assert (standing(source), standing(target)) == (Standing.MOVING, Standing.ARRIVING)
        standby.start()
        assert migrate(source, target).resumed
        _ends_well(source, target)
