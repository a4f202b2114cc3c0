"""Models: what is asked, recorded and restored, streamed or not, and what of a request is its meaning."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, ModelSettings, RunConfig, Runner, function_tool
from agents.models.interface import ModelTracing
from openai.types.responses.response_reasoning_item import ResponseReasoningItem, Summary

from agent_run_ledger import Diverged, Misuse
from agent_run_ledger.adapters.gate import Answer, Permission, ToolRequest
from agent_run_ledger.adapters.openai_agents import LedgerModelProvider, make_recorder, wrap_agent, wrap_model
from agent_run_ledger.adapters.openai_agents.requests import request_of
from agent_run_ledger.testing import check_ledger
from tests.adapters.openai_agents.fakes import FakeModel, call, text
from tests.adapters.openai_agents.lives import RUN, ledger, live

THOUGHT = ResponseReasoningItem(
    id="rs_1", type="reasoning", summary=[Summary(text="Easy.", type="summary_text")], encrypted_content="c2VjcmV0"
)


def _agent(folder: Path, *items: Any, **said: Any) -> tuple[Agent[Any], FakeModel]:
    model = FakeModel(lambda *_: items or [THOUGHT, text("all is well")], folder / "asked")
    return wrap_agent(Agent(name="clerk", instructions="Be short.", model=model, **said)), model


async def _stream(folder: Path, agent: Agent[Any]) -> list[Any]:
    with ledger(folder) as opened:
        async with opened.run(RUN):
            streamed = Runner.run_streamed(agent, "Go.")
            events = [event.data async for event in streamed.stream_events() if event.type == "raw_response_event"]
            assert streamed.final_output == "all is well"
    check_ledger(folder / "ledger.db")
    return events


def _texts(events: list[Any]) -> list[str]:
    return [event.delta for event in events if event.type == "response.output_text.delta"]


def test_items_and_ids_come_back_as_they_were(tmp_path: Path) -> None:
    first, second = live(tmp_path, _agent(tmp_path)[0]), None
    agent, model = _agent(tmp_path)
    second = live(tmp_path, agent)
    assert model.requests == []
    assert second.to_input_list() == first.to_input_list()
    assert second.raw_responses == first.raw_responses
    assert second.raw_responses[0].output[0] == THOUGHT
    assert second.context_wrapper.usage == first.context_wrapper.usage


def test_a_stream_is_restored_with_its_chunks_and_its_end(tmp_path: Path) -> None:
    first = asyncio.run(_stream(tmp_path, _agent(tmp_path)[0]))
    agent, model = _agent(tmp_path)
    again = asyncio.run(_stream(tmp_path, agent))
    assert model.requests == []
    assert _texts(again) == _texts(first) == ["all ", "is ", "well"]
    assert again[-1].type == first[-1].type == "response.completed"
    assert again[-1].response == first[-1].response
    assert again[-1].response.usage.input_tokens == 100


def test_a_streamed_answer_is_the_record_of_one_that_is_not_and_the_other_way_round(tmp_path: Path) -> None:
    for folder, streams_first in ((tmp_path / "a", True), (tmp_path / "b", False)):
        folder.mkdir()
        for streams in (streams_first, not streams_first):
            agent, model = _agent(folder)
            if streams:
                events = asyncio.run(_stream(folder, agent))
                assert "".join(_texts(events)) == "all is well"
            else:
                assert live(folder, agent).final_output == "all is well"
            assert len(model.requests) == (1 if streams is streams_first else 0)


def test_a_stream_that_is_left_is_no_record(tmp_path: Path) -> None:
    class Pauses(FakeModel):
        async def stream_response(self, *args: Any, **said: Any) -> Any:
            async for event in super().stream_response(*args, **said):
                yield event
                await asyncio.sleep(0.01)

    async def leave(agent: Agent[Any]) -> None:
        with ledger(tmp_path) as opened:
            async with opened.run(RUN):
                events = _ask_stream(agent.model)
                assert (await anext(events)).type == "response.created"
                await events.aclose()
                raise ZeroDivisionError

    for _ in range(2):
        model = Pauses(lambda *_: [THOUGHT, text("all is well")], tmp_path / "asked")
        agent: Agent[Any] = wrap_agent(Agent(name="clerk", instructions="Be short.", model=model))
        with pytest.raises(ZeroDivisionError):
            asyncio.run(leave(agent))
        check_ledger(tmp_path / "ledger.db")
        assert len(model.requests) == 1
    agent, model = _agent(tmp_path)
    asyncio.run(_stream(tmp_path, agent))
    assert len(model.requests) == 1


def _ask_stream(model: Any) -> Any:
    return model.stream_response(
        "Be short.", "Go.", ModelSettings(), [], None, [], ModelTracing.DISABLED,
        previous_response_id=None, conversation_id=None, prompt=None,
    )  # fmt: skip


def test_a_stream_without_an_end_is_an_error_and_no_answer(tmp_path: Path) -> None:
    class Breaks(FakeModel):
        async def stream_response(self, *args: Any, **said: Any) -> Any:
            async for event in super().stream_response(*args, **said):
                if event.type != "response.completed":
                    yield event

    agent = wrap_agent(Agent(name="clerk", model=Breaks(lambda *_: [text("half")], tmp_path / "asked")))
    with pytest.raises(Exception, match="without a completed response"):
        asyncio.run(_stream(tmp_path, agent))
    agent, model = _agent(tmp_path)
    agent.instructions = None
    asyncio.run(_stream(tmp_path, agent))
    assert len(model.requests) == 1


def test_a_sync_run_is_restored(tmp_path: Path) -> None:
    for asked in (1, 0):
        agent, model = _agent(tmp_path)
        with ledger(tmp_path) as opened, opened.run(RUN):
            assert Runner.run_sync(agent, "Go.").final_output == "all is well"
        assert len(model.requests) == asked
        check_ledger(tmp_path / "ledger.db")


def test_outside_of_a_run_nothing_is_asked(tmp_path: Path) -> None:
    agent, model = _agent(tmp_path)
    with pytest.raises(Misuse, match="outside a run"):
        Runner.run_sync(agent, "Go.")
    assert model.requests == []


def test_what_shapes_an_answer_is_in_the_request(tmp_path: Path) -> None:
    def crash(agent: Agent[Any]) -> None:
        agent.output_guardrails = [BROKEN]
        with pytest.raises(ZeroDivisionError):
            live(tmp_path, agent)

    from agents import output_guardrail

    @output_guardrail
    async def BROKEN(*_: Any) -> Any:  # noqa: N802
        raise ZeroDivisionError

    crash(_agent(tmp_path)[0])
    for changed in (
        {"model_settings": ModelSettings(temperature=0.5)},
        {"tools": [function_tool(lambda shelf: shelf, name_override="look", strict_mode=False)]},
        {"output_type": list[int]},
    ):
        agent, model = _agent(tmp_path, **changed)
        with pytest.raises(Diverged, match=r"arguments\."):
            live(tmp_path, agent)
        assert model.requests == []
    for changed in ({"model_settings": ModelSettings(metadata={"a": "b"}, store=True, timeout=30)}, {}):
        agent, model = _agent(tmp_path, **changed)
        crash(agent)
        assert model.requests == []


def test_none_and_what_is_new_at_every_start_is_no_part_of_a_request() -> None:
    settings = ModelSettings(extra_args={"prompt_cache_key": "run:1", "seed": 3})
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi", "logprobs": None}]}
    said: dict[str, Any] = {
        "system_instructions": None, "input": [item], "model_settings": settings, "tools": [],
        "output_schema": None, "handoffs": [], "tracing": ModelTracing.DISABLED, "conversation_id": None,
    }  # fmt: skip
    request = request_of("m", **said)
    assert request == {
        "model": "m",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
        "settings": {"extra_args": {"seed": 3}},
    }
    other = replace(settings, extra_args={"prompt_cache_key": "run:2", "seed": 3})
    assert request_of("m", **{**said, "model_settings": other, "tracing": ModelTracing.ENABLED}) == request


def test_a_provider_makes_its_model_when_it_is_asked(tmp_path: Path) -> None:
    made: list[str | None] = []

    class Provider:
        def get_model(self, name: str | None) -> Any:
            made.append(name)
            return FakeModel(lambda *_: [text("all is well")], tmp_path / "asked")

    for expected in (["small"], []):
        made.clear()
        agent = wrap_agent(Agent(name="clerk", model="small"), provider=Provider())  # type: ignore[arg-type]
        assert live(tmp_path, agent).final_output == "all is well"
        assert made == expected


def test_a_provider_in_the_config_of_a_run(tmp_path: Path) -> None:
    class Provider:
        def get_model(self, name: str | None) -> Any:
            return FakeModel(lambda *_: [text("all is well")], tmp_path / "asked")

    provider = LedgerModelProvider(Provider(), recorder=make_recorder())  # type: ignore[arg-type]
    for _ in range(2):
        with ledger(tmp_path) as opened, opened.run(RUN):
            Runner.run_sync(Agent(name="clerk", model="small"), "Go.", run_config=RunConfig(model_provider=provider))
    assert (tmp_path / "asked").read_text() == "asked\n"


def test_wrapped_twice_is_wrapped_once(tmp_path: Path) -> None:
    model = wrap_model(FakeModel(lambda *_: [text("x")], tmp_path / "asked"))
    assert wrap_model(model) is model
    agent, _ = _agent(tmp_path)
    inner = agent.model
    assert wrap_agent(agent).model is inner


def _gate(request: ToolRequest) -> Answer:
    return Answer(permission=Permission.DENIED, reason="not today")


@function_tool
def look() -> str:
    """Look."""
    return "looked"


def test_a_gate_and_rules_that_would_not_hold_are_refused(tmp_path: Path) -> None:
    agent, model = _agent(tmp_path, tools=[look])
    for again in (agent, Agent(name="main", model=model, handoffs=[agent]), Agent(name="b", tools=agent.tools)):
        with pytest.raises(Misuse, match="wrapped before") as refused:
            wrap_agent(again, gate=_gate)
        assert refused.value.code == "wrapped_twice"
    with pytest.raises(Misuse, match="wrapped before"):
        wrap_agent(agent, tools={"*": {"deny": True}})


@pytest.mark.parametrize("said", [{}, {"gate": _gate, "tools": {"x": {"safe": True}}}])
def test_a_tool_that_was_added_since_is_wrapped_by_the_gate_of_its_agent(said: dict[str, Any], tmp_path: Path) -> None:
    model = FakeModel(
        lambda results, _: [text(str(results))] if results else [call("look", "call-1")], tmp_path / "asked"
    )
    agent = wrap_agent(Agent(name="clerk", model=model), gate=_gate, tools={"x": {"safe": True}})
    agent.tools.append(look)
    wrap_agent(agent, **said)
    with ledger(tmp_path) as opened, opened.run(RUN):
        assert "not today" in Runner.run_sync(agent, "Go.").final_output
