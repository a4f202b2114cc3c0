"""What a transaction adds to the log: its envelope, the new frontier, and the tiles that become complete."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from agent_run_ledger.errors import Misuse, Refused
from agent_run_ledger.kernel.envelope import Change, envelope_bytes
from agent_run_ledger.kernel.merkle import append, leaf_hash
from agent_run_ledger.kernel.tiles import TILE_WIDTH, build_tile, completed_tiles, tile_id, tile_root
from agent_run_ledger.ports import Head
from agent_run_ledger.store.row_tx import RowTx
from agent_run_ledger.store.rows import Row

LOG_ID_BYTES = 16
OP_ID_BYTES = 16

Fetch = Callable[[str, Row], list[Row]]
"""Return the rows of a named statement as the transaction sees them."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One leaf more: its place, the transaction it stands for, its bytes, and what the log's frontier is with it."""

    index: int
    op_id: bytes
    envelope: bytes
    frontier: bytes


def check_op_id(op_id: bytes) -> None:
    """Misuse("bad_op_id") for what can name no transaction."""
    if len(op_id) != OP_ID_BYTES:
        raise Misuse(f"an op_id has {OP_ID_BYTES} bytes, not {len(op_id)}", code="bad_op_id")


def leaf_of(tx: RowTx, head: Head, *, log_id: bytes, op_id: bytes) -> Leaf | None:
    """Return the leaf of what `tx` did, None where it did nothing.

    Raises what the transaction failed with, and Misuse("rows_and_leaf_differ") for rows without a change.
    """
    if tx.failure is not None:
        raise tx.failure
    if bool(tx.changes) is not tx.wrote:
        what = "rows without a change" if tx.wrote else "a change without rows"
        raise Misuse(f"a transaction wrote {what}", code="rows_and_leaf_differ")
    if not tx.changes:
        return None
    return leaf_behind(head, tx.changes, log_id=log_id, op_id=op_id, now_ms=tx.now_ms)


def leaf_behind(head: Head, changes: Sequence[Change], *, log_id: bytes, op_id: bytes, now_ms: int) -> Leaf:
    """Return the leaf of these changes, as the next one of a log with this head."""
    envelope = envelope_bytes(log_id=log_id, op_id=op_id, epoch=head.epoch, time_ms=now_ms, changes=changes)
    frontier = append(head.size, head.frontier, leaf_hash(envelope))
    return Leaf(head.size, op_id, envelope, b"".join(frontier))


def first_leaf(*, log_id: bytes, op_id: bytes, now_ms: int) -> Leaf:
    """Return leaf 0: a log was created."""
    born = Change(type="store", id=log_id, old="none", new="created", generation=0)
    none = Head(size=0, frontier=(), epoch=0, time_ms=now_ms)
    return leaf_behind(none, (born,), log_id=log_id, op_id=op_id, now_ms=now_ms)


def tiles_behind(leaf: Leaf, fetch: Fetch) -> Iterator[Row]:
    """Yield the bindings of `insert_tile` for what a leaf completes; each must be written before the next is asked."""
    size = leaf.index + 1
    for level, index in completed_tiles(size) if size % TILE_WIDTH == 0 else ():
        nodes = build_tile(_tile_leaves(fetch, level, index))
        yield tile_id(level, index), tile_root(nodes), nodes


def already_committed(op_id: bytes) -> Refused:
    """Return what to raise for an op_id that is in the log."""
    return Refused(f"operation {op_id.hex()} is already in the log", code="already_committed")


def _tile_leaves(fetch: Fetch, level: int, index: int) -> list[bytes]:
    first, stop = index * TILE_WIDTH, (index + 1) * TILE_WIDTH
    if level == 0:
        return [leaf_hash(row[0]) for row in fetch("select_envelopes", (first, stop))]
    below = level - 1
    return [row[0] for row in fetch("select_tile_roots", (tile_id(below, first), tile_id(below, first) + TILE_WIDTH))]
