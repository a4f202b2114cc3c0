"""Envelopes: the bytes that are signed, the JSON around them, and what no reader may take for one."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.kernel.dsse import (
    MAX_SIGNATURES,
    BadEnvelope,
    Envelope,
    Signature,
    envelope_bytes,
    pae,
    read_envelope,
)

TYPE, LIMIT = "application/vnd.example.v1+json", 1 << 16
SEALED = Envelope(TYPE, b"\xfb\xff\xfe", (Signature("a" * 64, b"\xfb" * 64), Signature("b" * 64, b"\xff" * 64)))
Change = Callable[[dict[str, Any]], object]


def read(data: bytes) -> Envelope:
    return read_envelope(data, payload_type=TYPE, limit=LIMIT)


def tree() -> dict[str, Any]:
    held: dict[str, Any] = json.loads(envelope_bytes(SEALED))
    return held


def test_the_encoding_is_that_of_the_specification() -> None:
    said = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert pae("http://example.com/HelloWorld", b"hello world") == said
    assert pae("é", b"") == b"DSSEv1 2 \xc3\xa9 0 "


@given(st.lists(st.text("a1 ", max_size=4), min_size=2, max_size=6))
def test_no_type_and_payload_are_signed_as_another_pair(words: list[str]) -> None:
    pairs = {(" ".join(words[:cut]), " ".join(words[cut:]).encode()) for cut in range(len(words) + 1)}
    assert len({pae(kind, payload) for kind, payload in pairs}) == len(pairs)


def test_an_envelope_comes_back() -> None:
    assert read(envelope_bytes(SEALED)) == SEALED


def test_both_alphabets_of_base64_are_read() -> None:
    held = tree()
    assert "+" in held["payload"] or "/" in held["payload"]
    held["payload"] = base64.urlsafe_b64encode(SEALED.payload).decode()
    for one in held["signatures"]:
        one["sig"] = one["sig"].translate(str.maketrans("+/", "-_"))
    assert read(json.dumps(held, indent=1).encode()) == SEALED


def _first(name: str, value: object) -> Change:
    return lambda held: held["signatures"][0].update({name: value})


FORGED: dict[str, Change] = {
    "no payload": lambda held: held.pop("payload"),
    "no signatures": lambda held: held.pop("signatures"),
    "an empty list": lambda held: held.update(signatures=[]),
    "no list": lambda held: held.update(signatures={}),
    "one key more": lambda held: held.update(note="x"),
    "another type": lambda held: held.update(payloadType="application/vnd.example.v2+json"),
    "another type's case": lambda held: held.update(payloadType=TYPE.upper()),
    "no type": lambda held: held.update(payloadType=None),
    "a payload of another kind": lambda held: held.update(payload=7),
    "base64 without padding": lambda held: held.update(payload="aGk"),
    "base64 with a space": lambda held: held.update(payload="aG k="),
    "base64 with a line": lambda held: held.update(payload="aGk=\n"),
    "base64 with stray bits": lambda held: held.update(payload="aGl="),
    "base64 of two alphabets": lambda held: held.update(payload="+-+-"),
    "base64 with more after it": lambda held: held.update(payload="aGk=aGk="),
    "base64 in other letters": lambda held: held.update(payload="aGé="),
    "no key": lambda held: held["signatures"][0].pop("keyid"),
    "a signature with more": _first("cert", "x"),
    "a key of other letters": _first("keyid", "A" * 64),
    "a short key": _first("keyid", "a" * 63),
    "a key and a line": _first("keyid", "a" * 64 + "\n"),
    "a key of another kind": _first("keyid", 7),
    "a short signature": _first("sig", base64.b64encode(b"x" * 63).decode()),
    "a long signature": _first("sig", base64.b64encode(b"x" * 65).decode()),
    "a key twice": _first("keyid", "b" * 64),
    "many signatures": lambda held: held.update(
        signatures=[{**held["signatures"][0], "keyid": f"{number:064x}"} for number in range(MAX_SIGNATURES + 1)]
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_what_is_nearly_an_envelope_is_none(name: str) -> None:
    held = tree()
    FORGED[name](held)
    with pytest.raises(BadEnvelope) as refusal:
        read(json.dumps(held).encode())
    assert refusal.value.code == "bad_envelope"


def test_a_key_of_its_object_twice_is_refused() -> None:
    data = envelope_bytes(SEALED)
    with pytest.raises(BadEnvelope, match="twice"):
        read(data.replace(b'{"payload":', b'{"payload":"aGk=","payload":'))


def test_one_byte_over_the_limit_is_refused() -> None:
    data = envelope_bytes(SEALED)
    assert read_envelope(data, payload_type=TYPE, limit=len(data)) == SEALED
    with pytest.raises(BadEnvelope, match="at most"):
        read_envelope(data, payload_type=TYPE, limit=len(data) - 1)


@given(st.integers(0, len(envelope_bytes(SEALED)) - 1), st.integers(1, 255))
def test_a_changed_byte_is_refused_or_changes_what_is_read(at: int, by: int) -> None:
    data = bytearray(envelope_bytes(SEALED))
    data[at] ^= by
    try:
        changed = read(bytes(data))
    except BadEnvelope:
        return
    assert changed != SEALED or bytes(data).translate(bytes.maketrans(b"+/", b"-_")) == envelope_bytes(
        SEALED
    ).translate(bytes.maketrans(b"+/", b"-_"))


@given(st.binary(max_size=80))
def test_any_bytes_are_refused_by_the_one_error(data: bytes) -> None:
    with pytest.raises(BadEnvelope):
        read(data)
