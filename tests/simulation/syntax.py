"""Agent programs as plain values: steps, tools and what an agent does with them, and the text of a program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

Block = tuple["Op", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpec:
    """A step or tool. `tool`: "", "safe" or "unsafe". `shape`: sync, async, generator or async_generator.

    `takes`: how many arguments. `keyed`: the first one is its key. `fails`: how often a body with the same arguments
    raises, counted over all lives. `form` shapes its results, `items` is how many a stream has. `block`: what its body
    does with steps of its own.
    """

    name: str
    tool: str = ""
    shape: str = "sync"
    takes: int = 1
    keyed: bool = False
    fails: int = 0
    retries: int = 0
    form: str = "text"
    items: int = 0
    block: Block = ()

    @property
    def on_loop(self) -> bool:
        """Whether calling it needs an event loop."""
        return self.shape.startswith("async")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Call a step. An argument is a number or the name of a variable; `to` takes the result."""

    step: str
    args: tuple[int | str, ...] = ()
    to: str = "_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Read a stream to its end, or only its first `take` items, which closes it."""

    step: str
    args: tuple[int | str, ...] = ()
    take: int | None = None
    to: str = "_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """Branches at the same time. `how`: "gather", "map" (all branches do the first one's work) or "wrap"."""

    how: str
    branches: tuple[Block, ...]
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A nested run. Without a `run_id` its id is derived from where it is and its inputs."""

    block: Block
    inputs: int = 0
    run_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A recorded value: now, random, uuid4, or value with a function of the program's own."""

    kind: str
    to: str = "_"


@dataclass(frozen=True, slots=True, kw_only=True)
class If:
    """Go one way or the other, by the variable `on`."""

    on: str
    then: Block
    other: Block = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """Do the block several times."""

    times: int
    block: Block


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """Handle what a body or the program raised in the block. `swallow`: and whatever the ledger raised as well."""

    block: Block
    handler: Block = ()
    swallow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Raise:
    """The program itself raises."""


Op = Call | Stream | Parallel | Child | Value | If | Loop | Try | Raise


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """An agent: its steps, what it does, whether on an event loop, and what a changed call does."""

    steps: tuple[StepSpec, ...]
    block: Block
    asynchronous: bool = False
    on_change: str = "refuse"

    def spec(self, name: str) -> StepSpec:
        """The step of this name."""
        return next(step for step in self.steps if step.name == name)

    @property
    def text(self) -> str:
        """The program as a person would read it."""
        lines = [f"# {'async' if self.asynchronous else 'sync'}, on_change={self.on_change}"]
        for step in self.steps:
            said = ", ".join(
                f"{what}={getattr(step, what)}"
                for what in ("tool", "keyed", "fails", "retries", "items")
                if getattr(step, what)
            )
            lines.append(f"{step.shape} {step.name}({said})")
            lines += [f"    {line}" for line in lines_of(step.block)]
        return "\n".join((*lines, "run:", *(f"    {line}" for line in lines_of(self.block)))) + "\n"


def lines_of(block: Block) -> Iterator[str]:
    """Yield the text of a block, line by line."""
    for op in block:
        inner: list[tuple[str, Block]] = []
        match op:
            case Call():
                head = f"{op.to} = {op.step}({', '.join(map(str, op.args))})"
            case Stream():
                head = f"{op.to} = {'all' if op.take is None else f'first {op.take}'} of {op.step}{op.args}"
            case Parallel():
                head = f"{op.how}:" if op.limit is None else f"{op.how} limit {op.limit}:"
                inner = [(f"branch {at}:", block) for at, block in enumerate(op.branches)]
            case Child():
                head, inner = f"run {op.run_id or 'child'}(x={op.inputs}):", [("", op.block)]
            case Value():
                head = f"{op.to} = run.{op.kind}()"
            case If():
                head, inner = f"if {op.on}:", [("", op.then), ("else:", op.other)]
            case Loop():
                head, inner = f"{op.times} times:", [("", op.block)]
            case Try():
                head = "try, whatever it is:" if op.swallow else "try:"
                inner = [("", op.block), ("except:", op.handler)]
            case Raise():
                head = "raise"
        yield head
        for title, lines in inner:
            if title and lines:
                yield title
            yield from (f"    {line}" for line in lines_of(lines))


def blocks_of(op: Op) -> tuple[Block, ...]:
    """The blocks within an op, in order; `with_blocks` takes them back."""
    match op:
        case Parallel():
            return op.branches
        case Child() | Loop():
            return (op.block,)
        case If():
            return (op.then, op.other)
        case Try():
            return (op.block, op.handler)
        case _:
            return ()


def size_of(block: Block) -> int:
    """How many ops a block has, those within others too."""
    return sum(1 + sum(map(size_of, blocks_of(op))) for op in block)
