"""The kits and the lab with a ledger at a server: real kills, older copies put back, and nothing left behind."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from agent_run_ledger import Misuse, Refused
from agent_run_ledger.lab import exercises, runner
from agent_run_ledger.store import databases_at, open_store
from agent_run_ledger.store.ledger_place import LedgerPlace, ledger_place
from agent_run_ledger.testing import (
    CrashCheckFailed,
    Exit,
    KillPoint,
    Lives,
    Point,
    check_ledger,
    crash_everywhere,
    cut_power_everywhere,
    recorded_calls,
    run_scenario,
)
from agent_run_ledger.testing.adapter_kit import Found, run_adapter_kit
from agent_run_ledger.testing.effect_kit import Ran, run_kit
from tests.cli.conftest import COMMAND, Arl, Ended, arl
from tests.fault import effect_kit_cases as cases
from tests.services.postgres import Cluster

__all__ = ["COMMAND", "Arl", "Ended", "arl"]

pytestmark = pytest.mark.fault

TOYS = "tests.scenario.programs.toy_agent:"
PROGRAM = Path(__file__).resolve().parent.parent / "scenario" / "programs" / "faulty.py"


@pytest.fixture
def server(postgres: Cluster) -> Iterator[str]:
    """The URL that kits are given. Whatever databases they made are gone afterwards, whoever made them."""
    yield postgres.url()
    assert _databases(postgres) == []


def _databases(postgres: Cluster) -> list[str]:
    return [name for (name,) in postgres.run("SELECT datname FROM pg_database WHERE datname LIKE 'arl\\_scratch\\_%'")]


@pytest.fixture
def directories(tmp_path: Path) -> Callable[[], Path]:
    """A maker of empty directories."""
    numbers = count()

    def make() -> Path:
        folder = tmp_path / "cases" / str(next(numbers))
        folder.mkdir(parents=True)
        return folder

    return make


def test_an_adapter_is_judged_by_kills_at_a_server(server: str, tmp_path: Path) -> None:
    verdicts = run_adapter_kit(TOYS + "Right", tmp_path, only=["effect_killed"], server=server)
    assert {one.found for one in verdicts.all} == {Found.HOLDS}, verdicts.table()
    assert list(tmp_path.rglob("ledger.db")) == []


def test_a_tool_is_judged_by_kills_and_an_older_copy_at_a_server(server: str, tmp_path: Path) -> None:
    names = ["kill:dispatch.sent#1", "old_copy"]
    report = run_kit(cases.GOOD, only=names, server=server, folder=tmp_path / "kept")
    assert [(row.name, row.ran, row.times, row.state) for row in report.rows] == [
        ("plain", Ran.YES, "once", "succeeded"),
        ("kill:dispatch.sent#1", Ran.YES, "once", "succeeded"),
        ("old_copy", Ran.YES, "TWICE", "succeeded"),
    ]
    assert "killed" in report.of("kill:dispatch.sent#1").words
    assert list(tmp_path.rglob("ledger.db")) == []


def test_a_scenario_is_killed_and_goes_on_at_a_server_and_only_what_fails_is_kept(
    server: str, postgres: Cluster, directories: Callable[[], Path]
) -> None:
    seen: list[tuple[tuple[str, ...], int]] = []

    def check(lives: Lives) -> None:
        # What the dead life had left was read from a copy; the second life ended it in the ledger itself.
        seen.append((lives.in_flight, len(recorded_calls(lives.ledger))))
        assert len(seen) < 2, "never content"

    points = [Point.BODY_AFTER, Point.WAL_WRITE]
    with pytest.raises(CrashCheckFailed, match="never content") as raised:
        crash_everywhere(f"{PROGRAM}:two_steps", directories, points=points, check=check, server=server)
    assert seen == [(("one",), 3), (("two",), 3)]
    (name,) = [name for name in _databases(postgres) if not name.endswith("_older")]
    assert f" and postgresql://arl_test@127.0.0.1:{postgres.port}/{name}: " in str(raised.value)
    databases_at(server).drop(postgres.url(name))


def test_what_a_dead_process_had_sent_is_in_the_copy(server: str, tmp_path: Path) -> None:
    """It dies with its COMMIT on the way: the server waits for its session, and copies what became of it."""
    with ledger_place(tmp_path, server) as place:
        at = KillPoint(point=Point.COMMIT_AFTER, nth=3)
        life = run_scenario(f"{PROGRAM}:two_steps", tmp_path, kill_at=at, env=place.env())
        assert life.exit is Exit.KILLED, life.describe()
        copy = place.keep_a_copy()
        report = check_ledger(copy)
        assert (report.leaves, report.results) == (check_ledger(place.named).leaves, 1)
        place.put_the_copy_back()
        assert check_ledger(place.named).root_hex == report.root_hex


def test_a_copy_that_is_put_back_is_the_older_one(server: str, tmp_path: Path) -> None:
    with ledger_place(tmp_path, server) as place:
        assert not place.is_there()
        open_store(place.named, create=True).close()
        assert place.is_there()
        place.keep_a_copy()
        store = open_store(place.named, create=False)
        store.grant_authority()
        store.close()
        assert check_ledger(place.named).leaves == 2
        place.put_the_copy_back()
        assert check_ledger(place.named).leaves == 1


def test_the_lab_is_done_at_a_server(
    server: str, postgres: Cluster, tmp_path: Path, arl: Arl, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = [one for one in exercises.EXERCISES if one.name in ("exit_before_commit", "old_copy")]
    monkeypatch.setattr(runner, "EXERCISES", some)
    ended = arl("lab", "--output", tmp_path / "lab", "--server", server)
    assert ended.code == 0, ended.err
    said = " ".join(ended.out.split())
    assert "UNSAFE, expected old_copy: two processes hold the claim of one approval" in said
    assert "another process claimed it and got it" in said
    assert "the server said: synchronous_commit on." in said
    assert "The databases at the server are gone again." in said
    lines = [json.loads(line) for log in tmp_path.rglob("log.jsonl") for line in log.read_text().splitlines()]
    assert {line["ended"] for line in lines} == {"exit code 0", "killed by signal 9"}
    assert {line["order"]["database"].partition("/arl_scratch_")[0] for line in lines} == {
        f"postgresql://arl_test@127.0.0.1:{postgres.port}"
    }
    assert postgres.password not in "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())


def test_who_may_make_no_databases_is_told_what_is_missing(postgres: Cluster, arl: Arl) -> None:
    postgres.run("CREATE ROLE kit_reader LOGIN PASSWORD 'x'")
    try:
        url = postgres.url(user="kit_reader", password="x")
        ended = arl("kit", f"{cases.__file__}:GOOD", "--quick", "--server", url, "--json")
        assert (ended.code, ended.error["code"]) == (1, "no_permission")
        assert "CREATEDB" in ended.error["hint"]
    finally:
        postgres.run("DROP ROLE kit_reader")


def test_only_what_a_kit_made_is_dropped(server: str, postgres: Cluster) -> None:
    name = postgres.new_database()
    for order in (databases_at(server).drop, databases_at(server).keep_a_copy, databases_at(server).put_the_copy_back):
        with pytest.raises(Misuse, match="no database that a kit made"):
            order(postgres.url(name))
    assert postgres.run("SELECT 1", name) == [(1,)]
    postgres.drop(name)


@pytest.mark.parametrize("url", ["file.db", "mysql://h/d"])
def test_a_server_is_named_by_a_url(url: str, tmp_path: Path, arl: Arl) -> None:
    ended = arl("kit", f"{cases.__file__}:GOOD", "--server", url, "--json")
    assert (ended.code, ended.error["code"]) == (2, "bad_url")


def test_a_power_cut_of_a_program_at_a_server_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="the scenario left no ledger") as raised:
        cut_power_everywhere(lambda workdir: None, lambda: tmp_path)
    assert isinstance(raised.value.__cause__, Refused)
    assert "power is cut of files alone" in raised.value.__cause__.hint
    assert LedgerPlace.here(tmp_path).named == str(tmp_path / "ledger.db")
