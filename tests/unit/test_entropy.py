"""The system's randomness: UUIDv7 of RFC 9562, in order, in threads."""

from __future__ import annotations

import threading
import uuid

import pytest

from agent_run_ledger import entropy as module
from agent_run_ledger.clock import SystemClock
from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.ports import Entropy

MS = 1_700_000_000_000


def test_a_uuid_has_version_7_and_the_variant_of_the_rfc() -> None:
    entropy: Entropy = SystemEntropy()
    for _ in range(200):
        made = uuid.UUID(bytes=entropy.uuid7())
        assert made.version == 7
        assert made.variant == uuid.RFC_4122


def test_the_first_48_bits_are_the_time() -> None:
    made = SystemEntropy(now_ms=lambda: MS).uuid7()
    assert int.from_bytes(made[:6], "big") == MS
    assert abs(int.from_bytes(SystemEntropy().uuid7()[:6], "big") - SystemClock().now_ms()) < 10_000


def test_each_is_greater_than_the_one_before_within_a_millisecond() -> None:
    entropy = SystemEntropy(now_ms=lambda: MS)
    made = [entropy.uuid7() for _ in range(5_000)]
    assert made == sorted(set(made))
    assert {each[:6] for each in made} == {MS.to_bytes(6, "big")}


def test_a_clock_that_goes_back_does_not_take_the_order_along() -> None:
    times = iter([MS, MS + 5, MS - 100, MS + 4, MS + 6])
    entropy = SystemEntropy(now_ms=lambda: next(times))
    made = [entropy.uuid7() for _ in range(5)]
    assert made == sorted(set(made))
    assert [int.from_bytes(each[:6], "big") - MS for each in made] == [0, 5, 5, 5, 6]


def test_a_counter_that_runs_over_takes_the_next_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = iter([(1 << 42) - 2, 7])
    monkeypatch.setattr(module, "_random_counter", lambda: next(starts))
    entropy = SystemEntropy(now_ms=lambda: MS)
    made = [entropy.uuid7() for _ in range(4)]
    assert made == sorted(set(made))
    assert [int.from_bytes(each[:6], "big") - MS for each in made] == [0, 0, 1, 1]


def test_the_counter_fills_rand_a_and_the_top_of_rand_b(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_random_counter", lambda: 0xABC << 30 | 0x2345_6789)
    made = int.from_bytes(SystemEntropy(now_ms=lambda: MS).uuid7(), "big")
    assert made >> 64 & 0xFFF == 0xABC
    assert made >> 32 & 0x3FFF_FFFF == 0x2345_6789


def test_counters_begin_at_random_below_half_of_their_range() -> None:
    starts = [module._random_counter() for _ in range(100)]
    assert len(set(starts)) == 100
    assert max(starts) < 1 << 41


def test_threads_get_different_ones() -> None:
    entropy = SystemEntropy()
    made: list[list[bytes]] = [[] for _ in range(4)]

    def work(own: list[bytes]) -> None:
        own += [entropy.uuid7() for _ in range(500)]

    threads = [threading.Thread(target=work, args=(own,)) for own in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({each for own in made for each in own}) == 2_000
    assert all(own == sorted(own) for own in made)


def test_fractions_and_tokens() -> None:
    entropy: Entropy = SystemEntropy()
    fractions = [entropy.fraction() for _ in range(500)]
    assert all(0 <= each < 1 for each in fractions)
    assert len(set(fractions)) == 500
    assert min(fractions) < 0.1
    assert max(fractions) > 0.9
    assert [len(entropy.token(size)) for size in (0, 1, 32)] == [0, 1, 32]
    assert entropy.token(32) != entropy.token(32)


def test_the_largest_fraction_is_below_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.urandom", lambda size: b"\xff" * size)
    assert SystemEntropy().fraction() < 1
