"""Makes a story that fails smaller, for as long as it fails: fewer lives, fewer and simpler ops, no event loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.simulation.generator import Story, with_blocks
from tests.simulation.syntax import Block, Call, Loop, Program, StepSpec, Stream, blocks_of, size_of

Fails = Callable[[Story], bool]


def shrunk(story: Story, fails: Fails, *, seconds: float = 60.0) -> Story:
    """Return the smallest story found in that time that still fails."""
    until = time.monotonic() + seconds
    found = True
    while found:
        found = False
        for smaller in _smaller(story):
            if time.monotonic() > until:
                return story
            if fails(smaller):
                story, found = smaller, True
                break
    return story


def _smaller(story: Story) -> Iterator[Story]:
    if story.changed is not None:
        lives = tuple(replace(life, changed=False) for life in story.lives)
        yield replace(story, changed=None, lives=lives)
    for at in range(len(story.lives)):
        yield replace(story, lives=story.lives[:at] + story.lives[at + 1 :])
    for program in _smaller_programs(story.program):
        yield replace(story, program=program)
        yield from _with_earlier_deaths(replace(story, program=program))
    if story.changed is not None:
        for program in _smaller_programs(story.changed):
            yield replace(story, changed=program)


def _with_earlier_deaths(story: Story) -> Iterator[Story]:
    """A smaller program reaches its points less often."""
    for at, life in enumerate(story.lives):
        for less in (1, 2, 3):
            if life.line is not None and life.line > less:
                earlier = replace(life, line=life.line - less)
            elif life.point is not None and life.point.nth > less:
                earlier = replace(life, point=replace(life.point, nth=life.point.nth - less))
            else:
                continue
            yield replace(story, lives=(*story.lives[:at], earlier, *story.lives[at + 1 :]))


def _smaller_programs(program: Program) -> Iterator[Program]:
    for block in _smaller_blocks(program.block):
        yield replace(program, block=block)
    used = _used(program.block, program)
    if len(used) < len(program.steps):
        yield replace(program, steps=tuple(step for step in program.steps if step.name in used))
    for at, step in enumerate(program.steps):
        for simpler in _simpler_steps(step):
            yield replace(program, steps=(*program.steps[:at], simpler, *program.steps[at + 1 :]))
    if program.asynchronous:
        shapes = {"async": "sync", "async_generator": "generator"}
        steps = tuple(replace(step, shape=shapes.get(step.shape, step.shape)) for step in program.steps)
        yield replace(program, asynchronous=False, steps=steps)


def _simpler_steps(step: StepSpec) -> Iterator[StepSpec]:
    for block in _smaller_blocks(step.block):
        yield replace(step, block=block)
    for field, plain in (("fails", 0), ("retries", 0), ("keyed", False), ("form", "text"), ("tool", "")):
        if getattr(step, field) != plain:
            yield replace(step, **{field: plain})
    if step.items > 1:
        yield replace(step, items=step.items - 1)


def _smaller_blocks(block: Block) -> Iterator[Block]:
    """Without an op, with an op's own ops in its place, or with a smaller op."""
    for at, op in enumerate(block):
        before, after = block[:at], block[at + 1 :]
        yield before + after
        inner = blocks_of(op)
        for own in inner:
            yield before + own + after
        if isinstance(op, Loop) and op.times > 1:
            yield (*before, replace(op, times=op.times - 1), *after)
        if isinstance(op, Call | Stream) and any(arg != 0 for arg in op.args):
            yield (*before, replace(op, args=(0,) * len(op.args)), *after)
        for number, own in enumerate(inner):
            for smaller in _smaller_blocks(own):
                blocks = [*inner[:number], smaller, *inner[number + 1 :]]
                yield (*before, with_blocks(op, blocks), *after)


def _used(block: Block, program: Program) -> set[str]:
    found: set[str] = set()
    for op in block:
        if isinstance(op, Call | Stream):
            found |= {op.step} | _used(program.spec(op.step).block, program)
        for inner in blocks_of(op):
            found |= _used(inner, program)
    return found


def weight(story: Story) -> int:
    """How large a story is."""
    return size_of(story.program.block) + len(story.lives)
