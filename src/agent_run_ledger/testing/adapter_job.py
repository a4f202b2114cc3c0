"""What the adapter kit asks a framework's agent to do: a script for its fake model, tools, a gate, and a way to run."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson

from agent_run_ledger.adapters.effects import ToolEffect
from agent_run_ledger.adapters.gate import Answer, Permission, ToolRequest, allow_all
from agent_run_ledger.adapters.rules import ToolRules
from agent_run_ledger.ledger.run_ledger import RunLedger
from agent_run_ledger.testing.adapter_evidence import Evidence, What
from agent_run_ledger.testing.body_counter import LIFE_VARIABLE
from agent_run_ledger.testing.people import People

PLAN_FILE = "plan.json"
GATE_FILE = "gate.txt"
TRUST_FILE = "trust.json"
RUN_ID = "conformance"
MEETING_S = 5.0
"""How long a tool waits for the one that should run at the same time, and a model for its reader, in seconds."""


class Mode(StrEnum):
    """How the agent is run: by its plain or its async entry, and whether its chunks are taken as they come."""

    SYNC = "sync"
    ASYNC = "async"
    STREAM = "stream"
    ASYNC_STREAM = "async_stream"


class Does(StrEnum):
    """What a tool's body does: answer, kill the process in life 1, raise, answer the same for ever, or meet another."""

    ANSWER = "answer"
    KILL = "kill"
    RAISE = "raise"
    SAME = "same"
    MEET = "meet"


class ToolBroke(Exception):
    """What a tool of the kit raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call that the fake model asks for. Every tool of the kit takes one argument, a text: {"text": "..."}."""

    name: str
    call_id: str
    text: str

    @property
    def arguments(self) -> dict[str, str]:
        """The arguments by name."""
        return {"text": self.text}


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One answer of the fake model: calls of tools, or the final text. Tokens are those of this answer alone."""

    calls: tuple[ToolCall, ...] = ()
    text: str = ""
    input_tokens: int = 100
    output_tokens: int = 10

    @property
    def chunks(self) -> tuple[str, ...]:
        """The text in the parts in which a stream sends it."""
        return tuple(part + " " for part in self.text.split()[:-1]) + tuple(self.text.split()[-1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPlan:
    """One tool: its name, whether its rules call it safe, and what its body does.

    `effect`: it is one, by the key "NAME:{text}". `kills_in`: the life in which a body that kills does so.
    """

    name: str
    safe: bool = True
    does: Does = Does.ANSWER
    effect: bool = False
    kills_in: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one life is to do. It must be the same in every life but for what a scenario changes on purpose."""

    script: tuple[Turn, ...]
    tools: tuple[ToolPlan, ...] = ()
    mode: Mode = Mode.SYNC
    system: str = "You are a careful clerk."
    question: str = "What does the archive say?"
    swallow: bool = False
    deaf: bool = False
    gated: bool = False
    approves: bool = False

    def write(self, folder: Path) -> None:
        """Write the plan where a life looks for it."""
        (folder / PLAN_FILE).write_bytes(orjson.dumps(asdict(self)))

    @staticmethod
    def read(folder: Path) -> Plan:
        """Return the plan that stands in `folder`."""
        found: dict[str, Any] = orjson.loads((folder / PLAN_FILE).read_bytes())
        script = tuple(_turn(turn) for turn in found["script"])
        tools = tuple(_tool(tool) for tool in found["tools"])
        found.update(script=script, tools=tools, mode=Mode(found["mode"]))
        return Plan(**found)


def _turn(found: dict[str, Any]) -> Turn:
    found["calls"] = tuple(ToolCall(**call) for call in found["calls"])
    return Turn(**found)


def _tool(found: dict[str, Any]) -> ToolPlan:
    found["does"] = Does(found["does"])
    return ToolPlan(**found)


class KitTool:
    """A tool for the agent. `call` or `acall` is the body: wrap it as the framework wants it, and call neither else."""

    description = "Works on a text."
    schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
        "additionalProperties": False,
    }

    def __init__(self, plan: ToolPlan, evidence: Evidence) -> None:
        self.name = plan.name
        self.safe = plan.safe
        self._does = plan.does
        self._kills_in = str(plan.kills_in)
        self._evidence = evidence

    def call(self, text: str) -> str:
        """Do the tool's work: for sync tools."""
        for pause_s in self._work(text):
            time.sleep(pause_s)
        return self._answer(text)

    async def acall(self, text: str) -> str:
        """Do the tool's work: for async tools."""
        for pause_s in self._work(text):
            await asyncio.sleep(pause_s)
        return self._answer(text)

    def _work(self, text: str) -> Generator[float]:
        """Do it, and yield seconds to wait."""
        self._evidence.note(What.TOOL, name=self.name, text=text)
        if self._does is Does.KILL and os.environ.get(LIFE_VARIABLE) == self._kills_in:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._does is Does.RAISE:
            raise ToolBroke("the archive is closed for the day, its keeper has gone home")
        if self._does is Does.MEET:
            until = time.monotonic() + MEETING_S
            while len(self._evidence.lines(What.TOOL)) < 2 and time.monotonic() < until:
                yield 0.01
        self._evidence.note(What.TOOL_DONE, name=self.name, text=text)

    def _answer(self, text: str) -> str:
        if self._does is Does.SAME:
            return "the shelf is empty, as it was the last time; the catalogue lists no other one"
        return f"{self.name} found {text!r}"


def _on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class FileGate:
    """Decides as a file says: pending, allowed or denied. It stands for the ledger that keeps the decision."""

    def __init__(self, folder: Path, evidence: Evidence) -> None:
        self._file = folder / GATE_FILE
        self._evidence = evidence

    def __call__(self, request: ToolRequest) -> Answer:
        """Read the decision anew, and note that it was asked for."""
        said = Permission(self._file.read_text().strip())
        self._evidence.note(What.GATE, name=request.tool, call_id=request.call_id, text=str(said))
        return Answer(permission=said, approval_id="approval-1", reason="a person decides")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a subject is to run, in this process.

    `ledger`, `run_id`: enter `ledger.run(run_id)` and run the agent within. `system`, `question`: its first messages.
    `tools`: all that it has. `rules`, `gate`: for the adapter. `mode`: how to run it. `swallow`: let the framework
    turn what tools raise into messages for the model, as far as it can. `deaf`: let it catch whatever its hooks raise,
    of tools and of models, and return normally. `effects`: for the adapter; the ledger has a trust file then.
    `approves`: where the framework waits for an approval and can be given one, give it and go on, once in each life; if
    it waits still, raise Pending. `folder`: for files of the subject's own.
    """

    ledger: RunLedger
    run_id: str
    folder: Path
    evidence: Evidence
    plan: Plan
    tools: Sequence[KitTool]
    rules: Mapping[str, ToolRules]
    gate: Any = field(default=allow_all)
    effects: Mapping[str, ToolEffect] = field(default_factory=dict[str, ToolEffect])

    @property
    def approves(self) -> bool:
        """Whether the framework itself is to approve what it waits for."""
        return self.plan.approves

    @property
    def mode(self) -> Mode:
        """How to run the agent."""
        return self.plan.mode

    @property
    def is_async(self) -> bool:
        """Whether the framework's async entries and async tools are wanted."""
        return self.mode in (Mode.ASYNC, Mode.ASYNC_STREAM)

    @property
    def streams(self) -> bool:
        """Whether the model is to be streamed."""
        return self.mode in (Mode.STREAM, Mode.ASYNC_STREAM)

    @property
    def swallow(self) -> bool:
        """Whether what tools raise is to become messages for the model."""
        return self.plan.swallow

    @property
    def deaf(self) -> bool:
        """Whether whatever the hooks of tools and models raise is to be caught, and the subject to return."""
        return self.plan.deaf

    @property
    def system(self) -> str:
        """The instructions."""
        return self.plan.system

    @property
    def question(self) -> str:
        """The user's message."""
        return self.plan.question

    def asked(self, results: Mapping[str, str]) -> Turn:
        """Return the fake model's answer, and note that it was asked. To be called by the framework's fake model.

        `results`: what the request holds of results of tools, text by call id. They say which turn it is.
        """
        turns = self.plan.script
        left = (turn for turn in turns if not turn.calls or any(call.call_id not in results for call in turn.calls))
        turn = next(left, turns[-1])
        self.evidence.note(What.MODEL, told=dict(results))
        return turn

    def sent(self, chunk: str) -> None:
        """Note a chunk. To be called by the fake model right before it hands the chunk on.

        It waits, as a network makes a model wait, until an earlier chunk of text has arrived: for MEETING_S seconds at
        most, and not on an event loop, where `asent` does.
        """
        if not _on_loop():
            for pause_s in self._until_something_arrived():
                time.sleep(pause_s)
        self.evidence.note(What.SENT, name=chunk)

    async def asent(self, chunk: str) -> None:
        """Do what `sent` does, on the running event loop."""
        for pause_s in self._until_something_arrived():
            await asyncio.sleep(pause_s)
        self.evidence.note(What.SENT, name=chunk)

    def _until_something_arrived(self) -> Generator[float]:
        until = time.monotonic() + MEETING_S
        here = int(os.environ.get(LIFE_VARIABLE, "1"))
        if any(line.name for line in self.evidence.lines(What.SENT, life=here)):
            while not any(line.name for line in self.evidence.lines(What.GOT)) and time.monotonic() < until:
                yield 0.005

    def got(self, chunk: str) -> None:
        """Note a chunk. To be called by whoever consumes the agent's stream, when the chunk arrives."""
        self.evidence.note(What.GOT, name=chunk)

    @staticmethod
    def read(folder: Path, ledger: RunLedger) -> Job:
        """Return the job that stands in `folder`."""
        plan, evidence = Plan.read(folder), Evidence(folder)
        return Job(
            ledger=ledger,
            run_id=RUN_ID,
            folder=folder,
            evidence=evidence,
            plan=plan,
            tools=[KitTool(tool, evidence) for tool in plan.tools],
            rules={tool.name: ToolRules(safe=tool.safe) for tool in plan.tools},
            gate=FileGate(folder, evidence) if plan.gated else allow_all,
            effects={
                tool.name: ToolEffect(key=f"{tool.name}:{{text}}", approval=People.policy)
                for tool in plan.tools
                if tool.effect
            },
        )
