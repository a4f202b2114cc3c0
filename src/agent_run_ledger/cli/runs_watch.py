"""`arl runs watch`: follows a run until it ends, live on a terminal, as lines or JSON Lines into a pipe."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from agent_run_ledger.cli.options import Db, Json, RunId

if TYPE_CHECKING:
    from agent_run_ledger.cli.watch_screens import Screen
    from agent_run_ledger.ledger.run_view import RunView
    from agent_run_ledger.ledger.run_watch import RunWatch, WatchEnd


class Until(StrEnum):
    """What ends a watch."""

    COMPLETED = "completed"
    ANY_END = "any-end"


Interval = Annotated[
    float, typer.Option("--interval", min=0.05, max=3600.0, metavar="SECONDS", help="How often to look.")
]
UntilOption = Annotated[
    Until, typer.Option("--until", help="End at any end of the run, or only when it cannot complete any more.")
]


def watch(
    run: RunId, interval: Interval = 0.5, until: UntilOption = Until.ANY_END, db: Db = None, as_json: Json = False
) -> None:
    """Follow a run until it ends: exit code 0 when it completed, 1 when it failed, was stopped or died."""
    from agent_run_ledger.cli.stores import reading
    from agent_run_ledger.cli.watch_screens import JsonLines, LiveScreen, PlainLines
    from agent_run_ledger.ledger.run_watch import RunWatch, WatchEnd

    with reading(db) as store:
        watched = RunWatch(store, run)
        if as_json:
            end = _follow(watched, JsonLines(), interval, until)
        elif sys.stdout.isatty():
            with LiveScreen() as screen:
                end = _follow(watched, screen, interval, until)
        else:
            end = _follow(watched, PlainLines(), interval, until)
    raise typer.Exit(0 if end is WatchEnd.COMPLETED else 1)


def _follow(watched: RunWatch, screen: Screen, interval_s: float, until: Until) -> WatchEnd:
    before: RunView | None = None
    while True:
        view = watched.poll()
        if view is not None:
            screen.show(before, view)
            before = view
            end = _ends(view, until)
            if end is not None:
                screen.end(view, end)
                return end
        elif before is not None:
            screen.tick(before)
        time.sleep(interval_s)


def _ends(view: RunView, until: Until) -> WatchEnd | None:
    from agent_run_ledger.ledger.run_watch import WatchEnd, ended

    end = ended(view)
    if until is Until.COMPLETED and end not in (WatchEnd.COMPLETED, WatchEnd.CANCELLED):
        return None
    return end
