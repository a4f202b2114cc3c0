"""Entering a run on an event loop: what touches the store stays off the loop, also where the await is cancelled."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import RunLedger
from agent_run_ledger.ledger import entering
from agent_run_ledger.runs.dynamic import DynamicSession
from agent_run_ledger.testing import check_ledger


def test_a_run_that_was_opened_all_the_same_is_closed_off_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Giving its lock back may wait for a server: the loop must not."""
    closed: list[bool] = []
    real_open, real_close = entering.open_dynamic, DynamicSession.close

    async def live() -> None:
        loop, began, goes_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

        def slowly(*given: Any) -> Any:
            loop.call_soon_threadsafe(began.set)
            assert goes_on.wait(30)
            return real_open(*given)

        def close(self: DynamicSession, error: BaseException | None) -> Any:
            closed.append(threading.current_thread() is threading.main_thread())
            return real_close(self, error)

        monkeypatch.setattr(entering, "open_dynamic", slowly)
        monkeypatch.setattr(DynamicSession, "close", close)
        with RunLedger("r", tmp_path / "runs.db") as ledger:
            entered = asyncio.create_task(ledger.run().__aenter__())
            await began.wait()
            entered.cancel()
            await asyncio.sleep(0)
            goes_on.set()
            with pytest.raises(asyncio.CancelledError):
                await entered
            monkeypatch.setattr(entering, "open_dynamic", real_open)
            async with ledger.run():  # its lock was given back
                pass

    asyncio.run(live())
    assert closed == [False, False]
    check_ledger(tmp_path / "runs.db")
