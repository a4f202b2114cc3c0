"""A second SQLite library, or a fork, in the middle of a claim: it is noticed, and nothing is claimed twice."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent_run_ledger import probes
from agent_run_ledger.errors import Forked, Tampered
from agent_run_ledger.kernel.effects import ActionState
from agent_run_ledger.ledger.effect_ledger import EffectLedger, Grant
from agent_run_ledger.testing import check_ledger
from tests.fault.effect_kit import EXECUTOR, Ready, Ticks, broken, log_of, new_store, ready
from tests.fault.store_child import Child
from tests.fault.test_store_forks import in_child

pytestmark = [pytest.mark.fault, pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")]

BEFORE_IT_LANDED = ["effect.before", "commit.begin", "commit.before"]
AFTERWARDS = ["commit.after", "effect.after"]


@contextmanager
def _once_at(point: str, act: Callable[[], object]) -> Iterator[list[str]]:
    """Do something the first time that a point is reached; what came of it is noted."""
    done: list[str] = []

    def hook(reached: str) -> None:
        if reached == point and not done:
            done.append("")
            done[0] = str(act())

    before = probes.install(hook)
    try:
        yield done
    finally:
        probes.install(before)


def _stray(path: Path) -> None:
    """What a debugger, a notebook or a metrics library would do."""
    connection = sqlite3.connect(path)
    connection.execute("SELECT count(*) FROM actions").fetchall()
    connection.close()


def _claim(ledger: EffectLedger, action: Ready, worker: str) -> Grant:
    return ledger.claim(EXECUTOR, action.action_id, worker=worker, request_sha256=action.request_sha256)


def _opened(path: Path, durability: str = "full") -> tuple[EffectLedger, Ready]:
    ledger = EffectLedger(new_store(path, durability=durability), durability=durability, time=Ticks())
    return ledger, ready(ledger, "k")


def _claims(path: Path) -> list[str]:
    """Who claimed, by the log of a store that everybody has left."""
    lines = log_of(path)
    assert list(broken(lines)) == []
    check_ledger(path)
    return [line.row["worker"] for line in lines if line.kind == "Claim"]


OTHER_PROCESS = """
    import sys
    from agent_run_ledger.errors import LedgerError
    from agent_run_ledger.ledger.effect_ledger import EffectLedger
    from tests.fault.effect_kit import EXECUTOR, Ticks
    print("ready", flush=True)
    path, action_id, digest, wait_s = sys.argv[1], bytes.fromhex(sys.argv[2]), bytes.fromhex(sys.argv[3]), sys.argv[4]
    try:
        with EffectLedger(path, time=Ticks(), wait_s=float(wait_s)) as ledger:
            print(ledger.claim(EXECUTOR, action_id, worker="other", request_sha256=digest).granted_now)
    except LedgerError as error:
        print(error.code)
"""


def _other_process(path: Path, action: Ready, *, wait_s: float) -> subprocess.Popen[str]:
    """Another process that wants the claim too, and waits for the lock so long."""
    words = [str(path), action.action_id.hex(), action.request_sha256.hex(), str(wait_s)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OTHER_PROCESS), *words],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


@pytest.mark.parametrize("point", BEFORE_IT_LANDED)
def test_a_claim_into_whose_transaction_a_stray_came_does_not_land(tmp_path: Path, point: str) -> None:
    path = tmp_path / "ledger.db"
    ledger, action = _opened(path)
    with _once_at(point, lambda: _stray(path)) as done:
        for _ in range(2):
            with pytest.raises(Tampered) as caught:
                _claim(ledger, action, "first")
            assert caught.value.code == "stray_sqlite"
    assert done == ["None"]
    ledger.close()
    with EffectLedger(path, time=Ticks()) as again:
        assert again.get(action.action_id).state is ActionState.AVAILABLE
        assert _claim(again, action, "second").granted_now
    assert _claims(path) == ["second"]


@pytest.mark.parametrize("point", AFTERWARDS)
def test_a_claim_that_landed_before_the_stray_stays(tmp_path: Path, point: str) -> None:
    path = tmp_path / "ledger.db"
    ledger, action = _opened(path)
    with _once_at(point, lambda: _stray(path)):
        grant = _claim(ledger, action, "first")
    with pytest.raises(Tampered) as caught:
        ledger.prepare(EXECUTOR, action.action_id, claim_id=grant.claim_id, worker="first")
    assert caught.value.code == "stray_sqlite"
    ledger.close()
    with EffectLedger(path, time=Ticks()) as again:
        assert again.get(action.action_id).worker == "first"
    assert _claims(path) == ["first"]


@pytest.mark.parametrize("point", BEFORE_IT_LANDED)
def test_another_process_that_claims_after_the_stray_is_the_only_one(tmp_path: Path, point: str) -> None:
    path = tmp_path / "ledger.db"
    ledger, action = _opened(path)
    others: list[subprocess.Popen[str]] = []

    def meanwhile() -> None:
        _stray(path)
        others.append(_other_process(path, action, wait_s=60.0))

    with _once_at(point, meanwhile), pytest.raises(Tampered):
        _claim(ledger, action, "first")
    (other,) = others
    assert other.communicate(timeout=120)[0] == "True\n"
    ledger.close()
    assert _claims(path) == ["other"]


@pytest.mark.parametrize("point", ["commit.begin", "commit.before"])
def test_who_is_kept_out_only_by_the_turnstile_is_kept_out(tmp_path: Path, point: str) -> None:
    """With a third process on the file the stray deletes nothing, so the tripwire sees nothing; and it has taken
    SQLite's lock from the claim that is under way."""
    path = tmp_path / "ledger.db"
    ledger, action = _opened(path)
    with Child("hold_open", path) as third:
        assert third.hear() == "open"
        said: list[str] = []

        def meanwhile() -> None:
            _stray(path)
            said.append(_other_process(path, action, wait_s=0.2).communicate(timeout=120)[0])

        with _once_at(point, meanwhile):
            assert _claim(ledger, action, "first").granted_now
        assert said == ["store_busy\n"]
        third.say()
        assert third.end()[0] == 0
    ledger.close()
    assert _claims(path) == ["first"]


# -- forks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["full", "extra"])
@pytest.mark.parametrize("point", ["effect.before", "commit.begin", "commit.before", "commit.after"])
def test_a_child_forked_in_the_middle_of_a_claim_may_use_nothing_and_the_parent_claims(
    tmp_path: Path, point: str, durability: str
) -> None:
    path = tmp_path / "ledger.db"
    ledger, action = _opened(path, durability)
    with _once_at(point, lambda: in_child(lambda: _claim(ledger, action, "child"))) as said:
        grant = _claim(ledger, action, "parent")
    assert (said, grant.granted_now) == (["raised Forked"], True)
    ledger.prepare(EXECUTOR, action.action_id, claim_id=grant.claim_id, worker="parent")
    ledger.close()
    assert _claims(path) == ["parent"]


@pytest.mark.parametrize("durability", ["full", "extra"])
@pytest.mark.parametrize("point", ["effect.before", "commit.begin"])
def test_a_child_that_goes_on_with_its_parents_claim_lands_nothing(tmp_path: Path, point: str, durability: str) -> None:
    """The child comes back out of the fork into the middle of the same claim."""
    path = tmp_path / "ledger.db"
    ledger, action = _opened(path, durability)
    reading, writing = os.pipe()
    pids: list[int] = []

    def fork() -> None:
        pids.append(os.fork())
        if pids[0]:
            assert os.waitpid(pids[0], 0)[1] == 0

    try:
        with _once_at(point, fork):
            grant = _claim(ledger, action, "one of both")
    except Forked:
        os.write(writing, b"Forked")
        os._exit(0)
    finally:
        if pids == [0]:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "Forked"
    ledger.prepare(EXECUTOR, action.action_id, claim_id=grant.claim_id, worker="one of both")
    ledger.close()
    assert _claims(path) == ["one of both"]


def test_a_permit_that_was_prepared_before_a_fork_is_the_parents(tmp_path: Path) -> None:
    """A child that opens the ledger anew is another opening: nothing is handed out to it."""
    path = tmp_path / "ledger.db"
    ledger, action = _opened(path)
    claim_id = _claim(ledger, action, "w").claim_id
    ledger.prepare(EXECUTOR, action.action_id, claim_id=claim_id, worker="w")

    def child() -> str:
        with EffectLedger(path, time=Ticks()) as own:
            return str(own.hand_out(EXECUTOR, action.action_id, claim_id=claim_id, worker="w").handed_now)

    assert in_child(child) == "raised Refused"
    assert ledger.hand_out(EXECUTOR, action.action_id, claim_id=claim_id, worker="w").handed_now
    ledger.close()
    assert _claims(path) == ["w"]
