"""A process that moves a ledger is killed wherever it can be: never two live stores, and the next one ends the move."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger.errors import Refused
from agent_run_ledger.ledger.migrate import abandon_migration, migrate
from agent_run_ledger.store import Standing, open_store
from agent_run_ledger.store.moves import move_of
from agent_run_ledger.testing import KillPoint, check_ledger, run_scenario
from agent_run_ledger.testing.harness import Exit, Life, start_scenario
from agent_run_ledger.testing.points import spread
from tests.contract.move_kit import KEYS, make_ledger, store_changes, tables_of
from tests.contract.store_kit import quick_folder
from tests.services.postgres import Cluster

pytestmark = pytest.mark.fault

SCENARIO = f"{Path(__file__).resolve().parent.parent / 'scenario' / 'programs' / 'migrating.py'}:moving"
STEPS = (
    "migrate.target", "migrate.begun", "migrate.chunk", "migrate.copied", "migrate.verified", "migrate.retired",
    "migrate.caught_up", "migrate.live",
)  # fmt: skip
"""The steps of a move, each reached when it is done."""

WITHIN = ("commit.before", "commit.after", "commit.wal.write", "commit.wal.sync")
MOST = {"migrate.chunk": 2, "commit.before": 3, "commit.after": 3}
CAMPAIGN = int(os.environ.get("ARL_CAMPAIGN", "1"))
DIRECTIONS = ("file-server", "server-file")


class Places:
    """Where ledgers of one direction are: each case has a source with the same ledger, and a target with nothing."""

    def __init__(self, direction: str, cluster: Cluster, template: Path, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self._from, self._to = direction.split("-")
        self._template = template
        self._made: list[str] = []
        if self._from == "server":
            database = self._database()
            migrate(template, cluster.url(database))
            self._database_template = database

    def case(self) -> tuple[Any, Any]:
        """A source and a target."""
        source: Any = self.folder / f"source{len(self._made)}.db"
        if self._from == "server":
            name = f"{self._database()}s"
            self.cluster.run(f"CREATE DATABASE {name} TEMPLATE {self._database_template}")
            self._made.append(name)
            source = self.cluster.url(name)
        else:
            shutil.copyfile(self._template, source)
        target: Any = self.cluster.url(self._database())
        return source, target if self._to == "server" else self.folder / f"target{len(self._made)}.db"

    def close(self) -> None:
        for name in self._made:
            self.cluster.drop(name)

    def _database(self) -> str:
        self._made.append(self.cluster.new_database())
        return self._made[-1]


@pytest.fixture(scope="module")
def template() -> Iterator[Path]:
    with quick_folder() as folder:
        make_ledger(folder / "all.db")
        yield folder / "all.db"


@pytest.fixture(params=DIRECTIONS)
def places(request: pytest.FixtureRequest, postgres: Cluster, template: Path) -> Iterator[Places]:
    with quick_folder() as folder:
        if request.param == "server-file":  # the template must stay what it is
            template = Path(shutil.copyfile(template, folder / "template.db"))
        made = Places(request.param, postgres, template, folder)
        yield made
        made.close()


def _life(places: Places, source: Any, target: Any, kill_at: KillPoint | None = None) -> Life:
    env = {"MOVE_SOURCE": str(source), "MOVE_TARGET": str(target)}
    return run_scenario(SCENARIO, places.folder, kill_at=kill_at, env=env)


def standing(named: Any) -> Standing | None:
    """What a store may be used for, None where there is none. Nothing is written."""
    try:
        store = open_store(named, create=False, moving=True)
    except Refused as error:
        if error.code not in ("no_store", "foreign_file"):
            raise
        return None
    try:
        move = move_of(store.reader().meta(), "")  # type: ignore[attr-defined]
        return move.standing
    finally:
        store.close()


def _check_dead(source: Any, target: Any) -> tuple[Standing | None, Standing | None]:
    """What a dead process left: at most one store that can be written, and one that says where it went."""
    found = standing(source), standing(target)
    assert found != (Standing.LIVE, Standing.LIVE)
    assert found[0] is not None
    if found[1] is Standing.LIVE:
        assert found[0] is Standing.RETIRED
    check_ledger(source)
    return found


def _check_ended(places: Places, source: Any, target: Any, before: dict[str, list[Any]]) -> None:
    assert (standing(source), standing(target)) == (Standing.RETIRED, Standing.LIVE)
    for named in (source, target):
        check_ledger(named)
    after = tables_of(target, places.cluster)
    assert {table for table in KEYS if after[table] != before[table]} == {"events"}
    assert after["events"][: len(before["events"])] == before["events"]
    ours = tables_of(source, places.cluster)["events"]
    assert after["events"][: len(ours)] == ours
    assert len(after["events"]) == len(ours) + 1


def test_a_move_that_is_killed_anywhere_goes_on_and_ends(places: Places) -> None:
    source, target = places.case()
    before = tables_of(source, places.cluster)
    reference = _life(places, source, target)
    assert reference.exit is Exit.OK, reference.describe()
    _check_ended(places, source, target, before)
    assert all(reference.points_reached.get(point) for point in STEPS)
    killed = 0
    for point in (*STEPS, *WITHIN):
        for nth in spread(reference.points_reached.get(point, 0), MOST.get(point, 1) * CAMPAIGN):
            source, target = places.case()
            life = _life(places, source, target, KillPoint(point=point, nth=nth))
            assert life.signal in (0, signal.SIGKILL), life.describe()
            killed += life.exit is Exit.KILLED
            _check_dead(source, target)
            second = _life(places, source, target)
            assert second.exit is Exit.OK, f"{point}#{nth}: {second.describe()}"
            _check_ended(places, source, target, before)
    assert killed > len(STEPS) + len(WITHIN)


@pytest.mark.parametrize("point", ["migrate.begun", "migrate.verified", "migrate.retired"])
def test_a_move_that_was_killed_is_given_up_or_is_final(places: Places, point: str) -> None:
    source, target = places.case()
    assert _life(places, source, target, KillPoint(point=point)).exit is Exit.KILLED
    left = _check_dead(source, target)
    if left[0] is Standing.RETIRED:
        assert point == "migrate.retired"
        with pytest.raises(Refused) as caught:
            abandon_migration(source, target)
        assert caught.value.code == "retired"
        assert standing(source) is Standing.RETIRED
        return
    abandon_migration(source, target)
    assert (standing(source), standing(target)) == (Standing.LIVE, None)
    check_ledger(source)


def test_a_source_that_retired_retires_once_more_before_the_target_is_live(places: Places) -> None:
    """What a dead process committed last may be on no disk: a commit that this process saw through is."""
    source, target = places.case()
    _life(places, source, target, KillPoint(point="migrate.retired"))
    before = store_changes(source)
    assert before[-1] == [("store", "moving", "retired")]
    assert _life(places, source, target).exit is Exit.OK
    assert store_changes(source) == [*before, [("store", "retired", "retired")]]
    assert store_changes(target)[-1] == [("store", "retired", "authority")]


def test_two_who_move_one_ledger_at_once_move_it_once(places: Places) -> None:
    source, target = places.case()
    before = tables_of(source, places.cluster)
    env = {"MOVE_SOURCE": str(source), "MOVE_TARGET": str(target)}
    lives = [start_scenario(SCENARIO, places.folder, env=env) for _ in range(2)]
    ended = [life.wait() for life in lives]
    assert any(life.exit is Exit.OK for life in ended), [life.describe() for life in ended]
    for life in ended:
        assert life.exit is Exit.OK or "store_busy" in life.error or "another process moves" in life.error
    _check_ended(places, source, target, before)


_DIES_IN_FILLING = """
import os, sys
from agent_run_ledger import probes
from agent_run_ledger.ledger.migrate import migrate
probes.install(lambda point: os._exit(9) if point == "migrate.copied" else None)
migrate(*sys.argv[1:3])
"""

_DIES_IN_DISCARDING = """
import os, sys
from agent_run_ledger.ledger.migrate import abandon_migration
source, target, number = sys.argv[1:]
left, unlink = [int(number)], os.unlink
def dying(path):
    if str(path).startswith(target):
        left[0] -= 1
        if not left[0]:
            os._exit(9)
    unlink(path)
os.unlink = dying
abandon_migration(source, target)
"""

_HOLDS = """
import sys, apsw
connection = apsw.Connection(sys.argv[1], flags=apsw.SQLITE_OPEN_READONLY)
list(connection.execute("SELECT count(*) FROM meta"))
print("holds", flush=True)
sys.stdin.read()
"""


def _break_off_a_checkpoint(path: Path) -> None:
    """Let each page of a file be half written whose last state is in its log, as by who died while it was copied."""
    log, content = Path(f"{path}-wal").read_bytes(), bytearray(path.read_bytes())
    size = int.from_bytes(log[8:12], "big")
    frames = [log[at : at + 24 + size] for at in range(32, len(log), 24 + size)]
    pages = {int.from_bytes(frame[:4], "big") for frame in frames if frame[8:16] == log[16:24]}
    assert 1 in pages
    for page in pages:
        begin = (page - 1) * size
        if page > 1 and begin < len(content):
            content[begin : begin + size // 2] = bytes(size // 2)
    path.write_bytes(content)


def _python(program: str, *arguments: object) -> int:
    return subprocess.run([sys.executable, "-c", program, *map(str, arguments)], check=False, timeout=60).returncode


@pytest.mark.parametrize("held", [False, True])
def test_who_dies_while_a_file_is_discarded_leaves_what_the_next_one_discards(
    template: Path, tmp_path: Path, held: bool
) -> None:
    """Whatever is deleted by then, and whether or not somebody looks at the file meanwhile, which keeps its log."""
    for number in range(1, 7):
        folder = tmp_path / str(number)
        folder.mkdir()
        source, target = folder / "source.db", folder / "target.db"
        shutil.copyfile(template, source)
        assert _python(_DIES_IN_FILLING, source, target) == 9
        _break_off_a_checkpoint(target)
        with ExitStack() as stack:
            if held:
                holder = stack.enter_context(
                    subprocess.Popen(
                        [sys.executable, "-c", _HOLDS, str(target)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
                    )
                )
                assert holder.stdout is not None
                assert holder.stdout.readline() == b"holds\n"
            died = _python(_DIES_IN_DISCARDING, source, target, number)
        assert died == (9 if number <= 5 else 0)
        assert abandon_migration(source, target).discarded is (number <= 5)
        assert not list(folder.glob("target.db*"))
        migrate(source, target)
        check_ledger(target)
