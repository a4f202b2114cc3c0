"""How alike two texts are: cosine of hashed character 3-gram counts, and overlap of hashed word pairs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
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
_PIECES: Final = re.compile(r"[\n()\[\]{}]+")
_WORDS: Final = re.compile(r"\w+")
_ZERO: Final = 8
_HALVES: Final = tuple(((byte >> 4) - _ZERO, (byte & 15) - _ZERO) for byte in range(256))

Vector = tuple[int, ...]


def features(text: str) -> bytes:
    """Return the 3-gram counts of a text in 128 bytes: 256 signed buckets, each clipped to -7..7.

    Every 3-gram of UTF-8 bytes goes to one bucket with one sign, so that two 3-grams that meet in a bucket cancel out
    on average (the signed hashing of Weinberger et al., 2009). Of a text over 768 bytes, the first 512 and last 256.
    """
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) > _HEAD + _TAIL:
        raw = raw[:_HEAD] + raw[-_TAIL:]
    held = [_ZERO] * BUCKETS
    for gram, count in Counter(zip(raw, raw[1:], raw[2:], strict=False)).items():
        place = _place(gram)
        if place < 0:
            held[~place] -= count
        else:
            held[place] += count
    if max(held) > _ZERO + _MOST or min(held) < _ZERO - _MOST:
        held = [min(max(count, _ZERO - _MOST), _ZERO + _MOST) for count in held]
    high, low = int.from_bytes(held[::2], "big"), int.from_bytes(held[1::2], "big")
    return (high << 4 | low).to_bytes(BUCKETS // 2, "big")


@lru_cache(maxsize=32_768)
def _place(gram: tuple[int, int, int]) -> int:
    """Return the bucket of a 3-gram, as it is for a plus and inverted for a minus; fixed for ever, it is stored."""
    first, second, third = gram
    mixed = (first * 0x9E3779B1 + second * 0x85EBCA77 + third * 0xC2B2AE3D) & 0xFFFFFFFF
    mixed ^= mixed >> 15
    mixed = (mixed * 0x2C1B3C6D) & 0xFFFFFFFF
    return mixed >> 24 if mixed & 0x800 else ~(mixed >> 24)


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
    return tuple(sorted({crc32(pair.encode("utf-8", "surrogatepass")) for pair in _pairs(text)})[:SKETCH])


def overlap(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """Return the estimated share of word pairs that two texts have in common, 0 to 1 (Jaccard)."""
    if not one or not other:
        return 0.0
    smallest = sorted({*one, *other})[: max(len(one), len(other))]
    return len({*one}.intersection(other).intersection(smallest)) / len(smallest)


def _pairs(text: str) -> Iterable[str]:
    for piece in _PIECES.split(text):
        words: list[str] = _WORDS.findall(piece)
        if len(words) == 1:
            yield words[0]
        for first, second in pairwise(words):
            yield f"{first} {second}"
