"""Every storable value comes back equal in value and type, and with the same digest."""

from __future__ import annotations

import collections
import math
import pickle
from typing import Any

import pytest
from hypothesis import given

from agent_run_ledger.codecs import decode, encode, pack, tree, unpack, value_digest
from agent_run_ledger.codecs.equality import difference
from agent_run_ledger.kernel.digests import value_sha256
from tests.unit.codecs import strategies
from tests.unit.codecs.samples import PLAIN, TAGGED, Guarded, Point, label, made_point


@pytest.mark.parametrize("value", PLAIN + TAGGED, ids=label)
def test_a_value_comes_back_equal_in_value_and_type(value: Any) -> None:
    restored = decode(encode(value))
    assert type(restored) is type(value)
    assert difference(value, restored) is None
    assert encode(restored) == encode(value)


@pytest.mark.parametrize("value", PLAIN + TAGGED, ids=label)
def test_a_value_and_what_is_restored_have_the_same_digest(value: Any) -> None:
    packed = pack(value, limit_bytes=1 << 20)
    restored = unpack(packed.encoding, packed.payload)
    assert tree(value, finite=False) == tree(restored, finite=False)
    assert packed.value_sha256 == value_sha256(tree(value, finite=False))
    if packed.finite:
        assert value_digest(value) == value_digest(restored) == packed.value_sha256


@given(strategies.storable)
def test_any_nesting_comes_back_with_the_same_digest(value: Any) -> None:
    packed = pack(value, limit_bytes=1 << 20)
    assert difference(value, packed.decoded) is None
    assert difference(value, unpack(packed.encoding, packed.payload)) is None
    if packed.finite:
        assert value_digest(value) == value_digest(packed.decoded) == packed.value_sha256


def test_plain_json_stays_plain_json_in_its_order() -> None:
    assert encode({"b": [1, 1.5, None], "a": "é"}) == '{"b":[1,1.5,null],"a":"é"}'.encode()
    assert list(decode(b'{"b":1,"a":2}')) == ["b", "a"]  # type: ignore[call-overload]


def test_numbers_keep_their_type() -> None:
    restored = decode(encode([1, 1.0, True]))
    assert [type(number) for number in restored] == [int, float, bool]  # type: ignore[attr-defined]


def test_the_zero_keeps_its_sign_and_nan_is_nan() -> None:
    assert math.copysign(1, decode(encode(-0.0))) == -1  # type: ignore[arg-type]
    assert math.isnan(decode(encode(math.nan)))  # type: ignore[arg-type]


def test_no_code_of_a_dataclass_runs_while_it_is_stored_or_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    value = Guarded(5)
    monkeypatch.setattr(Guarded, "armed", True)
    packed = pack(value, limit_bytes=1 << 20)
    monkeypatch.setattr(Guarded, "armed", False)
    assert packed.decoded == value


def test_a_field_that_was_never_set_stays_unset() -> None:
    restored = decode(encode(Point(1)))
    assert not hasattr(restored, "late")
    assert decode(encode(made_point())) == made_point()


def test_a_frozen_and_slotted_dataclass_keeps_fields_that_init_does_not_take() -> None:
    assert b'"size":7' in encode(next(value for value in TAGGED if type(value).__name__ == "Frozen"))


def test_a_shared_part_is_written_once_per_use() -> None:
    shared = [1]
    restored: Any = decode(encode([shared, shared]))
    assert restored == [[1], [1]]
    assert restored[0] is not restored[1]


def test_a_restored_value_shares_nothing_with_the_one_recorded() -> None:
    value = {"rows": [[1]], "when": collections.deque([[2]])}
    packed: Any = pack(value, limit_bytes=1 << 20).decoded
    packed["rows"][0].append(9)
    packed["when"][0].append(9)
    assert value == {"rows": [[1]], "when": collections.deque([[2]])}


def test_no_stored_byte_is_a_pickle() -> None:
    for value in TAGGED:
        with pytest.raises((pickle.UnpicklingError, EOFError, ValueError, KeyError, IndexError, ImportError)):
            pickle.loads(encode(value))


def test_the_bytes_do_not_depend_on_the_order_in_which_a_set_was_filled() -> None:
    there, back = set([0, 8, 16]), set([16, 8, 0])  # noqa: C405 (these collide, and so show how they were filled)
    assert list(there) != list(back)
    assert encode(there) == encode(back)
    assert encode({1: there, 2: frozenset(there)}) == encode({1: back, 2: frozenset(back)})
    assert tree({1: "a", 2: "b"}) == tree({2: "b", 1: "a"})
    assert encode({1: "a", 2: "b"}) != encode({2: "b", 1: "a"})
    assert value_digest({"a": 1, "b": 2}) == value_digest({"b": 2, "a": 1})


def test_the_order_of_an_ordered_dict_is_part_of_its_digest() -> None:
    ordered = collections.OrderedDict
    assert value_digest(ordered(a=1, b=2)) != value_digest(ordered(b=2, a=1))
    assert value_digest(collections.Counter("ab")) == value_digest(collections.Counter("ba"))


def test_values_of_different_type_have_different_digests() -> None:
    alike = [(1,), [1], {1}, frozenset({1}), "1", b"1", True, None, {"1": 1}, {1: 1}, collections.deque([1]), Point(1)]
    alike += [1, 1.0]
    assert len({value_digest(value) for value in alike}) == len(alike)
    assert value_digest({"$arl": "tuple", "v": [1]}) != value_digest((1,))
