"""Small agents in plain Python, with a model that says the same each time; some of them die in their first life."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from agent_run_ledger import RunLedger
from agent_run_ledger.testing import BodyCounter
from agent_run_ledger.testing.body_counter import LIFE_VARIABLE
from tests.scenario.programs import held

FIRST_LIFE = os.environ.get(LIFE_VARIABLE, "1") == "1"


def fetching(workdir: Path) -> object:
    """The model asks for two pages at once; in the first life the process is killed while the second is fetched."""
    bodies = BodyCounter(workdir / "bodies.log")
    with RunLedger("r1") as ledger:

        @ledger.step
        def ask(messages: list[dict[str, Any]]) -> dict[str, Any]:
            bodies.ran("ask", messages)
            calls = [{"id": "c1"}, {"id": "c2"}] if len(messages) == 0 else []
            return {"role": "assistant", "calls": calls}

        @ledger.tool(safe=os.environ["SAFE"] == "safe")
        def fetch(page: str) -> str:
            bodies.ran(f"fetch {page}", page)
            if page == "c2" and FIRST_LIFE:
                os.kill(os.getpid(), signal.SIGKILL)
            return f"page {page}"

        messages: list[dict[str, Any]] = []
        with ledger.run():
            while True:
                answer = ask(messages)
                messages.append(answer)
                for call in answer["calls"]:
                    messages.append({"role": "tool", "id": call["id"], "content": fetch(call["id"])})
                if not answer["calls"]:
                    return messages


def frozen(workdir: Path) -> object:
    """Three safe tools; in the first life the second one never returns."""
    bodies = BodyCounter(workdir / "bodies.log")
    with RunLedger("r1") as ledger:

        @ledger.tool(safe=True)
        def work(name: str) -> str:
            bodies.ran(name, name)
            if name == "t2" and FIRST_LIFE:
                held.Gate(workdir / held.ENTERED).open()
                held.Gate(workdir / held.GO_ON).wait()
            return name

        with ledger.run():
            return [work(name) for name in ("t1", "t2", "t3")]


def listing(workdir: Path) -> object:
    """Tools are listed by a worker, from its cache if that is warm, and are an argument of the question."""
    bodies = BodyCounter(workdir / "bodies.log")
    named = {name: {"name": name, "tags": {"b", "a"}} for name in ("write", "read")}
    order = list(named) if os.environ["CACHE"] == "warm" else sorted(named)
    with RunLedger("r1") as ledger:

        @ledger.step
        def ask(prompt: str, tools: dict[str, Any]) -> str:
            bodies.ran("ask", prompt)
            return "answer"

        @ledger.step
        def act(answer: str) -> str:
            bodies.ran("act", answer)
            if FIRST_LIFE:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        with ledger.run():
            return act(ask("which tools are there?", {name: named[name] for name in order}))
