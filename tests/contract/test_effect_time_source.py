"""A time source that fails, or says what is no time: nothing changes, and trying later is safe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import EffectLedger, Unavailable
from agent_run_ledger.effects import Sample
from agent_run_ledger.store import open_sqlite


class Source:
    """Says what it is told to say, or raises it."""

    def __init__(self, said: Any) -> None:
        self.said = said

    def sample(self) -> Any:
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


@pytest.mark.parametrize(
    "said",
    [
        ZeroDivisionError("no clock"),
        None,
        Sample(wall_ms=1.5, uptime_ms=0, boot="one"),  # type: ignore[arg-type]
        Sample(wall_ms=1, uptime_ms=True, boot="one"),
        Sample(wall_ms=1, uptime_ms=0, boot=None),  # type: ignore[arg-type]
    ],
    ids=["raises", "nothing", "a float", "a bool", "no start"],
)
def test_what_is_no_time_is_unavailable(tmp_path: Path, said: object) -> None:
    path = tmp_path / "effects.db"
    open_sqlite(path, create=True, authority=True).close()
    source = Source(said)
    with EffectLedger(path, time=source) as ledger:
        with pytest.raises(Unavailable) as refused:
            ledger.status()
        assert refused.value.code == "no_time"
        source.said = Sample(wall_ms=1_000, uptime_ms=1_000, boot="one")
        assert ledger.status().state == "open"
