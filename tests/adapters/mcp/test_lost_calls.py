"""Calls that were sent and not answered: the proxy dies, the server dies, time passes, the client cancels."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from tests.adapters.mcp.sessions import PATIENCE_S, Place, Session, meta_of, text_of
from tests.contract.engine_kit import each_engine

SAFE = "[tools.slow]\nsafe = true\n"


def _killed_within(session: Session, place: Place, tool: str) -> None:
    before = place.calls(tool)
    session.begin(tool, {"seconds": 20})
    place.until(f"call {tool}", before + 1)
    session.kill()


# -- the proxy dies ------------------------------------------------------------------------------------------------


@each_engine
def test_after_a_kill_in_a_call_nobody_calls_it_again(place: Place) -> None:
    with place.session() as first:
        done = first.call("echo")
        _killed_within(first, place, "slow")
    for _ in range(2):
        with place.session() as second:
            assert second.call("echo") == done
            said = second.call("slow", {"seconds": 20})
            assert said["isError"] is True
            assert meta_of(said)["outcome"] == "unknown"
            assert meta_of(said)["call"] in text_of(said)
            assert second.call("slow", {"seconds": 20}) == said  # the client's retry
            assert place.calls("slow") == 1
            second.end()


def test_after_a_kill_in_a_safe_call_it_is_made_again(place: Place) -> None:
    policy = place.policy(SAFE)
    with place.session("--policy", policy) as first:
        _killed_within(first, place, "slow")
    with place.session("--policy", policy) as second:
        again = second.begin("slow", {"seconds": 20})
        place.until("call slow", 2)
        second.notify("notifications/cancelled", {"requestId": again})
        second.end()


def test_what_a_person_found_out_is_the_answer_after_a_restart(place: Place) -> None:
    with place.session() as first:
        _killed_within(first, place, "slow")
    with place.session() as second:
        call = meta_of(second.call("slow", {"seconds": 20}))["call"]
        second.end()
    place.arl("runs", "resolve", "r1", call, "--result", '"order 7 is there"', "--reason", "looked")
    with place.session() as third:
        said = third.call("slow", {"seconds": 20})
        assert text_of(said) == "order 7 is there"
        assert third.call("slow", {"seconds": 0.1})["isError"] is False
        third.end()
    assert place.calls("slow") == 2


def test_what_a_person_says_was_not_done_is_called_once_more(place: Place) -> None:
    with place.session() as first:
        _killed_within(first, place, "place_order")
    with place.session() as second:
        call = meta_of(second.call("place_order", {"seconds": 20}))["call"]
        second.kill()
    place.arl("runs", "resolve", "r1", call, "--not-done", "--reason", "looked")
    with place.session() as third:
        third.begin("place_order", {"seconds": 20})
        place.until("call place_order", 2)
        third.kill()


# -- the server dies (DUP-04) --------------------------------------------------------------------------------------


def test_a_drop_after_sending_is_an_unknown_outcome_and_is_not_repeated(place: Place) -> None:
    policy = place.policy('[tools."*"]\ntrust_hints = true\n')
    with place.session("--policy", policy) as first:
        said = first.call("place_order", {"die": True})
        assert meta_of(said)["outcome"] == "unknown"
        assert "exit code 7" in text_of(said)
        assert first.wait() == 5
        assert "the server ended (exit code 7)" in first.stderr()
    with place.session("--policy", policy) as second:
        again = second.call("place_order", {"die": True})
        assert meta_of(again) == meta_of(said)
        assert place.calls("place_order") == 1
        lost = second.call("read_stock", {"die": True})
        assert meta_of(lost) == {"outcome": "none", "run": "r1"}
        second.wait()
    with place.session("--policy", policy) as third:
        third.call("read_stock", {"die": True})
        third.wait()
    assert place.calls("read_stock") == 2
    assert place.calls("place_order") == 1


def test_a_hint_that_the_policy_does_not_trust_counts_for_nothing(place: Place) -> None:
    for _ in range(2):
        with place.session() as session:
            said = session.call("read_stock", {"die": True})
            assert meta_of(said)["outcome"] == "unknown"
            session.kill()
    assert place.calls("read_stock") == 1


def test_everything_open_is_answered_when_the_server_ends(place: Place) -> None:
    with place.session() as session:
        waiting = session.begin("quiet")
        place.until("call quiet")
        other = session.begin("die")
        assert {meta_of(session.answer(one)["result"])["outcome"] for one in (waiting, other)} == {"unknown"}
        assert session.wait() == 5


def test_a_server_that_cannot_be_started_is_misuse(place: Place, tmp_path: Path) -> None:
    with place.session(server=[str(tmp_path / "no-such-server")]) as session:
        assert session.wait() == 2
        assert "could not be started" in session.stderr()
        assert "Traceback" not in session.stderr()


def test_a_stdin_that_nobody_speaks_through_is_misuse(place: Place) -> None:
    for stdin in ("/dev/null", __file__):
        with open(stdin, "rb") as source:
            done = subprocess.run(
                place.command(), stdin=source, capture_output=True, text=True, check=False, timeout=PATIENCE_S
            )
        assert done.returncode == 2
        assert "must be pipes" in done.stderr
        assert "Traceback" not in done.stderr


def test_the_server_ends_with_the_session_also_one_that_does_not_want_to(place: Place) -> None:
    stubborn = "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    stubborn += "open(os.environ['SERVER_LOG'], 'a').write(f'pid {os.getpid()}\\n'); time.sleep(20)"
    import sys

    with place.session(server=[sys.executable, "-c", stubborn]) as session:
        place.until("pid")
        assert session.end() == 0
    pid = int(place.lines("pid")[0].split()[1])
    assert not Path(f"/proc/{pid}").exists()


# -- time passes (DUP-05) ------------------------------------------------------------------------------------------


def test_a_call_that_takes_too_long_is_unknown_and_a_retry_starts_nothing(place: Place) -> None:
    policy = place.policy("[tools.start_job]\ntimeout_s = 1.0\n")
    with place.session("--policy", policy) as session:
        session.call("echo")  # the server is there now
        said = session.call("start_job", {"seconds": 2.5})
        assert "no answer within 1 s" in text_of(said)
        assert meta_of(said)["call"].isdigit()
        assert [session.call("start_job", {"seconds": 2.5}) for _ in range(2)] == [said, said]
        place.until("done start_job")
        assert session.call("echo")["isError"] is False
        session.end()
        session.wait()
        assert "when nobody waited any more" in session.stderr()
        assert session.said == []
    assert place.calls("start_job") == 1
    with place.session("--policy", policy) as again:
        assert meta_of(again.call("start_job", {"seconds": 2.5})) == meta_of(said)
        again.end()
    assert place.calls("start_job") == 1


def test_with_another_call_id_it_is_another_job(place: Place) -> None:
    policy = place.policy("[tools.start_job]\ntimeout_s = 1.0\n")
    with place.session("--policy", policy) as session:
        session.call("echo")  # the server is there now
        one = session.call("start_job", {"seconds": 2.5}, call_id="a")
        assert session.call("start_job", {"seconds": 2.5}, call_id="a") == one
        other = session.call("start_job", {"seconds": 2.5}, call_id="b")
        assert meta_of(other)["call"] != meta_of(one)["call"]
        session.kill()
    assert place.calls("start_job") == 2


def test_a_safe_call_that_takes_too_long_may_be_called_again(place: Place) -> None:
    policy = place.policy(SAFE + "timeout_s = 1.0\n")
    with place.session("--policy", policy) as session:
        session.call("echo")  # the server is there now
        said = session.call("slow", {"seconds": 2.5})
        assert meta_of(said)["code"] == "step_timeout"
        session.call("slow", {"seconds": 2.5})
        session.end()
    assert place.calls("slow") == 2


# -- the client cancels --------------------------------------------------------------------------------------------


def test_a_cancelled_call_gets_no_answer_and_is_passed_on_as_cancelled(place: Place) -> None:
    with place.session() as session:
        waiting = session.begin("quiet")
        place.until("call quiet")
        session.notify("notifications/cancelled", {"requestId": waiting, "reason": "enough"})
        place.until("notified notifications/cancelled")
        time.sleep(2.2)
        assert meta_of(session.call("quiet"))["outcome"] == "unknown"
        assert session.said == []
        session.end()
    assert place.calls("quiet") == 1


def test_the_result_of_a_cancelled_call_is_kept_where_it_comes_all_the_same(place: Place) -> None:
    with place.session() as session:
        waiting = session.begin("slow", {"seconds": 0.5})
        place.until("call slow")
        session.notify("notifications/cancelled", {"requestId": waiting})
        place.until("done slow")
        session.call("echo")
        assert session.said == []
        session.kill()
    with place.session() as again:
        assert text_of(again.call("slow", {"seconds": 0.5})) == "started"
        again.end()
    assert place.calls("slow") == 1


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_a_signal_ends_the_session_cleanly(place: Place, number: str) -> None:
    import signal

    with place.session() as session:
        session.call("echo")
        session.process.send_signal(getattr(signal, number))
        assert session.wait() == 0
    assert "suspended" in place.arl("runs", "show", "r1")


def test_what_a_person_says_that_it_failed_with_is_an_error_result(place: Place) -> None:
    with place.session() as first:
        _killed_within(first, place, "slow")
    with place.session() as second:
        call = meta_of(second.call("slow", {"seconds": 20}))["call"]
        second.kill()
    place.arl("runs", "resolve", "r1", call, "--error", "the shop was closed", "--reason", "looked")
    with place.session() as third:
        said = third.call("slow", {"seconds": 20})
        assert said["isError"] is True
        assert "the shop was closed" in text_of(said)
        third.end()
    assert place.calls("slow") == 1


@pytest.mark.parametrize("call_id", ["", "k1"])
def test_a_call_whose_result_has_no_stored_form_is_not_made_again(place: Place, call_id: str) -> None:
    for _ in range(2):
        with place.session() as session:
            for _ in range(2):
                said = session.call("deep", call_id=call_id)
                assert said["isError"] is True
            session.end()
    assert place.calls("deep") == 1


def test_an_answer_that_nobody_waits_for_any_more_does_not_reach_the_client(place: Place) -> None:
    with place.session() as session:
        waiting = session.begin("slow", {"seconds": 3.0})
        place.until("call slow")
        session.notify("notifications/cancelled", {"requestId": waiting})
        place.until("done slow")
        session.ask("ping")
        assert session.said == []
        session.end()


def test_an_error_after_a_cancellation_does_not_say_that_nothing_happened(place: Place) -> None:
    with place.session() as session:
        waiting = session.begin("slow_error", {"seconds": 1.5})
        place.until("call slow_error")
        session.notify("notifications/cancelled", {"requestId": waiting})
        place.until("done slow_error")
        session.ask("ping")
        assert meta_of(session.call("slow_error", {"seconds": 1.5}))["outcome"] == "unknown"
        session.end()
    assert place.calls("slow_error") == 1
