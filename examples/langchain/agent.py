"""A LangChain agent that is killed and goes on: it looks into the store room, asks before it orders, and answers."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import Any

from fake_model import StoreRoomModel
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool

from agent_run_ledger import Pending, RunLedger
from agent_run_ledger.adapters.gate import Answer, Permission, ToolRequest
from agent_run_ledger.adapters.langchain import ledger_middleware

CALLS, ORDERS, APPROVED = Path("calls.log"), Path("orders.txt"), Path("approved.txt")
SYSTEM = "You keep a store room. Order what is missing, once."


def note(name: str) -> None:
    """Write down that this really ran, and die here where AGENT_DIES says so, as `kill -9` would."""
    with CALLS.open("a") as log:
        log.write(f"{os.getpid()} {name}\n")
    if os.environ.get("AGENT_DIES") == name:
        os.kill(os.getpid(), signal.SIGKILL)


@tool
def count(thing: str) -> str:
    """Count what is left of a thing."""
    note("count")
    return "0 left" if thing == "ink" else "12 left"


@tool
def list_orders() -> str:
    """List the orders that were placed."""
    note("list_orders")
    return ORDERS.read_text() if ORDERS.exists() else "none"


@tool
def order(thing: str, number: int) -> str:
    """Order a number of a thing."""
    note("order")
    with ORDERS.open("a") as placed:
        placed.write(f"{number} {thing}\n")
    note("order done")
    return f"ordered {number} {thing}"


def gate(request: ToolRequest) -> Answer:
    """Orders wait until a person has written their call id into approved.txt. It is read at every question."""
    if request.tool != "order":
        return Answer(permission=Permission.ALLOWED)
    approved = APPROVED.read_text().split() if APPROVED.exists() else []
    verdict = Permission.ALLOWED if request.call_id in approved else Permission.PENDING
    return Answer(permission=verdict, approval_id=request.call_id, reason=f"echo {request.call_id} >> {APPROVED}")


def model() -> Any:
    """The model made of rules, or with AGENT_MODEL (such as `openai:gpt-5`) a real one."""
    name = os.environ.get("AGENT_MODEL")
    if name is None:
        return StoreRoomModel(asked=lambda: note("model"))
    from langchain.chat_models import init_chat_model

    return init_chat_model(name)


def main() -> int:
    """Run the agent, or go on with its run, and return 0, or 4 where it waits for an approval."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", default="store-room", help="the run's id: the same one goes on")
    given = parser.parse_args()
    rules = {"count": {"safe": True}, "list_orders": {"safe": True}}
    agent = create_agent(
        model(),
        [count, list_orders, order],
        system_prompt=SYSTEM,
        middleware=[ledger_middleware(tools=rules, gate=gate)],
    )
    with RunLedger() as ledger:
        try:
            with ledger.run(given.run):
                state = agent.invoke({"messages": [HumanMessage("Is there enough ink and paper?")]})
        except Pending as waits:
            print(f"waiting: {waits}")
            return waits.exit_code
    print(state["messages"][-1].text)
    asked = [line.split()[0] for line in CALLS.read_text().splitlines() if line.endswith(" model")]
    print(f"[the model was asked {asked.count(str(os.getpid()))} times in this process, {len(asked)} times in all]")
    return 0


if __name__ == "__main__":
    sys.exit(main())
