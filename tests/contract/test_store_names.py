"""How a store is named: a path or a URL, which of them it is, and that no password is shown of either."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_run_ledger import RunLedger
from agent_run_ledger.errors import Misuse
from agent_run_ledger.ledger.migrate import migrate
from agent_run_ledger.runs.steps import Step
from agent_run_ledger.store import is_url, open_store, without_secrets
from agent_run_ledger.store.postgres import place_of
from agent_run_ledger.store.postgres_store import open_postgres
from agent_run_ledger.testing import check_ledger
from tests.cli.conftest import Arl, arl
from tests.contract.store_kit import ENTROPY
from tests.services.postgres import Cluster

__all__ = ["arl"]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann@a:1,b:2/x", "postgresql://ann@a:1,b:2/x"),
        ("postgresql://ann:p@a,b:2/x?target_session_attrs=read-write", "postgresql://ann@a:5432,b:2/x"),
        ("postgresql://a,b/x", "postgresql://a:5432,b:5432/x"),
        ("postgresql:///x?host=a,b&port=7", "postgresql://a:7,b:7/x"),
        ("postgresql://ann@[::1]:7/x", "postgresql://ann@[::1]:7/x"),
        ("postgresql://ann@[::1],b/x", "postgresql://ann@[::1]:5432,b:5432/x"),
        ("postgresql://ann@h/x?service=one", "postgresql://ann@h:5432/x?service=one"),
    ],
)
def test_a_database_has_one_location_and_no_other_has_it(url: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGPORT", "PGUSER", "PGHOST"):
        monkeypatch.delenv(name, raising=False)
    assert place_of(url, wait_s=1.0, entropy=ENTROPY).location == shown
    assert place_of(shown, wait_s=1.0, entropy=ENTROPY).location == shown


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        ("runs.db", "runs.db"),
        ("host=a/runs.db", "host=a/runs.db"),
        ("./host=a", "./host=a"),
        ("postgresql://h/x", "postgresql://h/x"),
        ("postgresql://ann@h:5/x", "postgresql://ann@h:5/x"),
        ("postgresql://ann@h:5,[::1]:6,[::2]/x", "postgresql://ann@h:5,[::1]:6,[::2]/x"),
        ("postgresql://ann:p%40w@h:5/x?password=q#f", "postgresql://ann@h:5/x"),
        ("postgres://ann:p/w@d@h/x", "postgres://ann@h/x"),
        ("postgresql://ann:p?w@h/x", "postgresql://ann@h/x"),
        ("postgresql://ann:p#w@h/x", "postgresql://ann@h/x"),
        ("postgresql://ann:p@w?v@h/x", "postgresql://ann@h/x"),
        ("postgresql://ann:p/w?v@h/x", "postgresql://ann@h/x"),
        ("postgresql://h/x?user=u&password=p@ss", "postgresql://h/x"),
        ("postgresql:///x?password=secret&application_name=a@b", "postgresql:///x"),
        ("postgresql://ann:secret", "postgresql://ann"),
        ("postgresql://ann:sec/ret", "postgresql://ann"),
    ],
)
def test_what_is_shown_of_a_name_has_no_password(named: str, shown: str) -> None:
    assert without_secrets(named) == shown
    assert is_url(named) is named.startswith("postgres")


@pytest.mark.parametrize(
    "named",
    [
        "PostgreSQL://ann:secret@h/x",
        "postgresql+psycopg://ann:secret@h/x",
        "postgresql:/ann:secret@h/x",
        "mysql://ann:secret@h/x",
        "host=h password=secret",
        "dbname=x user=secret",
        " password=sec/ret",
        "dbname=secret",
    ],
)
def test_what_only_reads_like_a_server_is_neither_a_file_nor_shown(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arl: Arl
) -> None:
    monkeypatch.chdir(tmp_path)

    def work() -> None:
        with RunLedger("r", named) as ledger:
            ledger.add(Step(lambda: 1, name="one"))
            ledger.execute()

    for act in (
        lambda: open_store(named, create=True),
        lambda: check_ledger(named),
        lambda: migrate("runs.db", named),
        lambda: migrate(named, "runs.db"),
        work,
    ):
        with pytest.raises(Misuse) as caught:
            act()
        assert caught.value.code == "bad_url"
        assert "secret" not in f"{caught.value}"
    for command in (["doctor"], ["init"], ["runs", "list"], ["verify"], ["backup", "copy.db"]):
        ended = arl(*command, "--db", named)
        assert ended.code != 0
        assert "secret" not in ended.out + ended.err
    assert list(tmp_path.iterdir()) == []
    assert "secret" not in without_secrets(named)


@pytest.mark.parametrize(
    "url", ["postgresql://ann:s3cret", "postgresql://h/x?port=s3cret", "postgresql://a,b:s3cret/x"]
)
def test_what_stands_for_a_port_and_is_none_is_not_repeated(url: str) -> None:
    with pytest.raises(Misuse) as caught:
        open_postgres(url, create=False)
    assert caught.value.code == "bad_url"
    assert "s3cret" not in f"{caught.value}"


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ("sslmode=nonsense", "sslmode"),
        ("sslmode=require", "SSL"),
        ("connect_timeout=x", "connect_timeout"),
        ("keepalives=x", "keepalives"),
        ("service=nobody", "service"),
        ("options=-c%20nonsense%3D1", "nonsense"),
        ("options=-c%20work_mem%3Dx", "work_mem"),
    ],
)
def test_parameters_that_are_wrong_are_no_server_to_wait_for(postgres: Cluster, parameters: str, said: str) -> None:
    with pytest.raises(Misuse) as caught:
        open_postgres(f"{postgres.url()}?{parameters}", create=False, wait_s=2.0)
    assert caught.value.code == "bad_url"
    assert caught.value.message.endswith(f": {said}")


@pytest.mark.parametrize("wait_s", [float("inf"), float("nan"), -1.0, 1e9])
def test_a_wait_that_has_no_end_is_misuse(postgres: Cluster, tmp_path: Path, wait_s: float) -> None:
    for named in (postgres.url(), tmp_path / "runs.db"):
        with pytest.raises(Misuse) as caught:
            open_store(named, create=True, wait_s=wait_s)
        assert caught.value.code == "bad_setting"
        with pytest.raises(Misuse):
            migrate(named, tmp_path / "other.db", wait_s=wait_s)
    assert list(tmp_path.iterdir()) == []
