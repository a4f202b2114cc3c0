"""A digest from the cache is the digest without it; a growing transcript is digested once per message."""

from __future__ import annotations

import array
import collections
import enum
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.codecs import DigestCache, digesting, element_digest, value_digest
from agent_run_ledger.codecs.digesting import LONG_TEXT_BYTES, octets_in
from agent_run_ledger.errors import LedgerError
from agent_run_ledger.kernel.digests import list_sha256
from tests.unit.codecs import strategies
from tests.unit.codecs.samples import Boxed, Pair

LONG = "x" * LONG_TEXT_BYTES


class Text(str):
    __slots__ = ()


class Octets(bytes):
    __slots__ = ()


class Whole(enum.IntEnum):
    ONE = 1


def padded(value: Any) -> dict[str, Any]:
    """The value within one that is long enough to be remembered."""
    return {"long": LONG, "value": value}


def outcome(digest_of: Any, value: Any) -> Any:
    """The digest, or what the error says."""
    try:
        return digest_of(value)
    except LedgerError as error:
        return type(error), str(error), error.code


@pytest.fixture(scope="module")
def shared() -> DigestCache:
    """One cache for all values of this module, so that one could be taken for another."""
    return DigestCache()


leaves = st.sampled_from(
    [0, 1, 1.0, True, 0.0, -0.0, "", "1", b"1", b"", None, 1j, "\ud800\udc00", "\U00010000", 2**60]
)
marshalled = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(leaves, inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "$arl"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(marshalled | strategies.storable | strategies.plain)
def test_a_digest_of_the_cache_is_that_of_the_value(shared: DigestCache, value: Any) -> None:
    for one in (value, padded(value), [value], [padded(value), value], (LONG, value), [[LONG, value]]):
        expected = outcome(value_digest, one)
        assert outcome(shared.digest, one) == expected
        assert outcome(shared.digest, one) == expected


@given(marshalled, marshalled)
def test_what_differs_in_value_or_type_is_not_found(one: Any, other: Any) -> None:
    cache = DigestCache()
    for wrap in (padded, lambda v: (v,)):
        outcome(cache.digest, [wrap(one)])
        assert outcome(cache.digest, [wrap(other)]) == outcome(value_digest, [wrap(other)])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"ab", bytearray(b"ab")),
        (b"ab", memoryview(b"ab")),
        (b"ab", array.array("B", b"ab")),
        (b"ab", np.frombuffer(b"ab", dtype=np.uint8)),
        (b"ab", Octets(b"ab")),
        (b"ab", np.bytes_(b"ab")),
        ("ab", Text("ab")),
        (1, Whole.ONE),
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        (1.5, np.float64(1.5)),
        ((1, 2), [1, 2]),
        ((1, 2), Pair(1, 2)),
        ({"a": 1}, collections.OrderedDict(a=1)),
        ({"a": 1}, collections.Counter(a=1)),
        ({"a": 1}, collections.defaultdict(int, a=1)),
        ({1, 2}, frozenset({1, 2})),
        ({b"k": 1}, {Octets(b"k"): 1}),
        ({(b"k",): 1}, {(Octets(b"k"),): 1}),
        ("\ud800\udc00", "\U00010000"),
        (..., StopIteration),
    ],
    ids=repr,
)
@pytest.mark.parametrize(
    "wrap", [lambda v: [padded(v)], padded, lambda v: [[LONG, v]], lambda v: (LONG, v), lambda v: [{"v": v}]]
)
def test_look_alikes_are_told_apart(one: Any, other: Any, wrap: Any) -> None:
    for first, second in ((one, other), (other, one)):
        cache = DigestCache()
        assert outcome(cache.digest, wrap(first)) == outcome(value_digest, wrap(first))
        assert outcome(cache.digest, wrap(second)) == outcome(value_digest, wrap(second))


@pytest.mark.parametrize("value", [float("nan"), Boxed(float("inf")), object(), {"a": [lambda: 0]}, Text("x")])
def test_an_error_is_the_one_without_the_cache(value: Any) -> None:
    cache = DigestCache()
    for one in ([padded(1), padded(value)], padded(value), [[LONG, value]]):
        with pytest.raises(LedgerError) as bare:
            value_digest(one)
        for _ in range(2):
            assert outcome(cache.digest, one) == (type(bare.value), str(bare.value), bare.value.code)


def test_a_value_that_is_not_too_deep_alone_may_be_too_deep_in_a_list() -> None:
    deep: dict[str, Any] = {"long": LONG}
    for _ in range(199):
        deep = {"in": deep}
    cache = DigestCache()
    assert cache.digest(deep) == value_digest(deep)
    assert outcome(cache.digest, [deep]) == outcome(value_digest, [deep])
    assert outcome(cache.digest, [deep])[2] == "too_deep"


def messages(count: int, text: str = LONG) -> list[Any]:
    return [{"role": "user", "content": f"message {n}: {text}"} for n in range(count)]


@pytest.fixture
def digested(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was digested anew."""
    seen: list[Any] = []

    def noted(value: Any) -> bytes:
        seen.append(value)
        return element_digest(value)

    monkeypatch.setattr(digesting, "element_digest", noted)
    return seen


@pytest.mark.parametrize("text", [LONG, "short"])
def test_each_message_of_a_growing_transcript_is_digested_once(digested: list[Any], text: str) -> None:
    cache = DigestCache()
    whole = messages(200, text)
    for length in range(1, 201):
        grown = [dict(message) for message in whole[:length]]  # equal ones, not the same objects
        digest, elements = cache.list_digest(grown)
        assert elements == [element_digest(message) for message in grown]
        assert digest == list_sha256(elements)
    assert len(digested) == 200
    assert digested == whole
    assert digest == value_digest(whole)


@pytest.mark.parametrize("value", [LONG + LONG, [1, LONG], ("x", LONG), b"y" * 20_000])
def test_long_parts_of_any_builtin_type_are_digested_once(digested: list[Any], value: Any) -> None:
    cache = DigestCache()
    for _ in range(3):
        cache.digest([value, {"a": 1}])
    assert sum(one == value for one in digested) == 1


def test_a_whole_argument_is_digested_once(digested: list[Any]) -> None:
    cache = DigestCache()
    for _ in range(3):
        assert cache.digest(padded({"a": (1, 2)})) == value_digest(padded({"a": (1, 2)}))
    assert len(digested) == 1


def test_what_was_changed_in_place_is_another_value() -> None:
    cache = DigestCache()
    transcript = messages(3)
    before = cache.digest(transcript)
    transcript[1]["content"] += "!"
    assert cache.digest(transcript) == value_digest(transcript) != before


def test_the_cache_keeps_what_was_used_last_and_no_more_than_its_share(digested: list[Any]) -> None:
    cache = DigestCache(max_bytes=20 * 1024)
    often, others = messages(1), messages(500)[1:]
    for other in others:
        cache.digest([*often, other])
    assert digested.count(often[0]) == 1
    assert len(digested) == 500
    kept = sum(len(key) + len(digest) for half in (cache._young, cache._old) for key, digest in half.items())  # pyright: ignore[reportPrivateUsage]
    assert 10 * 1024 < kept <= 2 * 20 * 1024


def test_a_value_that_another_thread_changes_meanwhile_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DigestCache()
    message = messages(1)[0]
    original = dict(message)

    def changing(value: Any) -> bytes:
        message["content"] += "!"
        return element_digest(value)

    monkeypatch.setattr(digesting, "element_digest", changing)
    cache.digest([message])
    monkeypatch.undo()
    assert cache.digest([original]) == value_digest([original])


def test_threads_share_a_cache() -> None:
    cache = DigestCache(max_bytes=4096)
    whole = messages(60)
    expected = [value_digest(whole[:n]) for n in range(61)]
    wrong: list[int] = []

    def work() -> None:
        wrong.extend(n for n in range(61) if cache.digest(whole[:n]) != expected[n])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_light_lists_are_not_looked_up(digested: list[Any]) -> None:
    cache = DigestCache()
    for values in ([1, 2, 3], ["a", "b"], [None, True, 0.5], list(range(1000))):
        assert cache.list_digest(values) == (value_digest(values), None)
    assert digested == []


def test_bytes_are_found_in_values_of_builtin_types_alone() -> None:
    assert octets_in({"a": [1, ("x", b"y", {1: None})]}) is True
    assert octets_in([{b"k": 1}]) is True
    assert octets_in({"a": [1, ("x", 1j, {1: None})]}) is False
    assert octets_in({"role": "user"}) is False
    for value in ({"a": {1}}, [Text("x")], (bytearray(b"x"),), {Text("k"): 1}, {(1,): 1}, [[Whole.ONE]]):
        assert octets_in(value) is None
