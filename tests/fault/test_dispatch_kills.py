"""Dispatches that are killed at every point: nothing is sent twice, and what may have been sent stays a doubt."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent_run_ledger import Refused
from agent_run_ledger.effects import ActionState, ActionView, DoubtBy, Found, Intent, Observation, TargetClass
from agent_run_ledger.kernel.effects.display import display_sha256
from agent_run_ledger.kernel.effects.request import Request, request_bytes
from agent_run_ledger.ledger.effect_ledger import EffectLedger
from agent_run_ledger.store.ledger_place import LEDGER_FILE
from agent_run_ledger.targets import http
from agent_run_ledger.testing import check_ledger
from agent_run_ledger.testing.harness import Exit, Life, run_scenario, start_scenario
from agent_run_ledger.testing.points import KillPoint
from tests.contract.target_servers import answer, serving
from tests.fault import dispatch_lives
from tests.fault.dispatch_lives import HEADER_VARIABLE, KEY, URL_VARIABLE, WORKER_VARIABLE
from tests.fault.effect_kit import APPROVER, EXECUTOR, OPERATOR, RECONCILER, REQUESTER, new_store, number, signed

pytestmark = pytest.mark.fault

A = ActionState
LIFE = f"{dispatch_lives.__file__}:dispatch"
STORED = request_bytes(Request.json("POST", "/refunds", {"cents": 3000}))
ROOT = Path(__file__).resolve().parent.parent.parent


def approved(folder: Path, audience: str, target_class: TargetClass = TargetClass.N) -> Path:
    """A ledger with one action that may be dispatched."""
    path, now_ms = new_store(folder / LEDGER_FILE), time.time_ns() // 1_000_000
    intent = Intent(
        request=STORED,
        executor="exe",
        audience=audience,
        target_class=target_class,
        not_before_ms=now_ms - 60_000,
        dispatch_before_ms=now_ms + 3_600_000,
        policy_sha256=bytes(32),
        display_sha256=display_sha256(STORED),
    )
    with EffectLedger(path) as ledger:
        view = ledger.propose(REQUESTER, KEY, intent)
        ledger.approve(APPROVER, view.action_id, signed(ledger, view.action_id))
    return path


def path_to_tests() -> dict[str, str]:
    """What lets a child import the tests, beside what this process was told."""
    told = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": f"{told}{os.pathsep}{ROOT}" if told else str(ROOT)}


def live(folder: Path, url: str, kill_at: KillPoint | None = None, header: str = "") -> Life:
    env = {**path_to_tests(), URL_VARIABLE: url, HEADER_VARIABLE: header}
    return run_scenario(LIFE, folder, kill_at=kill_at, env=env)


def refused(path: Path, url: str, header: str = "") -> bool:
    """Whether another worker, in an opening of its own, is refused to dispatch it."""
    with EffectLedger(path) as ledger:
        (view,) = ledger.inspect(KEY)
        way = ledger.dispatcher(http(url, header or None), EXECUTOR, worker="life 2")
        try:
            way.dispatch(view.action_id)
        except Refused:
            return True
        return False


def look(path: Path) -> ActionView:
    check_ledger(path)
    with EffectLedger(path) as ledger:
        (view,) = ledger.inspect(KEY)
        return view


def reconciled(path: Path) -> ActionView:
    """What people make of it who saw the effect at the target."""
    with EffectLedger(path) as ledger:
        (view,) = ledger.inspect(KEY)
        if view.state is not A.UNRESOLVED:
            ledger.doubt(OPERATOR, view.action_id, by=DoubtBy.OPERATOR)
        seen = Observation(
            evidence_id=number(), action_key=KEY, epoch=0, observer="rec", found=Found.EXECUTED, after=None
        )
        return ledger.reconcile_success(RECONCILER, view.action_id, seen)


POINTS: dict[str, tuple[ActionState, bool, int]] = {
    "dispatch.claimed": (A.CLAIMED, False, 0),
    "dispatch.prepared": (A.PREPARED, False, 0),
    "dispatch.handed_out": (A.PREPARED, True, 0),
    "dispatch.sending": (A.PREPARED, True, 0),
    "target.connected": (A.PREPARED, True, 0),
    "target.written": (A.PREPARED, True, 1),
    "target.status": (A.PREPARED, True, 1),
    "dispatch.sent": (A.PREPARED, True, 1),
    "dispatch.recorded": (A.SUCCEEDED, True, 1),
}
"""At which point a kill leaves which state, whether the permit is out, and how many requests came."""


@pytest.mark.parametrize(
    ("point", "target_class"),
    [
        *[(point, TargetClass.N) for point in POINTS],
        *[(point, TargetClass.I) for point in ("dispatch.handed_out", "target.written")],
    ],
)
def test_killed_at_a_point_it_is_never_sent_again(point: str, target_class: TargetClass, tmp_path: Path) -> None:
    state, handed_out, requests = POINTS[point]
    header = "idempotency-key" if target_class is TargetClass.I else ""
    with serving(answer(201)) as server:
        path = approved(tmp_path, server.url, target_class)
        assert live(tmp_path, server.url, KillPoint(point=point), header).exit is Exit.KILLED
        after = look(path)
        assert (after.state, after.handed_out) == (state, handed_out)
        assert refused(path, server.url, header)
        assert look(path) == after
    assert len(server.requests) == requests
    if requests and state is not A.SUCCEEDED:
        assert reconciled(path).state is A.SUCCEEDED
        check_ledger(path)


COMMITS = [
    *[("commit.before", nth) for nth in range(1, 5)],
    *[("commit.after", nth) for nth in range(1, 5)],
]
"""Before and after each of the four transactions of a dispatch."""


@pytest.mark.parametrize(("point", "nth"), COMMITS)
def test_killed_within_a_transaction_it_is_sent_at_most_once(point: str, nth: int, tmp_path: Path) -> None:
    with serving(answer(201)) as server:
        path = approved(tmp_path, server.url)
        assert live(tmp_path, server.url, KillPoint(point=point, nth=nth)).exit is Exit.KILLED
        after = look(path)
        assert refused(path, server.url) is (after.state is not A.AVAILABLE)
    came = len(server.requests)
    assert came <= 1
    if after.state is A.SUCCEEDED:
        assert came == 1
    if came == 0:
        assert after.state in (A.CLAIMED, A.PREPARED)
    assert look(path).state is (A.SUCCEEDED if after.state is A.AVAILABLE else after.state)


def test_a_life_that_nobody_kills_comes_to_every_point(tmp_path: Path) -> None:
    with serving(answer(201)) as server:
        path = approved(tmp_path, server.url)
        reached = live(tmp_path, server.url).points_reached
    assert look(path).state is A.SUCCEEDED
    assert {point: reached.get(point) for point in POINTS} == dict.fromkeys(POINTS, 1)
    assert reached["effect.after"] == 4


def test_processes_that_dispatch_one_action_send_one_request(tmp_path: Path) -> None:
    with serving(answer(201)) as server:
        path = approved(tmp_path, server.url)
        lives = [
            start_scenario(
                LIFE, tmp_path, env={**path_to_tests(), URL_VARIABLE: server.url, WORKER_VARIABLE: f"process {number}"}
            )
            for number in range(4)
        ]
        ended = [one.wait() for one in lives]
        assert sorted(str(one.exit) for one in ended) == ["error", "error", "error", "ok"], [one.error for one in ended]
    assert len(server.requests) == 1
    assert look(path).state is A.SUCCEEDED


def test_a_server_that_dies_after_the_effect_leaves_a_doubt_that_a_look_ends(tmp_path: Path) -> None:
    effects = tmp_path / "effects.log"
    with subprocess.Popen(
        [sys.executable, dispatch_lives.__file__, str(effects)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **path_to_tests()},
    ) as server:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        path = approved(tmp_path, url)
        first = live(tmp_path, url)
        assert (first.exit, first.result) == (Exit.OK, "unresolved")
        assert server.wait(timeout=30) == -9
    assert refused(path, url)
    assert effects.read_text() == "POST /refunds HTTP/1.1\n"
    assert reconciled(path).state is A.SUCCEEDED
    check_ledger(path)
