"""Bytes that nobody's encode wrote lead to a refusal and nothing else."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.codecs import decode, encode, unpack
from agent_run_ledger.codecs.equality import difference
from agent_run_ledger.codecs.families import TAGS
from agent_run_ledger.codecs.lookup import _LIBRARY_OF_TAG  # pyright: ignore[reportPrivateUsage]
from agent_run_ledger.errors import ClassGone, LedgerError, Tampered, Unstorable
from tests.unit.codecs.samples import TAGGED

ALL_TAGS = sorted([*TAGS, *_LIBRARY_OF_TAG, "codec", "rescued", "unstorable", "truncated"])
MEMBERS = ["v", "p", "t", "f", "n", "a", "b", "c", "d", "g", "k", "m", "s", "u", "x", "tz", "fold", "safe", "lost"]

PATHS = [
    "builtins:ValueError",
    "builtins:OSError",
    "builtins:int",
    "subprocess:Popen",
    "tests.unit.codecs.samples:Point",
    "tests.unit.codecs.samples:Colour",
    "tests.unit.codecs.samples:Pair",
    "tests.unit.codecs.test_codecs_pydantic:Order",
]

leaves = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=4)
    | st.sampled_from(["nan", "0x1", "1.5", "2024-01-01", "UTC", "AAAA", "<f8", "|O", "Index", "RangeIndex", *PATHS])
)  # fmt: skip


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    members = st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=5)
    tagged = st.builds(lambda tag, body: {"$arl": tag, **body}, st.sampled_from(ALL_TAGS) | leaves, members)
    return st.lists(inner, max_size=3) | tagged | members


hostile = st.recursive(leaves, _objects, max_leaves=12)


@given(hostile)
def test_any_json_decodes_or_is_refused_with_an_error_of_the_tree(stored: Any) -> None:
    try:
        value = decode(json.dumps(stored).encode())
    except (Tampered, ClassGone, Unstorable):
        return
    assert difference(value, decode(encode(value))) is None


@given(st.binary(max_size=60))
def test_any_bytes_decode_or_are_refused(payload: bytes) -> None:
    for encoding in (0, 1, 2, -1):
        try:
            unpack(encoding, payload)
        except (Tampered, ClassGone, Unstorable):
            continue


@given(st.sampled_from([encode(value) for value in TAGGED if len(encode(value)) < 500]), st.data())
def test_a_stored_value_with_a_changed_byte_never_fails_in_another_way(payload: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(payload) - 1))
    changed = bytearray(payload)
    changed[place] = data.draw(st.integers(0, 255))
    with suppress(LedgerError):
        decode(bytes(changed))


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"{", b"nan", b"NaN", b"\xff", b'"\xed\xa0\x80"', b"[1,]", b"1 2", b"'a'", b"1e999",
        b'{"$arl":"int","v":5}', b'{"$arl":"int","v":"5"}', b'{"$arl":"int","v":"0x_5"}', b'{"$arl":"int","v":" 0x5"}',
        b'{"$arl":"int","v":"0X5"}', b'{"$arl":"float","v":"1.5"}', b'{"$arl":"float","v":null}', b'{"$arl":"tuple"}',
        b'{"$arl":"tuple","v":{}}', b'{"$arl":"set","v":[1,1]}', b'{"$arl":"set","v":[1,true]}',
        b'{"$arl":"set","v":[[]]}', b'{"$arl":"dict","p":[[1,2],[1,3]]}', b'{"$arl":"dict","p":[[1]]}',
        b'{"$arl":"dict","p":[1]}', b'{"$arl":"dict","p":[[{},2]]}', b'{"$arl":"bytes","v":"a"}',
        b'{"$arl":"bytes","v":"AAA*"}', b'{"$arl":"datetime","v":"2024-01-01"}', b'{"$arl":"date","v":"20240101"}',
        b'{"$arl":"datetime","v":"2024-01-01T00:00:00.000000+01:00"}', b'{"$arl":"time","v":"01:02:03"}',
        b'{"$arl":"datetime","v":"2024-01-01T00:00:00.000000","fold":2}', b'{"$arl":"date","v":"2024-02-30"}',
        b'{"$arl":"datetime","v":"2024-01-01T00:00:00.000000","tz":"UTC"}', b'{"$arl":"timedelta","v":[1,2]}',
        b'{"$arl":"timedelta","v":[99999999999,0,0]}', b'{"$arl":"timezone","v":[2,0,0]}',
        b'{"$arl":"decimal","v":"1_0"}', b'{"$arl":"time","v":"01:02:03.000000+01:00"}',
        b'{"$arl":"zoneinfo","v":"../../etc/passwd"}', b'{"$arl":"decimal","v":"abc"}',
        b'{"$arl":"fraction","v":[1,0]}',
        b'{"$arl":"fraction","v":[1.5,2]}', b'{"$arl":"uuid","v":"5"}', b'{"$arl":"path","t":"Path","v":"a"}',
        b'{"$arl":"path","t":"PosixPath","v":5}', b'{"$arl":"range","v":[1,2,0]}', b'{"$arl":"range","v":["a",2,1]}',
        b'{"$arl":"complex","v":[1,2]}', b'{"$arl":"deque","m":1,"v":[1,2]}', b'{"$arl":"deque","m":-1,"v":[]}',
        b'{"$arl":"defaultdict","f":"eval","p":[]}', b'{"$arl":"defaultdict","f":"type","p":[]}',
        b'{"$arl":"exception","t":"builtins:ValueError","a":[],"c":{"errno":1}}', b'{"$arl":"str","v":"//8="}',
        b'{"$arl":"counter","p":{}}', b'{"$arl":"exception","t":"builtins:ValueError","a":{}}',
    ],
)  # fmt: skip
def test_damage_is_found(payload: bytes) -> None:
    with pytest.raises(Tampered) as caught:
        decode(payload)
    assert caught.value.code == "damaged_value"


@pytest.mark.parametrize("tag", ["", "new-in-v9", "__reduce__", None, 5, [], {}])
def test_an_unknown_tag_is_from_a_later_version_and_names_itself(tag: Any) -> None:
    with pytest.raises(ClassGone) as caught:
        decode(json.dumps({"a": [{"$arl": tag, "v": 1}]}).encode())
    assert caught.value.code == "unknown_tag"
    assert repr(tag) in str(caught.value)


def test_a_deep_stored_value_is_refused_before_the_stack_ends() -> None:
    payload = b'{"$arl":"tuple","v":[' * 400 + b"]}" * 400
    with pytest.raises(Tampered, match="200 levels"):
        decode(payload)


def test_an_int_that_json_would_read_is_not_read_twice() -> None:
    assert decode(b'{"$arl":"int","v":"0x5"}') == 5
