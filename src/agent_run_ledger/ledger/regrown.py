"""The Merkle tree of a log grown again from its leaves, compared with the stored tiles on the way."""

from __future__ import annotations

from collections.abc import Callable

from agent_run_ledger.errors import Tampered
from agent_run_ledger.kernel.merkle import Frontier, node_hash
from agent_run_ledger.kernel.tiles import MAX_LEVEL, TILE_HEIGHT, TILE_WIDTH, build_tile, tile_root
from agent_run_ledger.ports import Reader

_BEYOND = 1 << 40  # tile indices end here


class RegrownTree:
    """Takes leaf hashes in order. Memory: at most 255 hashes a level."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._open: list[list[bytes]] = [[]]  # by level: the leaves of the tile that is not complete yet
        self._complete: list[int] = [0]  # by level: how many tiles are
        self._broken = False

    def append(self, leaf: bytes) -> list[str]:
        """Take the next leaf hash; return in what a tile that it completes differs from the stored one."""
        if self._broken:
            return []
        tail = self._open[0]
        tail.append(leaf)
        return self._close(0) if len(tail) == TILE_WIDTH else []

    def break_off(self) -> None:
        """Say that leaves are missing: from here on nothing can be recomputed."""
        self._broken = True

    def frontier(self) -> Frontier | None:
        """Return the roots of the complete subtrees, largest first; None where leaves are missing."""
        if self._broken:
            return None
        roots: list[bytes] = []
        for hashes in reversed(self._open):
            start = 0
            for height in reversed(range(TILE_HEIGHT)):
                if len(hashes) >> height & 1:
                    roots.append(_folded(hashes[start : start + (1 << height)]))
                    start += 1 << height
        return tuple(roots)

    def stray_tiles(self, size_now: Callable[[], int]) -> list[str]:
        """Return which levels have tiles stored beyond the leaves of the log's present size."""
        wrong: list[str] = []
        for level in range(MAX_LEVEL + 1):
            complete = self._complete[level] if level < len(self._complete) else 0
            try:
                found = len(self._reader.tile_roots(level, first=complete, stop=_BEYOND))
            except (Tampered, ValueError, TypeError) as error:
                wrong.append(f"tiles of level {level} cannot be read: {error}")
                continue
            lawful = size_now() >> TILE_HEIGHT * (level + 1)
            if complete + found > lawful and not self._broken:
                wrong.append(f"{complete + found - lawful} tiles of level {level} stand beyond the log")
        return wrong

    def _close(self, level: int) -> list[str]:
        hashes = self._open[level]
        nodes, index = build_tile(hashes), self._complete[level]
        hashes.clear()
        self._complete[level] += 1
        wrong = self._compare(level, index, nodes)
        if level + 1 == len(self._open):
            self._open.append([])
            self._complete.append(0)
        above = self._open[level + 1]
        above.append(tile_root(nodes))
        return wrong + self._close(level + 1) if len(above) == TILE_WIDTH else wrong

    def _compare(self, level: int, index: int, nodes: bytes) -> list[str]:
        name = f"tile {index} of level {level}"
        try:
            stored = self._reader.tile(level, index)
            roots = self._reader.tile_roots(level, first=index, stop=index + 1)
        except (Tampered, ValueError, TypeError) as error:
            return [f"{name} cannot be read: {error}"]
        if stored is None or not roots:
            return [f"{name} is missing"]
        wrong = [] if stored == nodes else [f"{name} does not have the nodes above its leaves"]
        return wrong if roots == [tile_root(nodes)] else [*wrong, f"{name} does not have the root of its leaves"]


def _folded(hashes: list[bytes]) -> bytes:
    """Return the root over 1, 2, 4, … hashes."""
    while len(hashes) > 1:
        pairs = iter(hashes)
        hashes = [node_hash(left, right) for left, right in zip(pairs, pairs, strict=True)]
    return hashes[0]
