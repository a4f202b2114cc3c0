"""The calls of dynamic runs that are measured: chained like a pipeline's steps, with the same results of 1 KiB."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from agent_run_ledger import LoopDetectorPolicy, Misuse, RunLedger
from agent_run_ledger.benchmark.work import Result, result

Entered = Callable[[int], None]
MESSAGE = {"role": "user", "content": "x" * 480}
"""One message of a transcript: about 512 bytes of JSON."""


class Kind(StrEnum):
    """What is called."""

    STEP = "pure step"
    SAFE = "safe tool"
    UNSAFE = "unsafe tool"
    WATCHED = "safe tool, watched"


def opened(path: str, *, watched: bool = False) -> RunLedger:
    """Return a ledger on an existing store that is open, with a run that is new; `watched`: by the breaker."""
    policy = LoopDetectorPolicy() if watched else None
    ledger = RunLedger("bench", path, policy=policy)
    if ledger.bind("bench").state is not None:
        raise Misuse("the run of the benchmark is not new", code="run_exists")
    return ledger


def make_calls(ledger: RunLedger, kind: Kind, count: int, entered: Entered | None = None) -> None:
    """Make `count` calls in one run, each with its number and the result of the one before."""

    def one(i: int, previous: Result) -> Result:
        if entered is not None:
            entered(i)
        return result(i)

    call: Any = ledger.step(one) if kind is Kind.STEP else ledger.tool(safe=kind is not Kind.UNSAFE)(one)
    previous: Result = {}
    with ledger.run():
        for i in range(count):
            previous = call(i, previous)


def grow_transcript(ledger: RunLedger, messages: int, called: Callable[[], None]) -> None:
    """Make one call per message with all messages so far, as an agent does; `called` is told after each."""

    @ledger.step
    def ask(transcript: list[dict[str, str]]) -> str:
        return f"{len(transcript)}"

    transcript: list[dict[str, str]] = []
    with ledger.run():
        for i in range(messages):
            transcript.append({**MESSAGE, "id": str(i)})
            ask(transcript)
            called()
