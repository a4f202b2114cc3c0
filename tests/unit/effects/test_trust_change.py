"""The record of a trust file that comes into use: its bytes, its MAC and the leaf's line of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from agent_run_ledger.kernel.effects import Now
from agent_run_ledger.kernel.effects.trust_change import (
    TrustChange,
    is_trust_change,
    line_of_trust,
    trust_change_bytes,
    trust_change_from,
    trust_change_mac,
)
from tests.unit.kernel_formats import golden

SALT = bytes(range(32))


def change() -> TrustChange:
    """The golden trust file, coming into use."""
    (trust,) = golden("trust")
    return TrustChange(
        ledger_id=bytes.fromhex("00112233445566778899aabbccddeeff"),
        epoch=0,
        now=Now(1_767_225_600_000, 1_767_225_600_000),
        sha256=bytes.fromhex(trust["sha256"]),
        serial=1,
        officers=frozenset({"approver"}),
        signed=trust["envelope"],
    )


def written() -> list[dict[str, Any]]:
    """What the golden file holds: the first trust file, and one that follows."""
    first = change()
    cases = (first, replace(first, serial=2, before_sha256=b"b" * 32))
    payloads = [trust_change_bytes(one) for one in cases]
    return [
        {
            "salt_hex": SALT.hex(),
            "payload": payload.decode(),
            "change": {
                "type": line.type,
                "id": line.id.hex(),
                "old": line.old,
                "new": line.new,
                "generation": line.generation,
                "mac": (line.mac or b"").hex(),
            },
        }
        for payload, line in zip(
            payloads,
            [line_of_trust(one, trust_change_mac(SALT, trust_change_bytes(one))) for one in cases],
            strict=True,
        )
    ]


def test_the_record_that_was_written_once_is_written_now() -> None:
    assert written() == golden("trust_change")


def test_a_record_comes_back_as_the_value_that_it_was() -> None:
    for case in golden("trust_change"):
        payload = case["payload"].encode()
        assert trust_change_bytes(trust_change_from(payload)) == payload
        assert trust_change_mac(bytes.fromhex(case["salt_hex"]), payload).hex() == case["change"]["mac"]
    assert trust_change_from(golden("trust_change")[0]["payload"].encode()) == change()


def test_the_line_is_one_of_the_store_and_its_generation_is_the_serial() -> None:
    first = line_of_trust(change(), b"m" * 32)
    assert (first.type, first.id, first.old, first.new) == ("store", change().ledger_id, "untrusted", "trusted")
    later = line_of_trust(replace(change(), serial=7, before_sha256=b"b" * 32), b"m" * 32)
    assert (later.old, later.new, later.generation, later.mac) == ("trusted", "trusted", 7, b"m" * 32)
    assert is_trust_change({"type": "store", "new": "trusted"})
    assert not is_trust_change({"type": "action", "new": "trusted"})
    assert not is_trust_change({"type": "store", "new": "untrusted"})


def _forged() -> dict[str, bytes]:
    payload = trust_change_bytes(change())
    tree = json.loads(payload)
    return {
        "no JSON": b"{",
        "no object": b"[]",
        "a space": payload.replace(b'"v":1', b'"v": 1'),
        "another version": payload.replace(b'"v":1', b'"v":2'),
        "a key more": json.dumps({**tree, "w": 1}, separators=(",", ":"), sort_keys=True).encode(),
        "no change": b'{"v":1}',
        "another class": payload.replace(b'"TrustChange"', b'"CorrectClock"'),
        "a serial of another type": payload.replace(b'"serial":1', b'"serial":"1"'),
        "a default that is written": payload.replace(
            b'"class":"TrustChange"', b'"before_sha256":null,"class":"TrustChange"'
        ),
    }


@pytest.mark.parametrize("forged", _forged().values(), ids=_forged())
def test_other_bytes_are_no_record(forged: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each is one, whatever its words
        trust_change_from(forged)
