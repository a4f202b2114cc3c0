"""A commit that a dead process left half done in a rollback journal stops nobody who comes after it."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from agent_run_ledger import RunLedger
from agent_run_ledger.errors import Tampered, Unavailable
from agent_run_ledger.store import open_sqlite, sqlite
from agent_run_ledger.store.sqlite_failures import translated
from agent_run_ledger.testing import Exit, KillPoint, check_ledger, run_scenario

pytestmark = pytest.mark.fault

PROGRAMS = Path(__file__).resolve().parent.parent / "scenario" / "programs" / "pipelines.py"


def _dies_in_a_commit(workdir: Path) -> Path:
    """A store of ours in which another process dies while it writes pages: its journal is left."""
    path = workdir / "ledger.db"
    death = run_scenario(f"{PROGRAMS}:sturdy", workdir, kill_at=KillPoint(point="file.write", nth=3))
    assert death.exit is Exit.KILLED
    assert (workdir / "ledger.db-journal").stat().st_size
    return path


def _double(n: int) -> int:
    return 2 * n


def test_who_lives_reads_on_after_another_died_in_the_middle_of_a_commit(tmp_path: Path) -> None:
    with RunLedger("mine", tmp_path / "ledger.db", durability="extra") as ledger:
        ledger.step(_double)
        assert ledger.execute(n=1) == 2
        store = open_sqlite(tmp_path / "ledger.db", create=False, durability="extra")
        size = store.reader().head().size
        path = _dies_in_a_commit(tmp_path)
        assert store.reader().head().size == size
        assert ledger.bind("mine too").execute(n=2) == 4
        store.close()
    check_ledger(path)


def test_a_reader_that_comes_after_the_death_undoes_the_half_done_commit(tmp_path: Path) -> None:
    with RunLedger("mine", tmp_path / "ledger.db", durability="extra") as ledger:
        ledger.step(_double)
        ledger.execute(n=1)
    path = _dies_in_a_commit(tmp_path)
    store = open_sqlite(path, create=False, readonly=True)
    assert [row.run_id for row in store.reader().list_runs(state=None, before_row_id=None, limit=9)] == ["mine"]
    store.close()
    assert not (tmp_path / "ledger.db-journal").exists()
    check_ledger(path)


def test_another_file_under_the_name_is_not_rolled_back(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with RunLedger("mine", path, durability="extra") as ledger:
        ledger.step(_double)
        ledger.execute(n=1)
    store = open_sqlite(path, create=False, durability="extra")
    place = store._shared.place
    path.rename(tmp_path / "elsewhere.db")
    path.write_bytes(b"")
    with pytest.raises(Tampered) as caught:
        sqlite.roll_back(place)
    assert caught.value.code == "store_replaced"
    (tmp_path / "elsewhere.db").rename(path)
    store.close()
    check_ledger(path)


def test_who_may_not_write_is_told_who_can_help() -> None:
    error = apsw.exception_for(apsw.SQLITE_READONLY_ROLLBACK)
    said = translated(error, "/srv/runs.db")
    assert isinstance(said, Unavailable)
    assert said.code == "read_only"
    assert "died in the middle of a commit" in str(said)
    assert "open it once" in said.hint
