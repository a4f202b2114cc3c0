"""A toy framework with an agent loop, and subjects of the adapter kit: one that is right, and others that are not."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, ClassVar

from agent_run_ledger import EffectInDoubt, Pending, Vetoed
from agent_run_ledger.adapters.effects import ToolEffect
from agent_run_ledger.adapters.recorder import Recorder
from agent_run_ledger.testing.adapter_kit import Job, KitTool, Turn

Reply = dict[str, Any]
Message = dict[str, Any]


class Right:
    """Runs the toy loop over a Recorder."""

    adapter: str = "tests.scenario.programs.toy_adapter"
    framework: tuple[str, ...] = ("arl_toy_framework",)
    unsupported: ClassVar[Mapping[str, str]] = {}

    def run(self, job: Job) -> str:
        if job.is_async:
            return asyncio.run(self._arun(job))
        with job.ledger.run(job.run_id):
            recorder = self.recorder(job)
            messages: list[Message] = [{"role": "system", "text": job.system}, {"role": "user", "text": job.question}]
            while True:
                reply = self.model(job, recorder, messages)
                messages.append({"role": "assistant", **reply})
                if not reply["calls"]:
                    return str(reply["text"])
                messages += self.tools(job, recorder, reply["calls"])

    async def _arun(self, job: Job) -> str:
        async with job.ledger.run(job.run_id):
            recorder = self.recorder(job)
            messages: list[Message] = [{"role": "system", "text": job.system}, {"role": "user", "text": job.question}]
            while True:
                reply = await self.amodel(job, recorder, messages)
                messages.append({"role": "assistant", **reply})
                if not reply["calls"]:
                    return str(reply["text"])
                jobs = (self.atool(job, recorder, call) for call in reply["calls"])
                messages += await asyncio.gather(*jobs)

    # what a wrong adapter does otherwise

    def recorder(self, job: Job) -> Recorder:
        return Recorder(tools=job.rules, effects=job.effects, gate=job.gate)

    def request(self, messages: list[Message]) -> dict[str, Any]:
        return {"messages": [dict(message) for message in messages]}

    def model(self, job: Job, recorder: Recorder, messages: list[Message]) -> Reply:
        if job.streams:
            return joined(
                self.taken(job, recorder.stream("model", self.request(messages), lambda: sent(job, messages)))
            )
        try:
            reply: Reply = recorder.model("model", self.request(messages), lambda: plain(answer(job, messages)))
        except Exception:
            if not job.deaf:
                raise
            return {"text": "something went wrong", "calls": [], "usage": None}
        return reply

    async def amodel(self, job: Job, recorder: Recorder, messages: list[Message]) -> Reply:
        if job.streams:
            parts: list[Reply] = []
            async for part in recorder.astream("model", self.request(messages), lambda: asent(job, messages)):
                job.got(part["text"])
                parts.append(part)
            return joined(parts)

        async def make() -> Reply:
            return plain(answer(job, messages))

        reply: Reply = await recorder.amodel("model", self.request(messages), make)
        return reply

    def taken(self, job: Job, parts: Iterator[Reply]) -> list[Reply]:
        taken: list[Reply] = []
        for part in parts:
            job.got(part["text"])
            taken.append(part)
        return taken

    def tools(self, job: Job, recorder: Recorder, calls: list[Reply]) -> list[Message]:
        with ThreadPoolExecutor() as pool:
            begun = [pool.submit(copy_context().run, self.tool, job, recorder, call) for call in calls]
            return [one.result() for one in begun]

    def tool(self, job: Job, recorder: Recorder, call: Reply) -> Message:
        return swallowed(job, call, lambda: self.record(recorder, call, lambda: tool_of(job, call).call(call["text"])))

    def record(self, recorder: Recorder, call: Reply, make: Callable[[], Any]) -> Any:
        return recorder.tool(call["name"], {"text": call["text"]}, make, call_id=call["id"])

    async def atool(self, job: Job, recorder: Recorder, call: Reply) -> Message:
        def make() -> Awaitable[str]:
            return tool_of(job, call).acall(call["text"])

        result = await recorder.atool(call["name"], {"text": call["text"]}, make, call_id=call["id"])
        return {"role": "tool", "id": call["id"], "text": str(result)}


class AsksEachTimeAnew(Right):
    """Records nothing of models."""

    def model(self, job: Job, recorder: Recorder, messages: list[Message]) -> Reply:
        return plain(answer(job, messages))


class DumpsTheTime(Right):
    """Puts what is new at each start into the request."""

    def request(self, messages: list[Message]) -> dict[str, Any]:
        return {"messages": [{**message, "created": time.time()} for message in messages]}


class ForgetsThePrompt(Right):
    """Leaves the instructions out of the request: another prompt is answered from the old record."""

    def request(self, messages: list[Message]) -> dict[str, Any]:
        return {"messages": [dict(message) for message in messages if message["role"] != "system"]}


class SwallowsTheHalt(Right):
    """Takes what stops the run for an answer, and asks the model beside the ledger."""

    def model(self, job: Job, recorder: Recorder, messages: list[Message]) -> Reply:
        try:
            return super().model(job, recorder, messages)
        except Exception:
            return plain(answer(job, messages))


class CallsTwice(Right):
    """Makes each call of a tool twice."""

    def record(self, recorder: Recorder, call: Reply, make: Callable[[], Any]) -> Any:
        def twice() -> Any:
            make()
            return make()

        return super().record(recorder, call, twice)


class CallsToolsBeside(Right):
    """Records nothing of tools."""

    def record(self, recorder: Recorder, call: Reply, make: Callable[[], Any]) -> Any:
        return make()


class SwapsResults(Right):
    """Gives each of two results to the other call."""

    def tools(self, job: Job, recorder: Recorder, calls: list[Reply]) -> list[Message]:
        found = super().tools(job, recorder, calls)
        texts = [message["text"] for message in found]
        return [{**message, "text": text} for message, text in zip(found, reversed(texts), strict=True)]


class OneAfterTheOther(Right):
    """Runs tools in turn."""

    def tools(self, job: Job, recorder: Recorder, calls: list[Reply]) -> list[Message]:
        return [self.tool(job, recorder, call) for call in calls]


class GathersTheStream(Right):
    """Hands chunks on when all are there."""

    def taken(self, job: Job, parts: Iterator[Reply]) -> list[Reply]:
        return super().taken(job, iter([*parts]))


class CallsUnsafeToolsSafe(Right):
    """Lets every tool run again."""

    def recorder(self, job: Job) -> Recorder:
        return Recorder(tools={"*": {"safe": True}}, gate=job.gate)


class KnowsNoEffects(Right):
    """Takes tools that are effects for any others."""

    def recorder(self, job: Job) -> Recorder:
        return Recorder(tools=job.rules, gate=job.gate)


class BelievesTheFramework(Right):
    """Calls what waits, once the framework has approved it."""

    def tool(self, job: Job, recorder: Recorder, call: Reply) -> Message:
        try:
            text = str(self.record(recorder, call, lambda: tool_of(job, call).call(call["text"])))
        except Pending:
            text = tool_of(job, call).call(call["text"])
        except Vetoed as error:
            text = str(error)
        return {"role": "tool", "id": call["id"], "text": text}


class TakesANoForAnError(Right):
    """Ends where people said no."""

    def tool(self, job: Job, recorder: Recorder, call: Reply) -> Message:
        return {
            "role": "tool",
            "id": call["id"],
            "text": str(self.record(recorder, call, lambda: tool_of(job, call).call(call["text"]))),
        }


class TriesAgainAfterADoubt(Right):
    """Does again what nobody knows the outcome of."""

    def record(self, recorder: Recorder, call: Reply, make: Callable[[], Any]) -> Any:
        try:
            return super().record(recorder, call, make)
        except EffectInDoubt:
            return make()


class AsksUnderANewKey(Right):
    """Makes an effect of its own of each start."""

    def recorder(self, job: Job) -> Recorder:
        effects = {
            name: ToolEffect(key=f"{name}:{{text}}:{time.time_ns()}", approval=one.approval)
            for name, one in job.effects.items()
        }
        return Recorder(tools=job.rules, effects=effects, gate=job.gate)


class ForgetsThatItWaits(Right):
    """Ends as if nothing waited."""

    def run(self, job: Job) -> str:
        recorder = self.recorder(job)
        try:
            return super().run(job)
        except Pending:
            with job.ledger.bind(job.run_id, on_change="rerun").run():
                recorder.model("other", {}, lambda: "x")
            return "it waits"


class SaysNothingOfTokens(Right):
    """Drops the usage."""

    def model(self, job: Job, recorder: Recorder, messages: list[Message]) -> Reply:
        def make() -> Reply:
            reply = plain(answer(job, messages))
            return {**reply, "usage": None}

        reply: Reply = recorder.model("model", self.request(messages), make)
        return reply


class EndsWithWhatWaits(Right):
    """Asks the gate beside the ledger, and ends with what it says: nobody knows that a call waits."""

    def run(self, job: Job) -> str:
        with job.ledger.run(job.run_id):
            recorder = self.recorder(job)
            messages: list[Message] = [{"role": "system", "text": job.system}, {"role": "user", "text": job.question}]
            while True:
                reply = self.model(job, recorder, messages)
                messages.append({"role": "assistant", **reply})
                for call in reply["calls"]:
                    if recorder.ask(call["name"], {"text": call["text"]}, call_id=call["id"]).approval_id:
                        return "it waits"
                    messages.append(self.tool(job, recorder, call))
                if not reply["calls"]:
                    return str(reply["text"])


class PhonesHome(Right):
    """Tells somebody of each start, and does not mind where nobody answers."""

    def recorder(self, job: Job) -> Recorder:
        with contextlib.suppress(OSError):
            socket.create_connection(("192.0.2.1", 443), timeout=0.1)
        return super().recorder(job)


class AsksNoGate(Right):
    """Leaves the gate out."""

    def recorder(self, job: Job) -> Recorder:
        return Recorder(tools=job.rules)


class Hangs(Right):
    """Never answers."""

    def run(self, job: Job) -> str:
        time.sleep(600)
        return ""


class NeedsItsFrameworkAtOnce(Right):
    """An adapter whose import fails without its framework."""

    adapter = "tests.scenario.programs.toy_adapter_broken"


class Declares(Right):
    """Says that a scenario is beyond it."""

    unsupported: ClassVar[Mapping[str, str]] = {"stream": "the toy has no sync streams"}


class DeclaresNothing(Right):
    """Gives no reason."""

    unsupported: ClassVar[Mapping[str, str]] = {"stream": " "}


# the toy framework


def tool_of(job: Job, call: Reply) -> KitTool:
    return next(tool for tool in job.tools if tool.name == call["name"])


def swallowed(job: Job, call: Reply, make: Callable[[], Any]) -> Message:
    """The message that the model is told; errors too, where they are to be swallowed."""
    try:
        text = str(make())
    except (Pending, Vetoed) as error:
        text = str(error)
    except Exception as error:
        if not job.swallow:
            raise
        text = f"error: {error}"
    return {"role": "tool", "id": call["id"], "text": text}


def answer(job: Job, messages: list[Message]) -> Turn:
    return job.asked({m["id"]: m["text"] for m in messages if m["role"] == "tool"})


def plain(turn: Turn) -> Reply:
    calls = [{"name": call.name, "id": call.call_id, "text": call.text} for call in turn.calls]
    usage = {"input_tokens": turn.input_tokens, "output_tokens": turn.output_tokens}
    return {"text": turn.text, "calls": calls, "usage": usage}


def parts_of(turn: Turn) -> list[Reply]:
    whole = plain(turn)
    texts = turn.chunks or ("",)
    parts: list[Reply] = [{"text": text, "calls": [], "usage": None} for text in texts]
    parts[-1] = {**whole, "text": texts[-1]}
    return parts


def joined(parts: list[Reply]) -> Reply:
    return {**parts[-1], "text": "".join(part["text"] for part in parts)}


def sent(job: Job, messages: list[Message]) -> Iterator[Reply]:
    for part in parts_of(answer(job, messages)):
        job.sent(part["text"])
        yield part


async def asent(job: Job, messages: list[Message]) -> AsyncIterator[Reply]:
    for part in parts_of(answer(job, messages)):
        await job.asent(part["text"])
        yield part
