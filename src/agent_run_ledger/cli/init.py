"""`arl init`: makes a store and gives it authority."""

from __future__ import annotations

from agent_run_ledger.cli.options import Db, Json

_MEANING = """\
A run needs no `init`: the first run makes its store by itself. What `init` adds is one recorded flag, authority: only
a store with it may hold effects (actions that must happen once). It says that this file, and no copy of it, is meant
to decide what may be done: a copy that `arl backup` makes can be read, and grants nothing."""


def init(db: Db = None, as_json: Json = False) -> None:
    """Make the store, or take the one that is there, and set its authority flag; a second time changes nothing."""
    from agent_run_ledger.cli.output import print_json, say
    from agent_run_ledger.cli.settings import db_setting
    from agent_run_ledger.cli.stores import hints_for, open_writable
    from agent_run_ledger.cli.words import clean

    setting = db_setting(db)
    existed = _exists(setting.value)
    with hints_for(setting):
        store = open_writable(setting.value, create=True)
        try:
            had_authority = store.authority
            if not had_authority:
                store.grant_authority()
            where, log_id = store.location, store.log_id.hex()
        finally:
            store.close()
    if as_json:
        print_json(
            {"db": where, "log_id": log_id, "created": not existed, "authority": True, "changed": not had_authority}
        )
        return
    what = "made" if not existed else "already there; authority granted" if not had_authority else "unchanged"
    say(f"{clean(where)}: {what}")
    say(f"log id {log_id}, authority yes")
    if not had_authority:
        say("")
        say(_MEANING)


def _exists(path: str) -> bool:
    import os

    return os.path.lexists(path)
