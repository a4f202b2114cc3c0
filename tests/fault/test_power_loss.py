"""Power is cut at every act of the disk: no acknowledged record is lost, and the unsafe twins lose."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from agent_run_ledger.store import open_sqlite
from agent_run_ledger.testing import (
    CutFailure,
    Point,
    PowerCheckFailed,
    PowerDisk,
    check_ledger,
    crash_everywhere,
    cut_power_everywhere,
    no_body_without_a_start,
    recorded_disk,
)
from agent_run_ledger.testing.power_life import live, put, record_life
from tests.fault.power_lives import Life, busy, forced, over_a_failing_disk, short, small_wal, switching
from tests.fault.store_disk import Hook, failing_once

pytestmark = pytest.mark.fault

CAMPAIGN = int(os.environ.get("ARL_CAMPAIGN", "1"))
NORMAL, FULL = 1, 2
PROGRAMS = Path(__file__).resolve().parent.parent / "scenario" / "programs" / "pipelines.py"


@pytest.fixture(autouse=True)
def _small_wal() -> Iterator[None]:
    with small_wal():
        yield


@pytest.mark.parametrize("durability", ["full", "extra"])
def test_no_acknowledged_record_is_lost_wherever_the_power_is_cut(durability: str) -> None:
    summary = cut_power_everywhere(busy(durability), torn_per_cut=CAMPAIGN, lives_per_length=4 * CAMPAIGN)
    assert summary.leaves >= 11  # commits of parallel steps fuse as they happen to end
    assert summary.distinct > 300
    # A start mark is not synced where there is a WAL, so some cuts take one, and nothing else.
    assert (summary.marks_lost > 0) is (durability == "full")


def test_a_store_that_changes_its_journal_loses_nothing_on_the_way() -> None:
    summary = cut_power_everywhere(switching, torn_per_cut=CAMPAIGN - 1, lives_per_length=2 * CAMPAIGN)
    assert summary.leaves == 10
    assert summary.distinct > 150


def _first_failure(life: Life) -> CutFailure:
    with pytest.raises(PowerCheckFailed) as caught:
        cut_power_everywhere(life, torn_per_cut=0, most_failures=1)
    (failure,) = caught.value.failures
    shutil.rmtree(failure.directory)
    return failure


def test_a_wal_at_synchronous_normal_loses_records_that_were_acknowledged() -> None:
    with forced(NORMAL):
        failure = _first_failure(short("full"))
    assert failure.lost == 1, failure
    assert failure.problem == "1 promised leaves are gone"
    # START was acknowledged, and the next write into the WAL is under way without a sync before it.
    assert failure.cut.last.endswith("of ledger.db-wal"), failure.cut
    assert failure.cut.how == "all lost"


def test_a_rollback_journal_at_synchronous_full_loses_records_that_were_acknowledged() -> None:
    with forced(FULL):
        failure = _first_failure(short("extra"))
    assert failure.lost == 1, failure
    assert failure.problem == "1 promised leaves are gone"
    # Deleting the journal commits, but the deletion is not durable: the journal that is back undoes the commit.
    assert failure.cut.last == "delete ledger.db-journal"
    assert failure.cut.how == "all lost"


@pytest.mark.parametrize(
    ("durability", "hook"),
    [
        ("full", lambda: failing_once("sync", "wal")),
        ("full", lambda: failing_once("write", "wal", apsw.SQLITE_FULL)),
        ("extra", lambda: failing_once("sync", "journal")),
        ("extra", lambda: failing_once("sync", "db")),
        ("extra", lambda: failing_once("delete", "journal", apsw.SQLITE_IOERR_DELETE)),
    ],
    ids=["wal-sync", "wal-full", "journal-sync", "file-sync", "journal-delete"],
)
def test_what_a_failing_disk_leaves_behind_is_not_believed_after_a_cut(
    durability: str, hook: Callable[[], Hook]
) -> None:
    summary = cut_power_everywhere(
        over_a_failing_disk(durability, hook), torn_per_cut=CAMPAIGN - 1, lives_per_length=2 * CAMPAIGN
    )
    assert summary.distinct > 30


@pytest.mark.parametrize("durability", ["full", "extra"])
def test_a_second_cut_during_the_recovery_from_the_first_loses_nothing_either(durability: str, tmp_path: Path) -> None:
    """The first leaves a commit without its last act: a journal to roll back, or a WAL to recover."""
    life = short(durability)
    files = _image_before_a_commit(life, tmp_path / "first")
    assert {"full": "ledger.db-wal", "extra": "ledger.db-journal"}[durability] in files
    put(files, tmp_path / "left")
    summary = cut_power_everywhere(life, begin_with=tmp_path / "left", torn_per_cut=CAMPAIGN - 1)
    assert summary.distinct > 30


def _image_before_a_commit(life: Life, workdir: Path) -> dict[str, bytes]:
    """What is left right before the second step is recorded."""
    workdir.mkdir()
    trace = record_life(life, workdir).trace
    commits = [n for n, act in enumerate(trace.acts) if str(act) in ("delete ledger.db-journal", "sync ledger.db-wal")]
    disk = PowerDisk(trace.before)
    for act in trace.acts[: commits[3]]:
        disk.apply(act)
    return dict(next(image for image in disk.images(torn=0, seed=0) if image.how == "all kept").files)


@pytest.mark.parametrize("durability", ["full", "extra"])
def test_whoever_may_only_read_sees_every_image_as_a_writer_would(durability: str, tmp_path: Path) -> None:
    """Reading is the first thing that people do after a crash; a half-done commit must not stop them."""
    first = tmp_path / "first"
    first.mkdir()
    recorded = record_life(short(durability), first)
    disk, checked = PowerDisk(recorded.trace.before), 0
    for acts, act in enumerate(recorded.trace.acts, 1):
        disk.apply(act)
        promised = recorded.leaves_promised(acts)
        for image in disk.images(torn=0, seed=acts) if promised else ():
            put(image.files, tmp_path / f"{acts}-{image.how}")
            store = open_sqlite(tmp_path / f"{acts}-{image.how}" / "ledger.db", create=False, readonly=True)
            assert store.reader().head().size >= promised, (acts, str(act), image.how)
            store.close()
            checked += 1
    assert checked > 100


def test_a_cut_while_a_store_is_created_leaves_nothing_or_a_store(tmp_path: Path) -> None:
    """Also where a directory keeps names in any order."""
    summary = cut_power_everywhere(_only_creates, torn_per_cut=12 * CAMPAIGN)
    assert summary.leaves == 1
    assert summary.distinct > 100


def _only_creates(workdir: Path) -> object:
    open_sqlite(workdir / "ledger.db", create=True).close()
    return None


@pytest.mark.parametrize("lock", [None, b"", bytes(32)], ids=["absent", "empty", "zeros"])
@pytest.mark.parametrize("durability", ["full", "extra"])
def test_the_lock_file_may_be_lost_or_empty(durability: str, lock: bytes | None, tmp_path: Path) -> None:
    """Nobody syncs it: what it says is only a warning against stores that were emptied."""
    life = short(durability)
    put(_image_before_a_commit(life, tmp_path / "first"), tmp_path / "left")
    place = tmp_path / "left" / "ledger.db-lock"
    assert any(place.read_bytes())
    if lock is None:
        place.unlink()
    else:
        place.write_bytes(lock)
    assert live(life, tmp_path / "left") == "x" * 5
    check_ledger(tmp_path / "left" / "ledger.db")
    assert any(place.read_bytes())


def test_a_killed_process_leaves_a_rollback_journal_that_the_next_one_undoes(tmp_path: Path) -> None:
    """durability="extra" from the outside: real processes, killed with SIGKILL."""
    from itertools import count

    numbers = count()

    def directory() -> Path:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        return folder

    summary = crash_everywhere(
        f"{PROGRAMS}:sturdy",
        directory,
        points=["body.before", "body.after", "commit.before", "commit.after", "file.write", "file.sync"],
        most_per_point={str(point): 1 for point in Point} | {"file.write": 3 * CAMPAIGN, "file.sync": 2 * CAMPAIGN},
        check=no_body_without_a_start,
        at_once=2,
    )
    assert summary.kills["file.write"] >= 2
    assert summary.not_reached == 0


def test_the_recorded_disk_sees_both_ways_to_make_a_name_durable(tmp_path: Path) -> None:
    with recorded_disk(tmp_path) as trace:
        live(short("extra"), tmp_path)
    acts = [str(act) for act in trace.acts]
    assert acts[:3] == ["create ledger.db", "sync the directory", "create ledger.db-lock"]
    synced, deleted = acts.index("sync ledger.db-journal"), acts.index("delete ledger.db-journal")
    assert acts[synced + 1] == acts[deleted + 1] == "sync the directory"
    check_ledger(tmp_path / "ledger.db")
