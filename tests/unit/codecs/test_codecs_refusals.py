"""What cannot be stored exactly is refused with its path, its type and a way out."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
import functools
import importlib.resources
import math
import sys
import threading
import zoneinfo
from decimal import Decimal
from typing import Any

import pytest

from agent_run_ledger.codecs import NotFinite, decode, encode, pack, register_codec, tree, value_digest
from agent_run_ledger.errors import Misuse, Unstorable
from tests.unit.codecs.samples import (
    Boxed,
    Caching,
    DictWithFields,
    Mode,
    MyDict,
    MyInt,
    MyList,
    MyStr,
    Pair,
    Plain,
    Point,
    made_point,
)

LOCK = threading.Lock()


def refusal(value: Any) -> Unstorable:
    with pytest.raises(Unstorable) as caught:
        encode(value)
    assert str(caught.value).startswith(f"{caught.value.path}: ")
    return caught.value


PLACES = [
    (LOCK, "$"),
    ([1, LOCK], "$[1]"),
    ({"a": {"b c": LOCK}}, '$.a["b c"]'),
    ({"a": [{"b": LOCK}]}, "$.a[0].b"),
    ((1, (2, LOCK)), "$[1][1]"),
    ({1: LOCK}, "$[1]"),
    ({2**127: LOCK}, f"$[{2**127}]"),
    ({10**5000: LOCK}, "$[<int>]"),
    ({None: LOCK}, "$[None]"),
    ({(1, 2): LOCK}, "$[<tuple>]"),
    ({Mode.FAST: LOCK}, "$[<tests.unit.codecs.samples.Mode>]"),
    ({Plain(): 1}, "$.keys()[0]"),
    ({Plain()}, "${tests.unit.codecs.samples.Plain}"),
    (frozenset({LOCK}), "${_thread.lock}"),
    (Boxed([LOCK]), "$.content[0]"),
    (Pair(1, LOCK), "$.right"),
    (collections.OrderedDict(a=LOCK), "$.a"),
    (collections.deque([LOCK]), "$[0]"),
    (ValueError(1, LOCK), "$.args[1]"),
    ({"$arl": LOCK}, "$.$arl"),
    ({"pro\ud800mpt": [LOCK]}, '$["pro\\ud800mpt"][0]'),
    ({"k" * 100: LOCK}, '$["' + "k" * 60 + '…"]'),
]


@pytest.mark.parametrize(("value", "path"), PLACES, ids=[path for _, path in PLACES])
def test_the_path_of_the_part_is_named(value: Any, path: str) -> None:
    error = refusal(value)
    if path == "$.$arl":
        path = '$["$arl"]'
    assert error.path == path
    assert error.type_name in {"_thread.lock", "tests.unit.codecs.samples.Plain"}
    assert error.code == "unstorable"
    assert "register_codec" in error.hint


@pytest.mark.parametrize(
    "value",
    [
        MyDict(a=1), MyList([1]), MyStr("a"), MyInt(1), DictWithFields(), print, Plain, Plain(), (x for x in ()),
        open, memoryview(b"a"), object(), NotImplemented, ..., type, math, iter([]), dt.UTC.utcoffset,
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_types_without_an_exact_form_are_refused(value: Any) -> None:
    assert refusal(value).path == "$"
    assert refusal([value]).path == "$[0]"


def test_a_subclass_is_refused_by_name_and_never_flattened() -> None:
    error = refusal({"a": MyDict(b=1)})
    assert error.path == "$.a"
    assert "MyDict" in str(error)
    assert "dict" in str(error)


@pytest.mark.parametrize("kind", [collections.OrderedDict, collections.Counter])
def test_attributes_of_a_dict_relative_would_be_lost(kind: Any) -> None:
    value = kind(a=1)
    value.extra = 2
    assert "attributes of its own" in str(refusal(value))


def test_a_defaultdict_keeps_only_factories_that_are_safe_to_call_later() -> None:
    assert "factory" in str(refusal(collections.defaultdict(lambda: 1)))
    assert "factory" in str(refusal(collections.defaultdict(Plain)))
    masked = type("list", (), {})
    assert "factory" in str(refusal(collections.defaultdict(masked)))


def test_a_dataclass_with_state_besides_its_fields_is_refused() -> None:
    point = made_point()
    vars(point)["extra"] = 1
    error = refusal([point])
    assert error.path == "$[0].extra"
    assert "no field" in str(error)


def test_a_cached_property_is_derived_and_neither_kept_nor_refused() -> None:
    value = Caching(3)
    plain = encode(Caching(3))
    assert value.double == 6
    assert encode(value) == plain
    assert value_digest(value) == value_digest(Caching(3))


def test_a_local_class_is_refused_with_a_hint() -> None:
    @dataclasses.dataclass
    class Local:
        n: int

    error = refusal([Local(1)])
    assert error.path == "$[0]"
    assert "local to a function" in str(error)
    assert "top level" in error.hint


def test_a_class_that_its_name_does_not_lead_to_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    value = Point(1)
    other = dataclasses.make_dataclass("Point", ["x"], namespace={"__module__": Point.__module__})
    monkeypatch.setattr("tests.unit.codecs.samples.Point", other)
    assert "another class" in str(refusal(value))
    monkeypatch.delattr("tests.unit.codecs.samples.Point")
    assert "not found under its own name" in str(refusal(value))


def test_a_time_zone_without_a_key_is_refused() -> None:
    class Odd(dt.tzinfo):
        pass

    assert refusal(dt.datetime(2024, 1, 1, tzinfo=Odd())).path == "$.tzinfo"
    with importlib.resources.files("tzdata.zoneinfo").joinpath("UTC").open("rb") as file:
        nameless = zoneinfo.ZoneInfo.from_file(file)
    assert "without a key" in str(refusal([nameless]))


CYCLES: list[tuple[str, Any]] = []


def _cycle(name: str, value: Any) -> None:
    CYCLES.append((name, value))


_list: list[Any] = [0]
_list.append(_list)
_dict: dict[str, Any] = {}
_dict["a"] = {"b": _dict}
_point = made_point()
_point.kept = [_point]
_tuple: Any = ([],)
_tuple[0].append(_tuple)
_cycle("$[1]", _list)
_cycle("$.a.b", _dict)
_cycle("$.kept[0]", _point)
_cycle("$[0][0]", _tuple)


@pytest.mark.parametrize(("path", "value"), CYCLES, ids=[path for path, _ in CYCLES])
def test_a_value_that_contains_itself_is_refused_at_the_place_where_it_does(path: str, value: Any) -> None:
    error = refusal(value)
    assert (error.code, error.path) == ("cyclic", path)
    with pytest.raises(Unstorable):
        value_digest(value)
    with pytest.raises(Unstorable):
        pack(value, limit_bytes=1 << 20)


@pytest.mark.parametrize("kind", [list, tuple, frozenset, Boxed, collections.deque])
def test_nesting_beyond_the_limit_is_refused_and_just_below_it_is_not(kind: Any) -> None:
    levels = 1 if kind is list else 2
    value: Any = 1
    for _ in range(200 // levels):
        value = kind(value) if kind is Boxed else kind([value])
    assert type(decode(encode(value))) is kind
    error = refusal(kind(value) if kind is Boxed else kind([value]))
    assert error.code == "too_deep"
    assert "…" in error.path
    assert "200 levels" in str(error)


def test_a_huge_spelling_of_a_small_graph_is_refused() -> None:
    value: Any = (1,)
    for _ in range(60):
        value = (value, value)
    with pytest.raises(Unstorable) as caught:
        pack(value, limit_bytes=10_000)
    assert caught.value.code == "too_large"
    assert "10,000" in str(caught.value)


def test_a_value_that_changes_while_it_is_read_is_refused_as_a_value() -> None:
    value: dict[Any, Any] = {}

    class Key:
        pass

    def grow(key: Key) -> int:
        value[len(value)] = 1
        return 1

    register_codec(Key, name="test/growing-key", encode=grow, decode=lambda stored: Key())
    value[Key()] = 1
    value[0] = 2
    with pytest.raises(Unstorable, match="changed while it was read"):
        encode(value)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (math.nan, "$"), ([1, math.inf], "$[1]"), ({"a": {"b": -math.inf}}, "$.a.b"), ((math.nan,), "$[0]"),
        (Decimal("NaN"), "$"), ([Decimal("Infinity")], "$[0]"), (complex(1, math.nan), "$[1]"),
        (Boxed(math.nan), "$.content"), ({math.nan: 1}, "$.keys()[0]"), ({math.inf}, "${float}"),
    ],
)  # fmt: skip
def test_nan_and_infinity_have_no_digest_and_the_path_says_where(value: Any, path: str) -> None:
    for refused in (value_digest, tree):
        with pytest.raises(NotFinite) as caught:
            refused(value)  # type: ignore[operator]
        assert isinstance(caught.value, Misuse)
        assert not isinstance(caught.value, Unstorable)
        assert (caught.value.code, caught.value.path) == ("not_finite", path)
    assert tree(value, finite=False) is not None
    assert not pack(value, limit_bytes=1000).finite


@pytest.mark.parametrize(
    "value", [math.nan, Decimal("NaN"), Decimal("-sNaN12"), complex(0, math.nan), complex(math.nan, math.inf)], ids=str
)
def test_a_nan_is_refused_because_it_differs_from_itself(value: Any) -> None:
    with pytest.raises(NotFinite) as caught:
        value_digest([value])
    assert caught.value.hint == "NaN differs from itself: pass None or a string"


@pytest.mark.parametrize("value", [math.inf, -math.inf, Decimal("Infinity"), complex(math.inf, 0)], ids=str)
def test_an_infinity_is_not_called_a_nan(value: Any) -> None:
    with pytest.raises(NotFinite) as caught:
        value_digest([value])
    assert "NaN" not in str(caught.value)
    assert caught.value.hint == "an infinity is no JSON number: pass None or a string"


def test_a_coroutine_is_refused_with_the_two_ways_out() -> None:
    async def work() -> int:
        return 1

    @functools.wraps(work)
    def wrapped() -> Any:
        return work()

    coroutine = wrapped()
    try:
        error = refusal({"a": coroutine})
    finally:
        coroutine.close()
    assert error.path == "$.a"
    assert error.hint == "the step returned a coroutine: make the function that wraps it async, or await it"


def with_attribute(name: str) -> ValueError:
    error = ValueError(1)
    vars(error)[name] = 1
    return error


def renamed_class() -> Any:
    kind = type("Renamed", (Exception,), {})
    kind.__qualname__ = "Ren\ud800"
    return kind()


@pytest.mark.parametrize(
    "value",
    [
        with_attribute("na\ud800me"), renamed_class(), enum.Enum("Odd", {"A\udfff": 1})["A\udfff"],
        enum.Flag("OddFlag", {"A\udfff": 1})["A\udfff"],
    ],
    ids=["attribute", "class", "member", "flag"],
)  # fmt: skip
def test_a_name_with_a_lone_surrogate_is_refused_where_it_stands(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (enum.Enum, enum.Flag):
        if isinstance(value, kind):
            monkeypatch.setattr(sys.modules[__name__], type(value).__name__, type(value), raising=False)
    assert "no well-formed string" in str(refusal([value]))
    assert refusal({"a": {"\ud800": [value]}}).path.startswith('$.a["\\ud800"][0]')
    for refused in (value_digest, lambda held: pack(held, limit_bytes=1000)):
        with pytest.raises(Unstorable) as caught:
            refused([value])
        assert caught.value.path in ("$[0]", '$[0]["A\\udfff"]')


def test_a_codec_cannot_be_named_with_a_lone_surrogate() -> None:
    with pytest.raises(Misuse) as caught:
        register_codec(Plain, name="test/\ud800", encode=vars, decode=lambda stored: Plain(**stored))
    assert caught.value.code == "codec_refused"


def test_values_that_are_no_nan_are_finite() -> None:
    assert pack([1.5, -0.0, 10**400, Decimal("1e400"), "nan"], limit_bytes=1 << 20).finite
