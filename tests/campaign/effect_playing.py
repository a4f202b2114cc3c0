"""Plays a story of effects in real processes that are killed, and judges what is left by the log and by the target."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from agent_run_ledger import probes
from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.effects.states import CLOSED
from agent_run_ledger.store.ledger_place import LEDGER_FILE
from agent_run_ledger.store.sqlite_migrations import EFFECTS_FILE
from agent_run_ledger.store.statements import statements
from agent_run_ledger.testing import WatchedDisk, check_ledger
from agent_run_ledger.testing.integrity import is_store
from agent_run_ledger.testing.tally import Tally
from tests.campaign.effect_roles import TOLD_FILE, Desk, Sent, sent
from tests.campaign.effect_stories import EffectStory, Process, effect_story_of
from tests.campaign.meter import read_lines
from tests.fault.effect_kit import Line, broken, log_of
from tests.simulation.lives import warm

PATIENCE_S = 120


class EffectsFailed(AssertionError):
    """Something did not hold; the message has the seed, the life, the folder that is kept, and a command."""


def play_effects(seed: int, *, below: Path | None = None, breaks: Callable[[], None] | None = None) -> Counter[str]:
    """Play the story of this seed and return what happened as counts, or raise EffectsFailed.

    `breaks` makes the library wrong in each process. This process must not have opened a store.
    """
    story = effect_story_of(seed)
    folder = Path(tempfile.mkdtemp(prefix=f"arl-effects-{seed}-", dir=below))
    told: Counter[str] = Counter(stories=1)
    number = 0
    try:
        for number, life in enumerate(story.lives, 1):
            _live(folder, story, life, breaks, told)
            if any(process.kill for process in life) or number == len(story.lives):
                told += _judged(folder, story, number == len(story.lives))
    except AssertionError as error:
        raise EffectsFailed(
            f"seed {seed}, life {number} of {len(story.lives)}, files kept in {folder}\n{error}\n"
            f"again, alone: .venv/bin/python -m tests.campaign.effects --seed {seed} --times 10"
        ) from error
    shutil.rmtree(folder, ignore_errors=True)
    return told


def warm_effects() -> None:
    """Bring into this process what every other one of a story needs, so that each finds it there."""
    warm()
    statements(EFFECTS_FILE)


def _live(
    folder: Path,
    story: EffectStory,
    life: tuple[Process, ...],
    breaks: Callable[[], None] | None,
    told: Counter[str],
) -> None:
    """Start the processes of a life together, and wait for their ends."""

    def work(process: Process) -> None:
        if breaks is not None:
            breaks()
        tally = Tally(process.kill, lambda _: None)
        probes.install(tally)
        WatchedDisk(tally).install()
        if process.role != "office" and not is_store(folder / LEDGER_FILE):
            return
        try:
            desk = Desk(folder, story, process)
        except Refused as error:
            if error.code != "no_authority":  # the office died before it had given any
                raise
        else:
            desk.work()

    pids = {
        process: _started(folder / f"{process.name}.said", lambda process=process: work(process)) for process in life
    }
    told["lives"] += 1
    told["processes"] += len(life)
    for process, pid in pids.items():
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        killed = code == -signal.SIGKILL and process.kill is not None
        if code and not killed:
            said = (folder / f"{process.name}.said").read_text(errors="replace")
            raise AssertionError(f"{process.role} {process.name} ended with code {code}: {said}")
        if process.kill is not None:
            told[f"kills {process.kill.point}" if killed else "not_reached"] += 1


def _judged(folder: Path, story: EffectStory, is_last: bool) -> Counter[str]:
    """Judge a copy, in a process of its own: the next life finds the files as the last one left them, and is forked
    from a process that never opened a store."""
    answer, copy = folder / "judged.json", folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for file in folder.glob(f"{LEDGER_FILE}*"):
        shutil.copyfile(file, copy / file.name)

    def judge() -> None:
        answer.write_text(json.dumps(_judge(folder, copy / LEDGER_FILE, is_last)))

    code = os.waitstatus_to_exitcode(os.waitpid(_started(folder / "judge.said", judge), 0)[1])
    if code:
        raise AssertionError((folder / "judge.said").read_text(errors="replace"))
    found: dict[str, Any] = json.loads(answer.read_text())
    if found["broken"]:
        raise AssertionError("\n".join(found["broken"]))
    if is_last and found["keys"] != len(story.keys):
        raise AssertionError(f"{found['keys']} of {len(story.keys)} keys were ever proposed")
    return Counter(found["counts"])


def _judge(folder: Path, path: Path, is_last: bool) -> dict[str, Any]:
    if not is_store(path):
        return {"broken": [], "counts": {}, "keys": 0}
    check_ledger(path)
    lines, effects, told = log_of(path), sent(folder), read_lines(folder / TOLD_FILE)
    said = [*broken(lines), *against_the_target(lines, effects), *against_the_told(lines, told)]
    newest = {line.row["action_key"]: line.row for line in sorted(lines, key=_made)}
    if is_last:
        said += [f"{key} is {row['state']} in the end" for key, row in newest.items() if row["state"] not in CLOSED]
    return {"broken": said, "counts": _counts(lines, effects, told) if is_last else {}, "keys": len(newest)}


def _made(line: Line) -> tuple[int, bool]:
    """In the order of the log; of two members of one leaf the one that began in it comes last."""
    return line.leaf, not line.old


def _counts(lines: list[Line], effects: list[Sent], told: list[list[str]]) -> dict[str, int]:
    last = {line.action_id: line.row for line in lines}
    return {
        "transitions": len(lines),
        "actions": len(last),
        "claims": sum(line.kind == "Claim" for line in lines),
        "permits": sum(line.kind == "HandOut" for line in lines),
        "effects": len(effects),
        "doubts": sum(line.kind == "Doubt" for line in lines),
        "refused": sum(what == "refused" for what, *_ in told),
        **Counter(f"end {row['state']}" for row in last.values()),
    }


def against_the_target(lines: list[Line], effects: list[Sent]) -> Iterator[str]:
    """Every effect had a permit on record, no key has two, and what is said not to have happened did not."""
    handed = {
        (line.row["action_key"], line.row["generation"], line.row["claim_id"])
        for line in lines
        if line.kind == "HandOut"
    }
    for one in effects:
        if (one.key, one.generation, one.claim_id) not in handed:
            yield f"{one} was sent without a permit on record (3)"
    for key, count in Counter(one.key for one in effects).items():
        if count > 1:
            yield f"{key} happened {count} times"
    happened = {(one.key, one.generation) for one in effects}
    for row in {line.action_id: line.row for line in lines}.values():
        at = row["action_key"], row["generation"]
        if row["state"] == "not_executed" and at in happened:
            yield f"{at} is not_executed on record, and it happened (9)"
        if row["state"] == "succeeded" and at not in happened:
            yield f"{at} succeeded on record, and nothing happened (8)"


def against_the_told(lines: list[Line], told: list[list[str]]) -> Iterator[str]:
    """What a process was told is on record, and nobody was told of the same grant or permit twice (1, 2, 5)."""
    for what, kind in (("granted", "Claim"), ("permit", "HandOut")):
        recorded = {
            (line.row["action_key"], str(line.row["generation"]), line.row["worker"])
            for line in lines
            if line.kind == kind
        }
        heard = Counter((key, generation, name) for said, key, generation, name in told if said == what)
        for one, count in heard.items():
            if one not in recorded:
                yield f"{one} was told that it is {what}, which is not on record (2)"
            if count > 1:
                yield f"{one} was told {count} times that it is {what} (5)"
        for at, count in Counter((key, generation) for key, generation, _ in heard).items():
            if count > 1:
                yield f"{at} was {what} to {count} processes (1)"


def _started(said: Path, work: Callable[[], None]) -> int:
    """Fork and work; the child's words go to a file, and one that takes too long is ended by its own alarm."""
    pid = os.fork()
    if pid:
        return pid
    code = 3
    try:
        with said.open("w") as words:
            try:
                signal.alarm(PATIENCE_S)
                logging.disable(logging.WARNING)
                work()
                code = 0
            except BaseException:
                traceback.print_exc(file=words)
    finally:
        os._exit(code)
