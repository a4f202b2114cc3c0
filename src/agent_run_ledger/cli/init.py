"""`arl init`: makes a store and gives it authority."""

from __future__ import annotations

from typing import Annotated

import typer

from agent_run_ledger.cli.init_local import (
    check_before,
    folder_of,
    local_json,
    make_here,
    refuse_other_trust,
    say_local,
)
from agent_run_ledger.cli.options import Db, Json
from agent_run_ledger.errors import Misuse

_MEANING = """\
A run needs no `init`: the first run makes its store by itself. What `init` adds is one recorded flag, authority: only
a store with it may hold effects (actions that must happen once). It says that this {store}, and no copy of it, is meant
to decide what may be done: {copy}."""
_OF_FILES = {"store": "file", "copy": "a copy that `arl backup` makes can be read, and grants nothing"}
_AT_SERVERS = {"store": "store", "copy": "nothing marks what is restored from a dump, so let no program write to one"}


Local = Annotated[
    bool, typer.Option("--local", help="Also keys and a trust file beside the store: enough for this machine.")
]
Name = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="With --local: who approves [default: your user name].")
]

Folder = Annotated[
    str | None,
    typer.Option("--folder", metavar="DIR", help="With --local, for a store at a server: the new folder for them."),
]


def init(local: Local = False, name: Name = None, folder: Folder = None, db: Db = None, as_json: Json = False) -> None:
    """Make the store, or take the one that is there, and set its authority flag; a second time changes nothing."""
    from agent_run_ledger.cli.output import print_json, say
    from agent_run_ledger.cli.settings import db_setting
    from agent_run_ledger.cli.stores import hints_for, open_writable
    from agent_run_ledger.cli.words import clean
    from agent_run_ledger.store import is_url

    if (name is not None or folder is not None) and not local:
        raise Misuse(f"{'--folder' if name is None else '--name'} is for --local", code="usage")
    setting = db_setting(db)
    existed = not is_url(setting.value) and _exists(setting.value)
    here = folder_of(setting.value, folder) if local else None
    if here is not None:
        check_before(setting.value, name, here)
    with hints_for(setting):
        store = open_writable(setting.value, create=True)
        try:
            had_authority = store.authority
            if not had_authority:
                store.grant_authority()
            where, log_id = store.location, store.log_id
            existed = existed or (is_url(setting.value) and not store.created_here)
            if here is not None:
                refuse_other_trust(store, here)
        finally:
            store.close()
        made = None if here is None else make_here(setting.value, log_id, name, here)
    changed = not had_authority or (made is not None and made.changed)
    if as_json:
        shown = {"db": where, "log_id": log_id.hex(), "created": not existed, "authority": True, "changed": changed}
        print_json(shown if made is None else {**shown, "local": local_json(made)})
        return
    what = "made" if not existed else "already there; authority granted" if not had_authority else "unchanged"
    say(f"{clean(where)}: {what}")
    say(f"log id {log_id.hex()}, authority yes")
    if made is not None:
        say_local(made, setting)
    elif not had_authority:
        say("")
        say(_MEANING.format(**(_AT_SERVERS if is_url(setting.value) else _OF_FILES)))


def _exists(path: str) -> bool:
    import os

    return os.path.lexists(path)
