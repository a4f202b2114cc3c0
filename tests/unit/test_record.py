"""Records: the frame covers every field and no two records share one, and the MAC is HMAC-SHA-256 under the salt."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.kernel.record import RECORD_DOMAIN, Record, RecordKind, record_frame, record_mac
from tests.unit.kernel_formats import golden, worked_example

BASE = Record(kind=RecordKind.RESULT, run_uid=b"u" * 16, salt=b"s" * 32)
numbers = st.integers(0, 2**63 - 1)
records = st.builds(
    Record,
    kind=st.sampled_from(RecordKind),
    run_uid=st.binary(min_size=16, max_size=16),
    salt=st.binary(min_size=32, max_size=32),
    scope=st.binary(max_size=9),
    name=st.text(st.characters(exclude_categories=("Cs",)), max_size=9),
    fingerprint=st.binary(max_size=32),
    occurrence=numbers,
    attempt=numbers,
    tries=numbers,
    started_at_ms=numbers,
    ended_at_ms=numbers,
    inputs=st.binary(max_size=9),
    code=st.binary(max_size=8),
    value_sha256=st.binary(max_size=32),
    encoding=numbers,
    payload=st.binary(max_size=99),
)


def record_of(case: dict[str, Any]) -> Record:
    raw = {key.removesuffix("_hex"): bytes.fromhex(text) for key, text in case.items() if key.endswith("_hex")}
    numbers_ = {key: value for key, value in case.items() if type(value) is int}
    digest = bytes.fromhex(case["value_sha256"])
    kind = RecordKind(numbers_.pop("kind"))
    return Record(kind=kind, name=case["name"], value_sha256=digest, **raw, **numbers_)


def unframed(frame: bytes) -> list[bytes]:
    """The fields of a frame, read by the page."""
    assert frame.startswith(RECORD_DOMAIN)
    at, found = len(RECORD_DOMAIN), []
    while at < len(frame):
        length = int.from_bytes(frame[at : at + 4], "big")
        found.append(frame[at + 4 : at + 4 + length])
        at += 4 + length
    return found


@given(records)
def test_a_frame_reads_back_as_every_field_of_the_record(record: Record) -> None:
    uid, written, scope, name, fingerprint, inputs, code, digest, payload = unframed(record_frame(record))
    kind, occurrence, attempt, tries, started, ended, encoding = map(int, written.split(b","))
    read = Record(
        kind=RecordKind(kind),
        run_uid=uid,
        salt=record.salt,
        scope=scope,
        name=name.decode(),
        fingerprint=fingerprint,
        occurrence=occurrence,
        attempt=attempt,
        tries=tries,
        started_at_ms=started,
        ended_at_ms=ended,
        inputs=inputs,
        code=code,
        value_sha256=digest,
        encoding=encoding,
        payload=payload,
    )
    assert read == record


def test_every_field_is_in_the_mac() -> None:
    seen = {record_mac(BASE)}
    for field in fields(Record):
        before = getattr(BASE, field.name)
        after = RecordKind.ERROR if field.name == "kind" else before + 1 if type(before) is int else (
            before + "x" if type(before) is str else before + b"x"
        )  # fmt: skip
        seen.add(record_mac(replace(BASE, **{field.name: after})))
    assert len(seen) == 1 + len(fields(Record))


@pytest.mark.parametrize(
    "change",
    [
        {"kind": RecordKind.ERROR},
        {"run_uid": b"v" * 16},
        {"salt": b"t" * 32},
        {"scope": b"s"},
        {"name": "n"},
        {"fingerprint": b"f"},
        {"occurrence": 1},
        {"attempt": 1},
        {"tries": 2},
        {"started_at_ms": 1},
        {"ended_at_ms": 1},
        {"inputs": b"{}"},
        {"code": b"c"},
        {"value_sha256": b"v"},
        {"encoding": 1},
        {"payload": b"p"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_changing_one_field_changes_the_mac(change: dict[str, Any]) -> None:
    assert record_mac(replace(BASE, **change)) != record_mac(BASE)


def test_the_mac_is_taken_under_the_records_domain() -> None:
    assert record_frame(BASE).startswith(b"agent-run-ledger/record/v1\n")


def test_a_byte_that_moves_to_the_next_field_is_another_frame() -> None:
    moved = [
        replace(BASE, scope=b"ab"),
        replace(BASE, scope=b"a", name="b"),
        replace(BASE, name="b", fingerprint=b"a"),
        replace(BASE, payload=b"ab"),
        replace(BASE, value_sha256=b"a", payload=b"b"),
    ]
    assert len({record_frame(record) for record in moved}) == len(moved)


@given(records)
def test_the_mac_is_hmac_sha_256_under_the_salt(record: Record) -> None:
    assert record_mac(record) == hmac.new(record.salt, record_frame(record), hashlib.sha256).digest()
    assert record_frame(replace(record, salt=b"other")) == record_frame(record)


@pytest.mark.parametrize("case", golden("record"), ids=lambda case: case["mac_hex"][:8])
def test_macs_of_an_earlier_version_still_hold(case: dict[str, Any]) -> None:
    record = record_of(case["record"])
    assert record_frame(record).hex() == case["frame_hex"]
    assert record_mac(record).hex() == case["mac_hex"]


def test_the_worked_example_of_the_page() -> None:
    example = worked_example("record")
    record = record_of(example["record"])
    assert record_frame(record).hex() == example["frame_hex"]
    assert record_mac(record).hex() == example["mac_hex"]
    assert unframed(record_frame(record))[1] == b"2,0,1,2,1767225600001,1767225600734,0"


def test_the_numbers_of_kinds_are_stored_and_so_never_change() -> None:
    assert {kind.name: kind.value for kind in RecordKind} == {
        "START": 1, "RESULT": 2, "ERROR": 3, "ABANDONED": 4, "RESCUED": 5, "END": 6, "DECISION": 7,
    }  # fmt: skip


def test_a_usage_is_covered_by_the_mac_and_its_absence_changes_no_frame() -> None:
    plain = Record(kind=RecordKind.RESULT, run_uid=bytes(16), salt=bytes(32), payload=b"1")
    used = replace(plain, usage=b'[{"input_tokens":1}]')
    assert record_frame(used) == record_frame(plain) + b"\0\0\0\x14" + used.usage
    assert record_mac(used) != record_mac(plain)
    assert record_mac(used) != record_mac(replace(plain, payload=b'1\0\0\0\x14[{"input_tokens":1}]'))
