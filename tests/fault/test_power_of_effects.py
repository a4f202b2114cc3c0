"""Power is cut at every act of the disk while effects are claimed, prepared, handed out and settled."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agent_run_ledger.ledger.effect_ledger import EffectLedger
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.testing import CutFailure, PowerCheckFailed, cut_power_everywhere
from tests.fault.effect_kit import END_MS, Ticks, new_store, ready
from tests.fault.effect_lives import effects, nothing_is_granted_again, refuses
from tests.fault.power_lives import forced, small_wal

pytestmark = pytest.mark.fault

CAMPAIGN = int(os.environ.get("ARL_CAMPAIGN", "1"))
NORMAL, FULL = 1, 2
LEAVES = 16
"""The store, its authority, six of the action that was sent, four of the one that was left, four that settle it."""


@pytest.fixture(autouse=True)
def _small_wal() -> Iterator[None]:
    with small_wal():
        yield


@pytest.mark.parametrize("durability", ["full", "extra"])
def test_no_acknowledged_transition_is_lost_and_nothing_is_granted_again_wherever_the_power_is_cut(
    durability: str,
) -> None:
    summary = cut_power_everywhere(
        effects(durability), torn_per_cut=CAMPAIGN - 1, lives_per_length=CAMPAIGN, look=nothing_is_granted_again
    )
    assert summary.leaves == LEAVES
    assert summary.distinct > 200
    assert summary.marks_lost == 0, "every transition of an effect is synced"


@pytest.mark.parametrize(("durability", "level"), [("full", NORMAL), ("extra", FULL)], ids=["wal", "journal"])
def test_the_twin_that_syncs_less_loses_what_was_acknowledged_and_is_noticed(durability: str, level: int) -> None:
    """A WAL at synchronous NORMAL, a rollback journal at FULL: a claim that a worker was told of is gone."""
    lost: set[str] = set()
    with forced(level), pytest.raises(PowerCheckFailed) as caught:
        cut_power_everywhere(effects(durability), torn_per_cut=0, lives_per_length=0, most_failures=6)
    for failure in caught.value.failures:
        shutil.rmtree(failure.directory, ignore_errors=True)  # one image may fail at several cuts
        lost.add(failure.problem)
    assert lost == {"1 promised leaves are gone"}


def test_what_must_hold_of_each_image_is_asked_of_each_image() -> None:
    asked: list[Path] = []

    def look(path: Path) -> None:
        asked.append(path)
        with closing(open_sqlite(path, create=False)) as store:
            if store.reader().effects.members("sent"):
                raise AssertionError("there is an action")

    with pytest.raises(PowerCheckFailed) as caught:
        cut_power_everywhere(effects("full"), torn_per_cut=0, lives_per_length=0, look=look, most_failures=1)
    failure: CutFailure = caught.value.failures[0]
    shutil.rmtree(failure.directory)
    assert (failure.problem, failure.lost) == ("AssertionError: there is an action", 0)
    assert len(asked) > 1


def test_the_look_notices_a_grant_and_a_refusal_for_another_reason(tmp_path: Path) -> None:
    clock = Ticks()
    with EffectLedger(new_store(tmp_path / "ledger.db"), time=clock) as ledger:
        first, second = ready(ledger, "first"), ready(ledger, "second")
        with pytest.raises(AssertionError, match="was granted again"):
            refuses(ledger, first.action_id, bytes(16))
        clock.now_ms = END_MS
        with pytest.raises(AssertionError, match=r"refused only for .* its window is over"):
            refuses(ledger, second.action_id, bytes(16))
