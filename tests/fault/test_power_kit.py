"""The kit of power cuts finds what is wrong: every check of it is seen to fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import pytest

from agent_run_ledger import Misuse
from agent_run_ledger.ports import Tx
from agent_run_ledger.store import SqliteStore
from agent_run_ledger.testing import AfterCut, BodyCounter, PowerCheckFailed, cut_power_everywhere, power_cut
from agent_run_ledger.testing.__main__ import main
from agent_run_ledger.testing.power_life import RecordedLife, put, record_life
from agent_run_ledger.testing.power_second_life import Found, SecondLives
from tests.fault.power_lives import short

pytestmark = pytest.mark.fault

T = TypeVar("T")
PROGRAM = Path(__file__).resolve().parent.parent / "scenario" / "programs" / "pipelines.py"
LIFE = short("full")


@pytest.fixture(autouse=True)
def _nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kit keeps what failed; here that goes with the test's own directory."""
    monkeypatch.setattr(power_cut, "_IN_MEMORY", tmp_path)


@pytest.fixture
def directories(tmp_path: Path) -> Callable[[], Path]:
    numbers = count()

    def make() -> Path:
        folder = tmp_path / "cases" / str(next(numbers))
        folder.mkdir(parents=True)
        return folder

    return make


def _fails(scenario: Callable[[Path], object], **settings: object) -> PowerCheckFailed:
    with pytest.raises(PowerCheckFailed) as caught:
        cut_power_everywhere(scenario, torn_per_cut=0, most_failures=1, **settings)  # type: ignore[arg-type]
    return caught.value


def test_a_life_that_holds_is_counted_and_leaves_nothing(directories: Callable[[], Path], tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    seen: list[AfterCut] = []
    summary = cut_power_everywhere(
        LIFE,
        directories,
        torn_per_cut=0,
        lives_per_length=1,
        check=seen.append,
        progress=lambda *numbers: told.append(numbers),
    )
    assert summary.leaves == 5
    assert summary.images >= summary.distinct > 50
    assert told[0] == (0, summary.cuts - 1)
    assert told[-1] == (summary.cuts - 1, summary.cuts - 1)
    # One life from each length of the log, and from each image that holds no store yet.
    assert {len(second.recorded) for second in seen} == {0, 1, 2}
    assert all(second.result == "x" * 5 for second in seen)
    assert list((tmp_path / "cases").iterdir()) == []


def test_a_scenario_that_fails_without_a_cut_is_misuse() -> None:
    def fails(workdir: Path) -> object:
        raise ValueError("no")

    with pytest.raises(Misuse, match="without a cut: no"):
        cut_power_everywhere(fails)
    with pytest.raises(Misuse, match="left no ledger"):
        cut_power_everywhere(lambda workdir: None)


def test_another_result_after_the_cut_is_seen_and_the_case_is_kept(directories: Callable[[], Path]) -> None:
    numbers = count()
    failure = _fails(lambda workdir: (LIFE(workdir), next(numbers)), workdir_factory=directories).failures[0]
    assert "the second life returned ('xxxxx', 1), without a cut ('xxxxx', 0)" in failure.problem
    assert (failure.directory / "life" / "ledger.db").exists()
    assert list((failure.directory / "image").iterdir()) == []
    assert str(failure.cut) == "cut after act 0 (nothing yet), all kept"


def test_a_second_life_that_raises_is_seen() -> None:
    lives = count()

    def once(workdir: Path) -> object:
        if next(lives):
            raise ValueError("a second time")
        return LIFE(workdir)

    assert "the second life raised ValueError: a second time" in str(_fails(once))


def test_a_recorded_body_that_runs_again_is_seen() -> None:
    def counts_too_much(workdir: Path) -> object:
        BodyCounter(workdir / "bodies.log").ran("first")
        return LIFE(workdir)

    assert "recorded before the cut and run again: first" in str(_fails(counts_too_much))


def test_a_second_life_that_begins_the_ledger_anew_is_seen() -> None:
    def forgets(workdir: Path) -> object:
        for file in workdir.iterdir():
            file.unlink()
        return LIFE(workdir)

    assert "what the image held was gone" in str(_fails(forgets))


def test_a_check_of_your_own_is_heard() -> None:
    def check(second: AfterCut) -> None:
        assert not second.recorded, f"recorded: {len(second.recorded)}"

    assert "AssertionError: recorded: 1" in str(_fails(LIFE, check=check))


def _recorded(tmp_path: Path) -> tuple[RecordedLife, Path]:
    (tmp_path / "first").mkdir()
    life = record_life(LIFE, tmp_path / "first")
    put({"ledger.db": (tmp_path / "first" / "ledger.db").read_bytes()}, tmp_path / "case" / "image")
    return life, tmp_path / "case"


def _found(life: RecordedLife, directory: Path) -> Found:
    return SecondLives(first=life, scenario=LIFE, check=None, most=1).go_on(directory)


def test_an_image_with_another_log_is_not_believed(tmp_path: Path) -> None:
    life, case = _recorded(tmp_path)
    *most, last = life.log
    forged = replace(life, log=(*most, replace(last, envelope=last.envelope.replace(b"completed", b"cancelled"))))
    assert "not the beginning of the one that was written" in _found(forged, case).problem


def test_an_image_that_contradicts_itself_is_seen(tmp_path: Path) -> None:
    life, case = _recorded(tmp_path)
    assert _found(life, _with(case, b"xxxxx", b"xxxxx")).problem == ""
    assert "LedgerBroken" in _found(life, _with(case, b"xxxxx", b"xxxxy")).problem


def _with(case: Path, before: bytes, after: bytes) -> Path:
    content = (case / "image" / "ledger.db").read_bytes()
    assert before in content
    made = case.parent / after.decode()
    put({"ledger.db": content.replace(before, after)}, made / "image")
    return made


def test_promises_are_counted_by_what_callers_were_told(tmp_path: Path) -> None:
    life, _ = _recorded(tmp_path)
    acts = len(life.trace.acts)
    assert life.leaves_promised(0) == life.leaves_told(0) == 0
    assert life.leaves_promised(acts) == life.leaves_told(acts) == 5
    # Leaf 2 is the first step's start mark: told, and not promised before the next record.
    assert [life.leaves_promised(told.after_acts) for told in life.trace.acknowledged] == [2, 2, 4, 5]
    assert [life.leaves_told(told.after_acts) for told in life.trace.acknowledged] == [2, 3, 4, 5]


def test_a_record_is_promised_even_where_its_commit_was_not_to_be_synced(tmp_path: Path) -> None:
    """A bug that commits a result like a start mark must look like a loss, not like a mark that may be lost."""
    synced = SqliteStore.transact

    def unsynced(self: SqliteStore, op_id: bytes, fn: Callable[[Tx], T], *, sync: bool = True, first: Any = ()) -> T:
        return synced(self, op_id, fn, sync=False, first=first)

    with patch.object(SqliteStore, "transact", unsynced):
        life, _ = _recorded(tmp_path)
    assert [life.leaves_promised(told.after_acts) for told in life.trace.acknowledged] == [2, 2, 4, 5]
    assert not any(told.synced for told in life.trace.acknowledged)


def test_the_command_cuts_the_power(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["power", f"{PROGRAM}:sturdy", "--torn", "0"]) == 0
    assert "everything holds" in capsys.readouterr().out
    assert main(["power", f"{PROGRAM}:no_such"]) == 2
