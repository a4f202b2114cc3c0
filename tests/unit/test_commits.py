"""A call that was forsaken is settled when the record that says so is written, also where another thread writes it."""

from __future__ import annotations

import threading
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from agent_run_ledger import Uncertain
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.runs.batches import Batch, Started, Written
from agent_run_ledger.runs.calls import CallIdentity
from agent_run_ledger.runs.commits import Commits
from agent_run_ledger.runs.handed_out import HandedOut

IDENTITY = CallIdentity(name="pay", fingerprint=b"f", arguments={}, environment={}, version="1")


class Journal:
    """Writes when it is told to, or fails then."""

    def __init__(self, failure: Exception | None) -> None:
        self.failure = failure
        self.writing, self.go_on = threading.Event(), threading.Event()

    def commit(self, batch: Batch) -> Written:
        self.writing.set()
        assert self.go_on.wait(30)
        if self.failure is not None:
            raise self.failure
        left = tuple(range(1, len(batch.abandoned) + 1))
        return Written(state=RunState.RUNNING, reason="", record_ids=(), left_ids=left)


class History:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.noted: list[object] = []

    def note_abandoned(self, key: object, *_: object, **__: object) -> None:
        self.noted.append(key)


class Landed(threading.Condition):
    """Lets the journal go on when somebody waits for it."""

    def __init__(self, lock: Any, journal: Journal) -> None:
        super().__init__(lock)
        self._journal = journal

    def wait_for(self, predicate: Any, timeout: float | None = None) -> bool:
        assert not predicate()
        self._journal.go_on.set()
        return bool(super().wait_for(predicate, 30))


@pytest.mark.parametrize("failure", [None, Uncertain("nobody knows")])
def test_who_settles_a_call_waits_for_the_commit_that_it_is_in(failure: Exception | None) -> None:
    journal, history = Journal(failure), History()
    opened: Any = SimpleNamespace(row=SimpleNamespace(run_id="r"), journal=journal, watch=None, handed_out=HandedOut())
    made: Any = history
    commits = Commits(opened, made, 0)
    commits._landed = Landed(commits.lock, journal)
    commits.forsake(Started(lane=0, index=0, identity=IDENTITY, tries=1, at_ms=0, repeatable=False))

    def write() -> None:
        with suppress(Uncertain):
            commits.commit(Batch())

    writer = threading.Thread(target=write)
    writer.start()
    assert journal.writing.wait(30)
    try:
        if failure is None:
            commits.settle(IDENTITY.key)
        else:
            with pytest.raises(Uncertain):
                commits.settle(IDENTITY.key)
        assert history.noted == ([IDENTITY.key] if failure is None else [])
    finally:
        journal.go_on.set()
        writer.join(30)
