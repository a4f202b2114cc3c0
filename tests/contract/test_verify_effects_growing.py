"""The auditor on effects that go on while it reads: followed, not reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger.errors import Unavailable
from agent_run_ledger.ledger.verify import Report, verify_log
from agent_run_ledger.ports import Reader
from agent_run_ledger.ports.effects import StoredAction
from agent_run_ledger.store import SqliteStore, open_sqlite
from tests.contract.effect_stories import ANN, EXEC, RECON, Stories, intent


class Growing:
    """Reads of effects between which something happens: before each look at a key, or after it."""

    def __init__(self, reader: Reader, before: Callable[[str], object], after: Callable[[str], object]) -> None:
        self._effects = reader.effects
        self._before = before
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._effects, name)

    def members(self, action_key: str) -> list[StoredAction]:
        self._before(action_key)
        rows = self._effects.members(action_key)
        self._after(action_key)
        return rows


class GrowingReader:
    def __init__(self, reader: Reader, effects: Growing) -> None:
        self._reader = reader
        self.effects = effects

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)


@pytest.fixture
def stories(tmp_path: Path) -> Iterator[Stories]:
    made = Stories(tmp_path / "growing.db")
    yield made
    made.ledger.close()


@pytest.fixture
def store(stories: Stories, tmp_path: Path) -> Iterator[SqliteStore]:
    opened = open_sqlite(tmp_path / "growing.db", create=False)
    yield opened
    opened.close()


def _grown(store: SqliteStore, before: Callable[[str], object], after: Callable[[str], object]) -> Report:
    reader = store.reader()
    return verify_log(GrowingReader(reader, Growing(reader, before, after)))  # type: ignore[arg-type]


@pytest.mark.parametrize("first", [True, False], ids=["before a look", "between rows and records"])
def test_an_action_that_goes_on_meanwhile_is_no_problem(stories: Stories, store: SqliteStore, first: bool) -> None:
    action = stories.claimed("one").view
    left = [lambda: stories.available("two"), lambda: stories.ledger.propose(ANN, "a", intent(b"a"))]
    assert action.claim_id is not None
    claim_id = action.claim_id
    left += [lambda: stories.ledger.prepare(EXEC, action.action_id, claim_id=claim_id, worker="w1")]

    def go_on(key: str) -> None:
        if key == "one" and left:
            left.pop()()

    report = _grown(store, go_on if first else lambda _: None, (lambda _: None) if first else go_on)
    assert report.problems == ()
    assert len(left) < 3


def test_a_key_that_changes_faster_than_it_can_be_read_is_unavailable(stories: Stories, store: SqliteStore) -> None:
    action = stories.prepared("one")
    with pytest.raises(Unavailable, match="key 'one' changes faster than it can be verified"):
        _grown(store, lambda _: None, lambda _: stories.ledger.observe(RECON, action.action_id, stories.look(action)))


def test_records_that_no_key_leads_to_are_counted(stories: Stories, store: SqliteStore) -> None:
    """Reads that leave out a key are noticed by the number of records."""
    stories.available("one")
    stories.available("two")

    class Forgetful(Growing):
        def keys(self) -> Iterator[str]:
            return iter(["one"])

    reader = store.reader()
    lying = GrowingReader(reader, Forgetful(reader, lambda _: None, lambda _: None))
    report = verify_log(lying)  # type: ignore[arg-type]
    assert [problem.text for problem in report.problems] == [
        "4 records of actions stand beside leaves, 2 belong to keys"
    ]
