"""`arl export`: CloudEvents that add up to the root, and that say no more than was asked for."""

from __future__ import annotations

import base64
import hashlib
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import RunLedger
from agent_run_ledger.kernel.record import Record, RecordKind, record_mac
from tests.cli.conftest import HOSTILE_RUN, Arl, edit
from tests.contract.effect_stories import Stories

DIGESTS = {"fingerprint_hex", "value_sha256_hex", "code_hex", "inputs"}


def _root(leaves: list[bytes]) -> bytes:
    """RFC 9162, 2.1.1, as the standard writes it and nothing of ours."""
    if len(leaves) < 2:
        return leaves[0] if leaves else hashlib.sha256(b"").digest()
    split = 1 << ((len(leaves) - 1).bit_length() - 1)
    return hashlib.sha256(b"\1" + _root(leaves[:split]) + _root(leaves[split:])).digest()


def _records(events: list[Any]) -> list[dict[str, Any]]:
    changes = [change for event in events[:-1] for change in event["data"]["changes"]]
    return [change["record"] for change in changes if "record" in change]


def test_the_root_can_be_computed_from_the_export_alone(arl: Arl, store: Path) -> None:
    *leaves, checkpoint = arl("export", "--db", store).lines
    hashes = [hashlib.sha256(b"\0" + event["data"]["envelope"].encode()).digest() for event in leaves]
    assert [event["data"]["leaf_index"] for event in leaves] == list(range(checkpoint["data"]["size"]))
    assert [digest.hex() for digest in hashes] == [event["data"]["leaf_hash_hex"] for event in leaves]
    assert _root(hashes).hex() == checkpoint["data"]["root_hex"]
    assert checkpoint["data"]["root_hex"] == arl("verify", "--db", store, "--json").json["root_hex"]


def test_more_leaves_than_one_window_come_in_order_and_add_up(arl: Arl, db: Path) -> None:
    with RunLedger(run_id="many", db_path=db) as ledger:
        ledger.step(name="s0")(lambda: 0)
        for number in range(1, 300):
            ledger.step(name=f"s{number}", depends_on=[f"s{number - 1}"])(lambda before: before + 1)
        ledger.execute()
    *leaves, checkpoint = arl("export", "--db", db).lines
    assert len(leaves) > 300
    hashes = [hashlib.sha256(b"\0" + event["data"]["envelope"].encode()).digest() for event in leaves]
    assert _root(hashes).hex() == checkpoint["data"]["root_hex"]
    assert [record["step"] for record in _records([*leaves, checkpoint]) if record["kind"] == "result"] == [
        f"s{number}" for number in range(300)
    ]


def test_every_line_is_a_cloud_event(arl: Arl, store: Path) -> None:
    events = arl("export", "--db", store).lines
    log_id = arl("verify", "--db", store, "--json").json["log_id"]
    for event in events:
        assert set(event) == {
            "specversion", "id", "source", "type", "time", "subject", "datacontenttype", "data",
        }  # fmt: skip
        assert (event["specversion"], event["datacontenttype"]) == ("1.0", "application/json")
        assert event["source"] == f"urn:agent-run-ledger:{log_id}"
        assert event["time"].endswith("Z")
    assert len({event["id"] for event in events}) == len(events)
    assert events[-1]["type"] == "agent-run-ledger.log.checkpoint"


def test_types_tell_what_happened(arl: Arl, store: Path) -> None:
    arl("runs", "quarantine", "failed", "--reason", "x", "--db", store)
    arl("runs", "release", "failed", "--reason", "x", "--db", store)
    arl("runs", "takeover", "dead", "--reason", "x", "--yes", "--db", store)
    arl("runs", "cancel", "dead", "--reason", "x", "--yes", "--db", store)
    arl("init", "--db", store)
    types = [event["type"].removeprefix("agent-run-ledger.") for event in arl("export", "--db", store).lines]
    assert types[0] == "store.created"
    assert types[-6:] == [
        "run.quarantined", "run.released", "run.taken_over", "run.cancelled", "store.authority", "log.checkpoint",
    ]  # fmt: skip
    assert set(types[1:-6]) == {"run.started", "step.started", "step.recorded", "step.failed", "step.rescued"}


def test_a_fused_leaf_is_one_event_with_all_its_changes(arl: Arl, store: Path) -> None:
    events = arl("export", "--db", store, "--run", "done").lines
    changes = [[(change["type"], change["new"]) for change in event["data"]["changes"]] for event in events[:-1]]
    assert [("step", "recorded"), ("step", "started")] in changes
    assert changes[-1] == [("step", "recorded"), ("run", "completed")]
    assert events[-2]["type"] == "agent-run-ledger.step.recorded"


def test_one_run_is_exported_alone_with_its_id_and_the_checkpoint_of_the_log(arl: Arl, store: Path) -> None:
    everything = arl("export", "--db", store).lines
    *own, checkpoint = arl("export", "--db", store, "--run", "crashed").lines
    assert len({event["subject"] for event in own}) == 1
    assert {event["data"]["run_id"] for event in own} == {"crashed"}
    assert checkpoint == everything[-1]
    assert [event["id"] for event in own] == [e["id"] for e in everything[:-1] if e["subject"] == own[0]["subject"]]
    assert arl("export", "--db", store, "--run", "nobody").code == 1


def test_nothing_recorded_and_no_fingerprint_is_exported_unasked(arl: Arl, store: Path) -> None:
    plain = arl("export", "--db", store)
    assert "acme" not in plain.out
    for record in _records(plain.lines):
        assert not DIGESTS & set(record)
        assert not {"value", "salt_hex", "payload_base64"} & set(record)


def test_payloads_and_fingerprints_come_when_asked_for(arl: Arl, store: Path) -> None:
    with_values = _records(arl("export", "--db", store, "--run", "done", "--payloads").lines)
    values = [record["value"] for record in with_values if record["kind"] == "result"]
    assert values[0] == {"company": "acme", "revenue": [1, 2, 3]}
    assert not any(DIGESTS & set(record) for record in with_values)
    with_digests = _records(arl("export", "--db", store, "--run", "done", "--fingerprints").lines)
    assert all(set(record) >= DIGESTS and "value" not in record for record in with_digests)


def test_with_both_every_mac_can_be_computed_from_the_export(arl: Arl, store: Path) -> None:
    checked = 0
    for event in arl("export", "--db", store, "--payloads", "--fingerprints").lines[:-1]:
        for change in event["data"]["changes"]:
            if "record" not in change:
                continue
            told = change["record"]
            record = Record(
                kind=RecordKind[told["kind"].upper()],
                run_uid=bytes.fromhex(change["id"]),
                salt=bytes.fromhex(told["salt_hex"]),
                scope=bytes.fromhex(told["scope_hex"]),
                name=told["step"],
                fingerprint=bytes.fromhex(told["fingerprint_hex"]),
                occurrence=told["occurrence"],
                attempt=told["attempt"],
                tries=told["tries"],
                started_at_ms=told["started_at_ms"],
                ended_at_ms=told["ended_at_ms"],
                inputs=told["inputs"].encode(),
                code=bytes.fromhex(told["code_hex"]),
                value_sha256=bytes.fromhex(told["value_sha256_hex"]),
                encoding=told["encoding"],
                payload=base64.b64decode(told["payload_base64"]),
            )
            assert record_mac(record).hex() == change["mac"]
            checked += 1
    assert checked == arl("verify", "--db", store, "--json").json["records"]


def test_an_erased_record_is_exported_as_erased(arl: Arl, store: Path) -> None:
    edit(store, "UPDATE records SET salt = NULL, payload = NULL WHERE name = 'fetch'")
    records = _records(arl("export", "--db", store, "--payloads", "--fingerprints").lines)
    erased = [record for record in records if record["step"] == "fetch"]
    assert all(record["erased"] is True and "value" not in record for record in erased)
    assert len(erased) > 0


def test_leaves_that_do_not_add_up_end_without_a_checkpoint(arl: Arl, store: Path) -> None:
    edit(store, "UPDATE head SET frontier = zeroblob(length(frontier))")
    ended = arl("export", "--db", store)
    assert ended.code == 6
    assert "checkpoint" not in ended.out


def test_a_file_is_private_and_appears_only_when_it_is_whole(arl: Arl, store: Path, tmp_path: Path) -> None:
    target = tmp_path / "log.jsonl"
    ended = arl("export", "--db", store, "--output", target)
    assert (ended.code, ended.out) == (0, "")
    assert "and the checkpoint in" in ended.err
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert target.read_text() == arl("export", "--db", store).out
    target.unlink()
    edit(store, "UPDATE head SET frontier = zeroblob(length(frontier))")
    assert arl("export", "--db", store, "--output", target).code == 6
    assert [path.name for path in tmp_path.iterdir() if "jsonl" in path.name] == []


def test_a_folder_that_is_not_there_is_a_clear_error(arl: Arl, store: Path) -> None:
    ended = arl("export", "--db", store, "--output", "missing/log.jsonl", "--json")
    assert (ended.code, ended.error["code"]) == (5, "os_error")
    assert "missing" in ended.error["message"]


def test_lines_are_ascii_whatever_steps_are_called(arl: Arl, store: Path) -> None:
    ended = arl("export", "--db", store, "--run", HOSTILE_RUN, "--payloads")
    assert ended.out.isascii()
    assert "\x1b" not in ended.out
    assert json.loads(ended.out.splitlines()[0])["data"]["run_id"] == HOSTILE_RUN


@pytest.mark.parametrize("flags", [(), ("--payloads",)])
def test_an_empty_store_exports_its_birth_and_its_checkpoint(arl: Arl, db: Path, flags: tuple[str, ...]) -> None:
    arl("init", "--db", db)
    events = arl("export", "--db", db, *flags).lines
    assert [event["type"].rpartition(".")[2] for event in events] == ["created", "authority", "checkpoint"]


def test_changes_of_actions_are_events_without_what_is_asked_for(arl: Arl, db: Path) -> None:
    stories = Stories(db)
    action = stories.handed_out("pay the bill")
    stories.ledger.close()
    ended = arl("export", "--db", db, "--payloads", "--fingerprints")
    kinds = [event["type"].removeprefix("agent-run-ledger.") for event in ended.lines]
    assert kinds == [
        "store.created", "store.authority", "action.proposed", "action.available", "action.claimed", "action.prepared",
        "action.prepared", "log.checkpoint",
    ]  # fmt: skip
    assert ended.lines[2]["subject"] == action.action_id.hex()
    assert "pay the bill" not in ended.out
