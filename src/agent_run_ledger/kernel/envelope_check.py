"""The strict reader of envelopes: exactly the canonical bytes of envelope v1, in the order of their time."""

from __future__ import annotations

import re
from typing import Any, Final, cast

import orjson

from agent_run_ledger.kernel.envelope import ENVELOPE_VERSION

_KEYS: Final = frozenset({"changes", "epoch", "log_id", "op_id", "time_ms", "v"})
_CHANGE_KEYS: Final = frozenset({"generation", "id", "new", "old", "type"})
_CHANGE_KEYS_WITH_MAC: Final = _CHANGE_KEYS | {"mac"}
_TYPES: Final = frozenset({"action", "run", "step", "store"})
_ID: Final = re.compile("[0-9a-f]{32}")

Changes = list[dict[str, Any]]


class EnvelopeCheck:
    """Reads the envelopes of one log in order. Without a `log_id` the first envelope's is the log's."""

    def __init__(self, log_id: bytes | None = None) -> None:
        self.log_id_hex: str | None = None if log_id is None else log_id.hex()
        self.time_ms = 0
        self.epoch = 0
        self.count = 0

    def changes(self, op_id: bytes, envelope: bytes) -> tuple[Changes, list[str]]:
        """Return the changes of the next envelope and what is wrong with it; no changes where it cannot be trusted.

        Every change has its keys with the types of `Change` (ids and MACs in hex) and a known `type`.
        """
        self.count += 1
        try:
            read = orjson.loads(envelope)
        except orjson.JSONDecodeError:
            return [], ["the envelope is not JSON"]
        # Reading drops spaces, order and repeated keys: only the canonical bytes come out as they went in.
        if type(read) is not dict or orjson.dumps(read, option=orjson.OPT_SORT_KEYS) != envelope:
            return [], ["the envelope is not in canonical form"]
        fields = cast("dict[str, Any]", read)
        version = fields.get("v")
        if type(version) is not int or version != ENVELOPE_VERSION:
            return [], [f"envelope version {version!r} is not known"]
        changes = fields.get("changes")
        if fields.keys() != _KEYS or type(changes) is not list or not changes:
            return [], ["the envelope has other fields than envelope v1"]
        for change in cast("Changes", changes):
            if not _well_formed(change):
                return [], ["a change has other fields than envelope v1"]
        return cast("Changes", changes), self._wrong_header(op_id, fields, cast("Changes", changes))

    def wrong_head(self, *, epoch: int, time_ms: int) -> list[str]:
        """Return in what a head that stands behind the last envelope contradicts it."""
        if not self.count:
            return []
        wrong: list[str] = []
        if epoch != self.epoch:
            wrong.append(f"the head's epoch is {epoch}, that of its last leaf {self.epoch}")
        if time_ms != self.time_ms:
            wrong.append(f"the head's time is {time_ms} ms, that of its last leaf {self.time_ms} ms")
        return wrong

    def _wrong_header(self, op_id: bytes, fields: dict[str, Any], changes: Changes) -> list[str]:
        wrong: list[str] = []
        log_id = fields["log_id"]
        if log_id != self.log_id_hex:
            if self.log_id_hex is None and type(log_id) is str and _ID.fullmatch(log_id):
                self.log_id_hex = log_id
            else:
                wrong.append(f"the leaf belongs to log {log_id}, not {self.log_id_hex}")
        if fields["op_id"] != op_id.hex():
            wrong.append(f"the row has op_id {op_id.hex()}, the envelope {fields['op_id']}")
        for name in ("time_ms", "epoch"):
            number, before = fields[name], getattr(self, name)
            if type(number) is not int or number < before:
                wrong.append(f"{name} is {number!r}, after {before}")
            else:
                setattr(self, name, number)
        for change in changes:
            if change["type"] == "store" and change["id"] != log_id:
                wrong.append(f"a change of the store names {change['id']}, not its log")
        return wrong


def _well_formed(change: object) -> bool:
    if type(change) is not dict:
        return False
    fields = cast("dict[str, Any]", change)
    keys = fields.keys()
    if (keys != _CHANGE_KEYS or fields["type"] == "action") and (
        keys != _CHANGE_KEYS_WITH_MAC or type(fields["mac"]) is not str
    ):
        return False
    return (
        type(fields["id"]) is str
        and _ID.fullmatch(fields["id"]) is not None
        and type(fields["old"]) is str
        and type(fields["new"]) is str
        and type(fields["generation"]) is int
        and type(fields["type"]) is str
        and fields["type"] in _TYPES
    )
