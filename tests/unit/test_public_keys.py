"""Key ids, and the keys for which anybody can sign."""

from __future__ import annotations

from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from agent_run_ledger.kernel.public_keys import is_sound, key_id_of
from agent_run_ledger.keys import verify

FIELD = 2**255 - 19
D = -121665 * pow(121666, -1, FIELD) % FIELD
NEUTRAL = (0, 1)
Point = tuple[int, int]


def added(one: Point, other: Point) -> Point:
    """The sum of two points of the curve of Ed25519 (RFC 8032, section 5.1)."""
    (x1, y1), (x2, y2) = one, other
    product = D * x1 * x2 * y1 * y2
    x = (x1 * y2 + x2 * y1) * pow(1 + product, -1, FIELD)
    y = (y1 * y2 + x1 * x2) * pow(1 - product, -1, FIELD)
    return x % FIELD, y % FIELD


def on_curve(y: int) -> Point | None:
    """A point with this y, if there is one."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, FIELD) % FIELD
    x = pow(square, (FIELD + 3) // 8, FIELD)
    for root in (x, x * pow(2, (FIELD - 1) // 4, FIELD) % FIELD):
        if root * root % FIELD == square:
            return root, y
    return None


def times(count: int, point: Point) -> Point:
    total = NEUTRAL
    while count:
        if count & 1:
            total = added(total, point)
        point, count = added(point, point), count >> 1
    return total


def small_ys() -> set[int]:
    """The y of the eight points of small order, by their definition: multiples of a point times the large order."""
    order = 2**252 + 27742317777372353535851937790883648493
    for y in range(2, 200):
        point = on_curve(y)
        if point is None:
            continue
        point = times(order, point)
        if times(4, point) != NEUTRAL:  # its order is 8
            return {times(count, point)[1] for count in range(8)}
    raise AssertionError("no point of order 8")


def test_every_point_of_small_order_is_refused() -> None:
    ys = small_ys()
    assert len(ys) == 5
    for y in ys:
        for sign in (0, 1 << 255):
            assert not is_sound((y | sign).to_bytes(32, "little"))


def test_a_key_of_either_sign_is_sound() -> None:
    drawn = [Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32).public_key() for seed in range(8)]
    publics = [public.public_bytes_raw() for public in drawn]
    assert {public[31] >> 7 for public in publics} == {0, 1}
    assert all(is_sound(public) for public in publics)


def test_such_a_key_verifies_what_nobody_signed() -> None:
    neutral = (1).to_bytes(32, "little")
    assert verify(neutral, neutral + bytes(32), b"anything")
    assert not is_sound(neutral)


@pytest.mark.parametrize("y", [FIELD, FIELD + 1, FIELD + 3, 2**255 - 1])
def test_a_y_that_is_not_reduced_is_refused(y: int) -> None:
    assert not is_sound(y.to_bytes(32, "little"))


@pytest.mark.parametrize("public", [b"", b"k" * 31, b"k" * 33])
def test_a_key_has_32_bytes(public: bytes) -> None:
    assert is_sound(b"k" * 32)
    assert not is_sound(public)


def test_the_id_is_the_digest_that_other_tools_give() -> None:
    public = Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key()
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert key_id_of(public.public_bytes_raw()) == sha256(der).hexdigest()
    assert is_sound(public.public_bytes_raw())
