"""Several processes on one store at a server: they take turns, and one that is killed takes nothing back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_run_ledger.store.postgres_store import open_postgres
from agent_run_ledger.testing import check_ledger
from tests.contract.run_kit import until
from tests.contract.store_kit import begin, check_log
from tests.services.postgres import Cluster

pytestmark = pytest.mark.fault

WRITERS, TRANSACTIONS = 4, 40

_WRITER = """
import sys
from tests.contract.store_kit import begin, do_step, op
from agent_run_ledger.store import open_store
store = open_store(sys.argv[1], create=False)
row = begin(store, sys.argv[2])
for key in range(int(sys.argv[3])):
    operation = op()
    do_step(store, row, key, op_id=operation)
    print(operation.hex(), flush=True)
"""

_PIPELINE = """
import sys, time
from agent_run_ledger import RunLedger, Step

def first():
    print("first", flush=True)
    return 1

def second(first):
    print("second", flush=True)
    if sys.argv[2] == "stand still":
        time.sleep(600)
    return first + 1

with RunLedger(run_id="r", url=sys.argv[1]) as ledger:
    ledger.add(Step(first, name="first"))
    ledger.add(Step(second, name="second", depends_on=("first",)))
    print(ledger.execute(), flush=True)
"""


@pytest.fixture
def url(postgres: Cluster) -> Iterator[str]:
    name = postgres.new_database()
    yield postgres.url(name)
    postgres.drop(name)


def _start(program: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE)


def test_processes_take_turns_and_each_commit_is_one_leaf(url: str) -> None:
    store = open_postgres(url, create=True)
    children = [_start(_WRITER, url, f"run {number}", str(TRANSACTIONS)) for number in range(WRITERS)]
    told = [child.communicate()[0].split() for child in children]
    assert [child.returncode for child in children] == [0] * WRITERS
    assert check_log(store) == 1 + WRITERS * (TRANSACTIONS + 1)
    events = store.reader().events(first=0, stop=1_000)
    assert {operation.decode() for each in told for operation in each} <= {event.op_id.hex() for event in events}
    store.close()


def test_what_a_killed_process_was_told_is_there_and_the_others_go_on(url: str) -> None:
    store = open_postgres(url, create=True)
    killed = _start(_WRITER, url, "killed", "100000")
    other = _start(_WRITER, url, "other", "30")
    assert killed.stdout is not None
    told = [killed.stdout.readline().strip().decode() for _ in range(20)]
    killed.kill()
    told += [line.strip().decode() for line in killed.stdout if line.endswith(b"\n")]
    killed.wait()
    killed.stdout.close()
    other.communicate()
    assert other.returncode == 0
    begin(store, "after")
    events = {event.op_id.hex() for event in store.reader().events(first=0, stop=200_000)}
    assert set(told) <= events
    check_log(store)
    store.close()


def test_a_run_that_was_killed_goes_on_elsewhere_and_repeats_nothing_recorded(url: str, tmp_path: Path) -> None:
    program = tmp_path / "pipeline.py"
    program.write_text(_PIPELINE, encoding="utf-8")
    child = subprocess.Popen([sys.executable, program, url, "stand still"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert [child.stdout.readline(), child.stdout.readline()] == [b"first\n", b"second\n"]
    child.kill()
    child.wait()
    child.stdout.close()
    store = open_postgres(url, create=False)
    until(lambda: not store.is_run_live("r"))
    store.close()
    again = subprocess.run([sys.executable, program, url, "go on"], stdout=subprocess.PIPE, check=True)
    assert again.stdout == b"second\n2\n"
    assert check_ledger(url).results == 2
