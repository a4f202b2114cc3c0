"""Wrong ledgers: each breaks one rule in a life's own process, and has a story in which the simulation must notice."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agent_run_ledger.clock import SystemClock
from agent_run_ledger.kernel import scopes
from agent_run_ledger.runs import dynamic, frames
from agent_run_ledger.runs.commits import Commits
from agent_run_ledger.runs.dynamic import DynamicSession
from agent_run_ledger.runs.frames import Frame
from agent_run_ledger.runs.history import History
from agent_run_ledger.runs.journal import Journal
from agent_run_ledger.runs.recorded import Recorded
from agent_run_ledger.runs.tools import Tool
from agent_run_ledger.store import StoreThread
from agent_run_ledger.testing import KillPoint
from tests.simulation.generator import Life, Story
from tests.simulation.lives import warm
from tests.simulation.playing import StoryFailed, play
from tests.simulation.syntax import Block, Call, Child, Parallel, Program, Raise, StepSpec, Stream, Try, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """`breaks` makes the library wrong where it is called; `noticed`: a word of what the simulation then says."""

    breaks: Callable[[], None]
    story: Story
    noticed: str


def _set(owner: Any, name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(owner, name, value)


def _story(block: Block, *lives: Life, changed: Block | None = None, **settings: Any) -> Story:
    """A story of steps a (pure), f (fails once), u (unsafe), s (a stream of three), n (calls a and f)."""
    steps = (
        StepSpec(name="a"),
        StepSpec(name="f", fails=1),
        StepSpec(name="u", tool="unsafe"),
        StepSpec(name="s", shape="generator", items=3),
        StepSpec(name="n", block=(Call(step="a", args=(5,)), Try(block=(Call(step="f", args=(5,)),)))),
    )
    program = Program(steps=steps, block=block, **settings)
    other = None if changed is None else Program(steps=steps, block=changed, **settings)
    return Story(seed=0, program=program, lives=lives, changed=other)


def _a(number: int) -> Call:
    return Call(step="a", args=(number,))


def _positional() -> None:
    real = dynamic.identify_call

    def wrong(*args: Any, **kwargs: Any) -> Any:
        identity = real(*args, **kwargs)
        identity.fingerprint = b"\0" * 32
        return identity

    dynamic.identify_call = wrong


def _one_scope() -> None:
    def wrong(scope: bytes, group: int, number: int) -> bytes:
        return scope

    scopes.branch_scope = frames.branch_scope = wrong


def _repeatable() -> None:
    real = Tool.__init__

    def wrong(self: Any, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        self.repeatable = True

    Tool.__init__ = wrong  # type: ignore[method-assign]


def _no_values() -> None:
    real = DynamicSession.value

    def wrong(self: Any, frame: Any, name: str, make: Callable[[], Any], **kwargs: Any) -> Any:
        real(self, frame, name, make, **kwargs)
        return make()

    DynamicSession.value = wrong  # type: ignore[method-assign]


_DIES_LATE = Life(line=9)
_DIES_IN_A_BODY = Life(point=KillPoint(point="body.after", nth=1))
_FAILS_THEN = (Try(block=(Call(step="f", args=(1,)),)), _a(1))

TWINS: dict[str, Twin] = {
    "a call is known by its position": Twin(
        breaks=_positional,
        story=_story((_a(0), _a(1)), Life(line=7), Life(changed=True), changed=(_a(1), _a(0))),
        noticed="without a body",
    ),
    "equal calls are not counted": Twin(
        breaks=_set(Frame, "begin", lambda self, equal, *, interchangeable: 0),
        story=_story((_a(0), _a(0))),
        noticed="is in flight and has a result",
    ),
    "branches are one scope": Twin(
        breaks=_one_scope,
        story=_story((Parallel(how="map", branches=((_a(0),),) * 2, limit=1), _a(0)), Life(line=9)),
        noticed="is in flight and has a result",
    ),
    "an error is tried again although it was handled": Twin(
        breaks=_set(History, "handled", lambda *_, **__: False),
        story=_story(_FAILS_THEN, _DIES_LATE),
        noticed="the body of f(1) ran",
    ),
    "an error is raised again although nobody handled it": Twin(
        breaks=_set(History, "handled", lambda *_, **__: True),
        story=_story((_a(1), Call(step="f", args=(1,)))),
        noticed="raised",
    ),
    "an unknown outcome runs again": Twin(
        breaks=_repeatable,
        story=_story((Call(step="u", args=(1,)), _a(1)), _DIES_IN_A_BODY),
        noticed="the body of u(1) ran",
    ),
    "nothing is restored": Twin(
        breaks=_set(Recorded, "look_up", lambda *_, **__: None),
        story=_story((_a(0), _a(1)), Life(line=7)),
        noticed="nothing called for it",
    ),
    "a body leaves no mark": Twin(
        breaks=_set(Journal, "_mark", lambda *_: None),
        story=_story((_a(0), _a(1)), _DIES_IN_A_BODY),
        noticed="bodies began",
    ),
    "a changed program is not told": Twin(
        breaks=_set(DynamicSession, "_because", lambda *_: []),
        story=_story((_a(0), _a(1)), Life(line=7), Life(changed=True), changed=(_a(7), _a(1))),
        noticed="the body of a(7) ran",
    ),
    "every miss is a divergence": Twin(
        breaks=_set(History, "was_begun", lambda *_: False),
        story=_story((Stream(step="s", args=(0,), take=1), Stream(step="s", args=(1,)), _a(1)), Life(line=14)),
        noticed="diverged",
    ),
    "who swallows a refusal goes on": Twin(
        breaks=_set(Commits, "halt", lambda *_: None),
        story=_story(
            (_a(0), _a(1)),
            Life(line=7),
            Life(changed=True),
            changed=(Try(block=(_a(7),), swallow=True), Call(step="u", args=(3,))),
        ),
        noticed="the call was answered",
    ),
    "a value is made anew": Twin(
        breaks=_no_values,
        story=_story((Value(kind="random"), _a(1), _a(2)), Life(line=9)),
        noticed="run.random() had the result",
    ),
    "what a nested run went on from is tried again": Twin(
        breaks=_set(DynamicSession, "went_on_from", lambda *_: False),
        story=_story((Try(block=(Child(block=(Call(step="f", args=(0,)), Raise())),)), _a(1), _a(2)), Life(line=17)),
        noticed="the body of f(0) ran",
    ),
}


def _slow_to_write() -> None:
    """Time stands still, and of what is handed to the store's thread to be done once only the first is done."""
    moment = int(time.time() * 1000)
    SystemClock.now_ms = lambda self: moment  # type: ignore[method-assign]
    posted: list[Callable[[], object]] = []

    def post(self: StoreThread, fn: Callable[[], object]) -> None:
        posted.append(fn)
        if len(posted) == 1:
            fn()

    StoreThread.post = post  # type: ignore[method-assign]


RIGHT: dict[str, Twin] = {
    "of two equal moments one is on record": Twin(
        breaks=_slow_to_write,
        story=_story((Value(kind="now"), Value(kind="now"), _a(1)), Life(line=6), asynchronous=True),
        noticed="",
    ),
}
"""Ledgers that are as slow as they may be, in stories in which the simulation must notice nothing."""


def main() -> int:
    """Print, as JSON, what the simulation says of each story: first with the library as it is, then with its twin."""
    warm()
    said = {
        name: [_played(twin.story, None), _played(twin.story, twin.breaks)] for name, twin in (TWINS | RIGHT).items()
    }
    print(json.dumps(said))
    return 0


def _played(story: Story, breaks: Callable[[], None] | None) -> str:
    try:
        play(story, twin=breaks)
    except StoryFailed as error:
        return str(error)
    return ""


if __name__ == "__main__":
    sys.exit(main())
