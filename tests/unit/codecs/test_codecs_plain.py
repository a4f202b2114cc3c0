"""The fast path takes exactly the values for which it equals the slow one."""

from __future__ import annotations

import collections
import enum
import json
import uuid
from typing import Any

import orjson
import pytest
from hypothesis import given

from agent_run_ledger.codecs import decode, encode, pack, packing
from agent_run_ledger.codecs.equality import difference
from agent_run_ledger.codecs.plain import MAX_DEPTH, is_plain
from agent_run_ledger.codecs.tagging import STRICT, tagged_bytes
from tests.unit.codecs import strategies
from tests.unit.codecs.samples import PLAIN, TAGGED, Level, Mode, MyDict, MyInt, MyList, MyStr, label


def nest(depth: int, value: Any = 1) -> Any:
    for _ in range(depth):
        value = [value]
    return value


@given(strategies.plain)
def test_orjson_gives_a_plain_value_back_exactly(value: Any) -> None:
    assert is_plain(value)
    written = orjson.dumps(value, option=STRICT)
    assert difference(value, orjson.loads(written)) is None
    assert written == tagged_bytes(value) == encode(value)
    assert difference(value, json.loads(written)) is None


@given(strategies.storable)
def test_the_fast_path_is_taken_only_for_values_that_are_their_own_tree(value: Any) -> None:
    if is_plain(value):
        try:
            assert orjson.dumps(value, option=STRICT) == tagged_bytes(value)
        except TypeError:  # a lone surrogate
            assert b'"$arl"' in encode(value)
    else:
        assert b'"$arl"' in encode(value)


@pytest.mark.parametrize("value", PLAIN, ids=label)
def test_json_values_are_plain(value: Any) -> None:
    assert is_plain(value)


@pytest.mark.parametrize("value", [value for value in TAGGED if b'"str"' not in encode(value)], ids=label)
def test_other_values_are_not_plain(value: Any) -> None:
    assert not is_plain(value)
    assert not is_plain([value])
    assert not is_plain({"a": value})


class IntKey(enum.IntEnum):
    ONE = 1


@pytest.mark.parametrize(
    "value",
    [
        MyDict(a=1), MyList([1]), MyStr("a"), MyInt(1), Level.LOW, Mode.FAST, IntKey.ONE, uuid.UUID(int=1), (1,),
        {MyStr("a"): 1}, {Mode.FAST: 1}, {1: 1}, {None: 1}, collections.OrderedDict(a=1), orjson.Fragment(b"1"),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_orjson_would_write_as_if_it_were_plain_is_not_plain(value: Any) -> None:
    assert not is_plain(value)
    assert not is_plain([0, value])


def test_depth_is_counted_in_levels_of_containers() -> None:
    assert is_plain(nest(MAX_DEPTH))
    assert not is_plain(nest(MAX_DEPTH + 1))
    assert decode(encode(nest(MAX_DEPTH))) == nest(MAX_DEPTH)


def test_a_cycle_is_not_plain() -> None:
    looped: list[Any] = []
    looped.append(looped)
    assert not is_plain(looped)


def test_a_small_graph_with_a_huge_spelling_ends() -> None:
    value: Any = [1]
    for _ in range(100):
        value = [value, value]
    assert not is_plain(value, max_nodes=1000)


def test_nodes_are_counted_exactly() -> None:
    assert is_plain([1, [2, 3]], max_nodes=4)
    assert not is_plain([1, [2, 3]], max_nodes=3)


def test_a_value_changed_by_another_thread_between_two_looks_is_not_recorded_as_it_was_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    value: dict[str, Any] = {"a": 1}

    def late(payload: bytes) -> Any:
        restored = orjson.loads(payload)
        value["a"] = 2
        return restored

    class Orjson:
        dumps = staticmethod(orjson.dumps)
        loads = staticmethod(late)

    monkeypatch.setattr(packing, "orjson", Orjson)
    assert pack(value, limit_bytes=100).decoded == {"a": 2}
