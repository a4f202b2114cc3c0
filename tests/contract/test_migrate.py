"""A ledger moves whole, from a file to a server and back: the same rows and proofs, and one store is live."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from agent_run_ledger import EffectLedger, LedgerError, RunLedger
from agent_run_ledger.effects import ActionState
from agent_run_ledger.errors import NotAdmitted, Refused, Tampered, Unavailable
from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.ledger.migrate import abandon_migration, migrate
from agent_run_ledger.ledger.verify import verify_extends, verify_log
from agent_run_ledger.store import Standing, is_url, open_sqlite, open_store
from agent_run_ledger.store.moving import move
from agent_run_ledger.testing import check_ledger
from tests.contract.effect_stories import ANN, Ticks, intent
from tests.contract.move_kit import KEYS, live, make_ledger, pipeline, results, store_changes, tables_of
from tests.contract.store_kit import op, quick_folder
from tests.services.postgres import Cluster

PAIRS = [("file", "server"), ("server", "file"), ("server", "server"), ("file", "file")]

Place = Callable[[str], Any]


@pytest.fixture(scope="module")
def template() -> Iterator[Path]:
    """A ledger with something of everything, to be copied."""
    with quick_folder() as folder:
        make_ledger(folder / "all.db")
        yield folder / "all.db"


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_folder() as made:
        yield made


@pytest.fixture
def place(postgres: Cluster, folder: Path) -> Iterator[Place]:
    """Name places where nothing is."""
    made: list[str] = []

    def name(kind: str) -> Any:
        made.append(postgres.new_database())
        return postgres.url(made[-1]) if kind == "server" else folder / f"{made[-1]}.db"

    yield name
    for database in made:
        postgres.drop(database)


@pytest.fixture
def full(template: Path, place: Place) -> Callable[[str], Any]:
    """Bring the ledger with everything to a store of a kind: for one at a server it has moved once."""

    def make(kind: str) -> Any:
        path = place("file")
        shutil.copyfile(template, path)
        if kind == "file":
            return path
        url = place("server")
        migrate(path, url)
        return url

    return make


@pytest.fixture
def small(place: Place) -> Path:
    """A file with one run."""
    path: Path = place("file")
    open_sqlite(path, create=True, authority=True).close()
    pipeline(path, "r1")
    return path


def refused(act: Callable[[], object], code: str, kind: type[LedgerError] = Refused) -> LedgerError:
    with pytest.raises(kind) as caught:
        act()
    assert caught.value.code == code, caught.value
    return caught.value


def root_of(named: Any) -> tuple[int, str]:
    store = open_store(named, create=False, readonly=True)
    report = verify_log(store.reader(), log_id=store.log_id)
    store.close()
    assert report.ok
    return report.leaves, report.root_hex


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_everything_moves_and_the_log_is_one(
    full: Callable[[str], Any], place: Place, postgres: Cluster, pair: tuple[str, str]
) -> None:
    source, target = full(pair[0]), place(pair[1])
    before, log = tables_of(source, postgres), root_of(source)
    assert all(before[table] for table in ("tiles", "in_flight", "budgets", "actions", "approvals", "effect_time"))
    moved = migrate(source, target)
    after = tables_of(target, postgres)
    assert {table for table in KEYS if after[table] != before[table]} == {"events"}
    assert after["events"][: log[0]] == before["events"], "the leaves are those that were there"
    assert moved.size == log[0] + 2
    assert root_of(source) == (moved.size, moved.root.hex())
    report = check_ledger(target)
    assert report.leaves == moved.size + 1
    assert check_ledger(source).leaves == moved.size
    store = open_store(target, create=False, readonly=True)
    assert store.log_id == moved.log_id
    assert verify_extends(store.reader(), log[0], bytes.fromhex(log[1]))
    assert verify_extends(store.reader(), moved.size, moved.root), "the source's whole log is the beginning of it"
    store.close()


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_what_moved_goes_on_and_new_rows_get_ids_of_their_own(
    full: Callable[[str], Any], place: Place, pair: tuple[str, str]
) -> None:
    source, target = full(pair[0]), place(pair[1])
    migrate(source, target)
    assert results(target, "r5") == ["step0", "step1", "step2"]
    with RunLedger("fork", **named(target)) as ledger:
        assert [row.run_id for row in ledger.runs_of_queue(None).queued(limit=9)] == ["queued"]
    pipeline(target, "new")
    effects = EffectLedger(**named(target), time=Ticks(5_000))
    assert effects.inspect("unresolved")[0].state is ActionState.UNRESOLVED
    assert effects.inspect("prepared")[0].state is ActionState.PREPARED
    with pytest.raises(LedgerError):
        effects.propose(ANN, "prepared", intent(b"other bytes"))
    assert effects.propose(ANN, "fresh", intent(b"fresh")).state is ActionState.PROPOSED
    effects.close()
    assert live(target)
    assert not live(source)
    check_ledger(target)


def named(place: Any) -> dict[str, Any]:
    return {"url": place} if is_url(place) else {"db_path": place}


@pytest.mark.parametrize("kind", ["file", "server"])
def test_a_retired_store_refuses_every_write_and_can_be_read(
    full: Callable[[str], Any], place: Place, kind: str, folder: Path
) -> None:
    source, target = full(kind), place("file")
    open_before = open_store(source, create=False)
    migrate(source, target)
    size, _ = root_of(source)

    def change(tx: Any) -> None:
        tx.insert_run(run_uid=op(), run_id="late", holder="h")
        tx.add_change(Change(type="run", id=open_before.log_id, old="none", new="running", generation=1))

    said = refused(lambda: open_before.transact(op(), change), "retired")
    assert "lives at" in said.message
    refused(open_before.grant_authority, "retired")
    open_before.close()
    refused(lambda: open_store(source, create=False), "retired")
    refused(lambda: open_store(source, create=True, authority=True), "retired")
    refused(lambda: EffectLedger(**named(source)), "retired")
    refused(lambda: pipeline(source, "r1"), "retired")
    assert root_of(source)[0] == size
    store = open_store(source, create=False, readonly=True)
    assert store.move.standing is Standing.RETIRED
    assert store.reader().find_run("r3") is not None
    store.close()


def test_a_backup_of_a_retired_store_is_retired_too(small: Path, place: Place, folder: Path) -> None:
    migrate(small, place("server"))
    store = open_sqlite(small, create=False, readonly=True)
    store.backup(folder / "copy.db")
    store.close()
    refused(lambda: open_sqlite(folder / "copy.db", create=False), "retired")
    assert not live(folder / "copy.db")
    copy = open_sqlite(folder / "copy.db", create=False, readonly=True)
    assert verify_log(copy.reader(), is_copy=True, is_retired=True).ok
    copy.close()
    assert store_changes(folder / "copy.db")[-1] == [("store", "retired", "copy")]


def test_a_log_that_retired_its_store_tells_on_one_that_says_it_is_live(small: Path, place: Place) -> None:
    migrate(small, place("server"))
    connection = apsw.Connection(str(small))
    connection.execute("UPDATE meta SET value = 0 WHERE key = 'move'")
    connection.close()
    store = open_sqlite(small, create=False, readonly=True)
    said = verify_log(store.reader(), is_retired=store.move.standing is Standing.RETIRED).problems
    store.close()
    assert [problem.text for problem in said] == ["the store says that it is live, and the log retired it"]


def test_the_same_move_twice_is_one(small: Path, place: Place) -> None:
    target = place("server")
    first = migrate(small, target)
    pipeline(target, "later")
    again = migrate(small, target)
    assert (first.already, again.already) == (False, True)
    assert (again.size, again.root) == (first.size, first.root)
    check_ledger(target)


def test_a_retired_store_moves_nowhere_else(small: Path, place: Place, postgres: Cluster) -> None:
    target = place("server")
    migrate(small, target)
    assert "lives at" in refused(lambda: migrate(small, place("file")), "retired").message
    refused(lambda: abandon_migration(small, target), "retired")
    another = place("file")
    pipeline(another, "r1")
    refused(lambda: migrate(small, another), "retired")
    postgres.run("DROP SCHEMA agent_run_ledger CASCADE", target.rsplit("/", 1)[1])
    refused(lambda: migrate(small, target), "target_gone")
    assert not live(small)


def test_a_store_that_moved_on_is_not_the_target_any_more(small: Path, place: Place) -> None:
    target, third = place("server"), place("file")
    migrate(small, target)
    migrate(target, third)
    refused(lambda: migrate(small, target), "retired")
    assert [live(each) for each in (small, target, third)] == [False, False, True]


@pytest.mark.parametrize("kind", ["file", "server"])
def test_nothing_is_moved_onto_what_is_there(small: Path, place: Place, kind: str) -> None:
    target = place(kind)
    pipeline(target, "mine")
    refused(lambda: migrate(small, target), "target_not_empty")
    assert live(small)
    assert live(target)


def test_a_file_that_is_no_store_is_left(small: Path, folder: Path, place: Place) -> None:
    (folder / "notes.db").write_text("my notes")
    with pytest.raises(LedgerError):
        migrate(small, folder / "notes.db")
    assert (folder / "notes.db").read_text() == "my notes"
    (folder / "gone.db-wal").write_text("commits of another store")
    refused(lambda: migrate(small, folder / "gone.db"), "destination_exists")
    assert live(small)


def test_a_schema_of_somebody_else_is_left(small: Path, place: Place, postgres: Cluster) -> None:
    target = place("server")
    postgres.run("CREATE SCHEMA agent_run_ledger", target.rsplit("/", 1)[1])
    refused(lambda: migrate(small, target), "foreign_schema")
    assert live(small)


def test_a_store_is_not_moved_onto_itself(small: Path, place: Place) -> None:
    refused(lambda: migrate(small, small), "same_store")
    target = place("server")
    migrate(small, target)
    refused(lambda: migrate(target, f"{target}?application_name=other"), "same_store")
    assert live(target)


def test_wrong_credentials_stop_nothing_and_are_not_repeated(small: Path, place: Place, postgres: Cluster) -> None:
    database = place("server").rsplit("/", 1)[1]
    said = refused(
        lambda: migrate(small, postgres.url(database, user="stranger", password="another s3cret")), "login_refused"
    )
    assert "s3cret" not in f"{said!r}{said}"
    assert live(small)


def test_where_a_ledger_went_has_no_password(small: Path, place: Place, postgres: Cluster) -> None:
    migrate(small, place("server"))
    assert postgres.password not in str(refused(lambda: open_store(small, create=False), "retired"))
    assert postgres.password.encode() not in small.read_bytes()


def test_a_newer_schema_is_refused(small: Path, place: Place) -> None:
    connection = apsw.Connection(str(small))
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    refused(lambda: migrate(small, place("server")), "schema_newer")


def test_a_copy_is_not_moved(small: Path, place: Place, folder: Path) -> None:
    store = open_sqlite(small, create=False)
    store.backup(folder / "copy.db")
    store.close()
    refused(lambda: migrate(folder / "copy.db", place("server")), "is_copy", NotAdmitted)
    assert live(folder / "copy.db")


@pytest.mark.parametrize("kind", ["file", "server"])
def test_a_run_at_work_is_named_and_nothing_moves(small: Path, place: Place, kind: str) -> None:
    source, target = place(kind), place("file")
    pipeline(source, "r1")
    with RunLedger("busy", **named(source)) as ledger:

        @ledger.tool(safe=True)
        def look() -> None:
            assert "'busy'" in refused(lambda: migrate(source, target), "runs_live").message

        with ledger.run():
            look()
    assert live(source)
    refused(lambda: open_store(target, create=False), "no_store")
    migrate(source, target)
    assert live(target)


def test_a_run_that_begins_in_the_last_moment_stops_the_move(small: Path, place: Place) -> None:
    """It was not there when the source was asked first: the source stops, sees it, and is live again."""
    from agent_run_ledger import probes

    target = place("server")
    began: list[Any] = []

    def begin(point: str) -> None:
        if point == "migrate.target":
            ledger = RunLedger("late", small)
            run = ledger.run()
            run.__enter__()
            began.append((ledger, run))

    before = probes.install(begin)
    try:
        refused(lambda: migrate(small, target), "runs_live")
    finally:
        probes.install(before)
    ledger, run = began[0]
    run.__exit__(None, None, None)
    ledger.close()
    assert live(small)
    abandon_migration(small, target)
    migrate(small, target)
    assert check_ledger(target).runs == 3


def interrupted(source: Any, target: Any, point: str) -> None:
    """Move up to a point, and no further."""
    from agent_run_ledger import probes

    class Stopped(Exception):
        pass

    def stop(reached: str) -> None:
        if reached == point:
            raise Stopped

    before = probes.install(stop)
    try:
        with pytest.raises(Stopped):
            migrate(source, target)
    finally:
        probes.install(before)


@pytest.mark.parametrize("pair", PAIRS[:2], ids="-".join)
@pytest.mark.parametrize("point", ["migrate.target", "migrate.begun", "migrate.chunk", "migrate.verified"])
def test_a_move_can_be_given_up_until_the_source_retires(place: Place, pair: tuple[str, str], point: str) -> None:
    source, target = place(pair[0]), place(pair[1])
    pipeline(source, "r1")
    interrupted(source, target, point)
    refused(lambda: open_store(target, create=False), "arriving")
    refused(lambda: open_store(target, create=False, readonly=True), "arriving")
    stopped = point != "migrate.target"
    if stopped:
        said = refused(lambda: open_store(source, create=False), "moving")
        assert "--abandon" in said.hint
        root_of(source)
    given_up = abandon_migration(source, target)
    assert (given_up.live_again, given_up.discarded) == (stopped, True)
    assert live(source)
    refused(lambda: open_store(target, create=False), "no_store")
    check_ledger(source)
    migrate(source, target)
    assert live(target)
    assert not live(source)
    check_ledger(target)


def test_what_was_given_up_while_the_target_was_away_can_not_become_live(small: Path, place: Place) -> None:
    """The source changed since: what was filled is of another state, and is neither taken nor filled on."""
    target = place("file")
    interrupted(small, target, "migrate.chunk")
    target.rename(f"{target}.away")
    assert abandon_migration(small, target).discarded is False
    pipeline(small, "since")
    Path(f"{target}.away").rename(target)
    refused(lambda: migrate(small, target), "target_not_empty")
    refused(lambda: open_store(target, create=False), "arriving")
    assert abandon_migration(small, target).discarded is True
    migrate(small, target)
    assert results(target, "since")


def test_a_move_goes_on_to_its_own_target_only(small: Path, place: Place) -> None:
    target, other = place("server"), place("server")
    interrupted(small, target, "migrate.chunk")
    refused(lambda: migrate(small, other), "other_target")
    assert migrate(small, target).resumed


def test_one_process_moves_a_ledger_at_a_time(small: Path, place: Place) -> None:
    store = open_sqlite(small, create=False, readonly=True)
    lock = store.lock_run("arl migrate")
    assert lock is not None
    refused(lambda: move(small, place("server"), check=lambda _: None, wait_s=0.2), "store_busy", Unavailable)
    lock.release()
    store.close()
    assert live(small)


def test_a_ledger_that_contradicts_its_log_is_not_moved(small: Path, place: Place) -> None:
    connection = apsw.Connection(str(small))
    connection.execute("UPDATE runs SET state = 'failed' WHERE run_id = 'r1'")
    connection.close()
    target = place("server")
    said = refused(lambda: migrate(small, target), "problems", Tampered)
    assert "r1" in said.message or "run" in said.message
    refused(lambda: open_store(small, create=False), "moving")
    abandon_migration(small, target)
    assert live(small)


def test_a_target_that_was_changed_meanwhile_does_not_become_live(small: Path, place: Place, postgres: Cluster) -> None:
    """Rows that no leaf speaks of are compared too."""
    target = place("server")
    interrupted(small, target, "migrate.verified")
    postgres.run("UPDATE agent_run_ledger.effect_time SET wall_ms = 1", target.rsplit("/", 1)[1])
    postgres.run(
        "INSERT INTO agent_run_ledger.in_flight VALUES (65536, 'x', '', '', 0, 1, 1, 1, 0, 1, 0, '')",
        target.rsplit("/", 1)[1],
    )
    assert "in_flight" in refused(lambda: migrate(small, target), "moved_wrong", Tampered).message
    assert not live(small)
    assert not live(target)
