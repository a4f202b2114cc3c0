"""The programs in the guide run as they stand there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Runner, function_tool

from agent_run_ledger import Pending, RunLedger
from agent_run_ledger.adapters.gate import Permission
from agent_run_ledger.adapters.openai_agents import agents as wrapping
from agent_run_ledger.adapters.openai_agents import check_interruptions, wrap_agent
from agent_run_ledger.effects import ActionState
from agent_run_ledger.testing.people import People
from tests.adapters.guides import live, pieces
from tests.adapters.openai_agents.fakes import FakeModel, call, text
from tests.adapters.openai_agents.lives import Log

WHOLE, GATE, INTERRUPTED, EFFECTS = pieces("adapter_openai_agents.md")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AGENT_RUN_LEDGER_DB", raising=False)
    return tmp_path


def _model(folder: Path, name: str, **arguments: Any) -> FakeModel:
    def answers(told: Any, system: str) -> list[Any]:
        return [text(f"done: {told['c1']}")] if "c1" in told else [call(name, "c1", **arguments)]

    return FakeModel(answers, folder / "asked")


def _paying(folder: Path) -> tuple[Agent[Any], Log]:
    log = Log(folder)

    @function_tool
    def pay(invoice: int) -> str:
        log.note(f"pay-{invoice}")
        return "paid"

    return Agent(name="clerk", model=_model(folder, "pay", invoice=7), tools=[pay]), log


def test_an_agent_is_recorded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = _model(folder, "search", text="open invoices")

    class Provider:
        def get_model(self, name: str | None) -> FakeModel:
            assert name == "gpt-5-mini"
            return model

    monkeypatch.setattr(wrapping, "MultiProvider", Provider)  # nobody is asked over the network
    for _ in range(2):
        live(WHOLE, {})
    assert capsys.readouterr().out == "done: None\n" * 2
    assert (folder / "asked").read_text() == "asked\n" * 2


def test_a_gate_decides_and_an_interruption_suspends_the_run(folder: Path) -> None:
    says = [Permission.PENDING]
    saved: list[Any] = []
    names: dict[str, Any] = {
        "wrap_agent": wrap_agent,
        "decided": lambda run_id, call_id: says[0],
        "Runner": Runner,
        "save": saved.append,
        "check_interruptions": check_interruptions,
    }
    for said, ran in ((Permission.PENDING, []), (Permission.ALLOWED, ["pay-7"]), (Permission.ALLOWED, [])):
        says[0] = said
        names["agent"], log = _paying(folder)
        live(GATE, names)
        within = f"async with ledger.run('ticket-17'):\n{_indented(INTERRUPTED)}"
        with RunLedger(db_path="runs.db") as names["ledger"]:
            if said is Permission.PENDING:
                with pytest.raises(Pending):
                    live(within, names)
            else:
                live(within, names)
                assert names["result"].final_output == "done: paid"
        assert log.take() == ran
    assert len(saved) == 1


def test_an_effect_waits_for_people_and_happens_once(folder: Path) -> None:
    people = People("agent_run_ledger.db", "trust.json")
    ran: list[str] = []

    def start() -> dict[str, Any]:
        agent, log = _paying(folder)
        names = {
            "agent": agent,
            "wrap_agent": wrap_agent,
            "RunLedger": RunLedger,
            "Runner": Runner,
            "check_interruptions": check_interruptions,
        }
        try:
            live(EFFECTS, names)
        finally:
            ran.extend(log.take())
        return names

    with pytest.raises(Pending, match="pay"):
        start()
    assert ran == []
    people.grant("pay:7")
    for _ in range(2):
        assert start()["result"].final_output == "done: paid"
    assert (ran, people.members("pay:7")[-1].state) == (["pay-7"], ActionState.SUCCEEDED)


def _indented(piece: str) -> str:
    return "".join(f"    {line}" for line in piece.splitlines(keepends=True))
