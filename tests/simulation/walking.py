"""Walks through a program: the control flow that the real agent and the reference model have in common."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

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
)

Env = dict[str, str]
"""Variables: each holds the text of its value."""

Arguments = tuple[int | str, ...]


class Broken(Exception):
    """What a body or a program raises; its one argument names it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the walk is: the path of the op, and what the machine has to know of its surroundings."""

    path: str
    frame: Any


class Machine(Protocol):
    """Who does what the program says: the ledger for real, or the model."""

    swallowed: type[Exception]
    """What a `Try` with `swallow` handles beside Broken."""

    async def call(self, at: Place, step: StepSpec, args: Arguments) -> str:
        """The text of the result, or Broken."""
        ...

    async def stream(self, at: Place, step: StepSpec, args: Arguments, take: int | None) -> str: ...

    async def parallel(self, at: Place, op: Parallel, branches: list[Callable[[Place], Awaitable[None]]]) -> None: ...

    async def child(self, at: Place, op: Child, block: Callable[[Place], Awaitable[None]]) -> None: ...

    async def value(self, at: Place, kind: str) -> str: ...


class Walker:
    """Walks for one machine."""

    def __init__(self, program: Program, machine: Machine) -> None:
        self._program = program
        self._machine = machine

    async def block(self, block: Block, env: Env, at: Place) -> None:
        """Do one op after the other."""
        for number, op in enumerate(block):
            await self._op(op, env, Place(f"{at.path}/{number}", at.frame))

    async def _op(self, op: Op, env: Env, at: Place) -> None:
        machine = self._machine
        match op:
            case Call():
                step = self._program.spec(op.step)
                env[op.to] = await machine.call(at, step, _given(op.args, env))
            case Stream():
                step = self._program.spec(op.step)
                env[op.to] = await machine.stream(at, step, _given(op.args, env), op.take)
            case Parallel():
                await machine.parallel(at, op, [self._branch(op, number, env) for number in range(len(op.branches))])
            case Child():
                await machine.child(at, op, lambda inner: self.block(op.block, dict(env), inner))
            case Value():
                env[op.to] = await machine.value(at, op.kind)
            case If():
                await self.block(op.then if truth(env.get(op.on, "")) else op.other, env, at)
            case Loop():
                for number in range(op.times):
                    env["i"] = str(number)
                    await self.block(op.block, env, Place(f"{at.path}.{number}", at.frame))
            case Try():
                await self._try(op, env, at)
            case Raise():
                raise Broken("raised by the program")

    async def _try(self, op: Try, env: Env, at: Place) -> None:
        handled = (Broken, self._machine.swallowed) if op.swallow else (Broken,)
        try:
            await self.block(op.block, env, at)
        except handled as error:
            env["error"] = str(error)
        else:
            return
        await self.block(op.handler, env, Place(f"{at.path}.e", at.frame))

    def _branch(self, op: Parallel, number: int, env: Env) -> Callable[[Place], Awaitable[None]]:
        block = op.branches[0 if op.how == "map" else number]
        return lambda inner: self.block(block, {**env, "item": str(number)}, inner)


def drive(work: Coroutine[Any, Any, Any] | Awaitable[Any]) -> Any:
    """Do work that never waits for a loop, and return its result."""
    coroutine = work if isinstance(work, Coroutine) else _await(work)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise RuntimeError("this work waits for an event loop")


def truth(text: str) -> bool:
    """Half of all values are true."""
    return hashlib.sha256(text.encode()).digest()[0] % 2 == 1


def short(text: str) -> str:
    """What stands for a value where it is an argument."""
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def body_name(step: StepSpec, args: Arguments) -> str:
    """What a body is counted under."""
    return f"{step.name}({','.join(map(str, args))})"


async def _await(work: Awaitable[Any]) -> Any:
    return await work


def _given(args: tuple[int | str, ...], env: Env) -> Arguments:
    return tuple(arg if isinstance(arg, int) else short(env.get(arg, "")) for arg in args)
