"""An agent in plain Python: it reads a folder of Python files and writes what somebody new to it should know."""

from __future__ import annotations

import argparse
import inspect
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import reading
from calls_log import note, noted
from models import Message, Reply, model_from

from agent_run_ledger import LedgerError, Run, RunLedger, report_usage

ledger = RunLedger()  # AGENT_RUN_LEDGER_DB, or ./agent_run_ledger.db
model = model_from(os.environ)

TRACKER = Path("issues.jsonl")
LEAD = (
    "You write a short guide to a folder of Python files. Look at it with the tools, several at once where you can. "
    "Have the file that looks hardest reviewed, and file one issue about the worst that was found. Then ask for no "
    "more tools: you will be asked for the guide."
)
REVIEWER = (
    "You review one Python file. Find its longest function, read it, and say in two sentences what is hard in it."
)


# -- what the model costs: steps, which run again when nobody knows how they ended


@ledger.step(environment=model.environment)
def ask(messages: list[Message], tools: list[dict[str, Any]]) -> Reply:
    """Ask the model what to do next."""
    reply = model.complete(messages, tools)
    note("ask")
    report_usage(**reply["usage"])
    return reply


@ledger.step(environment=model.environment)
def answer(messages: list[Message]) -> Iterator[str]:
    """Ask the model for the guide, which comes in pieces."""
    for piece in model.stream(messages):
        note("answer", once=True)
        yield piece


# -- what the model may ask for: tools


@ledger.tool(safe=True)
def list_files(folder: str) -> list[dict[str, Any]]:
    """List the Python files of a folder with their numbers of lines."""
    note("list_files")
    return reading.files(folder)


@ledger.tool(safe=True)
def outline(path: str) -> dict[str, Any]:
    """Tell a file's purpose, imports, classes and functions, each with its number of lines."""
    note("outline")
    return reading.outline(path)


@ledger.tool(safe=True)
def search(folder: str, text: str) -> list[str]:
    """Find the lines of a folder's Python files that contain a text."""
    note("search")
    return reading.search(folder, text)


@ledger.tool(safe=True)
def read_function(path: str, name: str) -> str:
    """Return the source of one function of a file."""
    note("read_function")
    return reading.function(path, name)


@ledger.tool(safe=True)
def list_issues() -> list[dict[str, Any]]:
    """List the issues that were filed."""
    note("list_issues")
    return [json.loads(line) for line in TRACKER.read_text().splitlines()] if TRACKER.exists() else []


@ledger.tool  # not safe: filing twice is two issues, so nobody files again what may have been filed
def file_issue(title: str, body: str) -> dict[str, Any]:
    """File an issue with the owners of the code."""
    note("file_issue")
    with TRACKER.open("a") as tracker:
        tracker.write(json.dumps({"title": title, "body": body}) + "\n")
    note("file_issue done")
    return {"filed": title}


def review(path: str) -> str:
    """Have one file read closely by a reviewer."""
    with ledger.run(role="reviewer", path=path) as run:  # within another run: a child of its own
        return str(work(run, REVIEWER, f"Review {path}", [outline, read_function])[-1]["content"])


# -- the agent


def work(run: Run, system: str, task: str, tools: Sequence[Callable[..., Any]]) -> list[Message]:
    """Ask the model and do what it asks for until it asks for nothing more; return the whole conversation."""
    messages: list[Message] = [{"role": "system", "content": system}, {"role": "user", "content": task}]
    offered = [described(tool) for tool in tools]
    by_name = {tool.__name__: tool for tool in tools}
    while True:
        reply = ask(messages, offered)
        messages.append({"role": "assistant", "content": reply["text"], "calls": reply["calls"]})
        if not reply["calls"]:
            return messages
        results = run.map(lambda call: use(by_name, call), reply["calls"])
        messages += [
            {"role": "tool", "call": call["id"], "name": call["name"], "content": json.dumps(result)}
            for call, result in zip(reply["calls"], results, strict=True)
        ]


def use(tools: dict[str, Callable[..., Any]], call: dict[str, Any]) -> Any:
    """Call a tool. What it raises is for the model to read; what the ledger raises is not."""
    try:
        return tools[call["name"]](**call["arguments"])
    except LedgerError:
        raise
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def described(tool: Callable[..., Any]) -> dict[str, Any]:
    """Describe a tool to a model. All parameters of this agent's tools are texts."""
    parameters = list(inspect.signature(tool).parameters)
    return {"name": tool.__name__, "description": inspect.getdoc(tool), "parameters": parameters}


def write_guide(folder: str, run_id: str) -> None:
    """Do the whole job in one run, and print the guide as it comes."""
    with ledger.run(run_id, folder=folder) as run:
        system = f"{LEAD} It is {run.now():%d %B %Y, %H:%M} UTC."  # recorded: the same at every restart
        tools: list[Callable[..., Any]] = [list_files, outline, search, review, file_issue, list_issues]
        conversation = work(run, system, f"Write the guide to {folder}", tools)
        for piece in answer(conversation):
            print(piece, end="", flush=True)
    print(f"\n\n{noted()}")


def main() -> None:
    """Read the command line: the folder, and which run this is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default=os.path.dirname(json.__file__), help="default: Python's own json")
    parser.add_argument("--run", default="guide", help="the run's id: the same id goes on with the same run")
    chosen = parser.parse_args()
    write_guide(chosen.folder, chosen.run)


if __name__ == "__main__":
    main()
