"""Recorded agent runs played through a ledger in processes of their own, some killed: `python -m` prints JSON."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from agent_run_ledger import LoopDetected, LoopDetectorPolicy, RunLedger, Tool
from agent_run_ledger.cli.breaker_corpus import Trajectory, corpus_files, read_trajectories
from agent_run_ledger.kernel.loops import Call, Detector, Level, glimpse_of
from agent_run_ledger.runs.judged import judged_calls
from agent_run_ledger.runs.later import key_of_call
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.testing import check_ledger
from tests.simulation.lives import in_a_child, warm

Runs = Sequence[tuple[str, Trajectory]]
Said = list[tuple[str, str, int]]
"""Level, rule and count, call by call."""

KILLED = 100


class ToolFailed(Exception):
    """A tool answered with an error."""


def expected(run: Trajectory) -> Said:
    """The verdicts on a run that nobody disturbs, until it is stopped; nothing is stored anywhere."""
    detector = Detector(LoopDetectorPolicy())
    said: Said = []
    for number, call in enumerate(run.calls):
        error = None if call.error is None else f"{ToolFailed.__name__}: {call.error}"
        glimpse = glimpse_of(Call(tool=call.tool, arguments=call.arguments, outcome=call.outcome, error=error))
        verdict = detector.observe(number, glimpse)
        said.append((verdict.level.name, "" if verdict.level is Level.OK else verdict.rule, verdict.count))
        if verdict.level is Level.QUARANTINE:
            break
    return said


def play(path: Path, runs: Runs, *, dies_in: int | None = None, inside: bool = True) -> None:
    """Play runs through one ledger, each to its end or until it is stopped.

    `dies_in`: in which call the process kills itself: in its body (`inside`), or when its result is on record.
    """
    place = [0]
    now: list[Call] = []
    tools: dict[str, Any] = {}
    with RunLedger("replay", path, steps=()) as ledger:

        def body(**_: object) -> object:
            if place[0] == dies_in and inside:
                os.kill(os.getpid(), signal.SIGKILL)
            call = now[-1]
            if call.error is not None:
                raise ToolFailed(call.error)
            return call.outcome

        for name, run in runs:
            try:
                with ledger.run(name):
                    for number, call in enumerate(run.calls):
                        place[0] = number
                        now[:] = [call]
                        if call.tool not in tools:
                            tools[call.tool] = Tool(body, name=call.tool, safe=True)
                        _ask(tools[call.tool], call)
                        if number == dies_in and not inside:
                            os.kill(os.getpid(), signal.SIGKILL)
            except LoopDetected:
                continue


def said_on_record(path: Path, names: Sequence[str]) -> dict[str, Said]:
    """The verdicts as the log has them, after `check_ledger`."""
    check_ledger(path)
    store = open_sqlite(path, create=False)
    try:
        reader = store.reader()
        found: dict[str, Said] = {}
        for name in names:
            row = reader.find_run(name)
            assert row is not None
            calls = list(judged_calls(reader, row))
            assert all(call.agrees for call in calls), name
            last = {key_of_call(one.stored.record): one for one in calls}  # an error may have been tried again
            found[name] = [
                (one.verdict.level.name, "" if one.verdict.level is Level.OK else one.verdict.rule, one.verdict.count)
                for one in calls
                if last[key_of_call(one.stored.record)] is one
            ]
        return found
    finally:
        store.close()


def main(corpus: str) -> None:
    """Play every run of the corpus in one process, and KILLED of them again with a kill in each."""
    warm()
    runs = [run for file in corpus_files([Path(corpus)]) for run in read_trajectories(file)]
    named = [(f"run-{number}", run) for number, run in enumerate(runs)]
    wanted = {name: expected(run) for name, run in named}
    chance = random.Random(5)
    with tempfile.TemporaryDirectory(prefix="arl-breaker-") as folder:
        quiet = _differences(Path(folder) / "quiet", named, wanted, lambda path: play(path, named))
        kills, disturbed = 0, []
        for name, run in chance.sample(named, KILLED):
            one, calls = [(name, run)], len(wanted[name])
            inside = calls == 1 or chance.random() < 0.5
            dies_in = chance.randrange(calls if inside else calls - 1)  # after the last one nothing is left to do
            here = Path(folder) / name
            here.mkdir()
            code = in_a_child(here, lambda: play(here / "ledger.db", one, dies_in=dies_in, inside=inside))
            kills += code == -signal.SIGKILL
            disturbed += _differences(here, one, wanted, lambda path: play(path, one))
    answer = {
        "runs": len(named),
        "calls": sum(map(len, wanted.values())),
        "stopped": sum(said[-1][0] == "QUARANTINE" for said in wanted.values() if said),
        "kills": kills,
        "different_quiet": quiet,
        "different_killed": disturbed,
    }
    print(json.dumps(answer))


def _ask(tool: Tool[..., Any], call: Call) -> None:
    with suppress(ToolFailed):
        tool(**call.arguments) if isinstance(call.arguments, dict) else tool(given=call.arguments)


def _differences(folder: Path, runs: Runs, wanted: dict[str, Said], work: Any) -> list[str]:
    """The names of the runs whose verdicts are not the wanted ones, after `work` was done in a process of its own."""
    folder.mkdir(exist_ok=True)
    answer = folder / "said.json"
    names = [name for name, _ in runs]

    def child() -> None:
        work(folder / "ledger.db")
        answer.write_text(json.dumps(said_on_record(folder / "ledger.db", names)))

    if in_a_child(folder, child):
        return [f"{names[0]}: {(folder / 'said.txt').read_text(errors='replace')}"]
    said = json.loads(answer.read_text())
    return [name for name in names if [tuple(one) for one in said[name]] != wanted[name]]


if __name__ == "__main__":
    main(sys.argv[1])
