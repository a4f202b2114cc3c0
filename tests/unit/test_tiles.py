"""Tiles: the stored inner nodes are the nodes of the tree, at the bytes where proofs look for them."""

from __future__ import annotations

import hashlib

import pytest

from agent_run_ledger.kernel.merkle import append, leaf_hash, node_hash, root
from agent_run_ledger.kernel.tiles import (
    TILE_BYTES,
    TILE_WIDTH,
    build_tile,
    completed_tiles,
    path_in_tile,
    tile_id,
    tile_node,
    tile_root,
)
from tests.unit.kernel_formats import golden, worked_example

LEAVES = [leaf_hash(b"%d" % index) for index in range(TILE_WIDTH)]
TILE = build_tile(LEAVES)


def subtree(first: int, stop: int) -> bytes:
    if stop - first == 1:
        return LEAVES[first]
    middle = (first + stop) // 2
    return node_hash(subtree(first, middle), subtree(middle, stop))


def test_a_tile_is_255_nodes_in_heap_order() -> None:
    assert len(TILE) == TILE_BYTES == 8160
    nodes = [TILE[32 * place : 32 * place + 32] for place in range(255)]
    heap = [b"", *nodes, *LEAVES]
    for place in range(1, 256):
        assert heap[place] == node_hash(heap[2 * place], heap[2 * place + 1])


def test_its_first_node_is_the_root_of_its_256_leaves() -> None:
    frontier: tuple[bytes, ...] = ()
    for size, leaf in enumerate(LEAVES):
        frontier = append(size, frontier, leaf)
    assert tile_root(TILE) == root(256, frontier) == frontier[0]


def test_every_node_covers_the_leaves_it_says() -> None:
    for height in range(1, 9):
        for index in range(256 >> height):
            assert tile_node(TILE, height, index) == subtree(index << height, (index + 1) << height)


def test_a_path_leads_from_every_leaf_to_the_root() -> None:
    for place in range(256):
        node = LEAVES[place]
        for height, sibling in enumerate([LEAVES[place ^ 1], *path_in_tile(TILE, place)]):
            node = node_hash(sibling, node) if place >> height & 1 else node_hash(node, sibling)
        assert node == tile_root(TILE)
        assert len(path_in_tile(TILE, place)) == 7


@pytest.mark.parametrize("count", [0, 1, 255, 257, 512])
def test_a_tile_has_exactly_256_leaves(count: int) -> None:
    with pytest.raises(ValueError, match="256 leaves"):
        build_tile([bytes(32)] * count)


@pytest.mark.parametrize(("height", "index"), [(0, 0), (9, 0), (8, 1), (1, 128), (1, -1), (7, 2)])
def test_a_node_that_a_tile_does_not_have_is_refused(height: int, index: int) -> None:
    with pytest.raises(ValueError, match="no node"):
        tile_node(TILE, height, index)


@pytest.mark.parametrize("place", [-1, 256])
def test_a_leaf_that_a_tile_does_not_have_is_refused(place: int) -> None:
    with pytest.raises(ValueError, match="no leaf"):
        path_in_tile(TILE, place)


def test_tile_ids_are_unique_and_ordered_by_level_then_index() -> None:
    assert tile_id(0, 0) == 0
    assert tile_id(0, 5) == 5
    assert tile_id(1, 5) == (1 << 40) + 5
    assert tile_id(0, 2**40 - 1) < tile_id(1, 0)
    assert tile_id(7, 2**40 - 1) < 2**63


@pytest.mark.parametrize(("level", "index"), [(-1, 0), (8, 0), (0, -1), (0, 2**40)])
def test_a_tile_id_outside_its_bits_is_refused(level: int, index: int) -> None:
    with pytest.raises(ValueError, match="no tile"):
        tile_id(level, index)


@pytest.mark.parametrize(
    ("size", "completed"),
    [
        (0, []),
        (1, []),
        (255, []),
        (256, [(0, 0)]),
        (257, []),
        (512, [(0, 1)]),
        (65280, [(0, 254)]),
        (65536, [(0, 255), (1, 0)]),
        (65537, []),
        (2 * 65536, [(0, 511), (1, 1)]),
        (2**24, [(0, 65535), (1, 255), (2, 0)]),
        (2**24 + 256, [(0, 65536)]),
    ],
)
def test_which_tiles_an_append_completes(size: int, completed: list[tuple[int, int]]) -> None:
    assert completed_tiles(size) == completed


def test_every_tile_is_completed_once() -> None:
    seen = [tile for size in range(1, 3 * 65536 + 1) for tile in completed_tiles(size)]
    assert len(seen) == len(set(seen)) == 3 * 256 + 3


def test_a_tile_of_an_earlier_version_still_holds() -> None:
    kept = golden("tile")
    leaves = [leaf_hash(b"envelope %d" % index) for index in range(256)]
    assert (leaves[0].hex(), leaves[255].hex()) == (kept["first_leaf_sha256"], kept["last_leaf_sha256"])
    assert build_tile(leaves).hex() == kept["tile_hex"]


def test_the_worked_example_of_the_page() -> None:
    example = worked_example("tiles")
    tile = build_tile([leaf_hash(b"envelope %d" % index) for index in range(256)])
    assert leaf_hash(b"envelope 0").hex() == example["first_leaf"]
    assert tile_root(tile).hex() == example["root"]
    assert tile_node(tile, 1, 127).hex() == example["last_node"]
    assert hashlib.sha256(tile).hexdigest() == example["tile_sha256"]
