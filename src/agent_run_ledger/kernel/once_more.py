"""Doing again, once, what a lost connection has undone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from agent_run_ledger.errors import Unavailable

T = TypeVar("T")

LOST: Final = "connection_lost"


def once_more(act: Callable[[], T]) -> T:
    """Return what `act` returns, a transaction that must not be given up lightly: what it keeps was paid for.

    Unavailable says that nothing of it landed. Where that is because the connection was lost in the middle of it, it is
    done once more.
    """
    try:
        return act()
    except Unavailable as error:
        if error.code != LOST:
            raise
    return act()
