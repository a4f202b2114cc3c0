"""Opening a store at a server: what is refused, in which words, and that no word of them is a password."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from agent_run_ledger import EffectLedger, RunLedger
from agent_run_ledger.effects import Sample
from agent_run_ledger.errors import Forked, LedgerError, Misuse, Refused, Unavailable
from agent_run_ledger.ledger.effect_time import time_of
from agent_run_ledger.ports import Tx
from agent_run_ledger.store import open_store
from agent_run_ledger.store.postgres import connect, place_of
from agent_run_ledger.store.postgres_pool import ReadingPool
from agent_run_ledger.store.postgres_store import PostgresStore, open_postgres
from agent_run_ledger.testing import check_ledger
from tests.contract.store_kit import ENTROPY, Backend, begin, begin_in, check_log, do_step, op, postgres_backend
from tests.services.postgres import Cluster
from tests.services.relay import relay


@pytest.fixture
def database(postgres: Cluster) -> Iterator[str]:
    name = postgres.new_database()
    yield name
    postgres.drop(name)


@pytest.fixture
def url(postgres: Cluster, database: str) -> str:
    return postgres.url(database)


@pytest.fixture
def backend(postgres: Cluster) -> Iterator[Backend]:
    with postgres_backend(postgres) as made:
        yield made


def _refused(url: str, password: str, **settings: object) -> LedgerError:
    """What opening raises; the password is in nothing that it says."""
    with pytest.raises(LedgerError) as caught:
        open_postgres(url, **{"create": False, "wait_s": 2.0, **settings})  # type: ignore[arg-type]
    seen: BaseException | None = caught.value
    while seen is not None:
        assert password not in f"{seen} {seen!r} {vars(seen)}"
        assert seen.__context__ in (None, seen.__cause__), "no other error is carried along"
        seen = seen.__cause__
    return caught.value


def test_a_database_without_a_store_is_told_from_one_with(postgres: Cluster, url: str) -> None:
    error = _refused(url, postgres.password)
    assert (type(error), error.code) == (Refused, "no_store")
    assert "arl init" in error.hint
    with pytest.raises(Refused, match="no store"):
        open_postgres(url, create=False, readonly=True)


def test_a_store_is_made_once_and_found_again(url: str) -> None:
    made = open_postgres(url, create=True)
    log_id = made.log_id
    assert made.created_here
    made.close()
    again = open_postgres(url, create=True)
    assert (again.log_id, again.created_here) == (log_id, False)
    again.close()


def test_many_who_make_one_store_at_once_make_one(url: str) -> None:
    ids: list[bytes] = []

    def make(number: int) -> None:
        store = open_postgres(f"{url}?application_name=maker{number}", create=True)
        ids.append(store.log_id)
        store.close()

    threads = [threading.Thread(target=make, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 6
    assert len(set(ids)) == 1


def test_who_makes_a_store_waits_for_who_makes_one(postgres: Cluster, url: str) -> None:
    made: list[bytes] = []

    def make() -> None:
        store = open_postgres(url, create=True)
        made.append(store.log_id)
        store.close()

    thread = threading.Thread(target=make)
    with psycopg.connect(url) as other:
        other.execute("SELECT pg_advisory_xact_lock(1634886705)")
        thread.start()
        waits = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        assert any(postgres.run(waits) for _ in range(500))
        assert made == []
    thread.join()
    assert len(made) == 1


def test_wrong_credentials_are_refused(postgres: Cluster, database: str) -> None:
    user = f"ann_{database}"
    postgres.run(f"CREATE ROLE {user} LOGIN PASSWORD 'right'")
    error = _refused(postgres.url(database, user=user, password="another s3cret"), "another")
    postgres.run(f"DROP ROLE {user}")
    assert (type(error), error.code) == (Refused, "login_refused")
    assert "check user and password" in error.hint


def test_a_database_that_does_not_exist_is_refused(postgres: Cluster) -> None:
    error = _refused(postgres.url("nowhere"), postgres.password)
    assert (type(error), error.code) == (Refused, "no_database")


def test_a_server_that_does_not_answer_is_unavailable(postgres: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    error = _refused(f"postgresql://ann:s3cret@127.0.0.1:{port}/runs", "s3cret")
    assert (type(error), error.code) == (Unavailable, "unreachable")


def test_a_server_that_takes_no_more_connections_is_unavailable(postgres: Cluster, database: str) -> None:
    user = f"few_{database}"
    postgres.run(f"CREATE ROLE {user} LOGIN PASSWORD 'x' CONNECTION LIMIT 0")
    error = _refused(postgres.url(database, user=user, password="x"), postgres.password)
    postgres.run(f"DROP ROLE {user}")
    assert (type(error), error.code) == (Unavailable, "too_many_connections")


def test_a_user_without_rights_is_refused(postgres: Cluster, database: str) -> None:
    user = f"guest_{database}"
    postgres.run(f"CREATE ROLE {user} LOGIN PASSWORD 'x'")
    error = _refused(postgres.url(database, user=user, password="x"), postgres.password, create=True)
    assert (type(error), error.code) == (Refused, "no_permission")
    postgres.run(f"DROP ROLE {user}")


@pytest.mark.parametrize("url", ["postgresql://ann:s3c%ret@host/x", "postgresql://ann:s3cret@host/x?nonsense=1"])
def test_a_url_that_is_none_is_misuse_and_is_not_repeated(url: str) -> None:
    error = _refused(url, "s3c")
    assert (type(error), error.code) == (Misuse, "bad_url")
    assert error.__cause__ is None


def test_a_pooler_is_refused_in_words(postgres: Cluster, database: str) -> None:
    with relay(postgres.port, renames_backend=True) as pooler:
        url = postgres.url(database).replace(f":{postgres.port}/", f":{pooler.port}/")
        error = _refused(url, postgres.password, create=True)
    assert (type(error), error.code) == (Refused, "pooled_connection")
    assert "pooler" in error.message
    assert "name the server itself" in error.hint


def test_a_commit_that_could_be_lost_is_not_settled_for(postgres: Cluster, url: str) -> None:
    open_postgres(url, create=True).close()
    error = _refused(f"{url}?options=-c%20synchronous_commit%3Doff", postgres.password)
    assert (type(error), error.code) == (Unavailable, "cannot_open")
    assert "synchronous_commit" in error.message


def test_a_host_that_is_gone_is_noticed_by_the_server_too(url: str) -> None:
    """Else it holds its locks for two hours. The URL's options stand above."""
    open_postgres(url, create=True).close()
    for more, said in (("", "10"), ("?options=-c%20tcp_keepalives_idle%3D3", "3")):
        connection = connect(place_of(url + more, wait_s=2.0, entropy=ENTROPY))
        assert connection.execute("SHOW tcp_keepalives_idle").fetchall() == [(said,)]
        assert connection.execute("SHOW tcp_user_timeout").fetchall() != [("0",)]
        connection.close()


def test_what_the_database_was_set_to_does_not_count(postgres: Cluster, database: str, url: str) -> None:
    for setting in (
        "synchronous_commit = off", "search_path = public", "default_transaction_isolation = serializable",
        "quote_all_identifiers = on", "bytea_output = escape", "standard_conforming_strings = off",
    ):  # fmt: skip
        postgres.run(f"ALTER DATABASE {database} SET {setting}")
    store = open_postgres(url, create=True)
    begin(store)
    connection = store._shared.writer()._connection
    assert connection is not None
    assert connection.execute("SHOW synchronous_commit").fetchall() == [("on",)]
    for readonly in (False, True):  # a standby answers nobody who asks for serializable reads
        with closing(connect(store._shared.place, readonly=readonly)) as one:
            assert one.execute("SHOW default_transaction_isolation").fetchall() == [("read committed",)]
    assert check_log(store) == 2
    store.close()
    open_postgres(url, create=False).close()


def test_a_newer_schema_is_refused(postgres: Cluster, backend: Backend) -> None:
    backend.open().close()
    backend.edit("log", "INSERT INTO migrations VALUES (5, decode(repeat('00', 32), 'hex'), 1)")
    with pytest.raises(Refused) as caught:
        backend.open(create=False)
    assert caught.value.code == "schema_newer"


def test_a_schema_of_our_name_that_is_no_store_is_left_alone(postgres: Cluster, database: str, url: str) -> None:
    postgres.run("CREATE SCHEMA agent_run_ledger; CREATE TABLE agent_run_ledger.mine (x INT)", database)
    error = _refused(url, postgres.password, create=True)
    assert (type(error), error.code) == (Refused, "foreign_schema")
    assert postgres.run("SELECT count(*) FROM agent_run_ledger.mine", database) == [(0,)]


def test_other_tables_of_the_database_are_none_of_ours(postgres: Cluster, database: str, url: str) -> None:
    postgres.run("CREATE TABLE events (x INT); CREATE TABLE runs (x INT)", database)
    store = open_postgres(url, create=True)
    begin(store)
    assert check_log(store) == 2
    store.close()
    assert postgres.run("SELECT count(*) FROM public.events", database) == [(0,)]


def test_authority_is_given_to_a_new_store_and_not_to_one_that_is_there(url: str) -> None:
    store = open_postgres(url, create=True)
    assert not store.authority
    store.close()
    with pytest.raises(Refused) as caught:
        open_postgres(url, create=False, authority=True)
    assert caught.value.code == "no_authority"
    with pytest.raises(Refused):
        EffectLedger(url=url)
    again = open_postgres(url, create=False)
    assert again.grant_authority()
    assert not again.grant_authority()
    assert again.authority
    assert check_log(again) == 2
    again.close()
    EffectLedger(url=url).close()


def test_a_store_that_is_read_only_is_not_written_to(url: str) -> None:
    open_postgres(url, create=True).close()
    store = open_postgres(url, create=False, readonly=True)
    with pytest.raises(Misuse) as caught:
        begin(store)
    assert caught.value.code == "readonly_store"
    assert store.reader().head().size == 1
    connection = connect(store._shared.place, readonly=True)
    with pytest.raises(Exception, match="read-only"):
        connection.execute("DELETE FROM agent_run_ledger.in_flight")
    connection.close()
    store.close()


def test_handles_of_one_url_share_their_connections(postgres: Cluster, database: str, url: str) -> None:
    counted = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}'"
    stores = [open_postgres(url, create=True) for _ in range(5)]
    for number, store in enumerate(stores):
        begin(store, f"r{number}")
        store.reader().head()
        store.lock_run("r")
    assert postgres.run(counted) == [(3,)]
    for store in stores:
        store.close()


def test_readers_beyond_the_pool_wait_and_then_are_told(url: str) -> None:
    open_postgres(url, create=True).close()
    pool = ReadingPool(place_of(url, wait_s=0.05, entropy=ENTROPY), most=1)
    with pytest.raises(Unavailable) as caught:
        pool.use(lambda _: pool.use(lambda connection: connection))
    assert caught.value.code == "pool_exhausted"
    assert pool.use(lambda connection: connection.execute("SELECT 1").fetchall()) == [(1,)]
    pool.close()


def test_a_forked_child_is_told_so_and_leaves_its_parent_alone(url: str, tmp_path: Path) -> None:
    store = open_postgres(url, create=True)
    row = begin(store)
    lock, reader = store.lock_run("r"), store.reader()
    said = tmp_path / "said"

    def in_child() -> None:
        codes: list[str] = []
        for use in (lambda: begin(store, "child"), reader.head, lambda: store.lock_run("other"), store.reader):
            try:
                use()
                codes.append("done")
            except Forked:
                codes.append("forked")
        store.close()
        own = open_postgres(url, create=False)
        codes.append(str(own.is_run_live("r")))
        begin(own, "own")
        own.close()
        said.write_text(" ".join(codes))

    pid = os.fork()
    if pid == 0:
        try:
            in_child()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert said.read_text() == "forked forked forked forked True"
    do_step(store, row, 1)
    assert lock is not None
    assert store.is_run_live("r")
    assert check_log(store) == 4
    store.close()


def test_a_child_that_comes_back_out_of_its_parents_transaction_commits_nothing(url: str, tmp_path: Path) -> None:
    store = open_postgres(url, create=True)
    row = begin(store)
    said = tmp_path / "said"

    def body(_: object) -> int:
        return os.fork()

    try:
        pid = store.transact(op(), body)
    except Forked:
        said.write_text("forked")
        os._exit(0)
    finally:
        if not os.path.exists(said) and os.getpid() != _PARENT:
            os._exit(1)
    os.waitpid(pid, 0)
    assert said.read_text() == "forked"
    do_step(store, row, 1)
    assert check_log(store) == 3
    store.close()


def test_a_child_writes_nothing_into_the_transaction_of_its_parent(url: str) -> None:
    store = open_postgres(url, create=True)

    def body(tx: Tx) -> None:
        pid = os.fork()
        if pid == 0:
            try:
                tx.insert_run(run_uid=op(), run_id="child", holder="child")
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        begin_in(tx, "parent")

    store.transact(op(), body)
    assert store.reader().find_run("child") is None
    assert store.reader().find_run("parent") is not None
    assert check_log(store) == 2
    store.close()


_PARENT = os.getpid()

_HOLDER = """
import sys
from agent_run_ledger.ledger.effect_time import time_of
from agent_run_ledger.store import open_store
store = open_store(sys.argv[1], create=False)
lock = store.lock_run("r")
print(lock is not None, flush=True)
sys.stdin.read()
"""


def test_a_live_run_is_known_to_other_processes_until_its_process_is_killed(url: str) -> None:
    store = open_postgres(url, create=True)
    child = subprocess.Popen([sys.executable, "-c", _HOLDER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"True\n"
    assert store.is_run_live("r")
    assert store.lock_run("r") is None
    child.kill()
    child.wait()
    child.stdout.close()
    assert child.stdin is not None
    child.stdin.close()
    for _ in range(1_000):
        if not store.is_run_live("r"):
            break
        threading.Event().wait(0.005)
    lock = store.lock_run("r")
    assert lock is not None
    lock.release()
    store.close()


def test_effects_are_judged_by_the_clock_of_the_server(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    open_postgres(url, create=True, authority=True).close()
    monkeypatch.setattr("time.time_ns", lambda: 0)
    store = open_postgres(url, create=False)
    here = time_of(store).sample()
    assert here.wall_ms > 1_700_000_000_000
    within = store.transact(op(), lambda tx: (tx.now_ms, time_of(store).sample().wall_ms))
    assert within[0] <= within[1]
    assert time_of(store, given=Given()).sample().wall_ms == 7
    store.close()


class Given:
    """A time source that somebody gave."""

    def sample(self) -> Sample:
        return Sample(wall_ms=7, uptime_ms=7, boot="b")


def test_a_ledger_is_named_by_a_path_or_a_url(postgres: Cluster, url: str) -> None:
    with pytest.raises(Misuse):
        RunLedger(run_id="r", db_path="runs.db", url=url)
    with pytest.raises(Misuse):
        RunLedger(run_id="r", url="runs.db")
    with pytest.raises(Misuse):
        EffectLedger()
    with RunLedger(run_id="r", url=url) as ledger:

        @ledger.step
        def one() -> int:
            return 1

        assert ledger.execute() == 1
        assert postgres.password not in repr(ledger)
    assert check_ledger(url).results == 1
    assert postgres.password not in check_ledger(url).path


def test_a_store_in_a_file_has_durabilities_and_one_at_a_server_has_not(url: str) -> None:
    with pytest.raises(Misuse) as caught:
        open_store(url, create=True, durability="extra")
    assert caught.value.code == "bad_settings"
    store: PostgresStore = open_store(url, create=True)  # type: ignore[assignment]
    assert not store.is_copy
    assert store.copied is None
    assert repr(store).startswith("<PostgresStore postgresql://arl_test@127.0.0.1:")
    store.close()


def test_without_its_driver_a_url_says_what_to_install(url: str) -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from agent_run_ledger.errors import Misuse\n"
        "from agent_run_ledger.store import open_store\n"
        "try: open_store(sys.argv[1], create=False)\n"
        "except Misuse as error: print(error.code, error.hint)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, url], capture_output=True, text=True, check=True)
    assert done.stdout == 'extra_missing pip install "agent-run-ledger[postgres]"\n'


def test_who_has_no_store_at_a_server_does_not_load_its_driver() -> None:
    program = "import sys, agent_run_ledger, agent_run_ledger.store; print('psycopg' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
