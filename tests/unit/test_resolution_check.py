"""Each rule about resolutions is broken once, in memory, and found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from agent_run_ledger import codecs
from agent_run_ledger.kernel.erasure import erased_form
from agent_run_ledger.kernel.record import Record, RecordKind
from agent_run_ledger.ports import StoredRecord
from agent_run_ledger.testing.resolution_check import Resolutions

K = RecordKind
UNKNOWN, DECISION, RESULT, LATER = 3 << 16, 5 << 16, 5 << 16 | 1, 6 << 16
CALL: dict[str, Any] = {"scope": b"s", "name": "send", "fingerprint": b"f" * 32, "occurrence": 2}


def stored(record_id: int, kind: RecordKind, inputs: object = None, **fields: Any) -> StoredRecord:
    record = Record(
        kind=kind,
        run_uid=b"u" * 16,
        salt=b"s" * 32,
        inputs=b"" if inputs is None else orjson.dumps(inputs),
        **fields,
    )
    return StoredRecord(record_id=record_id, run_row_id=1, record=record)


def decision(record_id: int = DECISION, **said: object) -> StoredRecord:
    packed = codecs.pack({"record": UNKNOWN, "outcome": "result", **said}, limit_bytes=1 << 20)
    return stored(record_id, K.DECISION, name="resolve", encoding=packed.encoding, payload=packed.payload)


def honest() -> dict[str, StoredRecord]:
    return {
        "unknown": stored(UNKNOWN, K.ABANDONED, {"unknown": True}, **CALL),
        "decision": decision(),
        "result": stored(RESULT, K.RESULT, {"resolves": UNKNOWN}, **CALL),
        "later": stored(LATER, K.RESULT, {"a": {}}, **{**CALL, "occurrence": 3}),
    }


def problems(records: dict[str, StoredRecord]) -> list[str]:
    check = Resolutions()
    found = [said for one in records.values() for said in check.read(one)]
    return [*found, *check.missing()]


def erased(one: StoredRecord) -> StoredRecord:
    return replace(one, record=erased_form(one.record_id, one.record))


def test_an_honest_history_has_no_problem() -> None:
    assert problems(honest()) == []
    for outcome, kind in (("error", K.ERROR), ("not_done", None)):
        records = honest() | {"decision": decision(outcome=outcome)}
        if kind is None:
            del records["result"]
        else:
            records["result"] = stored(RESULT, kind, {"resolves": UNKNOWN}, **CALL)
        assert problems(records) == []


@pytest.mark.parametrize("names", [["unknown"], ["result"], ["unknown", "result"]])
def test_erased_records_are_compared_as_far_as_they_tell(names: list[str]) -> None:
    records = honest()
    records |= {name: erased(records[name]) for name in names}
    assert problems(records) == []
    records["result"] = replace(records["result"], record=replace(records["result"].record, name="other"))
    assert "is of another call" in problems(records)[0]


def _other(**fields: Any) -> Callable[[dict[str, StoredRecord]], object]:
    def forge(records: dict[str, StoredRecord]) -> None:
        records["result"] = replace(records["result"], record=replace(records["result"].record, **fields))

    return forge


@pytest.mark.parametrize(
    ("forge", "said"),
    [
        (lambda r: r.pop("unknown"), "whose outcome is not unknown"),
        (lambda r: r.update(unknown=stored(UNKNOWN, K.ABANDONED, {}, **CALL)), "whose outcome is not unknown"),
        (lambda r: r.update(unknown=stored(UNKNOWN, K.ERROR, {"unknown": True}, **CALL)), "is not unknown"),
        (lambda r: r.update(decision=decision(record=UNKNOWN + 1)), "whose outcome is not unknown"),
        (lambda r: r.update(decision=decision(record="x")), "does not say what it resolves"),
        (lambda r: r.update(decision=decision(outcome="maybe")), "does not say what it resolves"),
        (lambda r: r.update(decision=decision(outcome="error")), "no record ERROR stands behind"),
        (lambda r: r.update(decision=decision(outcome="not_done")), "no decision stands before it"),
        (lambda r: r.pop("decision"), "no decision stands before it"),
        (lambda r: r.pop("result"), "no record RESULT stands behind"),
        (lambda r: (r.pop("result"), r.pop("later")), "was decided and is not recorded"),
        (lambda r: r.update(later=decision(LATER)), "or not any more"),
        (_other(scope=b""), "is of another call"),
        (_other(name="other"), "is of another call"),
        (_other(fingerprint=b"g" * 32), "is of another call"),
        (_other(occurrence=3), "is of another call"),
        (_other(inputs=b""), "does not say so"),
        (_other(inputs=b'{"resolves":1}'), "does not say so"),
    ],
)
def test_each_forgery_is_named(forge: Callable[[dict[str, StoredRecord]], object], said: str) -> None:
    records = honest()
    forge(records)
    assert any(said in problem for problem in problems(records)), problems(records)
