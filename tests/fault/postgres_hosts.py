"""Programs of hosts that share a server: each is a process that says on its output, line by line, what it was told."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from typing import Any

from agent_run_ledger import EffectLedger, LedgerError, Refused, RunBusy, RunLedger, Unavailable, Uncertain, probes
from agent_run_ledger.effects import Unrecorded
from agent_run_ledger.targets import HttpTarget, http
from tests.fault.effect_kit import EXECUTOR

KILL_AT, STOP_AT, END_AT, AHEAD_S = "TEST_KILL_AT", "TEST_STOP_AT", "TEST_END_SESSION_AT", "TEST_CLOCK_AHEAD_S"
"""Points (or "point#nth") at which a host kills or stops itself, or has its sessions ended; how its clock goes."""

BODY, SHA256 = b"{}", sha256(b"{}").digest()
WAIT_S = 1.0
STEPS = 3


def say(*words: object) -> None:
    """Say a line, whole."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def run(url: str, run_id: str, patience_s: str = "0", stands_still: str = "") -> None:
    """Carry out a run of three steps; with `stands_still` the second waits until its host is told something."""
    ledger = RunLedger(run_id, url=url)

    @ledger.step
    def step(at: int) -> int:
        say("body", at)
        if stands_still and at == 2:
            sys.stdin.readline()
        return at

    try:
        with ledger, ledger.bind(run_id, wait_s=float(patience_s)).run():
            say("done", *(step(at) for at in (1, 2, 3)))
    except LedgerError as error:
        say("error", type(error).__name__, error.code)


def way_to(target: str) -> HttpTarget:
    """What sends to a target: in the clear, also over the link between two namespaces."""
    return http(target, timeout_s=WAIT_S, allow_plain_http=not target.startswith("http://127."))


def dispatch(url: str, target: str, worker: str, key: str) -> None:
    """Dispatch the action of a key; say its state, or the error with which it ends."""
    try:
        with EffectLedger(url=url, wait_s=float(os.environ.get("TEST_WAIT_S", WAIT_S))) as ledger:
            action_id = ledger.inspect(key)[-1].action_id
            done = ledger.dispatcher(way_to(target), EXECUTOR, worker=worker).dispatch(action_id)
            say("state", done.view.state, type(done.report).__name__)
    except Unrecorded as error:
        say("error Unrecorded", type(error.report).__name__, getattr(error.report, "reason", ""))
    except LedgerError as error:
        say("error", type(error).__name__, error.code)


def runs(url: str, name: str, number: str) -> None:
    """Carry out runs one after another until the number is reached, each again and again until it is completed."""
    for at in range(int(number)):
        _in_the_end(lambda at=at: _whole(url, f"{name}-{at}"))  # type: ignore[misc]
        say("completed", f"{name}-{at}")
    say("over")


def _whole(url: str, run_id: str) -> None:
    ledger = RunLedger(run_id, url=url)

    @ledger.step
    def step(at: int) -> int:
        say("body", f"{run_id}:{at}")
        return at

    with ledger, ledger.run():
        for at in range(STEPS):
            step(at)
            say("recorded", f"{run_id}:{at}")


def claims(url: str, worker: str, keys: str, turn: str) -> None:
    """Claim, prepare and hand out every action of the keys, beginning at `turn`; say what was confirmed."""
    for at in range(int(keys)):
        key = f"k{(at + int(turn)) % int(keys)}"
        _in_the_end(lambda key=key: _claimed(url, worker, key))  # type: ignore[misc]
    say("over")


def _claimed(url: str, worker: str, key: str) -> None:
    with EffectLedger(url=url, wait_s=float(os.environ.get("TEST_WAIT_S", WAIT_S))) as ledger:
        action_id = ledger.inspect(key)[-1].action_id
        once = sha256(f"{worker} {key}".encode()).digest()[:16]
        try:
            grant = ledger.claim(EXECUTOR, action_id, worker=worker, request_sha256=SHA256, claim_key=once)
            say("claimed", key, grant.claim_id.hex())
            ledger.prepare(EXECUTOR, action_id, claim_id=grant.claim_id, worker=worker)
            say("prepared", key, grant.claim_id.hex())
            if ledger.hand_out(EXECUTOR, action_id, claim_id=grant.claim_id, worker=worker).handed_now:
                say("handed", key, grant.claim_id.hex())
        except Refused as error:
            say("refused", key, error.code)


def _in_the_end(act: Callable[[], Any]) -> None:
    """Do something again and again while the server is away, or nobody can say what became of it."""
    while True:
        try:
            act()
            return
        except (Unavailable, Uncertain, RunBusy) as error:
            say("again", type(error).__name__, error.code)
            time.sleep(0.05)


# -- what happens to a host -----------------------------------------------------------------------------------------


def sockets_of(port: int) -> list[int]:
    """The descriptors of this process's connections to a port."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError), socket.socket(fileno=os.dup(int(name))) as one:
            if one.family == socket.AF_INET and one.getpeername()[1] == port:
                found.append(int(name))
    return found


REPAIR = 19
"""TCP_REPAIR (Linux): a socket in this mode is closed without a packet."""


def can_vanish() -> bool:
    """Whether this process may close a connection without a word: it takes Linux and CAP_NET_ADMIN."""
    with socket.socket() as one:
        try:
            one.setsockopt(socket.IPPROTO_TCP, REPAIR, 1)
        except OSError:
            return False
    return True


def vanish(port: int) -> None:
    """Let every connection to a port be gone without a word to the other side, as if the host had lost its power."""
    for descriptor in sockets_of(port):
        with socket.socket(fileno=os.dup(descriptor)) as one:
            one.setsockopt(socket.IPPROTO_TCP, REPAIR, 1)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


def _hook() -> None:
    """Let this host be struck where its environment says."""
    strikes: dict[str, Callable[[], None]] = {
        KILL_AT: lambda: os.kill(os.getpid(), signal.SIGKILL),
        STOP_AT: lambda: os.kill(os.getpid(), signal.SIGSTOP),
        END_AT: _end_sessions,
    }
    wanted = {name: (os.environ.get(name) or "").split() for name in strikes}
    reached_before: Counter[str] = Counter()

    def hook(reached: str) -> None:
        reached_before[reached] += 1
        for name, points in wanted.items():
            if reached in points or f"{reached}#{reached_before[reached]}" in points:
                strikes[name]()

    probes.install(hook)


def _end_sessions() -> None:
    """Have the server end every session of this host, whose application has its name."""
    import psycopg

    with psycopg.connect(os.environ["TEST_URL"], autocommit=True, application_name="striker") as connection:
        ended = (
            "SELECT count(*) FROM (SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE application_name = %s) AS one"
        )
        connection.execute(ended, (f"host-{os.getpid()}",))


def _set_clock(ahead_s: float) -> None:
    """Let this host's clock be wrong."""
    wall, wall_ns = time.time, time.time_ns
    time.time = lambda: wall() + ahead_s
    time.time_ns = lambda: wall_ns() + int(ahead_s * 1e9)


def main(what: str, url: str, *arguments: str) -> None:
    """Be a host."""
    _set_clock(float(os.environ.get(AHEAD_S) or 0))
    os.environ["TEST_URL"] = url
    url += f"{'&' if '?' in url else '?'}application_name=host-{os.getpid()}"
    _hook()
    port = os.environ.get("TEST_PORT")
    if port:
        signal.signal(signal.SIGUSR1, lambda *_: (vanish(int(port)), say("gone"))[0])
    {"run": run, "dispatch": dispatch, "runs": runs, "claims": claims}[what](url, *arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
