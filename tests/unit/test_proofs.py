"""Proofs built from a store: equal to the definition of RFC 9162, whichever tiles are complete, and cheap to read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.errors import Misuse, Tampered
from agent_run_ledger.kernel.merkle import EMPTY_ROOT, root, verify_consistency, verify_inclusion
from agent_run_ledger.ledger.proofs import consistency_proof, inclusion_proof, root_at
from tests.unit.memory_log import MemoryLog
from tests.unit.test_merkle import path, subproof, tree_hash


def log_of(size: int) -> MemoryLog:
    log = MemoryLog()
    for index in range(size):
        log.append_leaf(index.to_bytes(16, "big"), b"envelope %d" % index)
    return log


LOG = log_of(600)
BIG = log_of(66_500)
"""One complete tile of level 1, three more complete tiles of level 0, and a tail."""


def test_every_inclusion_proof_is_the_one_of_the_definition() -> None:
    for size in (*range(1, 20), 255, 256, 257, 511, 512, 513, 600):
        for index in {*range(0, size, 1 if size < 20 else 37), size - 1, min(size - 1, 255), min(size - 1, 256)}:
            assert inclusion_proof(LOG, index, size) == path(index, LOG.hashes[:size])


def test_indices_of_every_size_can_be_proved() -> None:
    roots = [root_at(LOG, size) for size in range(601)]
    for size in range(1, 601):
        for index in range(size % 13, size, 13):
            proof = inclusion_proof(LOG, index, size)
            assert verify_inclusion(LOG.hashes[index], index, size, proof, roots[size])


def test_every_consistency_proof_is_the_one_of_the_definition() -> None:
    for size in (*range(1, 20), 255, 256, 257, 511, 512, 513, 600):
        for old in {*range(1, size, 1 if size < 20 else 37), size, max(1, min(size, 256)), max(1, size - 1)}:
            assert consistency_proof(LOG, old, size) == subproof(old, LOG.hashes[:size], True)


def test_every_size_can_be_proved_to_extend_earlier_ones() -> None:
    roots = [root_at(LOG, size) for size in range(601)]
    for size in range(1, 601):
        for old in range(1 + size % 11, size + 1, 11):
            proof = consistency_proof(LOG, old, size)
            assert verify_consistency(old, roots[old], size, roots[size], proof)


def test_the_root_of_every_earlier_size_is_that_of_its_leaves() -> None:
    assert root_at(LOG, 0) == EMPTY_ROOT
    for size in (1, 2, 3, 255, 256, 257, 300, 512, 599, 600):
        assert root_at(LOG, size) == tree_hash(LOG.hashes[:size])
    assert root_at(BIG, BIG.size) == root(BIG.size, BIG.frontier)


@pytest.mark.parametrize("size", [1, 255, 256, 257, 511, 512])
def test_a_log_that_ends_at_the_edge_of_a_tile_is_proved_from_what_it_has(size: int) -> None:
    log = log_of(size)
    for index in {0, size // 2, max(0, size - 2), size - 1}:
        assert inclusion_proof(log, index, size) == path(index, log.hashes)
        assert consistency_proof(log, index + 1, size) == subproof(index + 1, log.hashes, True)
    assert root_at(log, size) == tree_hash(log.hashes)


@given(st.data())
def test_proofs_reach_across_the_levels_of_tiles(data: st.DataObject) -> None:
    edges = st.sampled_from([1, 255, 256, 257, 65_535, 65_536, 65_537, 65_792, 66_304, 66_499, 66_500])
    size = data.draw(edges | st.integers(1, 66_500))
    old = data.draw(edges.filter(lambda edge: edge <= size) | st.integers(1, size))
    whole = root_at(BIG, size)
    assert verify_inclusion(BIG.hashes[old - 1], old - 1, size, inclusion_proof(BIG, old - 1, size), whole)
    assert verify_consistency(old, root_at(BIG, old), size, whole, consistency_proof(BIG, old, size))


@pytest.mark.parametrize("index", [0, 255, 30_000, 65_535, 65_536, 66_303, 66_304, 66_499])
def test_a_proof_reads_a_tail_and_a_sibling_and_few_tiles(index: int) -> None:
    BIG.reads.clear()
    inclusion_proof(BIG, index, BIG.size)
    envelopes = sum(stop - first for name, first, stop in BIG.reads if name == "events")
    tiles = [read for read in BIG.reads if read[0] == "tile"]
    assert envelopes <= 66_500 % 256 + 1
    assert len(tiles) == len(set(tiles)) <= 2


@pytest.mark.parametrize(("index", "size"), [(-1, 5), (5, 5), (0, 0), (0, 601), (600, 601), (0, -1)])
def test_a_leaf_or_size_the_log_does_not_have_is_refused(index: int, size: int) -> None:
    with pytest.raises(Misuse):
        inclusion_proof(LOG, index, size)


@pytest.mark.parametrize(("old", "size"), [(-1, 5), (6, 5), (0, 601), (5, 601), (0, -1)])
def test_a_pair_of_sizes_the_log_never_had_is_refused(old: int, size: int) -> None:
    with pytest.raises(Misuse):
        consistency_proof(LOG, old, size)
    with pytest.raises(Misuse):
        root_at(LOG, 601)


def test_the_edges_of_consistency_need_no_hashes() -> None:
    assert consistency_proof(LOG, 0, 600) == []
    assert consistency_proof(LOG, 600, 600) == []
    assert consistency_proof(MemoryLog(), 0, 0) == []


def test_missing_leaves_and_tiles_are_tampered() -> None:
    log = log_of(600)
    del log.leaves[590]
    with pytest.raises(Tampered, match="leaves 576 to 591"):
        inclusion_proof(log, 598, 600)
    log = log_of(600)
    del log.tiles[0, 1]
    with pytest.raises(Tampered, match="tile 1 of level 0"):
        inclusion_proof(log, 300, 600)
    log = log_of(600)
    log.tiles[0, 1] = log.tiles[0, 1][:-1]
    with pytest.raises(Tampered, match="tile 1 of level 0"):
        inclusion_proof(log, 300, 600)
    log = log_of(600)
    del log.tile_root_rows[0, 0]
    with pytest.raises(Tampered, match="tiles of level 0 0 to"):
        inclusion_proof(log, 300, 600)
