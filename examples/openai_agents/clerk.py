"""A clerk that pays invoices, with the OpenAI Agents SDK: killed and restarted, it pays once and asks nothing twice."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

from agents import Agent, Model, Runner, RunState, function_tool, set_tracing_disabled
from fake_model import FakeModel

from agent_run_ledger import Pending, RunLedger
from agent_run_ledger.adapters.gate import Answer, Permission, ToolRequest
from agent_run_ledger.adapters.openai_agents import check_interruptions, wrap_agent

RAN, PAID, DECISIONS, STATE = Path("calls.log"), Path("payments.jsonl"), Path("decisions.json"), Path("state.json")
INVOICES = {"Ada": 40, "Grace": 75}


def note(what: str) -> None:
    """Write down that a body really ran, and die there if CLERK_DIES says so."""
    with RAN.open("a") as log:
        log.write(f"{what}\n")
    if os.environ.get("CLERK_DIES") == what:
        os.kill(os.getpid(), signal.SIGKILL)


# -- tools, as the SDK wants them: nothing in them knows of the ledger


@function_tool
def list_invoices() -> dict[str, int]:
    """List the open invoices: who is to be paid how much."""
    note("list_invoices")
    return INVOICES


@function_tool
def list_payments() -> list[str]:
    """List the payments that were made."""
    note("list_payments")
    return PAID.read_text().splitlines() if PAID.exists() else []


@function_tool
def pay(to: str, amount: int) -> str:
    """Pay somebody."""
    note("pay")
    with PAID.open("a") as log:
        log.write(json.dumps({"to": to, "amount": amount}) + "\n")
    note("paid")
    return f"paid {amount} to {to}"


def gate(request: ToolRequest) -> Answer:
    """Let payments above 50 wait for a person, whose decisions stand in a file."""
    if request.tool != "pay" or request.arguments["amount"] <= 50:
        return Answer(permission=Permission.ALLOWED)
    decisions = json.loads(DECISIONS.read_text()) if DECISIONS.exists() else {}
    return Answer(
        permission=Permission(decisions.get(request.call_id, "pending")),
        approval_id=request.call_id,
        reason="more than 50 is for a person to decide",
    )


def clerk(model: str | Model) -> Agent[Any]:
    """Make the agents, and let them record: this line is all that they need of the ledger."""
    writer = Agent(name="writer", instructions="Write one polite sentence about the payment.", model=model)
    agent = Agent(
        name="clerk",
        instructions="Pay the open invoices, each once, and have a letter written about each payment.",
        model=model,
        tools=[list_invoices, list_payments, pay, writer.as_tool("write_letter", "Writes a letter.")],
    )
    return wrap_agent(agent, tools={"list_invoices": {"safe": True}, "list_payments": {"safe": True}}, gate=gate)


async def work(run_id: str, model: str | Model, *, from_state: bool) -> str:
    """Run the clerk, from the beginning or from where its RunState says that it waited."""
    agent = clerk(model)
    with RunLedger() as ledger:  # AGENT_RUN_LEDGER_DB, or ./agent_run_ledger.db
        async with ledger.run(run_id):
            start: Any = "Pay what is open."
            if from_state:
                start = await RunState.from_json(agent, json.loads(STATE.read_text()))
                for waiting in start.get_interruptions():
                    start.approve(waiting)  # it wakes the SDK up; whether anything is paid says the gate
            result = await Runner.run(agent, start)
            if result.interruptions:
                STATE.write_text(json.dumps(result.to_state().to_json()))
            check_interruptions(result)
            return str(result.final_output)


def main() -> None:
    """Read what is wanted, and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", default="invoices", help="the run that goes on, or begins")
    parser.add_argument(
        "--model", default="", help="a model of OpenAI's (OPENAI_API_KEY); by default one made of rules"
    )
    parser.add_argument("--from-state", action="store_true", help="go on from state.json instead of the beginning")
    parser.add_argument("--decide", metavar="CALL=VERDICT", help="allow or deny a call: CALL=allowed, CALL=denied")
    asked = parser.parse_args()
    set_tracing_disabled(True)  # the SDK sends traces to OpenAI where it is not told otherwise
    if asked.decide:
        call, verdict = asked.decide.split("=")
        DECISIONS.write_text(json.dumps({call: Permission(verdict)}))
    try:
        print(asyncio.run(work(asked.run, asked.model or FakeModel(note), from_state=asked.from_state)))
    except Pending as pending:
        print(pending.message)
        raise SystemExit(pending.exit_code) from None


if __name__ == "__main__":
    main()
