"""What a process leaves that dies inside a commit without a WAL: whoever looks next finds the state before it."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent_run_ledger import RunLedger, Step
from agent_run_ledger.errors import Unavailable
from agent_run_ledger.store import SqliteStore, open_sqlite
from agent_run_ledger.testing import check_ledger
from tests.contract.store_kit import check_log

pytestmark = pytest.mark.fault

LEAVES = 4
_DIE_INSIDE_A_COMMIT = """
import os, signal, sys
from agent_run_ledger import RunLedger, Step
from agent_run_ledger.testing import Point, watched_disk

def die(point):
    if point == Point.FILE_SYNC:
        os.kill(os.getpid(), signal.SIGKILL)

with watched_disk() as disk:
    ledger = RunLedger("r", sys.argv[1], steps=[Step(lambda: 1, name="one")], durability="extra")
    ledger.bind("r").state
    disk.hook = die
    ledger.bind("another").execute()
"""


def _die_inside_a_commit(path: Path) -> None:
    """Let another process write all pages of a commit into the file and die before it takes its journal away."""
    died = subprocess.run([sys.executable, "-c", _DIE_INSIDE_A_COMMIT, path], capture_output=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert Path(f"{path}-journal").stat().st_size > 0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store without a WAL, with a run that failed, closed."""
    path = tmp_path / "log.db"
    failing = Step(lambda: 1 // 0, name="failing")
    with RunLedger("r", path, steps=[failing], durability="extra") as ledger, pytest.raises(ZeroDivisionError):
        ledger.execute()
    return path


def _size(store: SqliteStore) -> int:
    return store.reader().head().size


@pytest.mark.parametrize("readonly", [True, False])
def test_the_next_opener_finds_what_was_committed_before(path: Path, readonly: bool) -> None:
    """Also one that only looks: after a crash `arl runs show` is what people type first."""
    _die_inside_a_commit(path)
    store = open_sqlite(path, create=False, durability="extra", readonly=readonly)
    assert check_log(store) == LEAVES
    store.close()
    assert not Path(f"{path}-journal").exists()
    check_ledger(path)


@pytest.mark.parametrize("readonly", [True, False])
def test_who_has_the_store_open_goes_on_reading(path: Path, readonly: bool) -> None:
    store = open_sqlite(path, create=False, durability="extra", readonly=readonly)
    assert _size(store) == LEAVES
    _die_inside_a_commit(path)
    assert _size(store) == LEAVES
    _die_inside_a_commit(path)
    assert [event.index for event in store.reader().events(first=0, stop=9)] == list(range(LEAVES))
    store.close()
    check_ledger(path)


def test_the_command_line_looks_and_decides_after_a_death_inside_a_commit(path: Path) -> None:
    for words in (["verify"], ["runs", "quarantine", "--reason", "looking into it", "r"]):
        _die_inside_a_commit(path)
        command = [sys.executable, "-m", "agent_run_ledger", *words, "--db", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    check_ledger(path)


def test_where_nobody_may_write_what_was_left_half_done_is_not_read_as_if_it_were_whole(
    path: Path, tmp_path: Path
) -> None:
    _die_inside_a_commit(path)
    folder = tmp_path / "ro"
    folder.mkdir()
    for side in ("", "-journal"):
        shutil.copyfile(f"{path}{side}", folder / f"log.db{side}")
    if subprocess.run(["mount", "--bind", folder, folder], capture_output=True, check=False).returncode != 0:
        pytest.skip("no permission to mount")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        with pytest.raises(Unavailable) as caught:
            open_sqlite(folder / "log.db", create=False, readonly=True)
        assert caught.value.code == "read_only"
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
    check_ledger(path)
