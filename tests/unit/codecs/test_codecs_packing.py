"""A packed value is proven, digested, compressed where that pays, and within the limit; unpacking is bounded."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.codecs import (
    Packed,
    decode,
    encode,
    pack,
    packing,
    register_codec,
    unpack,
    unpack_without,
    value_digest,
)
from agent_run_ledger.codecs.families import containers
from agent_run_ledger.codecs.packing import MAX_PAYLOAD_BYTES
from agent_run_ledger.errors import ClassGone, Tampered, Unstorable
from agent_run_ledger.kernel.digests import element_sha256s, list_sha256
from tests.unit.codecs.samples import Colour, Point

LIMIT = 1 << 20


@pytest.mark.parametrize("value", [{"a": "x" * 100}, (1, "x" * 100)], ids=["plain", "tagged"])
def test_a_small_value_is_kept_raw(value: Any) -> None:
    packed = pack(value, limit_bytes=LIMIT)
    assert (packed.encoding, packed.payload) == (0, encode(value))
    assert packed.decoded == value
    assert packed.value_sha256 == value_digest(value)
    assert packed.finite


def test_compression_is_tried_from_4096_bytes_on() -> None:
    at = "x" * (4096 - 2)
    assert pack(at, limit_bytes=LIMIT).encoding == 1
    assert pack(at[1:], limit_bytes=LIMIT).encoding == 0


@pytest.mark.parametrize(("size", "encoding"), [(4500, 1), (4501, 0)])
def test_compression_is_kept_only_where_it_saves_a_tenth(
    size: int, encoding: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compress(content: bytes, level: int) -> bytes:
        assert (len(content), level) == (5000, 1)
        return bytes(size)

    class Zlib:
        pass

    Zlib.compress = staticmethod(compress)  # type: ignore[attr-defined]
    monkeypatch.setattr(packing, "zlib", Zlib)
    packed = pack("x" * 4998, limit_bytes=LIMIT)
    assert packed.encoding == encoding
    assert packed.payload == (bytes(size) if encoding else encode("x" * 4998))


def test_a_compressed_value_is_the_encoded_one_by_zlib() -> None:
    value = {"rows": [{"n": n} for n in range(1000)]}
    packed = pack(value, limit_bytes=LIMIT)
    assert packed.encoding == 1
    assert zlib.decompress(packed.payload) == encode(value)
    assert unpack(1, packed.payload) == packed.decoded == value


@pytest.mark.parametrize("value", ["x" * 98, ("x" * 60,)], ids=["plain", "tagged"])
def test_the_limit_is_on_the_encoded_size_to_the_byte(value: Any) -> None:
    size = len(encode(value))
    assert pack(value, limit_bytes=size).payload == encode(value)
    with pytest.raises(Unstorable) as caught:
        pack(value, limit_bytes=size - 1)
    assert caught.value.code == "too_large"
    assert str(size) in str(caught.value)
    assert str(size - 1) in str(caught.value)


def test_the_limit_counts_before_compression() -> None:
    with pytest.raises(Unstorable) as caught:
        pack("x" * 100_000, limit_bytes=50_000)
    assert "100,002" in str(caught.value)
    assert "50,000" in str(caught.value)


def test_no_limit_is_larger_than_what_unpack_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MAX_PAYLOAD_BYTES", 100)
    with pytest.raises(Unstorable, match="limit is 100"):
        pack("x" * 200, limit_bytes=10_000)
    assert MAX_PAYLOAD_BYTES == 256 * 1024 * 1024


@pytest.mark.parametrize(("limit", "fits"), [(4000, True), (3999, False)])
def test_a_bomb_is_not_opened_beyond_the_limit(limit: int, fits: bool) -> None:
    bomb = zlib.compress(b'"' + b"x" * 3998 + b'"')
    if fits:
        assert unpack(1, bomb, limit_bytes=limit) == "x" * 3998
        return
    with pytest.raises(Tampered) as caught:
        unpack(1, bomb, limit_bytes=limit)
    assert caught.value.code == "too_large"


@pytest.mark.parametrize(
    ("encoding", "payload"),
    [(2, b"1"), (-1, b"1"), (1, b"1"), (1, b""), (0, b""), (1, zlib.compress(b'"abc"')[:-1]),
     (1, zlib.compress(b'"abc"') + b"x"), (1, zlib.compress(b"{")), (0, zlib.compress(b'"a"'))],
)  # fmt: skip
def test_corrupt_bytes_are_tampered_with(encoding: int, payload: bytes) -> None:
    with pytest.raises(Tampered) as caught:
        unpack(encoding, payload)
    assert caught.value.code == "damaged_value"


def test_the_digest_of_a_list_is_the_chain_of_its_elements() -> None:
    value = [1, "a", [2, 3]]
    assert pack(value, limit_bytes=LIMIT).value_sha256 == list_sha256(element_sha256s(value))


def test_the_copy_is_what_the_payload_says_and_not_the_value() -> None:
    value = {"a": [1]}
    packed = pack(value, limit_bytes=LIMIT)
    assert packed.decoded == value
    assert packed.decoded is not value
    value["a"].append(2)
    assert packed.decoded == decode(packed.payload) == {"a": [1]}


def test_a_packed_value_cannot_be_changed() -> None:
    packed = pack(1, limit_bytes=LIMIT)
    with pytest.raises(AttributeError):
        packed.payload = b"2"  # type: ignore[misc]
    assert Packed(payload=b"1", encoding=0, value_sha256=b"", decoded=1).finite


class Lossy:
    def __init__(self, kept: int, lost: int) -> None:
        self.kept, self.lost = kept, lost

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lossy) and (self.kept, self.lost) == (other.kept, other.lost)

    __hash__ = None  # type: ignore[assignment]


class Swapped:
    def __init__(self, value: Any) -> None:
        self.value = value


register_codec(Lossy, name="test/lossy", encode=lambda v: v.kept, decode=lambda v: Lossy(v, 0))
register_codec(Swapped, name="test/swapped", encode=lambda v: v.value, decode=lambda v: Swapped([v]))


def test_a_round_trip_that_loses_something_is_refused_with_the_path() -> None:
    assert pack(Lossy(1, 0), limit_bytes=LIMIT).decoded == Lossy(1, 0)
    with pytest.raises(Unstorable) as caught:
        pack({"a": [Lossy(1, 2)]}, limit_bytes=LIMIT)
    assert caught.value.path == "$.a[0]"
    assert "round trip" in str(caught.value)
    with pytest.raises(Unstorable) as caught:
        pack((Swapped(1),), limit_bytes=LIMIT)
    assert caught.value.path == "$[0].<test/swapped>"


def test_a_form_that_reads_the_wrong_thing_is_found_out() -> None:
    form = containers.EXACT[tuple]
    right = form.read
    object.__setattr__(form, "read", lambda body, take: take.items(body["v"]))
    try:
        with pytest.raises(Unstorable) as caught:
            pack({"a": (1,)}, limit_bytes=LIMIT)
    finally:
        object.__setattr__(form, "read", right)
    assert caught.value.path == "$.a"
    assert pack((1,), limit_bytes=LIMIT).decoded == (1,)


def test_a_class_that_vanishes_during_the_proof_is_refused_as_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(payload: bytes) -> Any:
        raise ClassGone("gone")

    monkeypatch.setattr(packing, "decode", gone)
    with pytest.raises(Unstorable, match="not restored from its own stored form"):
        pack(Point(1), limit_bytes=LIMIT)


@given(st.binary(max_size=50), st.integers(0, 3))
def test_compressed_noise_is_never_mistaken_for_a_value(content: bytes, encoding: int) -> None:
    try:
        value = unpack(encoding, zlib.compress(content))
    except Tampered:
        return
    assert encode(value)


def test_an_enum_in_a_packed_value_is_the_member_itself() -> None:
    assert pack([Colour.RED], limit_bytes=LIMIT).decoded[0] is Colour.RED  # type: ignore[index]


@pytest.mark.parametrize("pad", [0, 5000])
def test_a_dict_is_read_without_one_member_whose_class_may_be_gone(pad: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {"point": Point(1, 2), "colour": Colour.RED}
    packed = pack({"a": (1, 2), "kept": kept, "pad": "x" * pad}, limit_bytes=1 << 20)
    assert packed.encoding == (1 if pad else 0)
    monkeypatch.setattr("tests.unit.codecs.samples.Point", None)
    with pytest.raises(ClassGone):
        unpack(packed.encoding, packed.payload)
    rest, member = unpack_without(packed.encoding, packed.payload, "kept")
    assert rest == {"a": (1, 2), "pad": "x" * pad}
    monkeypatch.undo()
    assert member is not None
    assert encode(decode(member)) == encode(kept)


@pytest.mark.parametrize(
    "value", [{"a": 1}, ["kept"], {"a": "kept"}, {1: "kept", "kept": 2}, "kept", {"a": {"kept": 1}}]
)
def test_what_has_no_such_member_is_read_whole(value: object) -> None:
    packed = pack(value, limit_bytes=1 << 20)
    assert unpack_without(packed.encoding, packed.payload, "kept") == (value, None)


@pytest.mark.parametrize("payload", [b'{"kept":', b'{"kept":1}x'])
def test_damaged_bytes_with_such_a_member_are_tampered_with(payload: bytes) -> None:
    with pytest.raises(Tampered):
        unpack_without(0, payload, "kept")
