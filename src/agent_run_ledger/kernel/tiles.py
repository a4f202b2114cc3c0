"""Tiles: the inner nodes above 256 neighbouring leaves, stored as one block of bytes (format: tile v1)."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

TILE_WIDTH: Final = 256
TILE_HEIGHT: Final = 8
TILE_BYTES: Final = (TILE_WIDTH - 1) * 32
MAX_LEVEL: Final = 7
"""Eight levels of 8 bits: a log of 2**64 leaves needs no level above."""

_LEVEL_SHIFT: Final = 40


def tile_id(level: int, index: int) -> int:
    """Return level << 40 | index: the tile's key in the store. ValueError outside 0..7 and 0..2**40-1."""
    if not 0 <= level <= MAX_LEVEL or not 0 <= index < 1 << _LEVEL_SHIFT:
        raise ValueError(f"no tile at level {level}, index {index}")
    return level << _LEVEL_SHIFT | index


def build_tile(leaves: Sequence[bytes]) -> bytes:
    """Return the 255 inner nodes above exactly 256 hashes in heap order, root first: 8,160 bytes.

    The leaves of a level-0 tile are leaf hashes, those of a level-(n + 1) tile the roots of level-n tiles; they are
    not part of the bytes. ValueError for any other number of leaves.
    """
    if len(leaves) != TILE_WIDTH:
        raise ValueError(f"a tile has {TILE_WIDTH} leaves, not {len(leaves)}")
    level = list(leaves)
    levels: list[list[bytes]] = []
    while len(level) > 1:
        pairs = iter(level)
        level = [sha256(b"\1" + left + right).digest() for left, right in zip(pairs, pairs, strict=True)]
        levels.append(level)
    return b"".join(node for row in reversed(levels) for node in row)


def tile_root(tile: bytes) -> bytes:
    """Return the root of the tile: node 1, the first 32 bytes."""
    return tile[:32]


def tile_node(tile: bytes, height: int, index: int) -> bytes:
    """Return the node that covers leaves index·2**height up to (index + 1)·2**height of the tile; height 1..8.

    In heap order it is node 2**(8 - height) + index, and node i lies at byte 32·(i - 1).
    """
    if not 1 <= height <= TILE_HEIGHT or not 0 <= index < 1 << (TILE_HEIGHT - height):
        raise ValueError(f"no node at height {height}, index {index} in a tile")
    offset = 32 * ((1 << (TILE_HEIGHT - height)) + index - 1)
    return tile[offset : offset + 32]


def path_in_tile(tile: bytes, place: int) -> list[bytes]:
    """Return the 7 siblings from leaf `place` (0..255) to the root, lowest first; the sibling leaf is not in a tile."""
    if not 0 <= place < TILE_WIDTH:
        raise ValueError(f"no leaf {place} in a tile")
    return [tile_node(tile, height, (place >> height) ^ 1) for height in range(1, TILE_HEIGHT)]


def completed_tiles(size_after: int) -> list[tuple[int, int]]:
    """Return (level, index) of each tile that the append completed which made the log `size_after`, lowest first."""
    completed: list[tuple[int, int]] = []
    level, count = 0, size_after
    while count and count % TILE_WIDTH == 0:
        count //= TILE_WIDTH
        completed.append((level, count - 1))
        level += 1
    return completed
