"""How alike two texts are: cosine of hashed character 3-gram counts, and overlap of hashed word pairs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import shake_256
from itertools import chain, pairwise
from math import sqrt
from operator import mul
from typing import Final
from zlib import crc32

BUCKETS: Final = 256
SKETCH: Final = 16

_HEAD: Final = 512
_TAIL: Final = 256
_MOST: Final = 7
_ENDS: Final = str.maketrans("()[]{}", "\n" * 6)
_WORDS: Final = re.compile(r"\w+")
_ZERO: Final = 8
_HALVES: Final = tuple(((byte >> 4) - _ZERO, (byte & 15) - _ZERO) for byte in range(256))

_GRAM: Final = 3
_BUCKET: Final = tuple(
    shake_256(b"agent-run-ledger/glimpse/v1/bucket/%d" % place).digest(256) for place in range(_GRAM)
)
_SIGN: Final = tuple(
    bytes(byte & 1 for byte in shake_256(b"agent-run-ledger/glimpse/v1/sign/%d" % place).digest(256))
    for place in range(_GRAM)
)
_EMPTY: Final = bytes((_ZERO,)) * BUCKETS
_NOTHING: Final = bytes((_ZERO << 4 | _ZERO,)) * (BUCKETS // 2)

Vector = tuple[int, ...]


def features(text: str) -> bytes:
    """Return the 3-gram counts of a text in 128 bytes: 256 signed buckets, each clipped to -7..7.

    Every 3-gram of UTF-8 bytes goes to one bucket with one sign, so that two 3-grams that meet in a bucket cancel out
    on average (the signed hashing of Weinberger et al., 2009). Both come from tables by byte and place (simple
    tabulation hashing, Zobrist 1970; Patrascu and Thorup, 2012). Of a text over 768 bytes, the first 512 and last 256.
    """
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) > _HEAD + _TAIL:
        raw = raw[:_HEAD] + raw[-_TAIL:]
    if len(raw) < _GRAM:
        return _NOTHING
    counts: dict[int, int] = {}
    get, above, below = counts.get, _ZERO + _MOST, _ZERO - _MOST
    buckets, signs = _hashed(raw, _BUCKET), _hashed(raw, _SIGN)
    for bucket, sign in zip(buckets, signs, strict=True):
        counts[bucket] = get(bucket, _ZERO) + (1 if sign else -1)
    held = bytearray(_EMPTY)
    for bucket, count in counts.items():
        held[bucket] = count if below <= count <= above else min(max(count, below), above)
    high, low = int.from_bytes(held[::2], "big"), int.from_bytes(held[1::2], "big")
    return (high << 4 | low).to_bytes(BUCKETS // 2, "big")


def _hashed(raw: bytes, tables: Sequence[bytes]) -> bytes:
    """Return one byte for each 3-gram: what the tables have for its three bytes, each in its place, joined by XOR."""
    mixed, grams = 0, len(raw) - _GRAM + 1
    for place, table in enumerate(tables):
        mixed ^= int.from_bytes(raw[place : place + grams].translate(table), "big")
    return mixed.to_bytes(grams, "big")


def vector(packed: bytes) -> Vector:
    """Return the buckets of `features`."""
    return tuple(chain.from_iterable(map(_HALVES.__getitem__, packed)))


def cosine(one: Vector, other: Vector) -> float:
    """Return the cosine of two vectors, 0 to 1; 0 where one of them is empty or they point apart."""
    product: int = sum(map(mul, one, other))
    if product <= 0:
        return 0.0
    lengths: int = sum(map(mul, one, one)) * sum(map(mul, other, other))
    return product / sqrt(lengths)


def sketch(text: str) -> tuple[int, ...]:
    """Return the 16 smallest hashes of the pairs of neighbouring words in a text (bottom-k, Broder 1997).

    Pairs do not reach over line ends and brackets: the same lines or rows in another order have the same sketch.
    """
    pairs = "\n".join(_pairs(text)).encode("utf-8", "surrogatepass")
    return tuple(sorted({*map(crc32, pairs.split(b"\n"))})[:SKETCH]) if pairs else ()


def overlap(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """Return the estimated share of word pairs that two texts have in common, 0 to 1 (Jaccard)."""
    if not one or not other:
        return 0.0
    smallest = sorted({*one, *other})[: max(len(one), len(other))]
    return len({*one}.intersection(other).intersection(smallest)) / len(smallest)


def _pairs(text: str) -> list[str]:
    found: list[str] = []
    for piece in text.translate(_ENDS).split("\n"):
        words: list[str] = _WORDS.findall(piece)
        found += words if len(words) == 1 else map(" ".join, pairwise(words))
    return found
