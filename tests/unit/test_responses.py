"""Reading what a response says it used: the shapes of the clients, hostile values, and that no foreign code runs."""

from __future__ import annotations

import json
from collections import namedtuple
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from agent_run_ledger.kernel.usage import MAX_COUNT, Usage, usage_bytes
from agent_run_ledger.runs.responses import KEYS, MAX_ITEMS, read_usage

# The shapes are those of openai 3.57.0, anthropic 2.14.0 and langchain-core 1.8.3, whose classes are pydantic models.


class CachedTokens(BaseModel):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class CompletionUsage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens | None = None


class ChatCompletion(BaseModel):
    id: str
    model: str
    object: Literal["chat.completion", "chat.completion.chunk"] = "chat.completion"
    choices: list[dict[str, Any]] = []
    usage: CompletionUsage | None = None


class ResponseUsage(BaseModel):
    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: CachedTokens


class OpenAIResponse(BaseModel):
    id: str
    model: str
    object: Literal["response"] = "response"
    output: list[dict[str, Any]] = []
    usage: ResponseUsage | None = None


class AnthropicUsage(BaseModel):
    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens_details: dict[str, int] | None = None


class Message(BaseModel):
    id: str
    model: str
    type: Literal["message"] = "message"
    content: list[dict[str, Any]] = []
    usage: AnthropicUsage


class AIMessage(BaseModel):
    content: str = ""
    type: Literal["ai", "AIMessageChunk", "human"] = "ai"
    id: str | None = None
    response_metadata: dict[str, Any] = {}
    usage_metadata: dict[str, Any] | None = None


CHAT = ChatCompletion(
    id="chatcmpl-1",
    model="gpt-4o-mini-2024-07-18",
    usage=CompletionUsage(
        prompt_tokens=10, completion_tokens=3, total_tokens=13, prompt_tokens_details=CachedTokens(cached_tokens=4)
    ),
)
RESPONSE = OpenAIResponse(
    id="resp_1",
    model="gpt-4o",
    usage=ResponseUsage(
        input_tokens=10,
        output_tokens=2,
        total_tokens=12,
        input_tokens_details=CachedTokens(cached_tokens=3, cache_write_tokens=2),
    ),
)
MESSAGE = Message(
    id="msg_1",
    model="claude-sonnet-4-5",
    usage=AnthropicUsage(input_tokens=5, output_tokens=7, cache_read_input_tokens=100, cache_creation_input_tokens=20),
)
AI = AIMessage(
    id="lc_run--1",
    response_metadata={"model_name": "gpt-4o", "model_provider": "openai"},
    usage_metadata={
        "input_tokens": 10,
        "output_tokens": 5,
        "total_tokens": 15,
        "input_token_details": {"cache_read": 3, "cache_creation": 1},
    },
)
CHAT_USAGE = Usage(model="gpt-4o-mini-2024-07-18", input_tokens=10, output_tokens=3, cache_read_tokens=4)
MESSAGE_USAGE = Usage(
    model="claude-sonnet-4-5", input_tokens=125, output_tokens=7, cache_read_tokens=100, cache_write_tokens=20
)
SHAPES: list[tuple[BaseModel, Usage]] = [
    (CHAT, CHAT_USAGE),
    (RESPONSE, Usage(model="gpt-4o", input_tokens=10, output_tokens=2, cache_read_tokens=3, cache_write_tokens=2)),
    (MESSAGE, MESSAGE_USAGE),
    (
        AI,
        Usage(
            model="gpt-4o",
            provider="openai",
            input_tokens=10,
            output_tokens=5,
            cache_read_tokens=3,
            cache_write_tokens=1,
        ),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("response", "usage"), SHAPES)
def test_every_shape_is_read_as_an_object_and_as_a_dict(response: BaseModel, usage: Usage) -> None:
    assert read_usage(response) == [usage]
    assert read_usage(response.model_dump()) == [usage]
    assert read_usage(json.loads(response.model_dump_json())) == [usage]


def test_responses_are_found_in_lists_and_one_level_below_common_keys() -> None:
    everything = [response for response, _ in SHAPES]
    usages = [usage for _, usage in SHAPES]
    assert read_usage(everything) == usages
    assert read_usage(("text", CHAT, None, 3)) == [CHAT_USAGE]
    assert read_usage(namedtuple("Answer", "text raw")("text", CHAT)) == [CHAT_USAGE]
    for key in KEYS:
        assert read_usage({key: CHAT, "more": 1}) == [CHAT_USAGE]
        assert read_usage({key: everything}) == usages


def test_an_object_of_the_users_may_hold_a_response() -> None:
    @dataclass
    class Answer:
        text: str
        response: object

    assert read_usage(Answer("text", CHAT)) == [CHAT_USAGE]


@pytest.mark.parametrize(
    "value",
    [
        None, 1, "text", b"bytes", [], (), {}, {"usage": None}, {"usage": {}}, {"usage": 5}, {"usage": []},
        {"elsewhere": CHAT}, {"messages": [AI]}, [[CHAT]], {"response": {"response": CHAT}}, {"usage_metadata": {}},
        ChatCompletion(id="x", model="m"), AIMessage(type="human"), ChatCompletion, len, json,
    ],
)  # fmt: skip
def test_what_is_no_response_says_nothing(value: object) -> None:
    assert read_usage(value) == []


def test_anthropics_input_tokens_get_the_cached_ones_added_where_there_are_any() -> None:
    plain = Message(id="m", model="claude", usage=AnthropicUsage(input_tokens=5, output_tokens=7))
    assert read_usage(plain) == [Usage(model="claude", input_tokens=5, output_tokens=7)]
    cut = {"usage": {"input_tokens": 5, "output_tokens": 7, "cache_read_input_tokens": 3}}  # without its type
    assert read_usage(cut) == [Usage(input_tokens=8, output_tokens=7, cache_read_tokens=3)]
    damaged = {"type": "message", "usage": {"input_tokens": 5, "output_tokens": 7, "cache_read_input_tokens": -3}}
    assert read_usage(damaged) == [Usage(output_tokens=7)]


def test_an_embedding_has_no_output_by_its_own_total() -> None:
    said = {"object": "list", "model": "e", "usage": {"prompt_tokens": 8, "total_tokens": 8}}
    assert read_usage(said) == [Usage(model="e", input_tokens=8, output_tokens=0)]
    said["usage"] = {"prompt_tokens": 8}
    assert read_usage(said) == [Usage(model="e", input_tokens=8)]


def test_parts_of_a_stream_are_one_response() -> None:
    def chunk(completion: int | None) -> ChatCompletion:
        used = None
        if completion is not None:
            used = CompletionUsage(prompt_tokens=7, completion_tokens=completion, total_tokens=7 + completion)
        return ChatCompletion(id="s", model="m", object="chat.completion.chunk", usage=used)

    assert read_usage([chunk(None), chunk(1), chunk(2)]) == [Usage(model="m", input_tokens=7, output_tokens=2)]

    def part(given: int, got: int, model: str = "") -> AIMessage:
        counts = {"input_tokens": given, "output_tokens": got}
        return AIMessage(type="AIMessageChunk", id="r", usage_metadata=counts, response_metadata={"model_name": model})

    assert read_usage([part(10, 0, "m"), part(0, 3), part(0, 4)]) == [
        Usage(model="m", input_tokens=10, output_tokens=7)
    ]


def test_a_response_that_stands_twice_is_one_and_two_of_one_id_are_two() -> None:
    assert read_usage([CHAT, CHAT.model_dump()]) == [CHAT_USAGE]
    assert read_usage({"response": CHAT, "raw": CHAT}) == [CHAT_USAGE]
    other = {"id": "chatcmpl-1", "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
    assert read_usage([CHAT, other]) == [CHAT_USAGE, Usage(input_tokens=1, output_tokens=1)]
    nameless = {"usage": {"prompt_tokens": 1, "completion_tokens": 1}}
    assert len(read_usage([nameless, dict(nameless)])) == 2


def test_what_a_step_was_given_was_paid_by_another_step() -> None:
    copy = CHAT.model_copy(deep=True)
    assert read_usage(copy, [CHAT]) == []
    assert read_usage([copy, MESSAGE], [{"messages": [CHAT]}]) == [MESSAGE_USAGE]
    nameless = {"usage": {"prompt_tokens": 1, "completion_tokens": 1}}
    assert read_usage({"result": nameless}, ["text", [nameless]]) == []
    assert len(read_usage(dict(nameless), [nameless])) == 1


def test_a_simple_namespace_is_read_as_a_stand_in_for_a_client_object() -> None:
    usage = SimpleNamespace(prompt_tokens=1, completion_tokens=2)
    assert read_usage(SimpleNamespace(model="m", usage=usage)) == [Usage(model="m", input_tokens=1, output_tokens=2)]

    class Own(SimpleNamespace):
        @property
        def __dict__(self) -> NoReturn:  # type: ignore[override]
            raise AssertionError("a __dict__ of its own was asked")

    assert read_usage(Own(usage={"prompt_tokens": 1, "completion_tokens": 2})) == []


class Forbidden:
    """Fails the test with every way to run its code."""

    def _never(self, *_: object, **__: object) -> NoReturn:
        raise AssertionError("code of a foreign class was run")

    __getattribute__ = __getattr__ = __eq__ = __hash__ = __len__ = __iter__ = __bool__ = __repr__ = _never  # type: ignore[assignment]
    __contains__ = __getitem__ = __int__ = __index__ = __str__ = __format__ = __instancecheck__ = _never  # type: ignore[assignment]


class Watched(Forbidden):
    """Has a usage, behind an attribute access that must not be asked."""

    def __init__(self) -> None:
        object.__getattribute__(self, "__dict__").update(usage={"prompt_tokens": 1, "completion_tokens": 2}, model="m")

    @property
    def usage(self) -> NoReturn:
        raise AssertionError("a property was asked")


class WatchedDict(Forbidden, dict[str, object]):
    """A dict whose own methods must not be asked."""

    get = items = keys = Forbidden._never  # type: ignore[assignment]


class WatchedList(Forbidden, list[object]):
    """A list whose own methods must not be asked."""


class OwnNamespace:
    """Answers `__dict__` itself."""

    @property
    def __dict__(self) -> NoReturn:  # type: ignore[override]
        raise AssertionError("a __dict__ of its own was asked")


class Meta(type):
    """Answers for its classes."""

    def __getattribute__(cls, name: str) -> Any:
        raise AssertionError("a metaclass was asked")


def test_no_code_of_a_value_is_run() -> None:
    inner: dict[str, object] = {"prompt_tokens": 1, "completion_tokens": 2}
    line = [Usage(input_tokens=1, output_tokens=2)]
    assert read_usage(Watched()) == [Usage(model="m", input_tokens=1, output_tokens=2)]
    watched = WatchedDict()
    dict.__setitem__(watched, "usage", inner)
    assert read_usage(watched) == line
    listed = WatchedList()
    list.append(listed, watched)
    assert read_usage(listed) == line
    assert read_usage(OwnNamespace()) == []
    assert read_usage(Meta("Odd", (), {})()) == []
    assert read_usage({"usage": {"prompt_tokens": Forbidden(), "completion_tokens": 2}, "model": Forbidden()}) == [
        Usage(output_tokens=2)
    ]
    assert read_usage({"usage": Forbidden(), "usage_metadata": Forbidden(), "response": Forbidden()}) == []


HOSTILE = st.one_of(
    st.integers(), st.just(MAX_COUNT + 1), st.just(10**5000), st.booleans(), st.floats(), st.text(), st.none(),
    st.lists(st.integers(), max_size=2), st.just("\ud800"), st.binary(max_size=3),
)  # fmt: skip
NAMES = st.sampled_from([
    "prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens", "cache_read_input_tokens",
    "cache_creation_input_tokens", "prompt_tokens_details", "input_tokens_details", "input_token_details",
])  # fmt: skip
NUMBERS = st.dictionaries(NAMES, HOSTILE | st.dictionaries(st.sampled_from(["cached_tokens", "cache_read"]), HOSTILE))
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "usage": NUMBERS | HOSTILE,
        "usage_metadata": NUMBERS | HOSTILE,
        "model": HOSTILE,
        "id": HOSTILE,
        "type": HOSTILE | st.just("message"),
        "response_metadata": HOSTILE | st.dictionaries(st.just("model_name"), HOSTILE),
    },
)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(FIELDS)
def test_hostile_values_are_ignored_and_the_rest_can_be_stored(fields: dict[str, object]) -> None:
    for line in read_usage({"response": [fields]}):
        assert usage_bytes([line])
        numbers = (line.input_tokens, line.output_tokens)
        assert all(number is None or 0 <= number <= 3 * MAX_COUNT for number in numbers)


def test_numbers_that_nobody_can_mean_are_unknown() -> None:
    for bad in (-1, True, 1.5, "7", MAX_COUNT + 1, float("nan")):
        assert read_usage({"usage": {"prompt_tokens": bad, "completion_tokens": 2}}) == [Usage(output_tokens=2)]
    assert read_usage({"usage": {"prompt_tokens": -1, "completion_tokens": -1}}) == []


def test_names_are_cut_and_made_storable() -> None:
    used = {"prompt_tokens": 1}
    assert read_usage({"usage": used, "model": "x" * 500})[0].model == "x" * 200
    assert read_usage({"usage": used, "model": "a\ud800"})[0].model == "a?"


def test_a_very_long_list_is_not_looked_through() -> None:
    assert len(read_usage([MESSAGE.model_dump() | {"id": str(n)} for n in range(50)])) == 50
    assert read_usage([None] * MAX_ITEMS + [CHAT]) == []
    assert read_usage((None,) * MAX_ITEMS + (CHAT,)) == []
