"""Random agent programs, how each of their lives dies, and how a program is changed on purpose."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from agent_run_ledger.testing import ALL, KillPoint, Point
from tests.simulation.syntax import (
    Block,
    Call,
    Child,
    If,
    Loop,
    Op,
    Parallel,
    Program,
    Raise,
    StepSpec,
    Stream,
    Try,
    Value,
    blocks_of,
    size_of,
)

MOST_DEEP = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One life: `changed` says that its program is the changed one; it dies at a point, at a line, or not at all."""

    changed: bool = False
    point: KillPoint | None = None
    line: int | None = None

    @property
    def where(self) -> str | None:
        """The name its death is counted under."""
        return "line" if self.line is not None else None if self.point is None else self.point.point


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A program, perhaps a changed one, and the lives before those that nobody kills."""

    seed: int
    program: Program
    lives: tuple[Life, ...]
    changed: Program | None = None


def story_of(seed: int) -> Story:
    """The story of this seed, the same on every machine."""
    rng = random.Random(f"agents {seed}")
    program = _Generator(rng).program()
    changed = _changed(rng, program) if rng.random() < 0.35 else None
    count = rng.choice((1, 1, 2, 2, 3, 4))
    at = rng.randrange(1, count + 1)
    size = 2 + round(1.5 * size_of(program.block) + sum(size_of(step.block) for step in program.steps))
    lives = [_life(rng, max(2, size - 2 * number)) for number in range(count)]
    if changed is not None:
        again = _life(rng, size) if rng.random() < 0.4 else Life()
        lives.insert(at, replace(again, changed=True))
    return Story(seed=seed, program=program, lives=tuple(lives), changed=changed)


def _life(rng: random.Random, size: int) -> Life:
    """Half die at a line of the trace, half at a point of the library; early deaths are more frequent."""
    if rng.random() < 0.45:
        return Life(line=1 + int(3 * size * rng.random() ** 2))
    often = {Point.WAL_WRITE: 8 * size, Point.FILE_WRITE: 20, Point.FILE_SYNC: 3}
    point = rng.choice([point for point in ALL if not point.startswith("file.")] * 4 + list(ALL))
    return Life(point=KillPoint(point=point, nth=1 + int(often.get(Point(point), 0.7 * size) * rng.random() ** 2)))


class _Generator:
    """Makes one program. What it makes keeps the contract: equal calls are never open at once in one scope."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._steps: list[StepSpec] = []
        self._left = rng.choice((6, 10, 16, 24))
        self._children = 0
        self._asynchronous = False

    def program(self) -> Program:
        """A whole program."""
        rng = self._rng
        asynchronous = self._asynchronous = rng.random() < 0.4
        for name in "abcdefg"[: rng.randint(3, 7)]:
            self._steps.append(self._step(name, asynchronous=asynchronous))
        block = self._block(0, [], on_loop=asynchronous, most=6)
        while size_of(block) < 3:
            block += self._block(0, [], on_loop=asynchronous, most=3)
        on_change = "rerun" if rng.random() < 0.15 else "refuse"
        return Program(steps=tuple(self._steps), block=block, asynchronous=asynchronous, on_change=on_change)

    def _step(self, name: str, *, asynchronous: bool) -> StepSpec:
        rng = self._rng
        kind = rng.choice(("pure", "pure", "safe", "unsafe", "stream", "nested", "nested"))
        on_loop = asynchronous and rng.random() < 0.7
        step = StepSpec(
            name=name,
            takes=rng.choice((0, 1, 1, 2)),
            shape="async" if on_loop else "sync",
            fails=rng.choice((0, 0, 0, 0, 1, 1, 2)),
            form=rng.choice(("text", "dict", "tuple", "bytes")),
        )
        if kind == "stream":
            return replace(step, shape="async_generator" if on_loop else "generator", items=rng.randint(1, 4))
        if kind in ("safe", "unsafe"):
            step = replace(step, tool=kind)
        if kind != "unsafe":
            step = replace(step, retries=rng.choice((0, 0, 0, 1, 2)), keyed=step.takes > 0 and rng.random() < 0.2)
        if kind == "nested" and self._steps:
            self._left += 3
            names = [f"p{number}" for number in range(step.takes)]
            step = replace(step, block=self._block(2, names, on_loop=on_loop, most=3, in_body=True))
        return step

    def _block(
        self, deep: int, known: list[str], *, on_loop: bool, most: int, in_body: bool = False, calm: bool = False
    ) -> Block:
        """`calm`: within a loop or a branch that may be repeated, where no run has an id of its own."""
        rng = self._rng
        known = list(known)
        ops: list[Op] = []
        for _ in range(rng.randint(1, most)):
            if self._left <= 0 and ops:
                break
            self._left -= 1
            ops.append(self._op(deep, known, on_loop=on_loop, in_body=in_body, calm=calm))
            to = getattr(ops[-1], "to", None)
            if to is not None:
                known.append(to)
        return tuple(ops)

    def _op(self, deep: int, known: list[str], *, on_loop: bool, in_body: bool, calm: bool) -> Op:
        rng = self._rng
        kinds = ["call"] * 9 + ["value"] * 2 + ["raise"] * (deep > 0 and rng.random() < 0.3)
        if deep < MOST_DEEP:
            kinds += ["try"] * 4 + ["if"] * (2 if known else 0) + ["loop"] * 2 + ["parallel"] * 3
            kinds += ["child"] * 2
        kind = rng.choice(kinds)

        def block(most: int, *, loop: bool = on_loop, calm: bool = calm) -> Block:
            return self._block(deep + 1, known, on_loop=loop, most=most, in_body=in_body, calm=calm)

        if kind == "value":
            return Value(kind=rng.choice(("now", "random", "uuid4", "value")), to=self._name())
        if kind == "raise":
            return Raise()
        if kind == "try":
            return Try(block=block(3), handler=block(2) if rng.random() < 0.6 else (), swallow=rng.random() < 0.1)
        if kind == "if":
            return If(on=rng.choice(known), then=block(2), other=block(2) if rng.random() < 0.6 else ())
        if kind == "loop":
            return Loop(times=rng.randint(2, 3), block=block(2, calm=True))
        if kind == "parallel":
            return self._parallel(block, threads_only=self._asynchronous and not on_loop)
        if kind == "child":
            self._children += 1
            run_id = f"child{self._children}"
            own = not calm and not in_body and rng.random() < 0.3
            return Child(block=block(3), inputs=rng.randint(0, 1), run_id=run_id if own else None)
        return self._call(known, on_loop=on_loop)

    def _parallel(self, make: Callable[..., Block], *, threads_only: bool) -> Op:
        """Off the loop of a run that is on one, there are only threads of the program's own."""
        rng = self._rng
        how = "wrap" if threads_only else rng.choice(("gather", "gather", "map", "wrap"))
        if how == "wrap":
            return Parallel(how="wrap", branches=tuple(make(2, loop=False, calm=True) for _ in range(2)))
        count = rng.randint(2, 4)
        if how == "map":
            one = make(2, calm=True)
            return Parallel(how="map", branches=(one,) * count, limit=rng.choice((None, None, 1, 2)))
        return Parallel(how="gather", branches=tuple(make(2, calm=True) for _ in range(count)))

    def _call(self, known: list[str], *, on_loop: bool) -> Op:
        rng = self._rng
        steps = [step for step in self._steps if on_loop or not step.on_loop]
        if not steps:
            return Value(kind="random", to=self._name())
        step = rng.choice(steps)
        args = tuple(
            rng.choice(known) if known and rng.random() < 0.3 else rng.randint(0, 1) for _ in range(step.takes)
        )
        if step.items:
            take = rng.randint(1, step.items) if rng.random() < 0.4 else None
            return Stream(step=step.name, args=args, take=take, to=self._name())
        return Call(step=step.name, args=args, to=self._name())

    def _name(self) -> str:
        return self._rng.choice("uvwxyz")


def _changed(rng: random.Random, program: Program) -> Program:
    """The program with one op at the top changed: other arguments, left out, added, or put elsewhere."""
    block = list(program.block)
    at = rng.randrange(len(block))
    kind = rng.choice(("other", "other", "other", "out", "added", "moved"))
    if kind == "other":
        return replace(program, block=tuple(_with_other_arguments(rng, op) for op in block))
    if kind == "out" and len(block) > 1:
        del block[at]
    elif kind == "moved":
        rng.shuffle(block)
    else:
        calls = [op for op in block if isinstance(op, Call)]
        block.insert(at, rng.choice(calls) if calls else Raise())
    return replace(program, block=tuple(block))


def _with_other_arguments(rng: random.Random, op: Op) -> Op:
    if isinstance(op, Call | Stream) and op.args and rng.random() < 0.5:
        return replace(op, args=tuple(7 if isinstance(arg, int) else arg for arg in op.args))
    return with_blocks(op, [tuple(_with_other_arguments(rng, inner) for inner in block) for block in blocks_of(op)])


def with_blocks(op: Op, blocks: list[Block]) -> Op:
    """The op with other blocks in it, in the order of `blocks_of`."""
    match op:
        case Parallel():
            return replace(op, branches=tuple(blocks))
        case Child() | Loop():
            return replace(op, block=blocks[0])
        case If():
            return replace(op, then=blocks[0], other=blocks[1])
        case Try():
            return replace(op, block=blocks[0], handler=blocks[1])
        case _:
            return op
