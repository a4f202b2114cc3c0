"""The Merkle tree against a naive reading of RFC 9162: roots, and proofs that hold for nothing but the truth."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.kernel.merkle import (
    EMPTY_ROOT,
    Frontier,
    append,
    leaf_hash,
    node_hash,
    root,
    verify_consistency,
    verify_inclusion,
)
from tests.unit.kernel_formats import golden, worked_example

EXHAUSTIVE = 70


def sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


# The recursive definitions of RFC 9162, 2.1.1, 2.1.3.1 and 2.1.4.1, over leaf hashes.


def split(count: int) -> int:
    """The largest power of two below count."""
    return 1 << (count - 1).bit_length() - 1


def tree_hash(leaves: Sequence[bytes]) -> bytes:
    if not leaves:
        return sha256(b"")
    if len(leaves) == 1:
        return leaves[0]
    k = split(len(leaves))
    return sha256(b"\1" + tree_hash(leaves[:k]) + tree_hash(leaves[k:]))


def path(index: int, leaves: Sequence[bytes]) -> list[bytes]:
    if len(leaves) == 1:
        return []
    k = split(len(leaves))
    if index < k:
        return [*path(index, leaves[:k]), tree_hash(leaves[k:])]
    return [*path(index - k, leaves[k:]), tree_hash(leaves[:k])]


def subproof(old: int, leaves: Sequence[bytes], known: bool) -> list[bytes]:
    if old == len(leaves):
        return [] if known else [tree_hash(leaves)]
    k = split(len(leaves))
    if old <= k:
        return [*subproof(old, leaves[:k], known), tree_hash(leaves[k:])]
    return [*subproof(old - k, leaves[k:], False), tree_hash(leaves[:k])]


def leaves_of(count: int) -> list[bytes]:
    return [leaf_hash(b"%d" % index) for index in range(count)]


def grown(count: int) -> Frontier:
    frontier: Frontier = ()
    for size, leaf in enumerate(leaves_of(count)):
        frontier = append(size, frontier, leaf)
    return frontier


LEAVES = leaves_of(EXHAUSTIVE)
ROOTS = [tree_hash(LEAVES[:size]) for size in range(EXHAUSTIVE + 1)]


def test_hashes_are_prefixed_so_that_no_node_is_a_leaf() -> None:
    assert leaf_hash(b"abc") == sha256(b"\x00abc")
    assert node_hash(b"l" * 32, b"r" * 32) == sha256(b"\x01" + b"l" * 32 + b"r" * 32)
    assert sha256(b"") == EMPTY_ROOT


def test_root_and_frontier_equal_the_definition_for_every_size() -> None:
    frontier: Frontier = ()
    assert root(0, frontier) == EMPTY_ROOT
    for size in range(EXHAUSTIVE):
        frontier = append(size, frontier, LEAVES[size])
        assert root(size + 1, frontier) == ROOTS[size + 1]
        assert len(frontier) == (size + 1).bit_count()


@given(st.integers(EXHAUSTIVE, 3000))
def test_the_frontier_is_the_complete_subtrees_largest_first(count: int) -> None:
    leaves, start, expected = leaves_of(count), 0, []
    for bit in reversed(range(count.bit_length())):
        if count >> bit & 1:
            expected.append(tree_hash(leaves[start : start + (1 << bit)]))
            start += 1 << bit
    assert grown(count) == tuple(expected)
    assert root(count, grown(count)) == tree_hash(leaves)


@pytest.mark.parametrize(("size", "hashes"), [(1, 0), (0, 1), (2, 2), (3, 1), (4, 3), (-1, 0)])
def test_a_frontier_that_does_not_fit_the_size_is_refused(size: int, hashes: int) -> None:
    frontier = (b"x" * 32,) * hashes
    with pytest.raises(ValueError, match="does not have a frontier"):
        root(size, frontier)
    with pytest.raises(ValueError, match="does not have a frontier"):
        append(size, frontier, b"x" * 32)


def test_every_inclusion_proof_holds_at_its_place_and_at_no_other() -> None:
    for size in range(1, EXHAUSTIVE + 1):
        for index in range(size):
            proof = path(index, LEAVES[:size])
            assert verify_inclusion(LEAVES[index], index, size, proof, ROOTS[size])
            others = [other for other in (0, index - 1, index + 1, index ^ 1, size - 1) if other != index]
            assert not any(verify_inclusion(LEAVES[index], other, size, proof, ROOTS[size]) for other in others)
            another = LEAVES[(index + 1) % EXHAUSTIVE]
            assert not verify_inclusion(another, index, size, proof, ROOTS[size])


def test_an_inclusion_proof_of_another_length_is_refused() -> None:
    for size in range(1, EXHAUSTIVE + 1):
        for index in range(0, size, 3):
            proof = path(index, LEAVES[:size])
            assert not verify_inclusion(LEAVES[index], index, size, [*proof, b"\0" * 32], ROOTS[size])
            if proof:
                assert not verify_inclusion(LEAVES[index], index, size, proof[:-1], ROOTS[size])
                assert not verify_inclusion(LEAVES[index], index, size, proof[1:], ROOTS[size])


def test_a_proof_for_a_bigger_log_is_no_proof_for_a_smaller_one() -> None:
    assert verify_inclusion(LEAVES[1], 1, 2, [LEAVES[0]], ROOTS[2])
    assert not verify_inclusion(LEAVES[1], 0, 1, [LEAVES[0]], ROOTS[2])
    assert not verify_inclusion(LEAVES[2], 0, 1, [ROOTS[2]], ROOTS[3])


def test_a_proof_for_a_smaller_log_is_no_proof_for_a_bigger_one() -> None:
    assert verify_inclusion(LEAVES[0], 0, 2, [LEAVES[1]], ROOTS[2])
    for size in (3, 4, 8, 64):
        assert not verify_inclusion(LEAVES[0], 0, size, [LEAVES[1]], ROOTS[2])


def test_a_changed_hash_anywhere_breaks_an_inclusion_proof() -> None:
    proof = path(5, LEAVES[:13])
    for place in range(len(proof)):
        bent = [*proof[:place], bytes(32), *proof[place + 1 :]]
        assert not verify_inclusion(LEAVES[5], 5, 13, bent, ROOTS[13])
    assert not verify_inclusion(bytes(32), 5, 13, proof, ROOTS[13])
    assert not verify_inclusion(LEAVES[5], 5, 13, proof, ROOTS[12])


@pytest.mark.parametrize(("index", "size"), [(-1, 1), (1, 1), (0, 0), (0, -1), (13, 13), (14, 13)])
def test_an_index_outside_the_log_is_refused(index: int, size: int) -> None:
    assert not verify_inclusion(LEAVES[0], index, size, [], LEAVES[0])


def test_an_inclusion_proof_with_a_hash_of_another_length_is_refused() -> None:
    left, right = LEAVES[0], LEAVES[1]
    assert verify_inclusion(left, 0, 2, [right], ROOTS[2])
    # SHA-256 sees one string: without the lengths these would be proofs of leaves that are not there.
    assert not verify_inclusion(left + right[:1], 0, 2, [right[1:]], ROOTS[2])
    assert not verify_inclusion(left[:31], 0, 2, [left[31:] + right], ROOTS[2])
    assert not verify_inclusion(b"", 0, 1, [], b"")


def test_every_consistency_proof_holds_for_its_pair_and_no_other() -> None:
    for size in range(1, EXHAUSTIVE + 1):
        for old in range(1, size + 1):
            proof = subproof(old, LEAVES[:size], True)
            assert verify_consistency(old, ROOTS[old], size, ROOTS[size], proof)
            for wrong in {old - 1, old + 1} - {0, old}:
                if wrong <= size:
                    assert not verify_consistency(wrong, ROOTS[old], size, ROOTS[size], proof)
            assert not verify_consistency(old, bytes(32), size, ROOTS[size], proof)
            assert not verify_consistency(old, ROOTS[old], size, bytes(32), proof)
            assert not verify_consistency(old, ROOTS[old], size, ROOTS[size], [*proof, bytes(32)])
            if proof:
                assert not verify_consistency(old, ROOTS[old], size, ROOTS[size], proof[:-1])
                assert not verify_consistency(old, ROOTS[old], size, ROOTS[size], proof[1:])


def test_a_changed_hash_anywhere_breaks_a_consistency_proof() -> None:
    for old, size in [(3, 7), (4, 7), (6, 7), (6, 8), (8, 13), (5, 64), (63, 64), (33, 70)]:
        proof = subproof(old, LEAVES[:size], True)
        for place in range(len(proof)):
            bent = [*proof[:place], bytes(32), *proof[place + 1 :]]
            assert not verify_consistency(old, ROOTS[old], size, ROOTS[size], bent)


def test_a_log_with_another_past_is_not_consistent() -> None:
    for old, size in [(3, 7), (4, 8), (6, 13), (64, 70)]:
        forged = [leaf_hash(b"forged"), *LEAVES[1:size]]
        proof = subproof(old, forged, True)
        assert not verify_consistency(old, ROOTS[old], size, tree_hash(forged), proof)


def test_equal_sizes_need_equal_roots_and_no_proof() -> None:
    assert verify_consistency(7, ROOTS[7], 7, ROOTS[7], [])
    assert not verify_consistency(7, ROOTS[7], 7, ROOTS[6], [])
    assert not verify_consistency(7, ROOTS[7], 7, ROOTS[7], [ROOTS[7]])
    assert verify_consistency(0, EMPTY_ROOT, 0, EMPTY_ROOT, [])
    assert not verify_consistency(0, ROOTS[1], 0, ROOTS[1], [])


def test_an_empty_log_is_the_beginning_of_every_log_and_only_by_its_own_root() -> None:
    assert verify_consistency(0, EMPTY_ROOT, 7, ROOTS[7], [])
    assert not verify_consistency(0, ROOTS[1], 7, ROOTS[7], [])
    assert not verify_consistency(0, EMPTY_ROOT, 7, ROOTS[7], [ROOTS[7]])


def test_a_log_never_shrinks() -> None:
    assert not verify_consistency(8, ROOTS[8], 7, ROOTS[7], subproof(7, LEAVES[:8], True))
    assert not verify_consistency(-1, ROOTS[8], 7, ROOTS[7], [])


def test_a_log_never_shrinks_even_with_the_same_root() -> None:
    for old, new in ((4, 2), (8, 3), (2, 1)):
        assert not verify_consistency(old, ROOTS[old], new, ROOTS[old], [])


def test_a_consistency_proof_with_a_hash_of_another_length_is_refused() -> None:
    (right,) = subproof(1, LEAVES[:2], True)
    assert verify_consistency(1, ROOTS[1], 2, ROOTS[2], [right])
    assert not verify_consistency(1, ROOTS[1] + right[:1], 2, ROOTS[2], [right[1:]])
    assert not verify_consistency(1, ROOTS[1], 2, ROOTS[2], [right, b""])


@given(st.integers(1, 3000), st.data())
def test_proofs_of_bigger_logs_hold(size: int, data: st.DataObject) -> None:
    leaves = leaves_of(size)
    index, old = data.draw(st.integers(0, size - 1)), data.draw(st.integers(1, size))
    whole = tree_hash(leaves)
    assert verify_inclusion(leaves[index], index, size, path(index, leaves), whole)
    proof = subproof(old, leaves, True)
    assert verify_consistency(old, tree_hash(leaves[:old]), size, whole, proof)
    forged = [*leaves[: old - 1], leaf_hash(b"forged")]
    assert not verify_consistency(old, tree_hash(forged), size, whole, proof)


def unhex(hashes: Sequence[str]) -> list[bytes]:
    return [bytes.fromhex(each) for each in hashes]


def test_leaves_roots_and_frontiers_of_an_earlier_version_still_hold() -> None:
    kept = golden("tree")
    leaves = [leaf_hash(envelope.encode()) for envelope in kept["envelopes"]]
    assert leaves == unhex(kept["leaf_sha256s"])
    frontier: Frontier = ()
    for size, expected in enumerate(kept["sizes"]):
        assert expected["size"] == size
        assert frontier == tuple(unhex(expected["frontier"]))
        assert root(size, frontier).hex() == expected["root"]
        if size < len(leaves):
            frontier = append(size, frontier, leaves[size])
    assert len(kept["sizes"]) == 11


def test_proofs_of_an_earlier_version_still_hold() -> None:
    kept = golden("tree")
    leaves, roots = unhex(kept["leaf_sha256s"]), unhex([each["root"] for each in kept["sizes"]])
    for case in kept["inclusion"]:
        index, size = case["index"], case["size"]
        assert verify_inclusion(leaves[index], index, size, unhex(case["proof"]), roots[size])
    for case in kept["consistency"]:
        old, size = case["old_size"], case["size"]
        assert verify_consistency(old, roots[old], size, roots[size], unhex(case["proof"]))


def test_the_worked_example_of_the_page() -> None:
    example = worked_example("leaf")
    leaves = [leaf_hash(envelope.encode()) for envelope in example["envelopes"]]
    assert leaves == unhex(example["leaf_sha256s"])
    frontier: Frontier = ()
    for size, leaf in enumerate(leaves):
        frontier = append(size, frontier, leaf)
    whole = root(3, frontier)
    assert frontier == tuple(unhex(example["frontier"]))
    assert whole.hex() == example["root"]
    assert verify_inclusion(leaves[1], example["index"], 3, unhex(example["inclusion_proof"]), whole)
    old_root = bytes.fromhex(example["old_root"])
    assert verify_consistency(example["old_size"], old_root, 3, whole, unhex(example["consistency_proof"]))
