"""The processes of the effect kit: a worker that dispatches one action, and one that plays a whole scenario."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from agent_run_ledger.errors import LedgerError
from agent_run_ledger.kernel.effects.commands import Actor
from agent_run_ledger.kernel.effects.report import Answered, Lost, NotSent
from agent_run_ledger.kernel.effects.states import Role
from agent_run_ledger.ledger.effect_ledger import EffectLedger
from agent_run_ledger.store.ledger_place import LedgerPlace
from agent_run_ledger.testing.effect_case import Place, load_case
from agent_run_ledger.testing.effect_faults import FaultyTarget, JumpingTime, OnSending, impatient

ORDER_VARIABLE: Final = "ARL_KIT_ORDER"
TARGET_FOLDER: Final = "target"
MEETING_FOLDER: Final = "meeting"
MEETING_S: Final = 20.0
EXECUTOR: Final = Actor("kit-executor", frozenset({Role.EXECUTOR}))


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeOrder:
    """What one worker is to do: dispatch the newest action of a key, under a name of its own, with this fault.

    `jump_ms`, `jump_at`: by how much its clock is set, and at which point. `timeout_s`: its patience. `meet`: how many
    workers wait for each other when they have opened the ledger.
    """

    case: str
    key: str
    url: str
    worker: str
    fault: str = OnSending.NOTHING
    jump_ms: int = 0
    jump_at: str = ""
    timeout_s: float | None = None
    meet: int = 0

    def env(self) -> dict[str, str]:
        """Return it as a child process is told."""
        return {ORDER_VARIABLE: orjson.dumps(asdict(self)).decode()}

    @staticmethod
    def read() -> LifeOrder:
        """Return what this process was told."""
        return LifeOrder(**orjson.loads(os.environ[ORDER_VARIABLE]))


def dispatch(workdir: Path) -> dict[str, Any]:
    """Dispatch as ordered; return `state` and `report`, or the refusal's `code`, and how often the fault `struck`."""
    _not_alone()
    order = LifeOrder.read()
    place = Place(folder=workdir / TARGET_FOLDER, url=order.url)
    target = FaultyTarget(impatient(load_case(order.case).target(place), order.timeout_s), OnSending(order.fault))
    clock = JumpingTime(order.jump_ms, order.jump_at)
    clock.install()
    said: dict[str, Any]
    with EffectLedger(LedgerPlace.here(workdir).named, time=clock) as ledger:
        action = ledger.inspect(order.key)[-1]
        _meet(workdir / MEETING_FOLDER, order)
        try:
            done = ledger.dispatcher(target, EXECUTOR, worker=order.worker).dispatch(action.action_id)
            said = {"state": str(done.view.state), "report": report_words(done.report)}
        except LedgerError as error:
            said = {"code": error.code, "error": f"{type(error).__name__}: {error}"}
    return {**said, "struck": target.struck, "jumped": clock.jumped}


def _meet(place: Path, order: LifeOrder) -> None:
    """Wait until as many workers are here as are to meet, or MEETING_S seconds."""
    if order.meet:
        place.mkdir(exist_ok=True)
        (place / order.worker).touch()
        until = time.monotonic() + MEETING_S
        while len(list(place.iterdir())) < order.meet and time.monotonic() < until:
            time.sleep(0.002)


def _not_alone() -> None:
    """Die with the process that started this one: a tool that hangs would stay for ever where the kit is killed."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def report_words(report: object) -> str:
    """Return what a target said, in a few words."""
    match report:
        case Answered(status=None):
            return "returned"
        case Answered(status=status):
            return f"answered {status}"
        case Lost(reason=reason, raised=raised):
            return f"lost: {raised or reason}"
        case NotSent(reason=reason):
            return f"not sent: {reason}"
        case _:
            return "receipt"


def play(workdir: Path) -> dict[str, Any]:
    """Play the scenario that stands in the environment, and return its row as JSON."""
    from agent_run_ledger.testing.effect_scenarios import SceneOrder, play_scene

    return play_scene(SceneOrder.read(), workdir)
