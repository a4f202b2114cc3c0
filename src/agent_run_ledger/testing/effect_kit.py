"""The crash test kit for tools with effects: does everything to one that can be done, and says what it is good for."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from agent_run_ledger.errors import Misuse
from agent_run_ledger.kernel.effects.evidence import Found
from agent_run_ledger.kernel.effects.report import Report
from agent_run_ledger.kernel.effects.request import Call, Request
from agent_run_ledger.store.ledger_place import ledger_place
from agent_run_ledger.testing.effect_case import EffectCase, Place, Start, reference_of
from agent_run_ledger.testing.effect_scenarios import SCENARIOS, SCENE_VARIABLE, SceneOrder, kills, scenario_of
from agent_run_ledger.testing.effect_verdicts import (
    Guarantee,
    GuaranteeBroken,
    KitReport,
    Probe,
    Promise,
    Ran,
    Row,
    row_from,
)
from agent_run_ledger.testing.harness import Exit, Life, LifeTimeout, run_scenario

__all__ = [
    "SCENARIOS",
    "Call",
    "EffectCase",
    "Found",
    "Guarantee",
    "GuaranteeBroken",
    "KitReport",
    "Place",
    "Probe",
    "Promise",
    "Ran",
    "Report",
    "Request",
    "Row",
    "Start",
    "assert_guarantee",
    "run_kit",
]

SCENE_LIFE: Final = "agent_run_ledger.testing.effect_life:play"
SCENE_LIMIT_S: Final = 240.0
PLAIN: Final = "plain"

Tell = Callable[[int, int], None]


def run_kit(
    case: EffectCase | str,
    *,
    quick: bool = False,
    only: Iterable[str] = (),
    folder: str | Path | None = None,
    tell: Tell | None = None,
    server: str | None = None,
) -> KitReport:
    """Play every scenario with a tool, each in a folder and with processes of its own, and return what was seen.

    `case`: an EffectCase at the top of a module, or "module:CASE" or "file.py:CASE". `quick`: the short form. `only`:
    names of scenarios, beside the plain one, which is always played first. `folder`: a new one, to keep everything in;
    a temporary one by default, which is removed. `tell` is told (scenarios done, scenarios). No scenario of an earlier
    kit has the same number.

    `server`: the URL of a database at a server whose user may make databases: the ledger of each scenario is then one
    of its own there, which is dropped at the end; by default it is a file. What the target does is no concern of it.

    Misuse: kit_in_kit, where the module of the case runs the kit when it is imported; output_exists, for a folder that
    is there; bad_case, for a case that does not work even where nothing goes wrong (it must happen once and be on
    record as done); bad_scenario, for an unknown name;
    class_not_judged, for a target that says it checks permits or fences: the kit cannot ask a receiver.
    """
    if SCENE_VARIABLE in os.environ:
        raise Misuse(
            "a process of the kit runs the kit",
            code="kit_in_kit",
            hint='every process imports the case\'s module: run the kit there under `if __name__ == "__main__":`',
        )
    reference = reference_of(case)
    wanted = tuple(dict.fromkeys(only))
    for name in wanted:
        _known(name)
    where = Path(tempfile.mkdtemp(prefix="arl-kit-")) if folder is None else _new(Path(folder))
    try:
        kit = _Kit(reference, where, tell or (lambda done, total: None), server)
        report = kit.run(quick=quick, only=wanted)
        return replace(report, case=case) if isinstance(case, str) else report
    finally:
        if folder is None:
            shutil.rmtree(where, ignore_errors=True)


def assert_guarantee(
    case: EffectCase | str, guarantee: Guarantee, *, quick: bool = False, server: str | None = None
) -> KitReport:
    """Raise GuaranteeBroken, with every scenario, unless at least this is shown and the report is without a fault.

    Errors of the case, and `server`, as in `run_kit`.
    """
    report = run_kit(case, quick=quick, server=server)
    if report.shown.rank < guarantee.rank or not report.ok:
        raise GuaranteeBroken(f"{report.case}, wanted {guarantee.words}:\n{report.table()}")
    return report


class _Kit:
    """One run of the kit. Numbers of scenarios begin with the time, so that no two runs share one."""

    def __init__(self, reference: str, where: Path, tell: Tell, server: str | None) -> None:
        self._server = server
        self._reference = reference
        self._where = where
        self._tell = tell
        self._number = time.time_ns() // 1_000_000 * 1_000

    def run(self, *, quick: bool, only: tuple[str, ...]) -> KitReport:
        plain, life = self._play(PLAIN)
        told = _told(life)
        if plain.ran is not Ran.YES:
            raise Misuse(
                f"{self._reference} does not work even where nothing goes wrong: {plain.words}", code="bad_case"
            )
        if not plain.works:
            raise Misuse(
                f"{self._reference} does not work even where nothing goes wrong: it happened {plain.times} and is "
                f"{plain.state} on record ({plain.words})",
                code="bad_case",
                hint="the tool must do it once: is the service up, the credential right, does `count` look there?",
            )
        reached = cast("Mapping[str, int]", told["reached"])
        names = only or (
            *(name for name, one in SCENARIOS.items() if one.quick or not quick),
            *kills(reached, tuple(told["points"]), quick=quick),
        )
        rows = [plain]
        for name in names:
            if name != PLAIN:
                self._tell(len(rows), len({PLAIN, *names}))
                rows.append(self._play(name)[0])
        self._tell(len(rows), len(rows))
        return KitReport(case=self._reference, claimed=_claimed(told["claimed"]), rows=tuple(rows), partial=bool(only))

    def _play(self, name: str) -> tuple[Row, Life | None]:
        """Play one scenario. Where its process dies or hangs, that is what was seen."""
        self._number += 1
        folder = self._where / name.replace(":", "-").replace("#", "-")
        folder.mkdir(parents=True)
        order = SceneOrder(case=self._reference, name=name, number=self._number)
        scenario = scenario_of(name)
        row = Row(name=name, title=scenario.title, promise=scenario.promise, ran=Ran.BROKEN)
        try:
            with ledger_place(folder, self._server) as place:
                life = run_scenario(SCENE_LIFE, folder, env={**place.env(), **order.env()}, timeout_s=SCENE_LIMIT_S)
        except LifeTimeout as error:
            return replace(row, words=str(error)), None
        if life.exit is not Exit.OK:
            return replace(row, words=f"the scenario ended badly: {life.error or life.describe()}"), life
        return row_from(_told(life)["row"]), life


def _told(life: Life | None) -> dict[str, Any]:
    return {} if life is None else cast("dict[str, Any]", life.result or {})


def _new(folder: Path) -> Path:
    """Make a folder that nobody else may look into."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        raise Misuse(f"{folder} exists", code="output_exists", hint="name a folder that is not there yet") from None
    return folder


def _known(name: str) -> None:
    try:
        scenario_of(name)
    except (KeyError, ValueError):
        raise Misuse(
            f"there is no scenario {name!r}: {', '.join(SCENARIOS)}, kill:POINT#N", code="bad_scenario"
        ) from None


def _claimed(letter: str) -> Guarantee:
    try:
        return Guarantee(letter)
    except ValueError:
        raise Misuse(
            f"this target says that it is of class {letter}, which only the answers of a receiver can show",
            code="class_not_judged",
            hint="the kit judges plain targets (N) and those that remember a key (I)",
        ) from None
