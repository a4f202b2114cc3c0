"""Processes that want one effect at once, take a run over, or hang in the middle: it is executed once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_run_ledger.effects import Actor, DoubtBy, Role
from agent_run_ledger.ledger.authority import open_effects
from agent_run_ledger.testing import Exit
from agent_run_ledger.testing.harness import RunningLife
from tests.contract.effect_run_kit import eventually
from tests.fault import effect_step_lives as lives
from tests.fault.effect_step_kit import Case, in_memory, run_state
from tests.fault.refund_server import RefundServer, refund_server

pytestmark = pytest.mark.fault

OPERATOR = Actor("ops", frozenset({Role.OPERATOR}))
PROCESSES = 4


@pytest.fixture(scope="module")
def server() -> Iterator[RefundServer]:
    with refund_server() as serving:
        yield serving


@pytest.fixture
def folder() -> Iterator[Path]:
    with in_memory() as made:
        yield made


def granted(folder: Path, server: RefundServer, target_class: str = "N") -> Case:
    """A run that is suspended, and people have granted what it waits for."""
    case = Case(folder, server, target_class, here=True)
    assert case.says() == {"code": "approval_pending"}
    case.grant()
    return case


def stopped(life: RunningLife) -> bool:
    """Whether a process has stopped."""
    return Path(f"/proc/{life.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize("target_class", lives.CLASSES)
def test_of_processes_with_one_run_one_acts(target_class: str, server: RefundServer, folder: Path) -> None:
    case = granted(folder, server, target_class)
    started = [case.start() for _ in range(PROCESSES)]
    ended = [one.wait() for one in started]
    assert [one.exit for one in ended] == [Exit.OK] * PROCESSES, [one.describe() for one in ended]
    said = case.ends_well()
    others = [one.result for one in ended if one.result != said]
    assert others == [{"code": "run_busy"}] * len(others)
    assert len(others) < PROCESSES


@pytest.mark.parametrize("asked_first", [False, True])
def test_runs_with_one_key_are_one_effect(asked_first: bool, server: RefundServer, folder: Path) -> None:
    case = granted(folder, server) if asked_first else Case(folder, server, "N", here=True)
    runs = [f"run {number}" for number in range(PROCESSES)]
    started = [case.start(**{lives.RUN_VARIABLE: one, lives.WAIT_VARIABLE: "60"}) for one in runs]
    if not asked_first:
        eventually(lambda: bool(case.members()))
        case.grant()
    ended = [one.wait() for one in started]
    assert [one.exit for one in ended] == [Exit.OK] * PROCESSES, [one.describe() for one in ended]
    said = case.ends_well()
    assert [one.result for one in ended] == [said] * PROCESSES
    assert [run_state(case.path, one) for one in runs] == ["completed"] * PROCESSES
    assert len(case.members()) == 1


@pytest.mark.parametrize(
    ("point", "sends"),
    [
        ("dispatch.claimed", False),
        ("dispatch.prepared", False),
        ("dispatch.handed_out", True),
        ("dispatch.sending", True),
        ("target.connected", True),
        ("target.written", True),
        ("dispatch.sent", True),
    ],
)
def test_a_run_that_is_taken_over_while_it_acts_is_executed_once(
    point: str, sends: bool, server: RefundServer, folder: Path
) -> None:
    case = granted(folder, server)
    with case.start(**{lives.STOP_VARIABLE: point}) as first:
        eventually(lambda: stopped(first))
        seen = point in ("target.written", "dispatch.sent")
        if seen:
            eventually(lambda: server.counts().executed == 1)
        taken = case.says(**{lives.TAKEOVER_VARIABLE: "yes", lives.PROBE_VARIABLE: "yes" if seen else ""})
        assert taken.get("code") == (None if seen else "effect_in_doubt")
        first.send(signal.SIGCONT)
        ended = first.wait()
    assert ended.exit is Exit.OK, ended.describe()
    assert "code" in ended.result, "who was taken over writes nothing more of the run"
    assert server.counts().arrived == sends
    said = case.ends_well()
    assert said["generation"] == (1 if sends else 2)
    if seen:
        assert said == taken


def test_a_run_waits_for_another_one_that_hangs_in_its_send(server: RefundServer, folder: Path) -> None:
    case = granted(folder, server)
    server.hold()
    other = {lives.RUN_VARIABLE: "other", lives.PROBE_VARIABLE: "yes"}
    with case.start() as first:
        eventually(lambda: server.counts().executed == 1)
        first.send(signal.SIGSTOP)
        server.release()
        assert case.says(**other) == {"code": "effect_elsewhere"}
        assert case.says(**other) == {"code": "effect_elsewhere"}
        with case.start(**other, **{lives.WAIT_VARIABLE: "60"}) as waiting:
            first.send(signal.SIGCONT)
            ended = [first.wait(), waiting.wait()]
    said = case.ends_well()
    assert [one.result for one in ended] == [said, said]


def test_a_run_whose_neighbour_died_in_its_send_goes_on_by_what_an_operator_and_the_probe_say(
    server: RefundServer, folder: Path
) -> None:
    case = granted(folder, server)
    server.hold()
    other = {lives.RUN_VARIABLE: "other", lives.PROBE_VARIABLE: "yes"}
    with case.start() as first:
        eventually(lambda: server.counts().executed == 1)
        first.send(signal.SIGKILL)
        assert first.wait().exit is Exit.KILLED
    server.release()
    assert case.says(**other) == {"code": "effect_elsewhere"}, "its permit may live, and nobody else may doubt it"
    with open_effects(case.path, trust_path=case.folder / lives.TRUST_FILE) as effects:
        effects.doubt(OPERATOR, effects.inspect(lives.KEY)[-1].action_id, by=DoubtBy.OPERATOR)
    said = case.says(**other)
    assert case.ends_well() == said
