"""`arl migrate`: moves the whole ledger to another store, goes on with a move that was begun, or gives it up."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from agent_run_ledger.cli.options import Json, Yes
from agent_run_ledger.cli.output import print_json, progress, say
from agent_run_ledger.cli.words import clean, duration_words

if TYPE_CHECKING:
    from agent_run_ledger.ledger.migrate import Abandoned, Moved

Source = Annotated[str, typer.Argument(metavar="SOURCE", help="The store to move: a file, or postgresql://…")]
Target = Annotated[str, typer.Argument(metavar="TARGET", help="Where to: a new file, or a database without a store.")]
Abandon = Annotated[bool, typer.Option("--abandon", help="Give up a move that was begun: the source is live again.")]


def migrate(source: Source, target: Target, abandon: Abandon = False, yes: Yes = False, as_json: Json = False) -> None:
    """Move the whole ledger to another store, verified; the source is retired and can never grant again.

    A move that was broken off goes on with the same command. Until the source retires it can be given up; after that
    nothing leads back. Trust file and keys are not moved: they lie beside a store, not in it.
    """
    from agent_run_ledger.cli.settings import Setting
    from agent_run_ledger.cli.stores import hints_for

    with hints_for(Setting(value=source, source="SOURCE")):
        if abandon:
            _abandon(source, target, as_json=as_json)
        else:
            _migrate(source, target, yes=yes, as_json=as_json)


def _migrate(source: str, target: str, *, yes: bool, as_json: bool) -> None:
    from agent_run_ledger.cli.confirm import confirm
    from agent_run_ledger.ledger.migrate import migrate as move
    from agent_run_ledger.store import without_secrets

    names = clean(without_secrets(source)), clean(without_secrets(target))
    confirm(f"Move the ledger of {names[0]} to {names[1]}, and retire {names[0]} for ever?", yes=yes)
    began_s = time.monotonic()
    with ExitStack() as stack:
        moved = move(source, target, progress=_bars(stack, quiet=as_json))
    took_ms = round((time.monotonic() - began_s) * 1000)
    if as_json:
        print_json(_json(moved, took_ms) | {"not_moved": _beside(source)})
    else:
        _print(moved, took_ms, _beside(source))


def _bars(stack: ExitStack, *, quiet: bool) -> Callable[[str, int, int], None]:
    """Return what shows one bar after the other, each for what is counted just now."""
    now: dict[str, Callable[[int, int], None]] = {}

    def show(what: str, done: int, total: int) -> None:
        if what not in now:
            stack.close()
            now.clear()
            now[what] = stack.enter_context(progress(what, quiet=quiet))
        now[what](done, total)

    return show


def _beside(source: str) -> list[str]:
    """Return the paths of what belongs to a ledger and lies beside its file, as far as this program knows it."""
    import os

    from agent_run_ledger.ledger.local_trust import local_folder
    from agent_run_ledger.store import is_url

    if is_url(source):
        return []
    folder = str(local_folder(source))
    return [folder] if os.path.lexists(folder) else []


def _json(moved: Moved, took_ms: int) -> dict[str, object]:
    return {
        "source": moved.source,
        "target": moved.target,
        "log_id": moved.log_id.hex(),
        "leaves": moved.size,
        "root_hex": moved.root.hex(),
        "rows": moved.rows,
        "resumed": moved.resumed,
        "already": moved.already,
        "duration_ms": took_ms,
    }


def _print(moved: Moved, took_ms: int, beside: list[str]) -> None:
    said = "moved before" if moved.already else "moved, and live" if not moved.resumed else "moved, after it went on"
    say(f"ledger   {moved.log_id.hex()}: {said}")
    say(f"from     {clean(moved.source)} (retired)")
    say(f"to       {clean(moved.target)}")
    say(f"leaves   {moved.size:,} in common")
    say(f"root     {moved.root.hex()}")
    say(f"rows     {moved.rows:,} in {duration_words(took_ms)}")
    say("")
    say("Programs that have the old name are refused from now on. Name the new store to them: --db, url=,")
    say("AGENT_RUN_LEDGER_DB. Not moved are trust file and keys: name them with --trust and --key, or")
    say("AGENT_RUN_LEDGER_TRUST.")
    for path in beside:
        say(f"beside   {clean(path)}")


def _abandon(source: str, target: str, *, as_json: bool) -> None:
    from agent_run_ledger.ledger.migrate import abandon_migration

    given_up: Abandoned = abandon_migration(source, target)
    if as_json:
        print_json(
            {
                "source": given_up.source,
                "target": given_up.target,
                "log_id": given_up.log_id.hex(),
                "live_again": given_up.live_again,
                "discarded": given_up.discarded,
            }
        )
        return
    source_words = "is live again" if given_up.live_again else "was live"
    target_words = "what was filled is gone" if given_up.discarded else "nothing of this move was found"
    say(f"source   {clean(given_up.source)} {source_words}")
    say(f"target   {clean(given_up.target)}: {target_words}")
