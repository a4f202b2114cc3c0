"""The Merkle tree of the log: hashes, frontier, root and the checks of both kinds of proof (RFC 6962, RFC 9162)."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

EMPTY_ROOT: Final = sha256(b"").digest()
HASH_BYTES: Final = 32

Frontier = tuple[bytes, ...]
"""The roots of the complete subtrees a log is made of, largest (leftmost) first: one per 1 bit of its size."""


def leaf_hash(envelope: bytes) -> bytes:
    """Return SHA-256(0x00 ‖ envelope): the leaf of an envelope (RFC 9162, 2.1.1)."""
    return sha256(b"\0" + envelope).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return SHA-256(0x01 ‖ left ‖ right): the node above two 32-byte hashes (RFC 9162, 2.1.1)."""
    return sha256(b"\1" + left + right).digest()


def append(size: int, frontier: Frontier, leaf: bytes) -> Frontier:
    """Return the frontier of size + 1: the leaf hash swallows a complete subtree for every trailing 1 bit of size."""
    _check_frontier(size, frontier)
    node, kept = leaf, len(frontier)
    while size & 1:
        kept -= 1
        node = sha256(b"\1" + frontier[kept] + node).digest()
        size >>= 1
    return (*frontier[:kept], node)


def root(size: int, frontier: Frontier) -> bytes:
    """Return the root of the log with this frontier; SHA-256("") for an empty one. ValueError if they do not fit."""
    _check_frontier(size, frontier)
    if not frontier:
        return EMPTY_ROOT
    node = frontier[-1]
    for left in reversed(frontier[:-1]):
        node = sha256(b"\1" + left + node).digest()
    return node


def verify_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes], expected_root: bytes) -> bool:
    """Return whether `proof` shows that the leaf hash stands at `index` of the log of `size` with this root.

    RFC 9162, 2.1.3.2. False, never an exception, for every index, length or hash that does not fit exactly.
    """
    if not 0 <= index < size or not _all_hashes((leaf, expected_root, *proof)):
        return False
    place, last, node = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            return False
        if place & 1 or place == last:
            node = node_hash(sibling, node)
            while not place & 1 and place:  # a right edge without a sibling on these levels
                place >>= 1
                last >>= 1
        else:
            node = node_hash(node, sibling)
        place >>= 1
        last >>= 1
    return last == 0 and node == expected_root


def verify_consistency(old_size: int, old_root: bytes, size: int, new_root: bytes, proof: Sequence[bytes]) -> bool:
    """Return whether `proof` shows that the log of `size` begins with the log of `old_size` that had `old_root`.

    RFC 9162, 2.1.4.2, and its edges: equal sizes need equal roots and an empty proof, and an empty old log (its root
    is SHA-256("")) is the beginning of every log and needs an empty proof. False for everything that does not fit.
    """
    if not 0 <= old_size <= size or not _all_hashes((old_root, new_root, *proof)):
        return False
    if old_size == size:
        return not proof and old_root == new_root and (size > 0 or old_root == EMPTY_ROOT)
    if old_size == 0:
        return not proof and old_root == EMPTY_ROOT
    nodes = list(proof)
    if old_size & (old_size - 1) == 0:
        nodes.insert(0, old_root)  # a complete subtree: the proof leaves out what the verifier has
    if not nodes:
        return False
    place, last = old_size - 1, size - 1
    while place & 1:
        place >>= 1
        last >>= 1
    old_node = new_node = nodes[0]
    for sibling in nodes[1:]:
        if last == 0:
            return False
        if place & 1 or place == last:
            old_node, new_node = node_hash(sibling, old_node), node_hash(sibling, new_node)
            while not place & 1 and place:
                place >>= 1
                last >>= 1
        else:
            new_node = node_hash(new_node, sibling)
        place >>= 1
        last >>= 1
    return last == 0 and old_node == old_root and new_node == new_root


def _check_frontier(size: int, frontier: Frontier) -> None:
    if size < 0 or size.bit_count() != len(frontier):
        raise ValueError(f"a log of size {size} does not have a frontier of {len(frontier)} hashes")


def _all_hashes(hashes: Sequence[bytes]) -> bool:
    return all(len(each) == HASH_BYTES for each in hashes)
