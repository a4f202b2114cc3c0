"""Plays a story: starts the processes of each life, kills them, looks at what is left, and lets the next life go on."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent_run_ledger.clock import SystemClock
from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.errors import LedgerError
from agent_run_ledger.kernel.states import RunEvent
from agent_run_ledger.ledger.run_ledger import DEFAULT_LIMIT_BYTES
from agent_run_ledger.runs.attempt import Context
from agent_run_ledger.runs.operate import decide
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.store.ledger_place import LEDGER_FILE
from tests.campaign.meter import Event, Line, read_meter
from tests.campaign.processes import ROOT, Group, surroundings
from tests.campaign.reference import ALLOWED_IN, LEADS_TO, Expected, Reference
from tests.campaign.rules import RunLife, complaints
from tests.campaign.seen import NOTHING, Seen, look
from tests.campaign.stories import Act, Life, Story, story_of


class CampaignFailed(AssertionError):
    """Something did not hold; the message has the seed, the life, the folder that is kept, and a command."""


@dataclass(slots=True, kw_only=True)
class Told:
    """What happened in one or many stories, as counts."""

    counts: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    acts: Counter[str] = field(default_factory=Counter)
    looks: Counter[str] = field(default_factory=Counter)

    def add(self, other: Told) -> None:
        """Add another story's counts."""
        for name in ("counts", "kills", "ends", "acts", "looks"):
            getattr(self, name).update(getattr(other, name))


def play(seed: int, *, below: Path | None = None) -> Told:
    """Play the story of this seed in a new folder (`below` another one) and return what happened, or CampaignFailed."""
    folder = Path(tempfile.mkdtemp(prefix=f"arl-campaign-{seed}-", dir=below))
    played = _Played(story_of(seed), folder)
    try:
        for number in range(1, len(played.story.lives) + 1):
            played.live(number)
    except Exception as error:
        raise CampaignFailed(
            f"seed {seed}, life {played.number} of {len(played.story.lives)}, files kept in {folder}\n"
            f"{type(error).__name__}: {error}\n"
            f"again, alone: make campaign CAMPAIGN_ARGS='--seed {seed} --times 10'"
        ) from error
    shutil.rmtree(folder, ignore_errors=True)
    return played.told


class _Played:
    """One story that is being played: what the store holds, what the reference remembers, and what was counted."""

    def __init__(self, story: Story, folder: Path) -> None:
        self.story = story
        self.told = Told()
        self.number = 0
        self._folder = folder
        self._seen: Mapping[str, Seen] = {}
        self._references = {run: Reference(x=x) for run, x in story.inputs.items()}
        self._taken_over: set[str] = set()
        self.told.counts.update(stories=1, runs=len(story.inputs))
        self.told.counts["steps"] = sum(len(program.nodes) for program in story.lives[-1].programs.values())

    def live(self, number: int) -> None:
        """Live one life, check it, and let the operator act."""
        self.number = number
        life = self.story.lives[number - 1]
        group = Group(self._folder, self.story, number)
        try:
            group.start([run for run in self.story.inputs if run in self._seen])
            group.watch()
        finally:
            group.end()
        seen = look(self._folder)
        lines = read_meter(self._folder, life=number)
        lived = {run: self._lived(life, run, seen, lines, group) for run in self.story.inputs}
        expected = {run: one.expect(life.programs[run]) for run, one in self._references.items()}
        self._check(lived, expected, lines, group)
        self._count(lived, expected, lines, group)
        for run, reference in self._references.items():
            after = lived[run].after
            reference.lived(_results(after), _state_of(after), expected[run])
        self._seen = seen
        self._taken_over.clear()
        for act in life.acts:
            self._act(act, life.durability)

    def _check(
        self, lived: Mapping[str, RunLife], expected: Mapping[str, Expected], lines: list[Line], group: Group
    ) -> None:
        said = group.complaints()
        strangers = {line.run for line in lines} - self.story.inputs.keys()
        said += [f"a body of {run} ran" for run in strangers]
        for run, one in lived.items():
            said += [f"{run}: {words}" for words in complaints(one, self._references[run], expected[run])]
            if self.number == len(self.story.lives) and one.after.state not in ("completed", "cancelled"):
                said.append(f"{run} is {one.after.state} in the end")
        if said:
            raise AssertionError("\n".join(said))

    def _lived(self, life: Life, run: str, seen: Mapping[str, Seen], lines: list[Line], group: Group) -> RunLife:
        return RunLife(
            program=life.programs[run],
            before=self._seen.get(run, NOTHING),
            after=seen.get(run, NOTHING),
            lines=[line for line in lines if line.run == run],
            ended=group.ended(run),
            taken_over=run in self._taken_over,
        )

    def _act(self, act: Act, durability: str) -> None:
        """Decide, and check that it is done exactly where the reference allows it, and that nothing else changes."""
        reference = self._references[act.run]
        before = self._seen.get(act.run, NOTHING)
        done = self._by_command(act) if act.by_command else self._by_library(act, durability)
        allowed = reference.state in ALLOWED_IN[act.event].split()
        self._seen = look(self._folder)
        after = self._seen.get(act.run, NOTHING)
        kept = (after.calls, after.marks, after.starts) == (before.calls, before.marks, before.starts)
        if done != allowed or not kept or after.decisions != before.decisions + allowed:
            raise AssertionError(
                f"{act.run} was {before.state}; {act.event} was {'done' if done else 'refused'}; it is {after.state}"
            )
        if allowed:
            reference.state = LEADS_TO[act.event]
            self.told.acts[act.event] += 1
            self._taken_over |= {act.run} if act.event == "takeover" else set()
        else:
            self.told.acts["refused"] += 1
        if _state_of(after) != reference.state:
            raise AssertionError(f"{act.run} is {after.state} after {act.event}, not {reference.state}")

    def _by_command(self, act: Act) -> bool:
        words = ["runs", act.event, "--db", str(self._folder / LEDGER_FILE), "--reason", "campaign", act.run]
        words += ["--yes"] if act.event in ("takeover", "cancel") else []
        done = subprocess.run(
            [sys.executable, "-m", "agent_run_ledger", *words],
            cwd=ROOT,
            env=surroundings(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in (0, 1):
            raise AssertionError(f"arl runs {act.event} ended with {done.returncode}: {done.stderr}")
        return done.returncode == 0

    def _by_library(self, act: Act, durability: str) -> bool:
        try:
            store = open_sqlite(self._folder / LEDGER_FILE, create=False, durability=durability)
        except LedgerError as error:
            if error.code in ("no_store", "foreign_file"):
                return False
            raise
        try:
            context = Context(
                store=store, clock=SystemClock(), entropy=SystemEntropy(), limit_bytes=DEFAULT_LIMIT_BYTES
            )
            decide(context, act.run, RunEvent(act.event), reason="campaign", actor="operator")
        except LedgerError as error:
            if error.code in ("no_run", "bad_transition"):
                return False
            raise
        finally:
            store.close()
        return True

    def _count(
        self, lived: Mapping[str, RunLife], expected: Mapping[str, Expected], lines: list[Line], group: Group
    ) -> None:
        counts = self.told.counts
        counts["lives"] += 1
        group.count(self.told.counts, self.told.kills, self.told.looks)
        counts["bodies"] += sum(line.event is Event.BEGAN for line in lines)
        for run, one in lived.items():
            kinds = Counter(call.kind for call in one.new)
            counts.update(
                recorded=kinds["RESULT"],
                errors=kinds["ERROR"],
                abandoned=kinds["ABANDONED"],
                attempts=len(one.attempts),
                restored=_restored(one, expected[run]),
            )
            self.told.ends.update(ended.end.split()[0] for ended in one.ended if ended.end is not None)


def _results(seen: Seen) -> set[tuple[str, str]]:
    return {(call.name, call.key) for call in seen.calls if call.kind == "RESULT"}


def _state_of(seen: Seen) -> str:
    return "open" if seen.state in ("running", "failed") else seen.state


def _restored(lived: RunLife, expected: Expected) -> int:
    """How many results stood for their bodies, in attempts that demonstrably came past restoring them."""
    at_work = {line.pid for line in lived.lines if line.event is Event.BEGAN}
    at_work |= {one.pid for one in lived.ended if one.end is not None and one.end.startswith("result")}
    return len(expected.restored) * len(at_work & lived.attempts.keys())
