"""Builds inclusion and consistency proofs (RFC 9162) from stored tiles and, near the end of the log, from envelopes."""

from __future__ import annotations

from collections.abc import Sequence

from agent_run_ledger.errors import Misuse, Tampered
from agent_run_ledger.kernel.merkle import EMPTY_ROOT, HASH_BYTES, leaf_hash, node_hash
from agent_run_ledger.kernel.tiles import TILE_BYTES, TILE_HEIGHT, tile_node
from agent_run_ledger.ports import Reader


def inclusion_proof(reader: Reader, index: int, size: int) -> list[bytes]:
    """Return the 32-byte siblings, lowest first, that `verify_inclusion` needs for leaf `index` in the log of `size`.

    `size` may be any size the log has had. Raises Misuse for an index or a size the log does not have, Tampered
    where stored leaves or tiles are missing. Reads at most 255 envelopes, and one where tiles are complete.
    """
    if not 0 <= index < size:
        raise Misuse(f"a log of {size} leaves has no leaf {index}", code="no_leaf")
    nodes = _Nodes(reader, size)
    first, stop = 0, size
    siblings: list[bytes] = []
    while stop - first > 1:
        middle = first + _left_width(stop - first)
        if index < middle:
            siblings.append(nodes.over(middle, stop))
            stop = middle
        else:
            siblings.append(nodes.over(first, middle))
            first = middle
    return siblings[::-1]


def consistency_proof(reader: Reader, old_size: int, size: int) -> list[bytes]:
    """Return the 32-byte hashes that show `verify_consistency` that the log of `size` begins with that of `old_size`.

    Empty for an empty old log and for equal sizes. Raises Misuse for sizes the log has not had (or old_size > size),
    Tampered where stored leaves or tiles are missing.
    """
    if not 0 <= old_size <= size:
        raise Misuse(f"a log of {size} leaves never had {old_size}", code="no_size")
    nodes = _Nodes(reader, size)
    if old_size == 0:
        return []
    first, stop = 0, size
    whole_old = True  # the subtree in hand is the old log itself, whose root the verifier has
    hashes: list[bytes] = []
    while stop != old_size:
        middle = first + _left_width(stop - first)
        if old_size <= middle:
            hashes.append(nodes.over(middle, stop))
            stop = middle
        else:
            hashes.append(nodes.over(first, middle))
            first = middle
            whole_old = False
    if not whole_old:
        hashes.append(nodes.over(first, stop))
    return hashes[::-1]


def root_at(reader: Reader, size: int) -> bytes:
    """Return the root the log had at `size`; raises Misuse for a size it has not had, Tampered for missing nodes."""
    nodes = _Nodes(reader, size)
    return nodes.over(0, size) if size else EMPTY_ROOT


def _left_width(count: int) -> int:
    """Return the largest power of two below `count` (RFC 9162, 2.1.1)."""
    return 1 << ((count - 1).bit_length() - 1)


class _Nodes:
    """Hashes of ranges of leaves, from the highest stored nodes that cover them."""

    def __init__(self, reader: Reader, size: int) -> None:
        self._reader = reader
        self._stored = reader.head().size
        if not 0 <= size <= self._stored:
            raise Misuse(f"the log has {self._stored} leaves, not {size}", code="no_size")
        self._tiles: dict[tuple[int, int], bytes] = {}

    def over(self, first: int, stop: int) -> bytes:
        """Return the hash over leaves first ≤ index < stop; `first` is a multiple of the width of what follows."""
        complete: list[bytes] = []
        for height in reversed(range((stop - first).bit_length())):
            if (stop - first) >> height & 1:
                complete.append(self._complete(height, first >> height))
                first += 1 << height
        node = complete.pop()
        while complete:
            node = node_hash(complete.pop(), node)
        return node

    def _complete(self, height: int, index: int) -> bytes:
        """Return the root of the complete subtree over leaves index·2**height up to (index + 1)·2**height."""
        level, within = divmod(height, TILE_HEIGHT)
        if within == 0:
            return self._bottom(level, index, index + 1)[0]
        tile_index = index >> (TILE_HEIGHT - within)
        if (tile_index + 1) << (TILE_HEIGHT * (level + 1)) <= self._stored:
            return tile_node(self._tile(level, tile_index), within, index & ((1 << (TILE_HEIGHT - within)) - 1))
        row = self._bottom(level, index << within, (index + 1) << within)
        while len(row) > 1:
            pairs = iter(row)
            row = [node_hash(left, right) for left, right in zip(pairs, pairs, strict=True)]
        return row[0]

    def _bottom(self, level: int, first: int, stop: int) -> Sequence[bytes]:
        """Return leaves of level-`level` tiles: leaf hashes at level 0, else roots of the tiles one level below."""
        if level == 0:
            found = [leaf_hash(event.envelope) for event in self._reader.events(first=first, stop=stop)]
        else:
            found = self._reader.tile_roots(level - 1, first=first, stop=stop)
        if len(found) != stop - first or any(len(each) != HASH_BYTES for each in found):
            kind = "leaves" if level == 0 else f"tiles of level {level - 1}"
            raise Tampered(f"{kind} {first} to {stop - 1} are not all in the store", hint="run `arl verify`")
        return found

    def _tile(self, level: int, index: int) -> bytes:
        tile = self._tiles.get((level, index))
        if tile is None:
            tile = self._reader.tile(level, index)
            if tile is None or len(tile) != TILE_BYTES:
                raise Tampered(f"tile {index} of level {level} is not in the store", hint="run `arl verify`")
            self._tiles[level, index] = tile
        return tile
