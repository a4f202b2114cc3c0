"""The scenarios of the effect kit: what is done to one action, and how it must end."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson

from agent_run_ledger.errors import LedgerError
from agent_run_ledger.store.ledger_place import LedgerPlace
from agent_run_ledger.testing.effect_case import load_case
from agent_run_ledger.testing.effect_desk import CaseBroken, Desk, NotForThisTool
from agent_run_ledger.testing.effect_faults import OnSending
from agent_run_ledger.testing.effect_path import OnTheWay
from agent_run_ledger.testing.effect_verdicts import Probe, Promise, Ran, Row
from agent_run_ledger.testing.harness import LifeTimeout
from agent_run_ledger.testing.ledger_check import LedgerBroken, check_ledger
from agent_run_ledger.testing.points import KillPoint

SCENE_VARIABLE: Final = "ARL_KIT_SCENE"
SHORT_S: Final = 1.5
"""The patience of a way of ours where the answer is late, in seconds."""

JUMP_MS: Final = 30 * 60_000
FAR_MS: Final = 2 * 3_600_000
"""How far clocks jump: within what a ledger believes, and beyond it."""

DONE: Final = KillPoint(point="dispatch.sent")
"""Where a worker dies that had its answer, so that only a look can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One scenario. `quick`: whether the short form has it. `play` does it, up to where honest people have ended."""

    title: str
    promise: Promise
    play: Callable[[Desk], None]
    quick: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneOrder:
    """Which scenario of which case a process is to play, with which number."""

    case: str
    name: str
    number: int

    def env(self) -> dict[str, str]:
        """Return it as a child process is told."""
        return {SCENE_VARIABLE: orjson.dumps(asdict(self)).decode()}

    @staticmethod
    def read() -> SceneOrder:
        """Return what this process was told."""
        return SceneOrder(**orjson.loads(os.environ[SCENE_VARIABLE]))


def play_scene(order: SceneOrder, folder: Path) -> dict[str, Any]:
    """Play one scenario in a new folder and return `row` as JSON, and what the plain one tells of the case beside."""
    scenario = scenario_of(order.name)
    row = Row(name=order.name, title=scenario.title, promise=scenario.promise, ran=Ran.YES)
    told: dict[str, Any] = {}
    reached: Mapping[str, int] = {}
    happened: list[str] = []
    try:
        with Desk(order.case, load_case(order.case), folder, order.number) as desk:
            happened = desk.happened
            desk.approve()
            told |= {"claimed": str(desk.newest().target_class), "points": list(desk.case.points)}
            scenario.play(desk)
            row, reached = _row(row, desk), desk.reached
    except NotForThisTool as why:
        row = replace(row, ran=Ran.SKIPPED, words=str(why))
    except (CaseBroken, LedgerError, LifeTimeout) as why:
        row = replace(row, ran=Ran.BROKEN, words="; ".join([*happened, str(why)]))
    except Exception as error:
        row = replace(row, ran=Ran.BROKEN, words=f"the case raised {type(error).__name__}: {error}")
    return {**told, "reached": dict(reached), "row": asdict(_checked(row, LedgerPlace.here(folder)))}


def _checked(row: Row, ledger: LedgerPlace) -> Row:
    """Return the row, or that its ledger contradicts itself, however the scenario ended."""
    try:
        if ledger.is_there():
            check_ledger(ledger.named)
    except (LedgerBroken, LedgerError) as why:
        return replace(row, ran=Ran.BROKEN, words=f"the ledger contradicts itself: {why}")
    return row


def _row(row: Row, desk: Desk) -> Row:
    """Return what is seen at the end. The probe is as good as its worst answer."""
    desk.rest()
    worst = max(desk.looks, key=lambda look: tuple(Probe).index(look.worth), default=None)
    return replace(
        row,
        effects=desk.count(),
        seen=None if worst is None else worst.effects,
        state=str(desk.newest().state),
        probe=Probe.NOT_ASKED if worst is None else worst.worth,
        met=desk.met,
        words=", ".join(desk.happened),
    )


# -- what is done ------------------------------------------------------------------------------------------------------


def _plain(desk: Desk) -> None:
    life = desk.work()
    desk.reached = life.points_reached
    said: dict[str, Any] = life.result
    if "code" in said:
        raise CaseBroken(f"the ledger refused the dispatch: {said['error']}")
    if desk.path is not None and desk.path.seen == 0:
        raise CaseBroken("nothing came by the way that the kit gave: the tool must reach its target by place.url")
    desk.go_on()


def _killed(at: KillPoint, desk: Desk) -> None:
    desk.work(kill_at=at)
    desk.go_on()


def _two_workers(desk: Desk) -> None:
    running = [desk.start_worker(meet=2), desk.start_worker(meet=2)]
    for one in running:
        desk.ended(one)
    desk.go_on()


def _same_worker(desk: Desk) -> None:
    """A process that takes the name of one before it, as a restart does where a name is not changed."""
    desk.work(worker="worker")
    desk.work(worker="worker")
    desk.go_on()


def _on_the_way(fault: OnTheWay, otherwise: OnSending | None, desk: Desk) -> None:
    """Let a fault meet the request on its way, or where the kit is not on it, within the worker."""
    if desk.path is not None:
        desk.path.strike(fault)
        desk.work(timeout_s=SHORT_S if fault is OnTheWay.REPLY_LATE else None)
        desk.rest()
        struck = desk.path.struck
    elif otherwise is not None:
        struck = _struck(desk.work(fault=str(otherwise)).result)
        desk.met = otherwise is not OnSending.REPLY_LOST  # the tool had its reply, and what it said was dropped
    else:
        raise NotForThisTool("the kit is not on the way: `start` gave no http://127.0.0.1 URL")
    desk.must_have_struck(struck)
    desk.go_on()


def _request_late(desk: Desk) -> None:
    """Somebody looks while the request is still on its way: the look is true, and worth nothing."""
    path = desk.the_path()
    path.strike(OnTheWay.REQUEST_LATE)
    desk.work(timeout_s=SHORT_S)
    desk.must_have_struck(path.struck)
    desk.doubt()
    desk.refused_without_a_drain(desk.look())
    path.release()
    desk.happened.append("the request arrived")
    desk.go_on()


def _probe_cut(desk: Desk) -> None:
    """People look while nobody answers the probe, and while 503 is all that it hears, before and after it was done."""
    if desk.case.probe is None:
        raise NotForThisTool("the case has no probe")
    with desk.probe_cut_off(None):
        desk.look()
    with desk.probe_cut_off(OnTheWay.ANSWERED_503) as way:
        desk.look()
        desk.met = way.struck > 0
    desk.work(kill_at=DONE)
    for fault in (None, OnTheWay.ANSWERED_503):
        with desk.probe_cut_off(fault):
            desk.go_on()
    desk.go_on()


def _refused(desk: Desk) -> None:
    path = desk.the_path()
    path.refuse()
    desk.work()
    path.accept()
    if desk.count():
        raise CaseBroken("the tool reached its target by another way than place.url")
    desk.go_on()


def _restarted_target(desk: Desk) -> None:
    """What kept the request sends it again, after the target's process is another one."""
    path = desk.the_path()
    desk.work()
    desk.rest()
    desk.restart()
    path.repeat()
    desk.happened.append("the same request came again")
    desk.go_on()


def _clock(jump_ms: int, at: str, desk: Desk) -> None:
    life = desk.work(jump_ms=jump_ms, jump_at=at)
    said: dict[str, Any] = life.result
    if not said["jumped"]:
        raise CaseBroken(f"the worker did not come to {at}, where its clock was to jump")
    desk.go_on()


def _old_copy(desk: Desk) -> None:
    desk.keep_a_copy()
    desk.work()
    desk.put_the_copy_back()
    desk.work()
    desk.go_on()


def _old_copy_and_successor(desk: Desk) -> None:
    """The lost history had gone one generation further: the older one has another idempotency key."""
    desk.keep_a_copy()
    desk.work(kill_at=KillPoint(point="dispatch.handed_out"))
    desk.go_on()
    desk.put_the_copy_back()
    desk.work()
    desk.go_on()


def _struck(said: Mapping[str, Any]) -> int:
    return int(said["struck"])


_P = Promise
_TWICE = partial(_on_the_way, OnTheWay.TWICE, OnSending.TWICE)

SCENARIOS: Final[Mapping[str, Scenario]] = {
    "plain": Scenario(title="nothing goes wrong", promise=_P.PLAIN, play=_plain),
    "two_workers": Scenario(title="two workers at once", promise=_P.PLAIN, play=_two_workers),
    "same_worker": Scenario(title="two openings, one name", promise=_P.PLAIN, play=_same_worker, quick=False),
    "reply_lost": Scenario(
        title="the reply is lost",
        promise=_P.PLAIN,
        play=partial(_on_the_way, OnTheWay.REPLY_CUT, OnSending.REPLY_LOST),
    ),
    "reply_late": Scenario(
        title="the reply is late",
        promise=_P.PLAIN,
        play=partial(_on_the_way, OnTheWay.REPLY_LATE, None),
        quick=False,
    ),
    "answered_502": Scenario(
        title="done, and answered 502",
        promise=_P.PLAIN,
        play=partial(_on_the_way, OnTheWay.ANSWERED_502, None),
    ),
    "answered_503": Scenario(
        title="not done, and answered 503",
        promise=_P.PLAIN,
        play=partial(_on_the_way, OnTheWay.ANSWERED_503, None),
    ),
    "probe_cut": Scenario(title="the probe is cut off", promise=_P.PLAIN, play=_probe_cut),
    "request_late": Scenario(title="the request is late", promise=_P.PLAIN, play=_request_late),
    "refused": Scenario(title="connection refused", promise=_P.PLAIN, play=_refused),
    "clock_forward": Scenario(
        title="clock 30 minutes forward",
        promise=_P.PLAIN,
        play=partial(_clock, JUMP_MS, "dispatch.handed_out"),
    ),
    "clock_far": Scenario(
        title="clock 2 hours forward",
        promise=_P.PLAIN,
        play=partial(_clock, FAR_MS, "dispatch.claimed"),
        quick=False,
    ),
    "clock_back": Scenario(
        title="clock 30 minutes back",
        promise=_P.PLAIN,
        play=partial(_clock, -JUMP_MS, "dispatch.handed_out"),
    ),
    "twice": Scenario(title="delivered twice", promise=_P.REMEMBERS, play=_TWICE),
    "twice_at_once": Scenario(
        title="delivered twice at once",
        promise=_P.REMEMBERS,
        play=partial(_on_the_way, OnTheWay.TWICE_AT_ONCE, None),
    ),
    "restarted_target": Scenario(title="again, target restarted", promise=_P.REMEMBERS, play=_restarted_target),
    "old_copy": Scenario(title="old copy put back", promise=_P.REMEMBERS, play=_old_copy),
    "old_copy_successor": Scenario(
        title="old copy, after a successor", promise=_P.BEYOND, play=_old_copy_and_successor, quick=False
    ),
}
"""Every scenario but the kills, by name, in the order in which they are played."""

KILL: Final = "kill:"
_COMMITS: Final = ("claim", "preparation", "hand-out", "outcome")
_KILL_TITLES: Final[Mapping[str, str]] = {
    "dispatch.claimed": "killed with the claim",
    "dispatch.prepared": "killed when prepared",
    "dispatch.handed_out": "killed with the permit",
    "dispatch.sending": "killed before sending",
    "target.connected": "killed before the first byte",
    "target.written": "killed, request written",
    "target.status": "killed within the answer",
    "dispatch.sent": "killed after the answer",
    "dispatch.recorded": "killed when recorded",
}
_QUICK_KILLS: Final = frozenset({"dispatch.prepared", "dispatch.sending", "target.written", "dispatch.sent"})
_COMMIT_POINTS: Final = ("commit.before", "commit.after")


def scenario_of(name: str) -> Scenario:
    """Return a scenario by its name; a kill is `kill:POINT#NTH`. KeyError for another name."""
    if not name.startswith(KILL):
        return SCENARIOS[name]
    point, _, nth = name.removeprefix(KILL).partition("#")
    at = KillPoint(point=point, nth=int(nth))
    return Scenario(title=_kill_title(at), promise=Promise.PLAIN, play=partial(_killed, at))


def kills(reached: Mapping[str, int], own: tuple[str, ...], *, quick: bool) -> list[str]:
    """Return the names of the kills for a tool that came to these points in a life that nobody killed."""
    if quick:
        last = reached.get(_COMMIT_POINTS[0], 0)
        chosen = [(point, 1) for point in _KILL_TITLES if point in _QUICK_KILLS and reached.get(point)]
        chosen += [("commit.before", last)] if last else []
    else:
        chosen = [(point, 1) for point in _KILL_TITLES if reached.get(point)]
        chosen += [(point, nth) for point in _COMMIT_POINTS for nth in range(1, reached.get(point, 0) + 1)]
    chosen += [(point, 1) for point in own if reached.get(point)]
    return [f"{KILL}{KillPoint(point=point, nth=nth)}" for point, nth in chosen]


def _kill_title(at: KillPoint) -> str:
    if at.point in _COMMIT_POINTS and at.nth <= len(_COMMITS):
        return f"killed {at.point.removeprefix('commit.')} commit: {_COMMITS[at.nth - 1]}"
    return _KILL_TITLES.get(at.point, f"killed at {at}")
