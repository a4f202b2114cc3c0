"""What a recorded chat model gives: the same message at each restart, however it is asked, and nothing paid twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.globals import set_llm_cache
from langchain_core.messages import AIMessage, AIMessageChunk, ChatMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from pydantic import BaseModel

from agent_run_ledger import Diverged, Misuse, RunLedger
from agent_run_ledger.adapters.langchain import wrap_chat_model
from agent_run_ledger.adapters.langchain.request import request_of
from agent_run_ledger.testing import check_ledger
from tests.adapters.langchain.scripted import Scripted, scripted

FULL = AIMessage(
    content=[{"type": "text", "text": "Well:"}, {"type": "image", "url": "https://example.org/a.png", "extra": None}],
    tool_calls=[{"id": "call-1", "name": "look", "args": {"at": ["a", 1, None]}}],
    invalid_tool_calls=[{"type": "invalid_tool_call", "id": "call-2", "name": "look", "args": "{", "error": "no JSON"}],
    usage_metadata={
        "input_tokens": 7,
        "output_tokens": 3,
        "total_tokens": 10,
        "input_token_details": {"cache_read": 2},
    },
    response_metadata={"model_name": "fake-1", "model_provider": "nobody", "fingerprint": None, "handle": object()},
    additional_kwargs={"reasoning": "short"},
    name="clerk",
)
ASK: list[Any] = [SystemMessage("Be short."), HumanMessage("Where?")]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[RunLedger]:
    with RunLedger(db_path=tmp_path / "ledger.db") as ledger:
        yield ledger
    if (tmp_path / "ledger.db").exists():
        check_ledger(tmp_path / "ledger.db")


def test_a_restored_message_is_the_live_one(ledger: RunLedger, tmp_path: Path) -> None:
    model = scripted(tmp_path, FULL)
    found: list[AIMessage] = []
    for _ in range(2):
        with ledger.run("message"):
            found.append(wrap_chat_model(model).invoke(ASK))
    live, restored = found
    assert restored == live
    assert live.id is not None
    assert live.id.startswith("lc_run--")
    metadata = {"model_name": "fake-1", "model_provider": "nobody", "fingerprint": None, "finish_reason": "stop"}
    assert live.response_metadata == metadata, "what is no plain value was kept, or what is one was lost"
    assert live.model_dump(exclude={"id", "response_metadata"}) == FULL.model_dump(exclude={"id", "response_metadata"})
    assert model.asked == 1
    account = ledger.bind("message").usage(by="model")
    assert account is not None
    assert [*account.rows] == ["fake-1"]
    assert (account.total.spent.input_tokens, account.total.spent.cache_read_tokens) == (7, 2)


def _text(model: Any, how: str) -> str:
    if how == "invoke":
        return str(model.invoke(ASK).text)
    if how == "stream":
        return "".join(str(chunk.text) for chunk in model.stream(ASK))
    if how == "ainvoke":
        return str(asyncio.run(model.ainvoke(ASK)).text)

    async def taken() -> str:
        return "".join([str(chunk.text) async for chunk in model.astream(ASK)])

    return asyncio.run(taken())


@pytest.mark.parametrize("first", ["invoke", "stream", "ainvoke", "astream"])
def test_what_one_way_of_asking_recorded_every_other_one_restores(
    ledger: RunLedger, tmp_path: Path, first: str
) -> None:
    model = scripted(
        tmp_path, AIMessage("well", usage_metadata={"input_tokens": 5, "output_tokens": 2, "total_tokens": 7})
    )
    for how in (first, "invoke", "stream", "ainvoke", "astream"):
        with ledger.run("ways"):
            assert _text(wrap_chat_model(model), how) == "well"
    assert model.asked == 1
    account = ledger.bind("ways").usage()
    assert account is not None
    assert (account.total.spent.calls, account.total.spent.tokens) == (1, 7)


def test_a_restored_stream_has_the_same_chunks(ledger: RunLedger, tmp_path: Path) -> None:
    reply = AIMessage("ab", tool_calls=[{"id": "call-1", "name": "look", "args": {"at": "a"}}])
    model = scripted(tmp_path, reply)
    found: list[list[AIMessageChunk]] = []
    for _ in range(2):
        with ledger.run("chunks"):
            found.append([*wrap_chat_model(model).stream(ASK)])
    assert found[0] == found[1]
    assert [chunk.content for chunk in found[1]][:2] == ["a", "b"]
    whole = found[1][0]
    for chunk in found[1][1:]:
        whole = whole + chunk  # type: ignore[assignment]
    assert whole.tool_calls == reply.tool_calls
    assert model.asked == 1


def test_a_stream_that_was_left_is_asked_for_again(ledger: RunLedger, tmp_path: Path) -> None:
    model = scripted(tmp_path, "well")
    with ledger.run("left"):
        stream = wrap_chat_model(model).stream(ASK)
        assert next(stream).content == "w"
        stream.close()
        assert _text(wrap_chat_model(model), "stream") == "well"
    with ledger.run("left"):
        assert _text(wrap_chat_model(model), "stream") == "well"
    assert model.asked == 2


def test_ids_metadata_and_usage_of_messages_are_no_part_of_a_question(ledger: RunLedger, tmp_path: Path) -> None:
    model = scripted(tmp_path, "first", "second")
    used: Any = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, "total_cost": 0}
    answers = [
        AIMessage("first", id="a"),
        AIMessage("first", id="b", usage_metadata=used, response_metadata={"at": "now"}, additional_kwargs={"x": 1}),
    ]
    for number, answer in enumerate(answers):
        with ledger.run("ids"):
            asked = [
                HumanMessage("Where?", id=str(number)),
                answer,
                ToolMessage("here", tool_call_id="c", id=str(number)),
            ]
            assert wrap_chat_model(model).invoke(asked).content == "second"
    assert model.asked == 1


@pytest.mark.parametrize(
    "other",
    [
        pytest.param([SystemMessage("Be long."), HumanMessage("Where?")], id="the system prompt"),
        pytest.param([HumanMessage("Be short."), HumanMessage("Where?")], id="a role"),
        pytest.param([SystemMessage("Be short."), HumanMessage("Where?", name="Ada")], id="a name"),
        pytest.param(
            [SystemMessage("Be short."), ToolMessage("Where?", tool_call_id="c", status="error")], id="a failure"
        ),
    ],
)
def test_what_a_question_means_is_part_of_it(ledger: RunLedger, tmp_path: Path, other: list[Any]) -> None:
    model = scripted(tmp_path, "well")
    _differ(ledger, lambda: wrap_chat_model(model).invoke(ASK), lambda: wrap_chat_model(model).invoke(other))
    assert model.asked == 1


def test_a_question_is_known_by_the_same_projection_in_every_version(tmp_path: Path) -> None:
    empty = HumanMessage("")
    empty.content = None  # type: ignore[assignment]  # as some programs leave it
    asked = [
        SystemMessage("Be short."),
        HumanMessage([{"type": "text", "text": "Where?", "extra": None}], name="Ada"),
        AIMessage("", tool_calls=[{"id": "c", "name": "look", "args": {"at": ["a", None, {"b": None}], "to": None}}]),
        ToolMessage("gone", tool_call_id="c", name="look", status="error"),
        ToolMessage("here", tool_call_id="c"),
        AIMessageChunk("well"),
        ChatMessage("so", role="judge"),
        empty,
    ]
    settings: dict[str, Any] = {"tools": [{"name": "look", "strict": None}], "pair": (1, None), "stream": True}
    assert request_of(scripted(tmp_path, "well"), asked, stop=["."], settings=settings) == {
        "model": {"class": "Scripted", "ls_provider": "scripted"},
        "messages": [
            {"role": "system", "content": "Be short."},
            {"role": "human", "content": [{"type": "text", "text": "Where?"}], "name": "Ada"},
            {
                "role": "ai",
                "content": "",
                "calls": [{"id": "c", "name": "look", "arguments": {"at": ["a", None, {}]}}],
            },
            {"role": "tool", "content": "gone", "name": "look", "call": "c", "failed": True},
            {"role": "tool", "content": "here", "call": "c"},
            {"role": "ai", "content": "well", "calls": []},
            {"role": "judge", "content": "so"},
            {"role": "human"},
        ],
        "settings": {"tools": [{"name": "look"}], "pair": [1, None]},
        "stop": ["."],
    }


def _differ(ledger: RunLedger, one: Callable[[], object], other: Callable[[], object]) -> None:
    """One question is asked, the process dies; the other one is no record of it, and the one itself is."""
    with pytest.raises(KeyboardInterrupt):
        _cut(ledger, one)
    with pytest.raises(Diverged), ledger.run("meaning"):
        other()
    with ledger.run("meaning"):
        one()


def _cut(ledger: RunLedger, act: Callable[[], object]) -> None:
    with ledger.run("meaning"):
        act()
        raise KeyboardInterrupt


def look(at: str) -> str:
    """Look there."""
    return at


def look_again(at: str) -> str:
    """Look there."""
    return at


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda model: model.bind_tools([look]).invoke(ASK, stop=["."]), id="stop"),
        pytest.param(lambda model: model.bind_tools([look_again]).invoke(ASK), id="the tools"),
        pytest.param(lambda model: model.bind_tools([look], tool_choice="any").invoke(ASK), id="the choice of a tool"),
        pytest.param(lambda model: model.bind_tools([look]).bind(temperature=1).invoke(ASK), id="a setting"),
        pytest.param(lambda model: model.invoke(ASK), id="no tools"),
    ],
)
def test_settings_and_tools_are_part_of_a_question(ledger: RunLedger, tmp_path: Path, ask: Any) -> None:
    model = wrap_chat_model(scripted(tmp_path, "well"))
    _differ(ledger, lambda: model.bind_tools([look]).invoke(ASK), lambda: ask(model))
    assert model.inner.asked == 1
    assert wrap_chat_model(model) is model


def test_a_structured_answer_is_recorded(ledger: RunLedger, tmp_path: Path) -> None:
    class Place(BaseModel):
        """A place."""

        shelf: int

    model = scripted(tmp_path, AIMessage("", tool_calls=[{"id": "c", "name": "Place", "args": {"shelf": 7}}]))
    for _ in range(2):
        with ledger.run("structured"):
            assert wrap_chat_model(model).with_structured_output(Place).invoke(ASK) == Place(shelf=7)
    assert model.asked == 1


def test_langchains_own_cache_does_not_answer_past_the_record(ledger: RunLedger, tmp_path: Path) -> None:
    model = scripted(tmp_path, "well")
    set_llm_cache(InMemoryCache())
    try:
        for run_id in ("one", "two"):
            with ledger.run(run_id):
                wrap_chat_model(model).invoke(ASK)
    finally:
        set_llm_cache(None)
    assert model.asked == 2


def test_outside_of_a_run_and_for_what_is_no_model_it_is_misuse(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="outside a run"):
        wrap_chat_model(scripted(tmp_path, "well")).invoke(ASK)
    with pytest.raises(Misuse, match="no chat model"):
        wrap_chat_model(RunnableLambda(len))
    assert scripted(tmp_path).asked == 0


def test_other_attributes_are_those_of_the_model(tmp_path: Path) -> None:
    model: Scripted = scripted(tmp_path, "well")
    recorded = wrap_chat_model(model)
    assert recorded.counter_path == model.counter_path
    assert not hasattr(recorded, "no_such_thing")
    assert recorded._llm_type == "scripted"
