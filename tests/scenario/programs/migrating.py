"""Lives that move a ledger in small pages, from and to where the environment says."""

from __future__ import annotations

import os
from pathlib import Path

from agent_run_ledger.ledger.migrate import migrate
from agent_run_ledger.store import move_sides

move_sides.PAGE_ROWS = 60  # type: ignore[misc]  # so that a death falls between pages of one table


def moving(_workdir: Path) -> list[object]:
    """Move the ledger, or go on with it."""
    moved = migrate(os.environ["MOVE_SOURCE"], os.environ["MOVE_TARGET"])
    return [moved.log_id.hex(), moved.already]
