"""What the harness tells a child, and what the child leaves behind: two small JSON files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from agent_run_ledger.testing.points import KillPoint

ORDER_FILE = "order.json"
LEFT_FILE = "left.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Run this scenario in this directory, and die at this point."""

    scenario: str
    workdir: str
    kill_at: KillPoint | None = None

    def write(self, folder: Path) -> Path:
        """Write the order into `folder` and return its path."""
        path = folder / ORDER_FILE
        path.write_bytes(
            orjson.dumps(
                {
                    "scenario": self.scenario,
                    "workdir": self.workdir,
                    "kill_at": None if self.kill_at is None else [self.kill_at.point, self.kill_at.nth],
                }
            )
        )
        return path

    @staticmethod
    def read(path: Path) -> Order:
        """Return the order in this file."""
        found: dict[str, Any] = orjson.loads(path.read_bytes())
        kill_at = None if found["kill_at"] is None else KillPoint(point=found["kill_at"][0], nth=found["kill_at"][1])
        return Order(scenario=found["scenario"], workdir=found["workdir"], kill_at=kill_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What a child left: the points it reached, and its result or its error."""

    points_reached: Mapping[str, int] = field(default_factory=dict[str, int])
    finished: bool = False
    result: Any = None
    error: str = ""

    def write(self, folder: Path) -> None:
        """Write into `folder` so that a reader sees the whole of it or the whole of what was there before."""
        fresh = folder / f"{LEFT_FILE}.new"
        fresh.write_bytes(
            orjson.dumps(
                {
                    "points_reached": dict(self.points_reached),
                    "finished": self.finished,
                    "result": self.result,
                    "error": self.error,
                }
            )
        )
        os.replace(fresh, folder / LEFT_FILE)

    @staticmethod
    def read(folder: Path) -> Left:
        """Return what was left in `folder`; the empty Left where the child came to nothing."""
        path = folder / LEFT_FILE
        return Left(**orjson.loads(path.read_bytes())) if path.exists() else Left()
