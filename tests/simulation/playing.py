"""Plays a story of an agent: lives it to its end, holds each life against the reference, and counts."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.simulation.generator import Life, Story, story_of
from tests.simulation.lives import Breaks, LifeFailed, live, look_in_a_child
from tests.simulation.looking import REFUSED, Left
from tests.simulation.memory import Memory
from tests.simulation.model import Complaint, Reference
from tests.simulation.syntax import Program
from tests.simulation.trace import Event, by_path, read_trace

MOST_LIVES = 30


@dataclass(slots=True)
class Told:
    """What happened in one or many stories, as counts."""

    counts: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)

    def add(self, other: Told) -> None:
        """Add another story's counts."""
        self.counts.update(other.counts)
        self.kills.update(other.kills)
        self.ends.update(other.ends)


class StoryFailed(AssertionError):
    """Something did not hold. `number`: the life it was noticed in."""

    def __init__(self, number: int, words: str) -> None:
        super().__init__(f"life {number}: {words}")
        self.number = number


def play(story: Story, *, below: Path | None = None, twin: Breaks | None = None, keep: bool = False) -> Told:
    """Play a story in a new folder and return what happened, or raise StoryFailed."""
    folder = Path(tempfile.mkdtemp(prefix=f"arl-agents-{story.seed}-", dir=below))
    played = _Played(story, folder, twin)
    try:
        played.play()
    except (Complaint, LifeFailed) as error:
        raise StoryFailed(played.number, str(error)) from error
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    return played.told


def play_seed(seed: int, *, below: Path | None = None) -> Told:
    """Play the story of this seed."""
    return play(story_of(seed), below=below)


class _Played:
    def __init__(self, story: Story, folder: Path, twin: Breaks | None) -> None:
        self.told = Told()
        self.number = 0
        self._story = story
        self._folder = folder
        self._twin = twin
        self._memory = Memory()
        self.told.counts["programs"] += 1

    def play(self) -> None:
        """The lives that die, then as many as it takes to the end, and one more.

        The end is reached when nothing runs any more, or when each life fails, or is refused, just as the last one was.
        """
        for life in self._story.lives:
            self._live(life)
        ends: list[tuple[str | None, int]] = []
        while self.number < MOST_LIVES:
            ends.append(self._live(Life()))
            again = len(ends) > 1 and ends[-1] == ends[-2]
            if (again and not ends[-1][1]) or (again and ends[-1][0] != "completed" and len(ends) > 3):
                self.told.ends[str(ends[-1][0])] += 1
                return
        raise Complaint(f"no end in sight: {ends}")

    def _live(self, life: Life) -> tuple[str | None, int]:
        """Live one life and check it. Return how it ended and how many bodies began."""
        self.number += 1
        program = self._story.program
        if life.changed and self._story.changed is not None:
            program = self._story.changed
        killed = live(self._folder, program, self.number, life, twin=self._twin)
        events = read_trace(self._folder)
        left = look_in_a_child(self._folder, complete=any(event.what == "entered" for event in events))
        end = self._follow(program, events, killed=killed)
        said = [*self._memory.compare(left.results, set(left.errors)), *_accounted(events, left)]
        if said:
            raise Complaint("\n".join(said))
        mine = [event for event in events if event.life == self.number]
        bodies = sum(event.what == "began" for event in mine)
        self.told.counts.update(lives=1, bodies=bodies)
        if life.where is not None:
            self.told.kills[life.where] += killed
            self.told.counts["not_reached"] += not killed
        self.told.counts["changed_lives"] += life.changed
        return end, bodies

    def _follow(self, program: Program, events: list[Event], *, killed: bool) -> str | None:
        mine = by_path(events, self.number)
        ends = mine.get("end", [])
        if bool(ends) == killed and not killed:
            raise Complaint("the process ended and did not say how")
        end = ends[0].text if ends else None
        reference = Reference(program, self._memory, mine)
        reference.follow(end)
        self.told.counts.update(restored=reference.restored, diverged=reference.diverged, unknown=reference.unknown)
        if reference.diverged and self._story.changed is None:
            raise Complaint("a program that nobody changed diverged")
        return end


def _accounted(events: list[Event], left: Left) -> list[str]:
    """Each body has a record or a mark, and nothing else has."""
    began = Counter(event.body.partition("(")[0] for event in events if event.what == "began")
    begging = _begging(events)
    raised = {event.text for event in events if event.what == "failed"}
    errors = [text for text in left.errors if not text.startswith(REFUSED)]
    said = [f"an error is on record that no body raised: {text}" for text in errors if text not in raised]
    for name in began:
        if name != "value" and not began[name] <= left.counts[name] <= began[name] + begging[name]:
            said.append(f"{name}: {began[name]} bodies began, {left.counts[name]} records and marks")
    return said


def _begging(events: list[Event]) -> Counter[str]:
    """The calls that died where their start can be on disk and their body has not begun, by the name of the step."""
    found: dict[tuple[int, str], Counter[str]] = {}
    names: dict[tuple[int, str], str] = {}
    for event in events:
        found.setdefault((event.life, event.path), Counter())[event.what] += 1
        if event.what == "call" and event.body:
            names[event.life, event.path] = event.body.partition("(")[0]
    answers = ("returned", "raised", "refused", "closed")
    return Counter(
        name
        for place, name in names.items()
        if found[place]["began"] == found[place]["failed"] and not any(found[place][what] for what in answers)
    )
