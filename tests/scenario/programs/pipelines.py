"""Small pipelines for the crash harness: each takes a directory, counts its bodies there and returns its result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from pathlib import Path

from agent_run_ledger import RunLedger
from agent_run_ledger.testing import BodyCounter


def chain(workdir: Path) -> object:
    """Four steps, each on the result of the one before."""
    bodies = BodyCounter(workdir / "bodies.log")
    with RunLedger("chain") as ledger:

        @ledger.step
        def collect(topic: str) -> list[str]:
            bodies.ran("collect", topic)
            return [f"{topic} {n}" for n in range(3)]

        @ledger.step(depends_on=["collect"])
        def measure(collect: list[str]) -> tuple[int, ...]:
            bodies.ran("measure", collect)
            return tuple(len(text) for text in collect)

        @ledger.step(depends_on=["measure"])
        def price(measure: tuple[int, ...]) -> Decimal:
            bodies.ran("price", measure)
            return Decimal(sum(measure)) / 8

        @ledger.step(depends_on=["price", "collect"])
        def report(price: Decimal, collect: list[str]) -> str:
            bodies.ran("report", price, collect)
            return f"{len(collect)} texts cost {price}"

        return ledger.execute(topic="rivers")


def fan(workdir: Path) -> object:
    """One source, three branches in parallel, one step that takes all of them."""
    bodies = BodyCounter(workdir / "bodies.log")
    with RunLedger("fan", max_parallel=3) as ledger:

        @ledger.step
        def source(size: int) -> list[int]:
            bodies.ran("source", size)
            return list(range(size))

        @ledger.step(depends_on=["source"])
        def total(source: list[int]) -> int:
            bodies.ran("total", source)
            return sum(source)

        @ledger.step(depends_on=["source"])
        def largest(source: list[int]) -> int:
            bodies.ran("largest", source)
            return max(source)

        @ledger.step(depends_on=["source"])
        def odd(source: list[int]) -> set[int]:
            bodies.ran("odd", source)
            return {number for number in source if number % 2}

        @ledger.step(depends_on=["total", "largest", "odd"])
        def join(*parts: object) -> str:
            bodies.ran("join", *parts)
            return repr(parts)

        return ledger.execute(size=6)


def asynchronous(workdir: Path) -> object:
    """Two async branches and a sync one beside each other, joined by an async step."""
    bodies = BodyCounter(workdir / "bodies.log")

    async def on_a_loop() -> object:
        with RunLedger("asynchronous") as ledger:

            @ledger.step
            async def left(seed: int) -> int:
                bodies.ran("left", seed)
                await asyncio.sleep(0)
                return seed + 1

            @ledger.step
            async def right(seed: int) -> int:
                bodies.ran("right", seed)
                await asyncio.sleep(0)
                return seed * 2

            @ledger.step
            def aside(seed: int) -> int:
                bodies.ran("aside", seed)
                return -seed

            @ledger.step(depends_on=["left", "right", "aside"])
            async def both(left: int, right: int, aside: int) -> list[int]:
                bodies.ran("both", left, right, aside)
                await asyncio.sleep(0)
                return [left, right, aside]

            return await ledger.aexecute(seed=20)

    return asyncio.run(on_a_loop())


def retrying(workdir: Path) -> object:
    """A step that fails twice in every process before it succeeds, between two that do not."""
    bodies = BodyCounter(workdir / "bodies.log")
    failures = iter((ConnectionError("no route"), TimeoutError("too slow")))
    with RunLedger("retrying") as ledger:

        @ledger.step
        def before(n: int) -> int:
            bodies.ran("before", n)
            return n + 1

        @ledger.step(depends_on=["before"], retries=2, retry_base_s=0, retry_cap_s=0)
        def flaky(before: int) -> int:
            bodies.ran("flaky", before)
            for failure in failures:
                raise failure
            return before * 10

        @ledger.step(depends_on=["flaky"])
        def after(flaky: int) -> str:
            bodies.ran("after", flaky)
            return f"<{flaky}>"

        return ledger.execute(n=4)


def streaming(workdir: Path) -> object:
    """A generator step and an async generator step, whose items are recorded when they are exhausted."""
    bodies = BodyCounter(workdir / "bodies.log")
    with RunLedger("streaming") as ledger:

        @ledger.step
        def chunks(text: str) -> Iterator[str]:
            bodies.ran("chunks", text)
            yield from text.split()

        @ledger.step(depends_on=["chunks"])
        async def louder(chunks: list[str]) -> AsyncIterator[str]:
            bodies.ran("louder", chunks)
            for chunk in chunks:
                await asyncio.sleep(0)
                yield chunk.upper()

        @ledger.step(depends_on=["louder"])
        def joined(louder: list[str]) -> str:
            bodies.ran("joined", louder)
            return " ".join(louder)

        return ledger.execute(text="word after word")


def sturdy(workdir: Path) -> object:
    """Three steps in a ledger without a WAL."""
    bodies = BodyCounter(workdir / "bodies.log")
    with RunLedger("sturdy", durability="extra") as ledger:

        @ledger.step
        def first(n: int) -> int:
            bodies.ran("first", n)
            return n + 1

        @ledger.step(depends_on=["first"])
        def second(first: int) -> int:
            bodies.ran("second", first)
            return first * 2

        @ledger.step(depends_on=["second"])
        def third(second: int) -> str:
            bodies.ran("third", second)
            return f"<{second}>"

        return ledger.execute(n=4)
