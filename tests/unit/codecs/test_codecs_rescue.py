"""What was paid for stays readable whatever it is, and is never mistaken for a restored value."""

from __future__ import annotations

import collections
import json
import math
import threading
from typing import Any

import numpy as np
import pandas as pd
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.codecs import decode, encode, readable
from agent_run_ledger.errors import Unstorable
from tests.unit.codecs import strategies
from tests.unit.codecs.samples import Boxed, MyDict, MyInt, MyList, MyStr, Plain, Point, ToolError, made_point

LOCK = threading.Lock()
SMALLEST = b'{"$arl":"rescued","v":{"$arl":"truncated"}}'


def rescued(value: Any, limit_bytes: int = 10_000) -> Any:
    """What a person reads; and decode must refuse all of it."""
    payload = readable(value, limit_bytes=limit_bytes)
    assert len(payload) <= max(limit_bytes, len(SMALLEST))
    with pytest.raises(Unstorable) as caught:
        decode(payload)
    assert caught.value.code == "unstorable"
    stored = json.loads(payload)
    assert stored["$arl"] == "rescued"
    return stored["v"]


def unstorable(kind: str, **members: Any) -> dict[str, Any]:
    return {"$arl": "unstorable", "t": kind, **members}


@pytest.mark.parametrize("value", [1, "a", None, [1, {"a": [True, 1.5]}], {"b": 1, "a": {}}, []])
def test_a_storable_value_is_kept_as_it_would_be_stored_but_not_restorable(value: Any) -> None:
    assert json.dumps(rescued(value)) == json.dumps(value)


def test_storable_parts_keep_their_stored_form() -> None:
    value = {"t": (1, 2), "p": made_point(), "big": 2**70, "nan": math.nan, "set": {2, 1}, "bad": LOCK}
    shown = rescued(value)
    for key in ("t", "p", "big", "nan", "set"):
        assert shown[key] == json.loads(encode(value[key]))
    assert shown["bad"]["$arl"] == "unstorable"
    assert shown["bad"]["t"] == "_thread.lock"
    assert shown["bad"]["repr"].startswith("<unlocked _thread.lock")


def test_what_an_object_holds_is_kept() -> None:
    answer = Plain(text="what was paid for", usage={"tokens": 12}, connection=LOCK)
    shown = rescued([answer])[0]
    assert shown["t"] == "tests.unit.codecs.samples.Plain"
    assert shown["f"]["text"] == "what was paid for"
    assert shown["f"]["usage"] == {"tokens": 12}
    assert shown["f"]["connection"]["$arl"] == "unstorable"
    assert "Plain object" in shown["repr"]


def test_subclasses_keep_the_content_of_their_built_in_side() -> None:
    assert rescued(MyDict(a=1)) == unstorable("tests.unit.codecs.samples.MyDict", v={"a": 1})
    assert rescued(MyList([1, 2])) == unstorable("tests.unit.codecs.samples.MyList", v=[1, 2])
    assert rescued(MyStr("text")) == unstorable("tests.unit.codecs.samples.MyStr", v="text")
    assert rescued(MyInt(5))["repr"] == "5"
    assert rescued((1, LOCK))["v"][0] == 1
    assert rescued({1: LOCK})["p"][0][0] == 1
    assert rescued({"$arl": LOCK})["p"][0][0] == "$arl"
    assert rescued(collections.OrderedDict(a=LOCK))["v"]["a"]["t"] == "_thread.lock"


def test_fields_of_dataclasses_models_and_exceptions_are_kept() -> None:
    assert rescued(Boxed([1, LOCK]))["f"][".content"][0] == 1
    assert rescued(ToolError(tool="t", status=1))["$arl"] == "exception"
    error = rescued(ValueError("paid", LOCK))
    assert error["f"][".args"]["v"][0] == "paid"

    class Model(pydantic.BaseModel):
        answer: str

    shown = rescued(Model(answer="forty-two"))
    assert shown["f"][".answer"] == "forty-two"


def test_tables_are_shown_by_their_parts() -> None:
    assert "rescued" not in json.dumps(rescued(pd.DataFrame({"a": [1]})))
    big = rescued(np.zeros(10_000), limit_bytes=500)
    assert big["$arl"] == "unstorable"
    assert "array" in big["repr"]


def test_a_cycle_ends_where_it_begins() -> None:
    value: list[Any] = [1]
    value.append({"again": value})
    assert rescued(value) == [1, {"again": {"$arl": "truncated", "t": "list", "why": "cycle"}}]
    point = made_point()
    point.kept = [point]
    assert rescued(point)["f"][".kept"] == [
        {"$arl": "truncated", "t": "tests.unit.codecs.samples.Point", "why": "cycle"}
    ]


def test_a_shared_part_is_no_cycle() -> None:
    shared = [1]
    assert rescued([shared, shared, Plain(a=shared)])[:2] == [[1], [1]]


def test_depth_ends() -> None:
    value: Any = "deep"
    for _ in range(100_000):
        value = [value]
    shown = rescued(value)
    for _ in range(50):
        (shown,) = shown
    assert shown == {"$arl": "truncated", "t": "list", "why": "depth"}
    while isinstance(value, list):  # or the recursion of the deallocator would be tested as well
        value = value.pop()


def test_a_huge_spelling_of_a_small_graph_ends() -> None:
    value: Any = Plain()
    for _ in range(100):
        value = [value, value]
    assert len(readable(value, limit_bytes=5000)) <= 5000


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("x" * 10_000, "x" * 400),
        (["ab"] * 10_000, ["ab"] * 40),
        ({f"k{n}": n for n in range(10_000)}, {"k0": 0, "k20": 20}),
    ],
    ids=["text", "list", "dict"],
)
def test_what_does_not_fit_is_cut_with_a_marker_that_counts_what_is_missing(value: Any, kept: Any) -> None:
    shown = rescued(value, limit_bytes=600)
    assert shown["$arl"] == "truncated"
    assert shown["left"] == len(value) - len(shown["v"])
    if isinstance(kept, dict):
        assert kept.items() <= shown["v"].items()
    else:
        assert shown["v"][: len(kept)] == kept


def test_the_beginning_of_an_oversized_answer_is_kept_up_to_nearly_the_limit() -> None:
    payload = readable({"answer": "word " * 100_000, "id": 7}, limit_bytes=50_000)
    assert 45_000 < len(payload) <= 50_000


def test_bytes_are_cut_too() -> None:
    shown = rescued(b"x" * 10_000, limit_bytes=600)
    assert shown["t"] == "bytes"
    assert shown["v"]["v"].startswith("b'xxxx")


@pytest.mark.parametrize("limit", [0, 1, 42, 43, 60, 100, 101])
@pytest.mark.parametrize("value", ["x" * 1000, Plain(a=1), {"a": LOCK}, [[[[1]]]], "\x00" * 1000, "😀" * 1000])
def test_the_limit_is_kept_down_to_the_smallest_form(value: Any, limit: int) -> None:
    payload = readable(value, limit_bytes=limit)
    assert len(payload) <= limit or payload == SMALLEST
    assert json.loads(payload)


class Hostile:
    """Whatever runs but repr is a failure; and repr fails."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"read {name}")

    def __repr__(self) -> str:
        raise KeyError("no")

    def __eq__(self, other: object) -> bool:
        raise AssertionError("compared")

    def __hash__(self) -> int:
        raise AssertionError("hashed")

    def __str__(self) -> str:
        raise AssertionError("str")


class HostileMeta(type):
    def __getattribute__(cls, name: str) -> Any:
        raise AssertionError(f"read {name}")


class HostileDict(dict):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        raise AssertionError("iterated")

    def items(self) -> Any:
        raise AssertionError("iterated")

    def __len__(self) -> int:
        raise AssertionError("measured")

    def __getitem__(self, key: object) -> Any:
        raise AssertionError("read")


class HostileList(list):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        raise AssertionError("iterated")

    def __len__(self) -> int:
        raise AssertionError("measured")


class HostileStr(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise AssertionError("str")

    def encode(self, *args: Any) -> bytes:
        raise AssertionError("encoded")


def test_no_user_code_runs_but_a_guarded_repr() -> None:
    shown = rescued([Hostile(), HostileDict(a=1), HostileList([1, 2]), HostileStr("text"), Plain(ok=1)])
    assert shown[0]["repr"] == "<repr failed: KeyError>"
    assert shown[1]["v"] == {"a": 1}
    assert shown[2]["v"] == [1, 2]
    assert shown[3]["v"] == "text"
    assert shown[4]["f"] == {"ok": 1}


def test_a_class_that_cannot_be_named_is_shown_as_such() -> None:
    kind = HostileMeta("Nameless", (), {})
    shown = rescued([kind()])[0]
    assert (shown["$arl"], shown["t"]) == ("unstorable", "?")
    with pytest.raises(Unstorable, match="could not be read"):
        encode([kind()])


class Reprs:
    def __init__(self, text: Any) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text  # type: ignore[no-any-return]


@pytest.mark.parametrize("text", ["\ud800 lone", "long " * 10_000, 5, None, "\x00"])
def test_any_repr_is_taken_in(text: Any) -> None:
    shown = rescued([Reprs(text)])[0]
    assert isinstance(shown["repr"], str)
    assert len(shown["repr"]) <= 2000


def test_surrogates_in_names_and_texts_do_not_stop_a_rescue() -> None:
    shown = rescued({"\ud800": LOCK, "text": "a\ud800", "b": [Plain(**{"\udfff": 1})]})
    assert shown["p"][0][0] == json.loads(encode("\ud800"))
    assert shown["p"][1] == ["text", json.loads(encode("a\ud800"))]
    assert shown["p"][2][1][0]["f"]["p"] == [[json.loads(encode("\udfff")), 1]]
    assert rescued(MyStr("b\ud800"))["v"] == "b\\ud800"


def test_a_value_that_changes_all_the_time_ends() -> None:
    value: dict[Any, Any] = {}

    class Growing:
        def __repr__(self) -> str:
            value[len(value)] = self
            return "growing"

    value[0] = Growing()
    value["a"] = 1
    assert rescued(value, limit_bytes=1000)["$arl"] == "truncated"


@given(strategies.storable, st.integers(43, 400))
def test_any_value_is_rescued_within_any_limit(value: Any, limit: int) -> None:
    rescued(value, limit)
    rescued([value, Plain(held=value)], limit)


@pytest.mark.parametrize("tag", ["rescued", "unstorable", "truncated"])
def test_the_tags_of_a_rescue_are_refused_wherever_they_stand(tag: str) -> None:
    with pytest.raises(Unstorable, match=r"my\.Type was kept readable") as caught:
        decode(json.dumps({"a": [{"$arl": tag, "t": "my.Type", "v": {"$arl": "tuple", "v": [1]}}]}).encode())
    assert caught.value.type_name == "my.Type"


def test_a_point_is_still_a_point() -> None:
    assert rescued(Point(1)) == json.loads(encode(Point(1)))
