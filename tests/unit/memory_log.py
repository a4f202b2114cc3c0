"""A log in memory that reads like a store: honest when it is written, and open to every forgery afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from agent_run_ledger.errors import Tampered
from agent_run_ledger.kernel.envelope import Change, envelope_bytes
from agent_run_ledger.kernel.erasure import ERASABLE, erased_form, kept_digest, kept_sha256
from agent_run_ledger.kernel.merkle import Frontier, append, leaf_hash
from agent_run_ledger.kernel.record import Record, RecordKind, record_mac
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.kernel.tiles import TILE_WIDTH, build_tile, completed_tiles
from agent_run_ledger.ports import Event, Head, InFlight, RecordKey, RunRow, StoredRecord

STATES = {
    RecordKind.RESULT: "recorded",
    RecordKind.ERROR: "failed",
    RecordKind.ABANDONED: "abandoned",
    RecordKind.RESCUED: "rescued",
}


class NoEffects:
    """The reads of effects of a log that has none."""

    def keys(self) -> Iterator[str]:
        return iter(())

    def members(self, action_key: str) -> list[Any]:
        return []

    def leaf_transitions(self, *, first: int, stop: int) -> Iterator[Any]:
        return iter(())

    def leaf_corrections(self, *, first: int, stop: int) -> Iterator[Any]:
        return iter(())

    def leaf_trust_changes(self, *, first: int, stop: int) -> Iterator[Any]:
        return iter(())

    def ownerless(self, *, limit: int) -> tuple[int, list[Any]]:
        return 0, []


class MemoryLog:
    """Implements ports.Reader over plain containers that tests change at will."""

    def __init__(self, log_id: bytes = b"L" * 16) -> None:
        self.log_id = log_id
        self.effects: Any = NoEffects()
        self.leaves: dict[int, Event] = {}
        self.stored: dict[int, StoredRecord] = {}
        self.rows: dict[str, RunRow] = {}
        self.marks: dict[int, list[InFlight]] = {}
        self.tiles: dict[tuple[int, int], bytes] = {}
        self.tile_root_rows: dict[tuple[int, int], bytes] = {}
        self.hashes: list[bytes] = []
        self.size = 0
        self.frontier: Frontier = ()
        self.epoch = 0
        self.time_ms = 1_000
        self.reads: list[tuple[str, int, int]] = []
        self._row_ids = 0

    # Writing

    def take_row_id(self) -> int:
        self._row_ids += 1
        return self._row_ids

    def commit(self, *written: tuple[Change, Record | None], run_row_id: int = 1) -> int:
        """Append one leaf with these changes and their records; return its index."""
        index = self.size
        self.time_ms += 1
        changes = [replace(c, mac=None if record is None else record_mac(record)) for c, record in written]
        op_id = index.to_bytes(16, "big")
        envelope = envelope_bytes(
            log_id=self.log_id, op_id=op_id, epoch=self.epoch, time_ms=self.time_ms, changes=changes
        )
        self.append_leaf(op_id, envelope)
        for position, (_, record) in enumerate(written):
            if record is not None:
                place = index << 16 | position
                self.stored[place] = StoredRecord(record_id=place, run_row_id=run_row_id, record=record)
        return index

    def append_leaf(self, op_id: bytes, envelope: bytes) -> None:
        index = self.size
        self.leaves[index] = Event(index=index, op_id=op_id, envelope=envelope)
        leaf = leaf_hash(envelope)
        self.hashes.append(leaf)
        self.frontier = append(index, self.frontier, leaf)
        self.size = index + 1
        for level, tile in completed_tiles(self.size):
            below = slice(tile * TILE_WIDTH, (tile + 1) * TILE_WIDTH)
            leaves = (
                self.hashes[below] if level == 0 else self.tile_roots(level - 1, first=below.start, stop=below.stop)
            )
            nodes = build_tile(leaves)
            self.tiles[level, tile] = nodes
            self.tile_root_rows[level, tile] = nodes[:32]

    def reseal(self) -> None:
        """Compute tiles and head anew from the leaves, as somebody would who rewrites history thoroughly."""
        leaves = [self.leaves[index] for index in sorted(self.leaves)]
        self.hashes, self.size, self.frontier, self.tiles, self.tile_root_rows = [], 0, (), {}, {}
        for leaf in leaves:
            self.append_leaf(leaf.op_id, leaf.envelope)

    # ports.Reader

    def head(self) -> Head:
        return Head(size=self.size, frontier=self.frontier, epoch=self.epoch, time_ms=self.time_ms)

    def find_run(self, run_id: str) -> RunRow | None:
        return self.rows.get(run_id)

    def list_runs(self, *, state: RunState | None, before_row_id: int | None, limit: int) -> list[RunRow]:
        rows = sorted(self.rows.values(), key=lambda row: -row.row_id)
        return [row for row in rows if before_row_id is None or row.row_id < before_row_id][:limit]

    def run_row_ids(self, *, before_row_id: int | None, limit: int) -> list[int]:
        ids = sorted((row.row_id for row in self.rows.values()), reverse=True)
        return [row_id for row_id in ids if before_row_id is None or row_id < before_row_id][:limit]

    def orphan_marks(self, *, limit: int) -> list[InFlight]:
        known = {row.row_id for row in self.rows.values()}
        return [mark for row_id, marks in sorted(self.marks.items()) if row_id not in known for mark in marks][:limit]

    def result_keys(self, run_row_id: int) -> list[RecordKey]:
        raise NotImplementedError

    def record(self, record_id: int) -> StoredRecord:
        if record_id not in self.stored:
            raise Tampered(f"record {record_id} is not there")
        return self.stored[record_id]

    def records(
        self, run_row_id: int, *, kinds: Sequence[RecordKind], after_record_id: int = -1
    ) -> Iterator[StoredRecord]:
        raise NotImplementedError

    def in_flight(self, run_row_id: int) -> list[InFlight]:
        return self.marks.get(run_row_id, [])

    def events(self, *, first: int, stop: int) -> Iterator[Event]:
        self.reads.append(("events", first, stop))
        for index in self._between(self.leaves, first, stop):
            yield self.leaves[index]

    def leaf_records(self, *, first: int, stop: int) -> Iterator[StoredRecord]:
        for place in self._between(self.stored, first << 16, stop << 16):
            yield self.stored[place]

    def tile(self, level: int, index: int) -> bytes | None:
        self.reads.append(("tile", level, index))
        return self.tiles.get((level, index))

    def tile_roots(self, level: int, *, first: int, stop: int) -> list[bytes]:
        indices = sorted(index for at, index in self.tile_root_rows if at == level and first <= index < stop)
        return [self.tile_root_rows[level, index] for index in indices]

    @staticmethod
    def _between(rows: dict[int, Any], first: int, stop: int) -> Iterator[int]:
        if stop - first <= len(rows):
            yield from (place for place in range(first, stop) if place in rows)
        else:
            yield from sorted(place for place in rows if first <= place < stop)


class Story:
    """Writes one run into a MemoryLog in the shapes the engine writes; every method is one committed leaf."""

    def __init__(self, log: MemoryLog, run_id: str = "r1") -> None:
        self.log = log
        self.run_id = run_id
        self.uid = run_id.encode().rjust(16, b"\0")
        self.row_id = log.rows[run_id].row_id if run_id in log.rows else log.take_row_id()
        self.calls = 0
        self.open: list[int] = []

    @property
    def row(self) -> RunRow:
        return self.log.rows[self.run_id]

    def record(self, kind: RecordKind, **fields: Any) -> Record:
        self.calls += 1
        salt = (self.run_id.encode() + b"%d" % self.calls).ljust(32, b"s")
        return Record(kind=kind, run_uid=self.uid, salt=salt, name="step", payload=b'"paid"', **fields)

    def change(self, type_: str, old: str, new: str, generation: int | None = None) -> Change:
        generation = self.row.generation if generation is None else generation
        return Change(type=type_, id=self.uid, old=old, new=new, generation=generation)

    def start(self) -> int:
        row = self.log.rows.get(self.run_id)
        old, generation, attempt = ("none", 1, 1) if row is None else (row.state, row.generation + 1, row.attempt + 1)
        written: list[tuple[Change, Record | None]] = [
            (self.change("run", old, "running", generation), self.record(RecordKind.START, attempt=attempt))
        ]
        written += [
            (self.change("step", "started", "abandoned", generation), self.record(RecordKind.ABANDONED))
            for _ in self.open
        ]
        index = self.log.commit(*written, run_row_id=self.row_id)
        self._put(
            state=RunState.RUNNING,
            generation=generation,
            attempt=attempt,
            start_record_id=index << 16 if row is None else row.start_record_id,
            last_start_record_id=index << 16,
            end_record_id=None,
        )
        self.open = []
        self._mark()
        return index

    def begin(self, count: int = 1) -> int:
        index = self.log.commit(*[(self.change("step", "none", "started"), None)] * count, run_row_id=self.row_id)
        self.open += range(len(self.open), len(self.open) + count)
        self._mark()
        return index

    def conclude(self, kind: RecordKind = RecordKind.RESULT, *, begin: int = 0) -> int:
        """Conclude one call and start others in the same commit, as pipelines do."""
        written: list[tuple[Change, Record | None]] = [
            (self.change("step", "started", STATES[kind]), self.record(kind))
        ]
        written += [(self.change("step", "none", "started"), None)] * begin
        index = self.log.commit(*written, run_row_id=self.row_id)
        self.open = list(range(len(self.open) - 1 + begin))
        self._mark()
        return index

    def end(self, state: RunState = RunState.COMPLETED, *, conclude: bool = False) -> int:
        written: list[tuple[Change, Record | None]] = []
        if conclude:
            written.append((self.change("step", "started", "recorded"), self.record(RecordKind.RESULT)))
            self.open.pop()
        written.append((self.change("run", self.row.state, state), self.record(RecordKind.END)))
        index = self.log.commit(*written, run_row_id=self.row_id)
        self._mark()
        self._put(state=state, end_record_id=index << 16 | len(written) - 1)
        return index

    def decide(self, state: RunState, *, takeover: bool = False) -> int:
        generation = self.row.generation + takeover
        written = (self.change("run", self.row.state, state, generation), self.record(RecordKind.DECISION))
        index = self.log.commit(written, run_row_id=self.row_id)
        self._put(state=state, generation=generation)
        return index

    def erase(self, *places: int, name: str = "erase", **said: Any) -> int:
        """Erase these records of the run under one decision; `said` is what it says otherwise than the truth."""
        mine = sorted(
            place
            for place, stored in self.log.stored.items()
            if stored.record.run_uid == self.uid and stored.record.salt and stored.record.kind in ERASABLE
        )
        ranges: list[list[int]] = []
        for place in sorted(places):
            at = mine.index(place)
            if ranges and at and ranges[-1][1] == mine[at - 1]:
                ranges[-1][1] = place
            else:
                ranges.append([place, place])
        for place in places:
            stored = self.log.stored[place]
            self.log.stored[place] = replace(stored, record=erased_form(place, stored.record))
        content: dict[str, object] = {
            "event": name,
            "reason": "asked to",
            "actor": "ann",
            "run_id": self.run_id,
            "count": len(places),
            "ranges": ranges,
            "kept_sha256": kept_sha256(kept_digest(self.log.stored[p].record) for p in sorted(places)).hex(),
        } | said
        record = replace(self.record(RecordKind.DECISION), name=name, payload=json.dumps(content).encode())
        return self.log.commit((self.change("step", "recorded", "erased"), record), run_row_id=self.row_id)

    def leave_unknown(self) -> int:
        """Leave one open call with an unknown outcome; return the id of its record."""
        written = (self.change("step", "started", "unknown"), self.record(RecordKind.ABANDONED))
        index = self.log.commit(written, run_row_id=self.row_id)
        self.open.pop()
        self._mark()
        return index << 16

    def resolve(self, place: object, *kinds: RecordKind) -> int:
        """Resolve the call of a record, with outcomes of these kinds behind the decision."""
        said = json.dumps({"event": "resolve", "record": place}).encode()
        written: list[tuple[Change, Record | None]] = [
            (
                self.change("step", "unknown", "resolved"),
                replace(self.record(RecordKind.DECISION), name="resolve", payload=said),
            )
        ]
        written += [(self.change("step", "resolved", STATES[kind]), self.record(kind)) for kind in kinds]
        return self.log.commit(*written, run_row_id=self.row_id)

    def _put(self, **fields: Any) -> None:
        row = self.log.rows.get(self.run_id) or RunRow(
            row_id=self.row_id,
            run_uid=self.uid,
            run_id=self.run_id,
            state=RunState.RUNNING,
            reason="",
            generation=1,
            attempt=1,
            created_at_ms=0,
            updated_at_ms=0,
            holder="",
        )
        self.log.rows[self.run_id] = replace(row, **fields)

    def _mark(self) -> None:
        self.log.marks[self.row_id] = [
            InFlight(
                run_row_id=self.row_id,
                lane=lane,
                name="step",
                scope=b"",
                fingerprint=b"",
                occurrence=0,
                attempt=1,
                tries=1,
                generation=1,
                started_at_ms=0,
            )
            for lane in self.open
        ]
