"""An older store at a server is brought forward by `arl upgrade` alone: a fictional next version shows how."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agent_run_ledger import Refused, RunLedger, Tampered
from agent_run_ledger.runs.steps import Step
from agent_run_ledger.store import open_store, postgres_schema, upgraded_from
from agent_run_ledger.store.statements import sql_text
from agent_run_ledger.testing import check_ledger
from tests.cli.conftest import COMMAND, Arl, arl
from tests.services.postgres import Cluster

__all__ = ["COMMAND", "arl"]

NEXT = postgres_schema.SCHEMA_VERSION + 1
GROWS = "ALTER TABLE agent_run_ledger.runs ADD COLUMN note TEXT;\n"
TEXTS = {
    "grows": GROWS,
    "fails": f"{GROWS}INSERT INTO agent_run_ledger.runs (row_id) VALUES (NULL);\n",
    "leads_elsewhere": "ALTER TABLE agent_run_ledger.runs ADD COLUMN other TEXT;\n",
}


@pytest.fixture
def url(postgres: Cluster) -> Iterator[str]:
    """A store of this program's version, with a run that completed."""
    name = postgres.new_database()
    with RunLedger(run_id="invoice", url=postgres.url(name)) as ledger:
        ledger.add(Step(lambda: 1, name="one"))
        ledger.execute()
    yield postgres.url(name)
    postgres.drop(name)


@contextmanager
def the_next_program(monkeypatch: pytest.MonkeyPatch, migration: str = "grows") -> Iterator[None]:
    """Let this process be a program of the next version, whose tables of runs have one more column."""
    catalog = sql_text(postgres_schema.CATALOG_FILE)
    texts = {
        f"postgres_{NEXT:04}.sql": TEXTS[migration],
        f"postgres_catalog_{NEXT - 1:04}.txt": catalog,
        postgres_schema.CATALOG_FILE: f"{catalog}column runs.note text collate default\n",
    }
    with monkeypatch.context() as patched:
        patched.setattr(postgres_schema, "SCHEMA_VERSION", NEXT)
        patched.setattr(postgres_schema, "sql_text", lambda name: texts.get(name) or sql_text(name))
        yield


def _code(url: str, *, readonly: bool) -> str:
    with pytest.raises(Refused) as caught:
        open_store(url, create=False, readonly=readonly)
    return caught.value.code


def test_an_older_store_is_brought_forward_once_and_never_back(
    url: str, monkeypatch: pytest.MonkeyPatch, arl: Arl
) -> None:
    before = check_ledger(url)
    with the_next_program(monkeypatch):
        assert [_code(url, readonly=readonly) for readonly in (True, False)] == ["schema_older"] * 2
        looked = arl("runs", "list", "--db", url, "--json")
        assert (looked.code, looked.error["code"]) == (1, "schema_older")
        assert "`arl upgrade --db postgresql://arl_test@" in looked.error["hint"]
        first, second = (arl("upgrade", "--db", url, "--json").json for _ in range(2))
        assert (first["from_version"], first["to_version"], first["changed"]) == (NEXT - 1, NEXT, True)
        assert (second["from_version"], second["to_version"], second["changed"]) == (NEXT, NEXT, False)
        assert [one["version"] for one in second["migrations"]] == [NEXT - 1, NEXT]
        assert check_ledger(url).root_hex == before.root_hex
        with RunLedger(run_id="another", url=url) as ledger:
            ledger.add(Step(lambda: 2, name="one"))
            assert ledger.execute() == 2
    assert [_code(url, readonly=readonly) for readonly in (True, False)] == ["schema_newer"] * 2


def test_a_new_store_of_the_next_version_has_the_tables_of_an_upgraded_one(
    url: str, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = postgres.new_database()
    with the_next_program(monkeypatch):
        open_store(postgres.url(name), create=True).close()
        assert upgraded_from(postgres.url(name)) is None
        assert upgraded_from(url) == NEXT - 1
        check_ledger(postgres.url(name))
    postgres.drop(name)


@pytest.mark.parametrize("migration", ["fails", "leads_elsewhere"])
def test_a_migration_that_goes_wrong_leaves_the_older_store(
    url: str, monkeypatch: pytest.MonkeyPatch, migration: str
) -> None:
    before = check_ledger(url)
    with the_next_program(monkeypatch, migration), pytest.raises(Exception) as caught:  # noqa: PT011 - see below
        upgraded_from(url)
    assert getattr(caught.value, "code", "") in ("schema_changed", "constraint")
    assert check_ledger(url) == before


def test_a_store_whose_tables_were_changed_is_not_upgraded(
    url: str, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.run("ALTER TABLE agent_run_ledger.runs ADD COLUMN note TEXT", url.rpartition("/")[2])
    acts = (upgraded_from, lambda named: open_store(named, create=False, readonly=True))
    for act in acts:
        with the_next_program(monkeypatch), pytest.raises(Tampered) as caught:
            act(url)
        assert caught.value.code == "schema_changed"


def test_this_version_has_nothing_to_upgrade(url: str, arl: Arl, postgres: Cluster) -> None:
    ended = arl("upgrade", "--db", url)
    assert ended.code == 0
    first, second = ended.out.splitlines()
    assert first.endswith(f"schema version {NEXT - 1}, nothing to do")
    assert second.startswith(f"migration {NEXT - 1}  ")
    empty = postgres.new_database()
    ended = arl("upgrade", "--db", postgres.url(empty), "--json")
    assert (ended.code, ended.error["code"]) == (1, "no_store")
    postgres.drop(empty)
