"""Lives of a scenario in this process: one that is recorded, and those that begin from what a power cut left."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from agent_run_ledger.errors import Refused
from agent_run_ledger.ports import Event
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.store.ledger_place import DB_VARIABLE, LEDGER_FILE
from agent_run_ledger.testing.power_disk import recorded_disk
from agent_run_ledger.testing.power_trace import PowerTrace
from agent_run_ledger.testing.scenarios import Scenario

_NO_LEDGER = "give RunLedger no db_path and no url: power is cut of files alone, a server's disk is the server's"
_NOTHING_THERE = frozenset(("no_store", "foreign_file"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One committed transaction as the log has it.

    `has_record` says whether it holds more than start marks, values of a run's own and calls that were left.
    """

    op_id: bytes
    envelope: bytes
    has_record: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedLife:
    """A life without a cut: what the disk did, what the scenario returned, and the log it left.

    `promised` and `told` are, in the order of the acts, pairs of a number of acts and the number of leaves that from
    there on must survive a cut, and that callers were told of.
    """

    trace: PowerTrace
    result: Any
    log: tuple[Leaf, ...]
    promised: tuple[tuple[int, int], ...]
    told: tuple[tuple[int, int], ...]

    def leaves_promised(self, acts: int) -> int:
        """Return how many leaves must survive a cut after so many acts."""
        return _at(self.promised, acts)

    def leaves_told(self, acts: int) -> int:
        """Return how many leaves were acknowledged by then, start marks without a sync included."""
        return _at(self.told, acts)


def record_life(scenario: Scenario, workdir: Path) -> RecordedLife:
    """Run the scenario with a recorded disk below its ledger. What lies in `workdir` already is durable, and promised.

    Promised is: a store, once it was opened for writing; every acknowledged transaction that holds a record or was
    to be synced, with all before it. Refused("no_store") for a scenario that uses no ledger.
    """
    ledger = workdir / LEDGER_FILE
    with recorded_disk(workdir) as trace:
        result = live(scenario, workdir)
    with opened(ledger) as log:
        pass
    if not log:
        raise Refused(f"the scenario left no ledger at {ledger}", code="no_store", hint=_NO_LEDGER)
    places = {leaf.op_id: index + 1 for index, leaf in enumerate(log)}
    first = orjson.loads(log[0].envelope)["log_id"]
    born = [(acts, 1) for log_id, acts in trace.opened.items() if log_id.hex() == first]
    told = [(done.after_acts, places[done.op_id], done.synced) for done in trace.acknowledged if done.op_id in places]
    return RecordedLife(
        trace=trace,
        result=result,
        log=log,
        promised=_growing(
            [*born, *((acts, leaves) for acts, leaves, synced in told if synced or log[leaves - 1].has_record)]
        ),
        told=_growing([*born, *((acts, leaves) for acts, leaves, _ in told)]),
    )


def live(scenario: Scenario, workdir: Path) -> Any:
    """Run the scenario in this process, as the harness does in a child: AGENT_RUN_LEDGER_DB names its ledger."""
    with _variable(DB_VARIABLE, str(workdir / LEDGER_FILE)):
        return scenario(workdir)


@contextmanager
def opened(ledger: Path) -> Generator[tuple[Leaf, ...]]:
    """Keep a ledger open inside the block, and yield all its leaves: none where no store was ever completed.

    Raises what opening and reading raise. Opening again inside the block, as `check_ledger` does, is cheap.
    """
    try:
        store = open_sqlite(ledger, create=False)
    except Refused as error:
        if error.code not in _NOTHING_THERE or (ledger.exists() and ledger.stat().st_size):
            raise
        yield ()
        return
    try:
        reader = store.reader()
        yield tuple(_leaf(event) for event in reader.events(first=0, stop=reader.head().size))
    finally:
        store.close()


def put(files: Mapping[str, bytes], directory: Path) -> None:
    """Write files into a directory, which is made."""
    directory.mkdir(parents=True)
    for name, content in files.items():
        (directory / name).write_bytes(content)


def _leaf(event: Event) -> Leaf:
    has_record = _has_record(orjson.loads(event.envelope)["changes"])
    return Leaf(op_id=event.op_id, envelope=event.envelope, has_record=has_record)


def _has_record(changes: list[dict[str, Any]]) -> bool:
    """A value of a run's own is started and recorded in one leaf, and need not survive; nor what was left."""
    before: dict[str, Any] = {}
    for change in changes:
        is_value = before.get("new") == "started" and "mac" not in before and change["old"] == "started"
        if "mac" in change and not is_value and change["new"] not in ("abandoned", "unknown"):
            return True
        before = change
    return False


def _growing(steps: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    most, grown = 0, list[tuple[int, int]]()
    for acts, leaves in sorted(steps):
        most = max(most, leaves)
        grown.append((acts, most))
    return tuple(grown)


def _at(steps: tuple[tuple[int, int], ...], acts: int) -> int:
    place = bisect_right(steps, acts, key=_acts_of)
    return steps[place - 1][1] if place else 0


def _acts_of(step: tuple[int, int]) -> int:
    return step[0]


@contextmanager
def _variable(name: str, value: str) -> Generator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
