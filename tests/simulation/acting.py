"""The real agent: it does with the ledger what a program says, and writes down what it got."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_run_ledger import RunLedger
from agent_run_ledger.errors import LedgerError
from tests.simulation.syntax import Child, Parallel, Program, StepSpec
from tests.simulation.trace import Trace
from tests.simulation.walking import Arguments, Broken, Env, Place, Walker, body_name, drive

TOP_RUN = "run"


@dataclass(frozen=True, slots=True)
class Here:
    """What surrounds an op of the real agent: its run, and whether it is on an event loop."""

    run: Any
    on_loop: bool


@dataclass(slots=True, kw_only=True)
class Agent:
    """One life of a program on one ledger."""

    program: Program
    path: Path
    trace: Trace
    begun: Counter[str]
    swallowed: type[Exception] = LedgerError
    _tries: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _steps: dict[str, Any] = field(default_factory=dict)
    _runs: dict[str, Any] = field(default_factory=dict)
    _ledger: Any = None
    walker: Walker = field(init=False)

    def live(self) -> str:
        """Do the program from its beginning, and return how it ended."""
        self.walker = Walker(self.program, self)
        ledger: Any = RunLedger(TOP_RUN, self.path)
        self._ledger = ledger
        for step in self.program.steps:
            self._steps[step.name] = self._registered(step)
        with ledger:
            try:
                top = Child(block=self.program.block, inputs=1, run_id=TOP_RUN)
                work = self.child(
                    Place("", Here(None, self.program.asynchronous)),
                    top,
                    lambda inner: self.walker.block(top.block, {}, inner),
                )
                if self.program.asynchronous:
                    asyncio.run(_as_coroutine(work))
                else:
                    drive(work)
            except Broken:
                return "failed"
            except LedgerError as error:
                return error.code
        return "completed"

    # -- what a program can say ---------------------------------------------------------------------------------

    async def call(self, at: Place, step: StepSpec, args: Arguments) -> str:
        """See walking.Machine."""
        self.trace.write(at.path, "call", body=body_name(step, args))
        self._runs[at.path] = at.frame.run
        try:
            value = self._steps[step.name](*args, at=at.path)
            if inspect.isawaitable(value):
                value = await value
        except Broken as error:
            self.trace.write(at.path, "raised", str(error))
            raise
        except LedgerError as error:
            self.trace.write(at.path, "refused", error.code)
            raise
        self.trace.write(at.path, "returned", repr(value))
        return repr(value)

    async def stream(self, at: Place, step: StepSpec, args: Arguments, take: int | None) -> str:
        """See walking.Machine. What comes of a stream that is closed early is only how much of it was read."""
        self.trace.write(at.path, "call", body=body_name(step, args))
        items: list[Any] = []
        try:
            if step.on_loop:
                exhausted = await self._read_on_loop(at, step, args, take, items)
            else:
                exhausted = self._read(at, step, args, take, items)
        except Broken as error:
            self.trace.write(at.path, "raised", str(error))
            raise
        except LedgerError as error:
            self.trace.write(at.path, "refused", error.code)
            raise
        if not exhausted:
            self.trace.write(at.path, "closed", repr(items))
            return f"{len(items)} items"
        self.trace.write(at.path, "returned", repr(items))
        return repr(items)

    async def parallel(self, at: Place, op: Parallel, branches: list[Callable[[Place], Awaitable[None]]]) -> None:
        """See walking.Machine."""
        self.trace.write(at.path, "call", op.how)
        here: Here = at.frame
        try:
            if op.how == "wrap":
                await self._wrapped(at, branches, here)
            elif here.on_loop:
                await self._at_once_on_loop(at, op, branches, here)
            else:
                self._at_once(at, op, branches, here)
        except Broken as error:
            self.trace.write(at.path, "raised", str(error))
            raise
        except LedgerError as error:
            self.trace.write(at.path, "refused", error.code)
            raise
        self.trace.write(at.path, "returned")

    async def child(self, at: Place, op: Child, block: Callable[[Place], Awaitable[None]]) -> None:
        """See walking.Machine. The top-level run is the child of nobody."""
        self.trace.write(at.path, "call", op.run_id or "child")
        here: Here = at.frame
        run: Any = self._ledger.run(x=op.inputs) if op.run_id is None else self._ledger.run(op.run_id, x=op.inputs)
        try:
            if here.on_loop:
                async with run as entered:
                    self.trace.write(at.path, "entered")
                    await block(Place(at.path, Here(entered, on_loop=True)))
            else:
                with run as entered:
                    self.trace.write(at.path, "entered")
                    await block(Place(at.path, Here(entered, on_loop=False)))
        except Broken as error:
            self.trace.write(at.path, "raised", str(error))
            raise
        except LedgerError as error:
            self.trace.write(at.path, "refused", error.code)
            raise
        self.trace.write(at.path, "left")

    async def value(self, at: Place, kind: str) -> str:
        """See walking.Machine."""
        self.trace.write(at.path, "call", kind)
        here: Here = at.frame
        try:
            got = here.run.value("own", lambda: self._own_value(at)) if kind == "value" else getattr(here.run, kind)()
        except LedgerError as error:
            self.trace.write(at.path, "refused", error.code)
            raise
        self.trace.write(at.path, "returned", repr(got))
        return repr(got)

    # -- how it is said to the ledger ---------------------------------------------------------------------------

    def _own_value(self, at: Place) -> str:
        serial = self.trace.serial()
        self.trace.write(at.path, "began", serial, "value")
        self.trace.write(at.path, "ended", repr(serial), "value")
        return serial

    def _read(self, at: Place, step: StepSpec, args: Arguments, take: int | None, items: list[Any]) -> bool:
        stream = self._steps[step.name](*args, at=at.path)
        try:
            for item in stream:
                items.append(item)
                self.trace.write(at.path, "item", repr(item))
                if len(items) == take:
                    return False
        finally:
            stream.close()
        return True

    async def _read_on_loop(
        self, at: Place, step: StepSpec, args: Arguments, take: int | None, items: list[Any]
    ) -> bool:
        stream = self._steps[step.name](*args, at=at.path)
        try:
            async for item in stream:
                items.append(item)
                self.trace.write(at.path, "item", repr(item))
                if len(items) == take:
                    return False
        finally:
            await stream.aclose()
        return True

    def _at_once(
        self, at: Place, op: Parallel, branches: Sequence[Callable[[Place], Awaitable[None]]], here: Here
    ) -> None:
        def work(number: int) -> None:
            drive(branches[number](Place(f"{at.path}.b{number}", here)))

        if op.how == "map":
            here.run.map(work, range(len(branches)), limit=op.limit)
        else:
            here.run.gather(*[lambda number=number: work(number) for number in range(len(branches))])

    async def _at_once_on_loop(
        self, at: Place, op: Parallel, branches: Sequence[Callable[[Place], Awaitable[None]]], here: Here
    ) -> None:
        async def work(number: int) -> None:
            await branches[number](Place(f"{at.path}.b{number}", here))

        if op.how == "map":
            await here.run.map(work, range(len(branches)), limit=op.limit)
        else:
            await here.run.gather(*[work(number) for number in range(len(branches))])

    async def _wrapped(self, at: Place, branches: Sequence[Callable[[Place], Awaitable[None]]], here: Here) -> None:
        """Threads of the program's own. The first error by number is raised when all have ended."""
        errors: dict[int, Exception] = {}

        def work(number: int) -> None:
            try:
                drive(branches[number](Place(f"{at.path}.b{number}", Here(here.run, on_loop=False))))
            except (Broken, LedgerError) as error:
                errors[number] = error

        carried = [here.run.wrap(work) for _ in branches]
        threads = [threading.Thread(target=one, args=(number,)) for number, one in enumerate(carried)]
        for thread in threads:
            thread.start()
        for thread in threads:
            if here.on_loop:
                await asyncio.to_thread(thread.join)
            else:
                thread.join()
        if errors:
            raise errors[min(errors)]

    # -- bodies -------------------------------------------------------------------------------------------------

    def _registered(self, step: StepSpec) -> Any:
        settings: dict[str, Any] = {"name": step.name, "ignore": ("at",), "on_change": self.program.on_change}
        if step.keyed:
            settings["key"] = "key {p0}"
        if step.retries:
            settings |= {"retries": step.retries, "retry_base_s": 0, "retry_cap_s": 0}
        register = (
            self._ledger.tool(safe=step.tool == "safe", **settings) if step.tool else self._ledger.step(**settings)
        )
        return register(self._function(step))

    def _function(self, step: StepSpec) -> Callable[..., Any]:
        def plain(*args: Any, at: str) -> Any:
            return drive(self._body(step, args, at, on_loop=False))

        async def on_loop(*args: Any, at: str) -> Any:
            await asyncio.sleep(0)
            return await self._body(step, args, at, on_loop=True)

        def items(*args: Any, at: str) -> Iterator[Any]:
            yield from self._items(step, args, at)

        async def items_on_loop(*args: Any, at: str) -> AsyncIterator[Any]:
            for item in self._items(step, args, at):
                await asyncio.sleep(0)
                yield item

        shapes: dict[str, Callable[..., Any]] = {
            "sync": plain,
            "async": on_loop,
            "generator": items,
            "async_generator": items_on_loop,
        }
        function = shapes[step.shape]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [inspect.Parameter(f"p{number}", kind) for number in range(step.takes)]
        parameters.append(inspect.Parameter("at", inspect.Parameter.KEYWORD_ONLY))
        function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return function

    async def _body(self, step: StepSpec, args: Arguments, at: str, *, on_loop: bool) -> Any:
        body = body_name(step, args)
        serial, fails, tries = self._begin(step, body, at)
        try:
            if step.block:
                env: Env = {f"p{number}": str(arg) for number, arg in enumerate(args)}
                await self.walker.block(step.block, env, Place(f"{at}.t{tries}", Here(self._runs[at], on_loop)))
            if fails:
                raise Broken(f"{body}!{serial}")
        except Broken as error:
            self.trace.write(at, "failed", str(error), body)
            raise
        value = shaped(step.form, f"{body}#{serial}")
        self.trace.write(at, "ended", repr(value), body)
        return value

    def _items(self, step: StepSpec, args: Arguments, at: str) -> Iterator[Any]:
        body = body_name(step, args)
        serial, fails, _ = self._begin(step, body, at)
        values: list[Any] = []
        for number in range(step.items):
            if fails and number == step.items // 2:
                self.trace.write(at, "failed", f"{body}!{serial}", body)
                raise Broken(f"{body}!{serial}")
            values.append(shaped(step.form, f"{body}#{serial}.{number}"))
            yield values[-1]
        self.trace.write(at, "ended", repr(values), body)

    def _begin(self, step: StepSpec, body: str, at: str) -> tuple[str, bool, int]:
        with self._lock:
            self.begun[body] += 1
            self._tries[at] += 1
            fails = self.begun[body] <= step.fails
            tries = self._tries[at]
        serial = self.trace.serial()
        self.trace.write(at, "began", serial, body)
        return serial, fails, tries


def shaped(form: str, text: str) -> Any:
    """The text as a value of several types, which a record must keep."""
    forms: dict[str, Any] = {
        "text": text,
        "dict": {"said": text, "size": len(text)},
        "tuple": (text, None, 1.0),
        "bytes": text.encode(),
    }
    return forms[form]


async def _as_coroutine(work: Coroutine[Any, Any, None]) -> None:
    await work
