"""`arl upgrade`: brings a store of an older schema version forward, and says by which migrations."""

from __future__ import annotations

from agent_run_ledger.cli.options import Db, Json


def upgrade(db: Db = None, as_json: Json = False) -> None:
    """Bring the store to this program's schema version, in one transaction and never back; its log stays as it is.

    Of a file the next run would do the same: this says when. At a server nothing else does it, and who uses the store
    is to be stopped before. Older programs cannot open the store afterwards.
    """
    from agent_run_ledger.cli.output import print_json, say
    from agent_run_ledger.cli.settings import db_setting
    from agent_run_ledger.cli.stores import hints_for, open_writable
    from agent_run_ledger.cli.words import clean, iso
    from agent_run_ledger.store import SqliteStore, is_url, open_store, upgraded_from

    setting = db_setting(db)
    with hints_for(setting):
        at_server = is_url(setting.value)
        before = upgraded_from(setting.value) if at_server else None
        opened = open_store(setting.value, create=False, readonly=True) if at_server else None
        store = opened or open_writable(setting.value, create=False)
        try:
            where, log_id, applied = store.location, store.log_id, store.migrations()
            before = store.upgraded_from if isinstance(store, SqliteStore) else before
        finally:
            store.close()
    newest = applied[-1].version
    if as_json:
        migrations = [
            {"version": one.version, "sha256_hex": one.sha256.hex(), "applied_at": iso(one.applied_at_ms)}
            for one in applied
        ]
        versions = {"from_version": before or newest, "to_version": newest, "changed": before is not None}
        print_json({"db": where, "log_id": log_id.hex(), **versions, "migrations": migrations})
        return
    if before is None:
        say(f"{clean(where)}: schema version {newest}, nothing to do")
    else:
        say(f"{clean(where)}: schema version {before} -> {newest}")
    for one in applied:
        say(f"migration {one.version}  {iso(one.applied_at_ms)}  sha256 {one.sha256.hex()}")
