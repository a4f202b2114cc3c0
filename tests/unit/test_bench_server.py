"""The benchmark at a server beside DBOS: its arithmetic, and what it says where DBOS is not there."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from bench.peers.environments import NotInstalled
from bench.server import dbos
from bench.server.dbos import Turn, beside_dbos, figures_of


def turn(floor: float, product: float, peer: float) -> dict[str, Turn]:
    """A turn in which a step takes as long as the speed says."""
    speeds = {"floor": floor, "product": product, "dbos": peer}
    return {kind: Turn(steps_per_s=speed, step_p50_ms=1_000 / speed) for kind, speed in speeds.items()}


def test_a_ratio_is_taken_within_a_turn_and_its_median_is_judged() -> None:
    turns = [turn(2_000, 1_000, 100), turn(1_000, 900, 300), turn(400, 200, 40)]
    speed, beside_floor, median = figures_of(turns, 1_000, "9.9")
    assert (speed.value, speed.floor, speed.ratio, speed.met) == (900, 100, 5, True)
    assert (beside_floor.value, beside_floor.floor, beside_floor.ratio) == (100, 1_000, 0.1)
    assert (median.unit, median.floor) == ("ms", 10)
    assert median.ratio == pytest.approx(0.2)
    assert "DBOS 9.9" in speed.note


def test_less_than_four_times_as_fast_is_a_missed_target() -> None:
    assert figures_of([turn(2_000, 399, 100)], 1_000, "9.9")[0].met is False


def test_without_dbos_there_are_no_figures_but_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, lock: Path, parent: Path) -> Path:
        raise NotInstalled(f"the packages of {lock.name} could not be installed: why")

    monkeypatch.setattr(dbos, "environment_python", missing)
    said: list[str] = []
    measured = beside_dbos(10, 1, lambda: nullcontext("nowhere"), said.append)
    assert measured.figures == []
    assert measured.raw == {"dbos": {"left_out": "the packages of dbos.txt could not be installed: why"}}
    assert said[-1] == "server: DBOS is left out: the packages of dbos.txt could not be installed: why"
