"""What a tool's result says, where it is an envelope: the breaker judges what is in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import LoopDetected, RunLedger
from agent_run_ledger.adapters.recorder import Recorder
from agent_run_ledger.testing import check_ledger


def _inner(result: Any) -> object:
    return RuntimeError(result["text"]) if result["failed"] else result["text"]


def _calls_until_stopped(path: Path, make: Callable[[int], dict[str, Any]], **settings: Any) -> int:
    with RunLedger("r1", path) as ledger:
        try:
            with ledger.run("r1"):
                recorder = Recorder(**settings)
                for number in range(1, 16):
                    recorder.tool("act", {"item": f"{number * 7919}"}, lambda number=number: make(number))
        except LoopDetected:
            return number
        finally:
            check_ledger(path)
    return 0


def _said(text: str, *, failed: bool = False) -> dict[str, Any]:
    return {"envelope": "of the framework, version 7, which is the same every time", "text": text, "failed": failed}


def test_short_answers_in_an_envelope_are_no_loop_where_the_tool_says_what_is_in_it(tmp_path: Path) -> None:
    assert _calls_until_stopped(tmp_path / "a.db", lambda number: _said("accepted"), outcome=_inner) == 0


def test_an_exception_that_stands_for_a_failed_result_is_judged_as_an_error(tmp_path: Path) -> None:
    def make(number: int) -> dict[str, Any]:
        return _said("429 too many requests", failed=True)

    assert _calls_until_stopped(tmp_path / "a.db", make, outcome=_inner) == 6  # twice three infrastructure errors


def test_what_is_recorded_and_returned_is_the_whole_result(tmp_path: Path) -> None:
    for _ in range(2):
        with RunLedger("r1", tmp_path / "a.db") as ledger, ledger.run("r1"):
            recorder = Recorder(outcome=_inner)
            assert recorder.tool("act", {}, lambda: _said("x", failed=True)) == _said("x", failed=True)


@pytest.mark.parametrize("name", ["self", "make", "call_id", "step", "args"])
def test_an_argument_may_have_any_name(tmp_path: Path, name: str) -> None:
    bodies: list[str] = []

    def make() -> str:
        bodies.append(name)
        return name

    for _ in range(2):
        with RunLedger("r1", tmp_path / "a.db") as ledger, ledger.run("r1"):
            assert Recorder().tool("act", {name: 1}, make) == name
    assert bodies == [name]
