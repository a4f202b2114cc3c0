"""The fair lock of threads, the shared word of processes, and the points of the crash harness."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_run_ledger import probes
from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.store import futex as futex_module
from agent_run_ledger.store.fair_lock import FairLock
from agent_run_ledger.store.futex import address_of, futex
from agent_run_ledger.store.sidecar import Sidecar

LONG_S = 60.0


def _waiters(lock: FairLock) -> int:
    return len(lock._waiters)


def _until(condition: object) -> None:
    pause = threading.Event()
    while not condition():  # type: ignore[operator]
        pause.wait(0.001)


def test_a_free_lock_is_taken_and_given_back() -> None:
    lock = FairLock()
    assert not lock.is_mine()
    assert lock.acquire(0)
    assert lock.is_mine()
    lock.release()
    assert not lock.is_mine()
    assert lock.acquire(0)


def test_waiters_are_served_in_the_order_they_came() -> None:
    lock, order = FairLock(), []
    assert lock.acquire(0)

    def work(number: int) -> None:
        assert lock.acquire(LONG_S)
        order.append(number)
        lock.release()

    threads = []
    for number in range(10):
        threads.append(threading.Thread(target=work, args=(number,)))
        threads[-1].start()
        _until(lambda number=number: _waiters(lock) == number + 1)
    lock.release()
    for thread in threads:
        thread.join()
    assert order == list(range(10))


def test_who_releases_and_asks_again_is_last() -> None:
    lock, order = FairLock(), []
    assert lock.acquire(0)

    def other() -> None:
        assert lock.acquire(LONG_S)
        order.append("other")
        lock.release()

    thread = threading.Thread(target=other)
    thread.start()
    _until(lambda: _waiters(lock) == 1)
    lock.release()
    assert lock.acquire(LONG_S)
    order.append("me")
    lock.release()
    thread.join()
    assert order == ["other", "me"]


def test_a_wait_ends_without_the_lock_and_leaves_no_trace() -> None:
    lock = FairLock()
    assert lock.acquire(0)
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(lock.acquire(0.001)))
    thread.start()
    thread.join()
    assert answers == [False]
    assert _waiters(lock) == 0
    assert lock.is_mine()
    lock.release()
    assert lock.acquire(0)


class _Interrupted(BaseException):
    pass


_LOCK = threading.Lock  # the name in the module is replaced below


class _BreaksOff:
    """A waiter's turn whose wait ends in a signal's exception, before or after the lock was handed over."""

    def __init__(self, meanwhile: object) -> None:
        self._meanwhile = meanwhile
        self._lock = _LOCK()

    def acquire(self, timeout: float = -1) -> bool:
        if timeout == -1:
            return self._lock.acquire()
        self._meanwhile()  # type: ignore[operator]
        raise _Interrupted

    def release(self) -> None:
        self._lock.release()


@pytest.mark.parametrize("handed_over", [False, True])
def test_an_interrupted_wait_does_not_keep_the_lock(monkeypatch: pytest.MonkeyPatch, handed_over: bool) -> None:
    lock = FairLock()
    owner = threading.Thread(target=lambda: lock.acquire(0))
    owner.start()
    owner.join()
    monkeypatch.setattr(
        "agent_run_ledger.store.fair_lock.threading.Lock",
        lambda: _BreaksOff(lock.release if handed_over else lambda: None),
    )
    with pytest.raises(_Interrupted):
        lock.acquire(LONG_S)
    assert _waiters(lock) == 0
    assert not lock.is_mine()
    if not handed_over:
        lock.release()
    assert lock.acquire(0)


def test_many_threads_never_hold_it_together() -> None:
    lock, inside, worst = FairLock(), [0], [0]

    def work() -> None:
        for _ in range(300):
            assert lock.acquire(LONG_S)
            inside[0] += 1
            worst[0] = max(worst[0], inside[0])
            inside[0] -= 1
            lock.release()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert worst == [1]


# Processes


@pytest.fixture
def word() -> Iterator[memoryview]:
    with mmap.mmap(-1, 4_096) as memory, memoryview(memory).cast("I") as words, words[:1] as one:
        yield one


def test_a_sleeper_is_woken(word: memoryview) -> None:
    calls = futex()
    if calls is None:
        pytest.skip("this platform has no futex")
    word[0] = 1
    woken = threading.Event()

    def sleep() -> None:
        while word[0] == 1:
            calls.wait(address_of(word), 1, LONG_S)
        woken.set()

    thread = threading.Thread(target=sleep)
    thread.start()
    word[0] = 0
    while not woken.is_set():
        calls.wake(address_of(word))
    thread.join()


def test_nobody_sleeps_on_a_word_that_has_changed(word: memoryview) -> None:
    calls = futex()
    if calls is None:
        pytest.skip("this platform has no futex")
    calls.wait(address_of(word), 1, LONG_S)
    word[0] = 1
    calls.wait(address_of(word), 1, 0.0001)


@pytest.mark.parametrize(("machine", "platform"), [("sparc", "linux"), ("x86_64", "darwin")])
def test_a_machine_without_futexes_polls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, platform: str
) -> None:
    class Uname:
        def __init__(self) -> None:
            self.machine = machine

    monkeypatch.setattr(futex_module.os, "uname", Uname)
    monkeypatch.setattr(futex_module.sys, "platform", platform)
    assert futex.__wrapped__() is None
    monkeypatch.setattr("agent_run_ledger.store.sidecar.futex", futex.__wrapped__)
    sidecar = Sidecar(str(tmp_path / "x-lock"), SystemEntropy())
    tries = iter([False, False, False, True])
    monkeypatch.setattr(sidecar, "_try_lock", lambda place: next(tries))
    assert sidecar.enter(LONG_S)
    monkeypatch.setattr(sidecar, "_try_lock", lambda place: False)
    assert not sidecar.enter(0.001)
    sidecar.leave()
    sidecar.close()


def test_the_lock_file_is_made_for_its_owner_and_reused(tmp_path: Path) -> None:
    path = tmp_path / "x-lock"
    for _ in range(2):
        sidecar = Sidecar(str(path), SystemEntropy())
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.stat().st_size == 4_096
        assert sidecar.enter(0)
        sidecar.leave()
        sidecar.close()
        sidecar.close()


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("kept")
    (tmp_path / "x-lock").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic"):
        Sidecar(str(tmp_path / "x-lock"), SystemEntropy())
    assert (tmp_path / "victim").read_text() == "kept"


# Points


def test_a_hook_hears_every_point_and_can_be_taken_away() -> None:
    heard: list[str] = []
    assert probes.install(heard.append) is None
    try:
        probes.reach("here")
        probes.reach("there")
    finally:
        assert probes.install(None) == heard.append
    probes.reach("nowhere")
    assert heard == ["here", "there"]


def test_what_a_hook_raises_passes_through() -> None:
    def refuse(point: str) -> None:
        raise ValueError(point)

    probes.install(refuse)
    try:
        with pytest.raises(ValueError, match="here"):
            probes.reach("here")
    finally:
        probes.install(None)
