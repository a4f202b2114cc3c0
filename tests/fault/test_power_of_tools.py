"""Power is cut in a dynamic run: the start of an unsafe tool is on disk before its body, a result before its caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger.runs import journal
from agent_run_ledger.store import SqliteStore
from agent_run_ledger.testing import PowerDisk, check_ledger, cut_power_everywhere
from agent_run_ledger.testing.body_counter import BodyCounter
from agent_run_ledger.testing.power_life import RecordedLife, live, put, record_life
from tests.fault.power_lives import paying, small_wal

pytestmark = pytest.mark.fault


@pytest.fixture(autouse=True)
def _small_wal() -> Iterator[None]:
    with small_wal():
        yield


def test_no_result_that_was_handed_out_is_lost_wherever_the_power_is_cut() -> None:
    summary = cut_power_everywhere(paying, torn_per_cut=0, lives_per_length=2)
    assert summary.leaves >= 8
    assert summary.marks_lost > 0  # those of steps, which may run again


def _payments(workdir: Path, begun: Callable[[RecordedLife, int], bool]) -> int:
    """Return the most payments over a life that is cut once the payment was made, and the life that goes on from it."""
    first = workdir / "first"
    first.mkdir()
    paid_at: list[int] = []
    life = record_life(paying, first)
    assert BodyCounter(first / "bodies.log").count()["pay"] == 1
    disk, most = PowerDisk(life.trace.before), 0
    for acts, act in enumerate(life.trace.acts, 1):
        disk.apply(act)
        if not begun(life, acts):
            continue
        paid_at.append(acts)
        for image in disk.images(torn=0, seed=acts):
            place = workdir / f"{acts}-{image.how}"
            put({name: data for name, data in image.files.items() if name != "bodies.log"}, place)
            live(paying, place)
            check_ledger(place / "ledger.db")
            most = max(most, 1 + BodyCounter(place / "bodies.log").count()["pay"])
    assert paid_at
    return most


def _pay_had_begun(life: RecordedLife, acts: int) -> bool:
    """Whether the body of the tool had begun: its start, the sixth leaf, was told to the caller by then."""
    return life.leaves_told(acts) >= PAY_STARTED


PAY_STARTED = 6  # the store, START, the value, the start and the result of look, the start of pay


def test_a_tool_that_had_begun_is_never_repeated_after_a_power_cut(tmp_path: Path) -> None:
    assert _payments(tmp_path, _pay_had_begun) == 1


def test_the_twin_that_does_not_sync_starts_pays_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, transact, starting = journal.Journal.commit, SqliteStore.transact, list[bool]()

    def commit(self: journal.Journal, batch: Any) -> Any:
        starting.append(bool(batch.starts) and not batch.concluded)
        try:
            return whole(self, batch)
        finally:
            starting.pop()

    def unsynced(self: SqliteStore, op_id: bytes, fn: Any, *, sync: bool = True, first: Any = ()) -> Any:
        return transact(self, op_id, fn, sync=sync and not any(starting), first=first)

    monkeypatch.setattr(journal.Journal, "commit", commit)
    monkeypatch.setattr(SqliteStore, "transact", unsynced)
    assert _payments(tmp_path, _pay_had_begun) == 2
