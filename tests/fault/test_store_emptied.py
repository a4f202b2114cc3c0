"""A store that lost its bytes is never taken for a new one."""

from __future__ import annotations

import pathlib

import pytest

from agent_run_ledger import RunLedger, Step, Tampered

pytestmark = pytest.mark.fault


def ledger(path: pathlib.Path, ran: list[int]) -> RunLedger:
    made = RunLedger(run_id="r1", db_path=path)
    made.add(Step(lambda: ran.append(1) or "paid", name="one"))
    return made


def test_a_store_cut_to_nothing_is_refused_and_nothing_runs_again(tmp_path: pathlib.Path) -> None:
    path, ran = tmp_path / "runs.db", list[int]()
    with ledger(path, ran) as first:
        first.execute()
    path.write_bytes(b"")
    with ledger(path, ran) as second, pytest.raises(Tampered) as caught:
        second.execute()
    assert caught.value.code == "emptied"
    assert ran == [1]
    assert path.read_bytes() == b""


def test_a_store_that_a_person_deleted_begins_anew(tmp_path: pathlib.Path) -> None:
    path, ran = tmp_path / "runs.db", list[int]()
    with ledger(path, ran) as first:
        first.execute()
    path.unlink()
    with ledger(path, ran) as second:
        assert second.execute() == "paid"
    assert ran == [1, 1]


def test_a_creation_that_died_before_its_first_commit_is_finished(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "runs.db"
    path.touch(0o600)
    (tmp_path / "runs.db-lock").write_bytes(bytes(4096))
    with ledger(path, []) as first:
        assert first.execute() == "paid"
