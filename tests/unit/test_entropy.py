"""The system's randomness: UUIDv7 of RFC 9562, in order, in threads."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from itertools import chain, repeat

import pytest

from agent_run_ledger import entropy as module
from agent_run_ledger.clock import SystemClock
from agent_run_ledger.entropy import SystemEntropy, Ticks
from agent_run_ledger.ports import Entropy

MS = 1_700_000_000_000


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let a fresh process's counter see these milliseconds, the last of them for ever."""
    monkeypatch.setattr(module, "_ticks", Ticks())

    def show(*milliseconds: int) -> None:
        shown = chain(milliseconds, repeat(milliseconds[-1]))
        monkeypatch.setattr(module.time, "time_ns", lambda: next(shown) * 1_000_000 + 999_999)

    return show


def test_a_uuid_has_version_7_and_the_variant_of_the_rfc() -> None:
    entropy: Entropy = SystemEntropy()
    for _ in range(200):
        made = uuid.UUID(bytes=entropy.uuid7())
        assert made.version == 7
        assert made.variant == uuid.RFC_4122


def test_the_first_48_bits_are_the_time() -> None:
    assert abs(int.from_bytes(SystemEntropy().uuid7()[:6], "big") - SystemClock().now_ms()) < 10_000


def test_each_is_greater_than_the_one_before_within_a_millisecond(set_clock: Callable[..., None]) -> None:
    set_clock(MS)
    entropy = SystemEntropy()
    made = [entropy.uuid7() for _ in range(5_000)]
    assert made == sorted(set(made))
    assert {each[:6] for each in made} == {MS.to_bytes(6, "big")}


def test_all_objects_of_a_process_share_one_order(set_clock: Callable[..., None]) -> None:
    """Every ledger makes its own object: with a counter each, ids of one millisecond would come in any order."""
    set_clock(MS)
    made = [SystemEntropy().uuid7() for _ in range(200)]
    assert made == sorted(set(made))


def test_a_clock_that_goes_back_does_not_take_the_order_along(set_clock: Callable[..., None]) -> None:
    set_clock(MS, MS + 5, MS - 100, MS + 4, MS + 6)
    made = [SystemEntropy().uuid7() for _ in range(5)]
    assert made == sorted(set(made))
    assert [int.from_bytes(each[:6], "big") - MS for each in made] == [0, 5, 5, 5, 6]


def test_a_counter_that_runs_over_takes_the_next_millisecond(
    monkeypatch: pytest.MonkeyPatch, set_clock: Callable[..., None]
) -> None:
    starts = iter([(1 << 42) - 2, 7])
    monkeypatch.setattr(module, "_random_counter", lambda: next(starts))
    set_clock(MS)
    made = [SystemEntropy().uuid7() for _ in range(4)]
    assert made == sorted(set(made))
    assert [int.from_bytes(each[:6], "big") - MS for each in made] == [0, 0, 1, 1]


def test_the_counter_fills_rand_a_and_the_top_of_rand_b(
    monkeypatch: pytest.MonkeyPatch, set_clock: Callable[..., None]
) -> None:
    monkeypatch.setattr(module, "_random_counter", lambda: 0xABC << 30 | 0x2345_6789)
    set_clock(MS)
    made = int.from_bytes(SystemEntropy().uuid7(), "big")
    assert made >> 64 & 0xFFF == 0xABC
    assert made >> 32 & 0x3FFF_FFFF == 0x2345_6789


def test_counters_begin_at_random_below_half_of_their_range() -> None:
    starts = [module._random_counter() for _ in range(100)]
    assert len(set(starts)) == 100
    assert max(starts) < 1 << 41


def test_threads_get_different_ones() -> None:
    made: list[list[bytes]] = [[] for _ in range(4)]

    def work(own: list[bytes]) -> None:
        entropy = SystemEntropy()
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
