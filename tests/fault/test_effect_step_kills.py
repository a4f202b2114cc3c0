"""Agents with an effect, killed at every point: it is executed once in the end, and every life says the same."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from agent_run_ledger.testing import Exit, KillPoint
from agent_run_ledger.testing.points import spread
from tests.contract.effect_run_kit import eventually
from tests.fault import effect_step_lives as lives
from tests.fault.effect_step_kit import CAMPAIGN, Case, in_memory, run_state
from tests.fault.refund_server import RefundServer, refund_server

pytestmark = pytest.mark.fault

ASKING: Mapping[str, int] = {
    "commit.begin": 8,
    "commit.before": 8,
    "commit.after": 8,
    "record.before": 5,
    "record.after": 5,
    "body.before": 2,
    "body.after": 1,
    "effect.before": 2,
    "effect.after": 2,
    "effect_step.moved": 1,
}
"""How often a life comes to each point that asks for an effect and is suspended."""

ACTING: Mapping[str, int] = {
    "commit.begin": 10,
    "commit.before": 10,
    "commit.after": 10,
    "record.before": 5,
    "record.after": 5,
    "body.before": 2,
    "body.after": 2,
    "effect.before": 4,
    "effect.after": 4,
    "effect_step.moved": 1,
    "dispatch.claimed": 1,
    "dispatch.prepared": 1,
    "dispatch.handed_out": 1,
    "dispatch.sending": 1,
    "dispatch.sent": 1,
    "dispatch.recorded": 1,
}
"""The same for a life that finds its effect approved, carries it out, and is completed."""

OWN: Mapping[str, Mapping[str, int]] = {
    "N": {"target.connected": 1, "target.written": 1, "target.status": 1},
    "I": {"target.connected": 1, "target.written": 1, "target.status": 1},
    "opaque": {lives.CALLED: 1, lives.RETURNING: 1},
}
"""What the way to each target has beside that."""

GRANTING: Mapping[str, int] = {
    "effect.before": 1,
    "commit.begin": 1,
    "commit.before": 1,
    "commit.after": 1,
    "effect.after": 1,
}

COUNTED = ("commit.begin", "commit.before", "commit.after", "record.before", "record.after", "body.before")
"""Points outside of the dispatch, which no class changes: a first campaign takes one class through all of them."""

WAL = "commit.wal.write"
WAL_WRITES = {"asking": 91, "acting": 147}


def points(reached: Mapping[str, int]) -> list[KillPoint]:
    return [KillPoint(point=point, nth=nth) for point, times in reached.items() for nth in range(1, times + 1)]


def of_class(target_class: str) -> list[KillPoint]:
    if target_class == "N" or CAMPAIGN > 1:
        return points({**ACTING, **OWN[target_class]})
    return points({**{name: nth for name, nth in ACTING.items() if name not in COUNTED}, **OWN[target_class]})


def within_the_log(what: str) -> list[KillPoint]:
    return [KillPoint(point=WAL, nth=nth) for nth in spread(WAL_WRITES[what], 3 * CAMPAIGN)]


@pytest.fixture(scope="module")
def server() -> Iterator[RefundServer]:
    with refund_server() as serving:
        yield serving


@pytest.fixture(scope="module")
def granted(server: RefundServer) -> Iterator[Mapping[str, Path]]:
    """For each class a store in which a run was suspended by a life of its own, and its effect is granted."""
    with in_memory() as folder:
        made: dict[str, Path] = {}
        for target_class in lives.CLASSES:
            case = Case(folder / target_class, server, target_class)
            assert case.says() == {"code": "approval_pending"}
            assert run_state(case.path) == "suspended"
            case.grant()
            made[target_class] = case.folder
        yield made


@pytest.fixture
def folder() -> Iterator[Path]:
    with in_memory() as made:
        yield made


@pytest.mark.parametrize("kill_at", [*points(ASKING), *within_the_log("asking")], ids=str)
def test_killed_while_it_asks_it_asks_once_and_is_executed_once(
    kill_at: KillPoint, server: RefundServer, folder: Path
) -> None:
    case = Case(folder, server, "N")
    case.dies("agent", kill_at)
    assert server.counts().arrived == 0
    said = case.ends_well()
    assert (said["generation"], len(case.members())) == (1, 1)


@pytest.mark.parametrize(
    ("target_class", "kill_at"),
    [
        *[(one, kill_at) for one in lives.CLASSES for kill_at in of_class(one)],
        *[("N", kill_at) for kill_at in within_the_log("acting")],
    ],
    ids=str,
)
def test_killed_while_it_acts_it_is_executed_once_in_the_end(
    target_class: str, kill_at: KillPoint, server: RefundServer, granted: Mapping[str, Path], folder: Path
) -> None:
    case = Case(folder, server, target_class, granted[target_class])
    case.dies("agent", kill_at)
    executed = server.counts().executed
    said = case.ends_well()
    assert case.bodies.count()["think"] == 1
    if executed:
        assert (said["generation"], len(case.members())) == (1, 1), "what was executed had no successor"


@pytest.mark.parametrize("what", ["asking", "acting"])
@pytest.mark.parametrize("target_class", lives.CLASSES)
def test_a_life_that_nobody_kills_comes_to_every_point(
    target_class: str, what: str, server: RefundServer, granted: Mapping[str, Path], folder: Path
) -> None:
    case = Case(folder, server, target_class, granted[target_class] if what == "acting" else None)
    reached = case.life().points_reached
    wanted = {**ACTING, **OWN[target_class]} if what == "acting" else ASKING
    named = {point: times for point, times in reached.items() if not point.startswith(("commit.wal", "file."))}
    assert named == wanted
    assert reached[WAL] >= WAL_WRITES[what]


@pytest.mark.parametrize("kill_at", points(GRANTING), ids=str)
def test_killed_while_they_grant_people_grant_again(kill_at: KillPoint, server: RefundServer, folder: Path) -> None:
    case = Case(folder, server, "N")
    assert case.says() == {"code": "approval_pending"}
    case.after_death()
    case.dies("person", kill_at)
    said = case.ends_well()
    assert (said["generation"], len(case.members()[-1].approvals)) == (1, 1)


def test_a_run_that_waits_goes_on_when_somebody_grants_whom_a_kill_had_stopped_before(
    server: RefundServer, folder: Path
) -> None:
    case = Case(folder, server, "N")
    with case.start(**{lives.WAIT_VARIABLE: "60"}) as waiting:
        eventually(lambda: bool(case.members()))
        case.dies("person", KillPoint(point="commit.before"))
        assert case.life("person").result == "available"
        ended = waiting.wait()
    assert ended.exit is Exit.OK, ended.describe()
    assert case.ends_well() == ended.result


@pytest.mark.parametrize("granted_first", [False, True])
def test_killed_while_it_waits_for_people_it_is_executed_once(
    granted_first: bool, server: RefundServer, folder: Path
) -> None:
    case = Case(folder, server, "I")
    with case.start(**{lives.WAIT_VARIABLE: "60"}) as waiting:
        eventually(lambda: bool(case.members()))
        if granted_first:  # it may be anywhere between its wait and its end
            case.grant()
        waiting.send(signal.SIGKILL)
        assert waiting.wait().exit in ((Exit.KILLED, Exit.OK) if granted_first else (Exit.KILLED,))
    case.after_death()
    case.ends_well()


def test_killed_in_every_life_it_is_executed_once_in_the_end(
    server: RefundServer, granted: Mapping[str, Path], folder: Path
) -> None:
    """One death after the other: before the permit, at each step of the doubt, and at the successor's dispatch."""
    case = Case(folder, server, "N", granted["N"])
    case.dies("agent", KillPoint(point="dispatch.prepared"))
    case.dies("agent", KillPoint(point="effect.before"))  # of the doubt
    case.dies("agent", KillPoint(point="effect_step.moved"))
    assert case.says() == {"code": "effect_in_doubt"}
    case.drain()
    probing = {lives.PROBE_VARIABLE: "yes"}
    for kill_at in ("effect.after#1", "effect.before#2", "effect.after#2", "effect.before#3", "effect_step.moved#2"):
        point, _, nth = kill_at.partition("#")
        life = case.life("agent", KillPoint(point=point, nth=int(nth)), **probing)
        assert life.exit in (Exit.KILLED, Exit.OK), life.describe()
        case.after_death()
    assert case.says(**probing) == {"code": "approval_pending"}
    case.grant()
    case.dies("agent", KillPoint(point="dispatch.sent"))
    said = case.ends_well()
    assert (said["generation"], said["answer"], len(case.members())) == (2, None, 2)
