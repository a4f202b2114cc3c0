"""The fair lock of threads, the lock file of processes, and the points of the crash harness."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_run_ledger import probes
from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.errors import Refused, Unavailable
from agent_run_ledger.store.fair_lock import FairLock
from agent_run_ledger.store.sidecar import Sidecar

LONG_S = 60.0


def _until_queued(lock: FairLock) -> None:
    """Wait until somebody stands at the head of the queue."""
    for _ in range(20_000):
        if not lock._queue.acquire(blocking=False):
            return
        lock._queue.release()
        threading.Event().wait(0.0005)
    raise AssertionError("nobody came to the queue")


def test_a_free_lock_is_taken_and_given_back() -> None:
    lock = FairLock()
    assert not lock.is_mine()
    assert lock.acquire(0)
    assert lock.is_mine()
    lock.release()
    assert not lock.is_mine()
    assert lock.acquire(0)


def test_who_releases_and_asks_again_comes_after_who_waited() -> None:
    lock, order = FairLock(), []
    assert lock.acquire(0)

    def other() -> None:
        assert lock.acquire(LONG_S)
        order.append("other")
        lock.release()

    thread = threading.Thread(target=other, daemon=True)
    thread.start()
    _until_queued(lock)
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
    assert lock.is_mine()
    lock.release()
    assert lock.acquire(0)


def test_who_did_not_get_it_cannot_give_it_back() -> None:
    """What `finally` does after a wait that ended without the lock, or was interrupted."""
    lock = FairLock()
    owner = threading.Thread(target=lambda: lock.acquire(0))
    owner.start()
    owner.join()
    assert not lock.acquire(0.001)
    with pytest.raises(RuntimeError):
        lock.release()
    assert not lock.acquire(0)


class _Interrupted(BaseException):
    pass


@pytest.mark.parametrize("waits", ["_queue", "_turn"])
def test_an_interrupted_wait_does_not_keep_the_lock(waits: str) -> None:
    lock = FairLock()
    held = getattr(lock, waits)
    inside, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with held:
            inside.set()
            go_on.wait()

    def interrupt(*_: object) -> None:
        raise _Interrupted

    owner = threading.Thread(target=hold)
    owner.start()
    inside.wait()
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        with pytest.raises(_Interrupted):
            lock.acquire(LONG_S)
    finally:
        signal.signal(signal.SIGALRM, before)
    go_on.set()
    owner.join()
    assert not lock.is_mine()
    other: list[bool] = []
    thread = threading.Thread(target=lambda: other.append(lock.acquire(0)))
    thread.start()
    thread.join()
    assert other == [True]


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


# The lock file


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[Sidecar]:
    made = Sidecar(str(tmp_path / "x-lock"), SystemEntropy())
    yield made
    made.close()


def test_the_lock_file_is_made_for_its_owner_and_reused(tmp_path: Path) -> None:
    path = tmp_path / "x-lock"
    for _ in range(2):
        sidecar = Sidecar(str(path), SystemEntropy())
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.read_bytes() == b""
        assert sidecar.enter(0)
        sidecar.leave()
        sidecar.close()
        sidecar.close()


def test_the_id_of_the_log_is_kept_at_byte_16(tmp_path: Path, sidecar: Sidecar) -> None:
    assert sidecar.log_id is None
    sidecar.note_log_id(b"i" * 16)
    assert sidecar.log_id == b"i" * 16
    assert (tmp_path / "x-lock").read_bytes() == bytes(16) + b"i" * 16


@pytest.mark.parametrize("content", [bytes(32), bytes(16) + b"i" * 16, bytes(4_096), bytes(16) + b"i" * 16 + bytes(99)])
def test_a_lock_file_of_ours_is_known_by_its_content(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x-lock").write_bytes(content)
    sidecar = Sidecar(str(tmp_path / "x-lock"), SystemEntropy())
    assert sidecar.log_id == (content[16:32] if any(content) else None)
    sidecar.close()


@pytest.mark.parametrize(
    "content", [b"my notes\n", bytes(31), b"\1" + bytes(31), bytes(32) + b"x", bytes(4_097), b"n" * 5_000]
)
def test_a_file_of_somebody_else_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x-lock"
    path.write_bytes(content)
    with pytest.raises(Refused) as caught:
        Sidecar(str(path), SystemEntropy())
    assert caught.value.code == "foreign_file"
    assert path.read_bytes() == content


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("kept")
    (tmp_path / "x-lock").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic"):
        Sidecar(str(tmp_path / "x-lock"), SystemEntropy())
    assert (tmp_path / "victim").read_text() == "kept"


def test_a_run_is_live_until_its_lock_is_given_back_or_forgotten(sidecar: Sidecar) -> None:
    assert not sidecar.is_run_live("r")
    lock = sidecar.lock_run("r")
    assert lock is not None
    assert sidecar.is_run_live("r")
    assert sidecar.lock_run("r") is None
    lock.release()
    lock.release()
    assert not sidecar.is_run_live("r")
    second = sidecar.lock_run("r")
    assert second is not None
    lock.release()
    assert sidecar.is_run_live("r"), "an old lock gives back nothing that is not its own"
    del second
    assert not sidecar.is_run_live("r"), "an interrupt may have come before anybody could keep it"


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_interrupt_at_the_lock_itself_leaves_no_run_live(
    sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    real = sidecar._try_lock

    def taken_and_interrupted(place: int) -> bool:
        real(place)
        raise error

    monkeypatch.setattr(sidecar, "_try_lock", taken_and_interrupted)
    with pytest.raises(error) as caught:
        sidecar.lock_run("r")
    monkeypatch.undo()
    assert not sidecar.is_run_live("r"), "although the traceback still has the lock"
    assert sidecar.lock_run("r") is not None
    assert caught.tb is not None


def test_a_lock_that_is_collected_while_the_same_thread_takes_another_is_no_deadlock(sidecar: Sidecar) -> None:
    locks = [sidecar.lock_run("old")]
    real = sidecar._check_identity

    def forget() -> None:
        locks.clear()
        real()

    sidecar._check_identity = forget  # type: ignore[method-assign]
    assert sidecar.lock_run("new") is not None
    assert not sidecar.is_run_live("old")


def test_a_run_released_after_the_close_is_no_error(sidecar: Sidecar) -> None:
    lock = sidecar.lock_run("r")
    assert lock is not None
    token = sidecar._runs.copy()
    sidecar.close()
    sidecar._runs.update(token)  # one that was being taken in another thread meanwhile
    lock.release()


def test_leaving_after_the_close_touches_no_other_file(sidecar: Sidecar) -> None:
    """The number of the descriptor belongs to somebody else by then."""
    assert sidecar.enter(0)
    sidecar.close()
    sidecar.leave()


def test_whether_a_run_is_live_is_not_asked_of_a_file_that_was_replaced(tmp_path: Path, sidecar: Sidecar) -> None:
    (tmp_path / "x-lock").rename(tmp_path / "away")
    (tmp_path / "x-lock").touch()
    with pytest.raises(Unavailable) as caught:
        sidecar.is_run_live("r")
    assert caught.value.code == "sidecar_replaced"


def test_a_file_system_without_locks_is_called_one(sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fcntl.lockf

    def refuse(fd: int, how: int, *where: int) -> None:
        if how != fcntl.LOCK_UN:
            raise OSError(errno.ENOLCK, "No locks available")
        real(fd, how, *where)

    monkeypatch.setattr("agent_run_ledger.store.sidecar.fcntl.lockf", refuse)
    for use in (lambda: sidecar.lock_run("r"), lambda: sidecar.enter(0)):
        with pytest.raises(Unavailable) as caught:
            use()
        assert caught.value.code == "locks_unavailable"
    monkeypatch.undo()
    assert not sidecar.is_run_live("r")


def test_a_lock_file_that_is_no_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x-lock")
    with pytest.raises(Unavailable, match="not a regular file"):
        Sidecar(str(tmp_path / "x-lock"), SystemEntropy())


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
