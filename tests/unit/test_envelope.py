"""Envelopes: canonical JSON with fixed keys, read back by the strict reader and by no other text."""

from __future__ import annotations

import json
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.kernel.envelope import Change, envelope_bytes
from agent_run_ledger.kernel.envelope_check import EnvelopeCheck
from agent_run_ledger.kernel.merkle import leaf_hash
from agent_run_ledger.kernel.states import CallState, RunState
from tests.unit.kernel_formats import golden, worked_example

ids = st.binary(min_size=16, max_size=16)
numbers = st.integers(0, 2**53 - 1)
changes = st.builds(
    Change,
    type=st.sampled_from(["run", "step"]),
    id=ids,
    old=st.sampled_from([*RunState, *CallState]),
    new=st.sampled_from([*RunState, *CallState]),
    generation=numbers,
    mac=st.none() | st.binary(min_size=32, max_size=32),
)


def change_of(case: dict[str, Any]) -> Change:
    mac = bytes.fromhex(case["mac_hex"]) if "mac_hex" in case else None
    return Change(
        type=case["type"],
        id=bytes.fromhex(case["id_hex"]),
        old=case["old"],
        new=case["new"],
        generation=case["generation"],
        mac=mac,
    )


def written(case: dict[str, Any]) -> bytes:
    return envelope_bytes(
        log_id=bytes.fromhex(case["log_id_hex"]),
        op_id=bytes.fromhex(case["op_id_hex"]),
        epoch=case["epoch"],
        time_ms=case["time_ms"],
        changes=[change_of(change) for change in case["changes"]],
    )


@given(ids, ids, numbers, numbers, st.lists(changes, min_size=1, max_size=4))
def test_an_envelope_is_rfc_8785_and_reads_back_strictly(
    log_id: bytes, op_id: bytes, epoch: int, time_ms: int, listed: list[Change]
) -> None:
    envelope = envelope_bytes(log_id=log_id, op_id=op_id, epoch=epoch, time_ms=time_ms, changes=listed)
    assert envelope == rfc8785.dumps(json.loads(envelope))
    assert envelope.isascii()
    read, wrong = EnvelopeCheck(log_id).changes(op_id, envelope)
    assert wrong == []
    assert [change["id"] for change in read] == [change.id.hex() for change in listed]
    assert [change.get("mac") for change in read] == [None if c.mac is None else c.mac.hex() for c in listed]


def test_every_part_of_an_envelope_is_in_its_bytes() -> None:
    base: dict[str, Any] = {
        "log_id": b"l" * 16,
        "op_id": b"o" * 16,
        "epoch": 1,
        "time_ms": 2,
        "changes": [Change(type="run", id=b"i" * 16, old="none", new="running", generation=1, mac=b"m" * 32)],
    }
    others = [
        {"log_id": b"L" * 16},
        {"op_id": b"O" * 16},
        {"epoch": 2},
        {"time_ms": 3},
        {"changes": base["changes"] * 2},
        {"changes": [Change(type="step", id=b"i" * 16, old="none", new="running", generation=1, mac=b"m" * 32)]},
        {"changes": [Change(type="run", id=b"I" * 16, old="none", new="running", generation=1, mac=b"m" * 32)]},
        {"changes": [Change(type="run", id=b"i" * 16, old="failed", new="running", generation=1, mac=b"m" * 32)]},
        {"changes": [Change(type="run", id=b"i" * 16, old="none", new="failed", generation=1, mac=b"m" * 32)]},
        {"changes": [Change(type="run", id=b"i" * 16, old="none", new="running", generation=2, mac=b"m" * 32)]},
        {"changes": [Change(type="run", id=b"i" * 16, old="none", new="running", generation=1, mac=b"M" * 32)]},
        {"changes": [Change(type="run", id=b"i" * 16, old="none", new="running", generation=1)]},
    ]
    assert len({envelope_bytes(**{**base, **other}) for other in [{}, *others]}) == len(others) + 1


@pytest.mark.parametrize("case", golden("envelope"), ids=lambda case: case["op_id_hex"][-2:])
def test_envelopes_of_an_earlier_version_are_still_written_and_read(case: dict[str, Any]) -> None:
    envelope = bytes.fromhex(case["envelope_hex"])
    assert written(case) == envelope
    assert leaf_hash(envelope).hex() == case["leaf_sha256"]
    read, wrong = EnvelopeCheck().changes(bytes.fromhex(case["op_id_hex"]), envelope)
    assert wrong == []
    assert len(read) == len(case["changes"])


def test_the_worked_example_of_the_page() -> None:
    example = worked_example("envelope")
    assert written(example) == example["envelope"].encode("ascii")
    assert leaf_hash(written(example)).hex() == example["leaf_sha256"]


def test_an_order_of_time_and_epoch_is_kept_and_a_refused_one_does_not_move_it() -> None:
    check = EnvelopeCheck()
    change = Change(type="run", id=b"i" * 16, old="none", new="running", generation=1)

    def wrong(epoch: int, time_ms: int) -> list[str]:
        envelope = envelope_bytes(log_id=b"l" * 16, op_id=b"o" * 16, epoch=epoch, time_ms=time_ms, changes=[change])
        return check.changes(b"o" * 16, envelope)[1]

    assert wrong(1, 10) == []
    assert wrong(1, 10) == []
    assert wrong(1, 9) == ["time_ms is 9, after 10"]
    assert wrong(0, 10) == ["epoch is 0, after 1"]
    assert wrong(2, 11) == []
    assert check.wrong_head(epoch=2, time_ms=11) == []
    assert len(check.wrong_head(epoch=1, time_ms=10)) == 2
    assert EnvelopeCheck().wrong_head(epoch=5, time_ms=5) == []
