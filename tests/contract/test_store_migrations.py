"""Schema versions: a store of an older one is brought forward whole, and one that came about otherwise is refused."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import apsw
import pytest

from agent_run_ledger.errors import Refused, Tampered
from agent_run_ledger.ledger.effect_ledger import EffectLedger
from agent_run_ledger.ledger.verify import verify_log
from agent_run_ledger.store import open_sqlite, sqlite, stored_durability
from agent_run_ledger.store.sqlite_driver import Connection
from agent_run_ledger.store.sqlite_migrations import SCHEMA_VERSION, expected_schema, migration_sha256
from agent_run_ledger.store.statements import sql_text
from agent_run_ledger.testing import check_ledger
from tests.contract.effect_stories import Stories

ROOT = pathlib.Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "store"
EDITOR = ROOT / "tests" / "scenario" / "programs" / "edit_rows.py"


UPGRADE = "import sys; from agent_run_ledger.store import open_sqlite; open_sqlite(sys.argv[1], create=False).close()"


@pytest.fixture(params=range(1, SCHEMA_VERSION), ids=lambda version: f"from {version}")
def version(request: pytest.FixtureRequest) -> int:
    """Each version that there was before."""
    return int(request.param)


@pytest.fixture
def old(tmp_path: pathlib.Path, version: int) -> pathlib.Path:
    """A store that an older version wrote."""
    return pathlib.Path(shutil.copy(GOLDEN / f"v{version}.db", tmp_path / "old.db"))


def _look(path: pathlib.Path, sql: str) -> list[tuple[object, ...]]:
    """Read a store that nobody has open, from a process of its own."""
    program = "import sys, json, apsw; print(json.dumps(apsw.Connection(sys.argv[1]).execute(sys.argv[2]).fetchall()))"
    done = subprocess.run([sys.executable, "-c", program, path, sql], capture_output=True, text=True, check=True)
    return [tuple(row) for row in json.loads(done.stdout)]


def _edit(path: pathlib.Path, sql: str) -> None:
    subprocess.run([sys.executable, EDITOR, path, sql], check=True, capture_output=True)


def test_the_schema_file_is_the_sum_of_the_migrations() -> None:
    connection = apsw.Connection(":memory:")
    connection.execute(sql_text("sqlite_schema.sql"))
    rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite~_%' ESCAPE '~'")
    assert dict(rows) == expected_schema(SCHEMA_VERSION)


def test_published_migrations_never_change() -> None:
    noted = json.loads((GOLDEN / "migrations.json").read_text())
    assert {version: migration_sha256(int(version)).hex() for version in noted} == noted
    assert len(noted) == SCHEMA_VERSION


def test_an_older_store_is_brought_forward_with_its_log_as_it_was(old: pathlib.Path, version: int) -> None:
    noted = json.loads((GOLDEN / f"v{version}.json").read_text())
    open_sqlite(old, create=False).close()
    assert _look(old, "SELECT user_version FROM pragma_user_version") == [(SCHEMA_VERSION,)]
    hashes = _look(old, "SELECT version, lower(hex(sha256)) FROM migrations ORDER BY version")
    assert hashes == [(number, migration_sha256(number).hex()) for number in range(1, SCHEMA_VERSION + 1)]
    store = open_sqlite(old, create=False, readonly=True)
    report = verify_log(store.reader())
    store.close()
    assert (report.problem_count, report.leaves, report.root_hex) == (0, noted["leaves"], noted["root_hex"])
    check_ledger(old)


def test_an_upgraded_store_has_the_tables_of_a_new_one(old: pathlib.Path, tmp_path: pathlib.Path) -> None:
    open_sqlite(old, create=False).close()
    open_sqlite(tmp_path / "new.db", create=True).close()
    tables = "SELECT type, name, sql FROM sqlite_schema ORDER BY name"
    assert _look(old, tables) == _look(tmp_path / "new.db", tables)


def test_reading_never_upgrades(old: pathlib.Path) -> None:
    before = old.read_bytes()
    with pytest.raises(Refused) as caught:
        open_sqlite(old, create=False, readonly=True)
    assert caught.value.code == "schema_older"
    assert "arl upgrade" in caught.value.hint
    assert old.read_bytes() == before


def test_a_store_that_came_by_another_migration_is_refused(old: pathlib.Path) -> None:
    open_sqlite(old, create=False).close()
    _edit(old, f"UPDATE migrations SET sha256 = zeroblob(32) WHERE version = {SCHEMA_VERSION - 1}")
    for readonly in (False, True):
        with pytest.raises(Tampered) as caught:
            open_sqlite(old, create=False, readonly=readonly)
        assert caught.value.code == "schema_changed"


def test_an_older_store_whose_tables_were_changed_is_not_upgraded(old: pathlib.Path) -> None:
    _edit(old, "ALTER TABLE runs ADD COLUMN more")
    before = old.read_bytes()
    with pytest.raises(Tampered) as caught:
        open_sqlite(old, create=False)
    assert caught.value.code == "schema_changed"
    assert old.read_bytes() == before


def test_whoever_upgrades_a_store_knows_from_where(old: pathlib.Path, version: int) -> None:
    store = open_sqlite(old, create=False)
    assert store.upgraded_from == version
    assert [(one.version, one.sha256) for one in store.migrations()] == [
        (number, migration_sha256(number)) for number in range(1, SCHEMA_VERSION + 1)
    ]
    store.close()
    for settings in ({}, {"readonly": True}):
        again = open_sqlite(old, create=False, **settings)  # type: ignore[arg-type]
        assert again.upgraded_from is None
        again.close()
    check_ledger(old)


def test_a_store_that_is_upgraded_while_it_is_looked_at_was_not_tampered_with(
    old: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, others = sqlite.check_schema, [UPGRADE]

    def check_beside_another(connection: Connection, location: str, version: int) -> None:
        if others:
            subprocess.run([sys.executable, "-c", others.pop(), old], check=True)
        check(connection, location, version)

    monkeypatch.setattr(sqlite, "check_schema", check_beside_another)
    open_sqlite(old, create=False).close()
    assert not others
    check_ledger(old)


def test_a_new_store_was_not_upgraded(tmp_path: pathlib.Path) -> None:
    store = open_sqlite(tmp_path / "new.db", create=True)
    assert store.upgraded_from is None
    assert len(store.migrations()) == SCHEMA_VERSION
    store.close()


def test_the_durability_of_an_older_store_is_known_without_upgrading_it(old: pathlib.Path) -> None:
    before = old.read_bytes()
    assert stored_durability(old) == "full"
    assert old.read_bytes() == before
    with pytest.raises(Refused) as caught:
        stored_durability(old.with_name("none.db"))
    assert caught.value.code == "no_store"


def test_a_copy_of_an_upgraded_store_is_upgraded(old: pathlib.Path) -> None:
    store = open_sqlite(old, create=False)
    made = store.backup(old.with_name("copy.db"))
    store.close()
    assert check_ledger(made.destination).leaves == made.size + 1


def test_an_upgraded_store_can_hold_effects_once_it_has_authority(old: pathlib.Path) -> None:
    with pytest.raises(Refused) as caught:
        EffectLedger(old)
    assert caught.value.code == "no_authority"
    store = open_sqlite(old, create=False)
    runs = [row.run_id for row in store.reader().list_runs(state=None, before_row_id=None, limit=9)]
    store.grant_authority()
    store.close()
    stories = Stories(old, new=False)
    stories.all_of_them()
    stories.ledger.close()
    check_ledger(old)
    store = open_sqlite(old, create=False)
    assert [row.run_id for row in store.reader().list_runs(state=None, before_row_id=None, limit=9)] == runs
    assert sorted(runs) == ["completed", "failed"]
    assert verify_log(store.reader()).actions == 18
    store.close()


KILLED = """
import os, signal, sys
import agent_run_ledger.store.sqlite as module
from agent_run_ledger.store import open_sqlite
apply = module.apply_migrations
def die(*args, **settings):
    apply(*args, **settings)
    os.kill(os.getpid(), signal.SIGKILL)
module.apply_migrations = die
open_sqlite(sys.argv[1], create=False)
"""


@pytest.mark.fault
def test_an_upgrade_that_is_killed_leaves_the_older_store(old: pathlib.Path, version: int) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, old], env=dict(os.environ), check=False)
    assert done.returncode == -signal.SIGKILL
    assert _look(old, "SELECT user_version FROM pragma_user_version") == [(version,)]
    open_sqlite(old, create=False).close()
    check_ledger(old)


@pytest.mark.fault
def test_several_processes_upgrade_one_store_once(old: pathlib.Path) -> None:
    started = [subprocess.Popen([sys.executable, "-c", UPGRADE, old]) for _ in range(4)]
    assert [process.wait() for process in started] == [0, 0, 0, 0]
    assert len(_look(old, "SELECT version FROM migrations")) == SCHEMA_VERSION
    check_ledger(old)
