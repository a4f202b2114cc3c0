"""The loop rule, shape by shape: what must be stopped, and what looks like a loop and is none."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.kernel.loops import Call, Detector, Glimpse, Level, glimpse_of
from agent_run_ledger.kernel.policy import LoopDetectorPolicy
from tests.unit.loop_calls import call, trip, verdicts

WORDS = ["amber", "birch", "cedar", "dune", "ember", "fjord", "grove", "heath", "islet", "jetty", "knoll", "lagoon"]


def prose(seed: int, words: int = 12) -> str:
    """A sentence that differs from that of another seed in most word pairs."""
    return " ".join(WORDS[(seed * 5 + place * (seed % 7 + 1)) % len(WORDS)] + str(seed) for place in range(words))


def rows(seed: int) -> str:
    """A row of four words without a number."""
    return " ".join(WORDS[(seed // 12**place + seed * place) % len(WORDS)] for place in range(4))


def file_of(seed: int) -> str:
    return f"def part_{seed}():\n    return {prose(seed)!r}\n"


MUST_TRIP: dict[str, list[Call]] = {
    "identical calls": [call("search", prose(1), query="the same")] * 8,
    "identical calls that only say ok": [call("touch", {"ok": True}, path="a")] * 8,
    "identical calls that say nothing": [call("shell", "", command="true")] * 8,
    "the same error": [call("read", error="ValueError: too large", path="/big")] * 8,
    "an error as a value": [call("read", {"error": "too large"}, path="/big")] * 8,
    "a vetoed call again": [Call(tool="pay", arguments={"to": "x"}, error="Refused: no", vetoed=True)] * 8,
    "a cosmetic counter in a remark": [call("bash", "noop", cmd="echo noop", label=f"noop{i}") for i in range(9)],
    "a cosmetic counter that is an argument": [call("read", prose(1), path="a.py", attempt=i) for i in range(9)],
    "keys in another order, spaces, case": [
        Call(tool="weather", arguments=arguments, outcome=prose(2))
        for arguments in [
            {"city": "Paris", "unit": "C"},
            {"unit": "c ", "city": "Paris"},
            {"city": " paris", "unit": "C"},
        ]
        * 3
    ],
    "another page, the same rows": [call("rows", prose(3), table="users", page=i) for i in range(9)],
    "the same error for ever new inputs": [call("sql", error="no such table: cars", query=prose(i)) for i in range(9)],
    "reworded searches, the same answer": [call("search", {"hits": [prose(4)]}, query=prose(i)) for i in range(9)],
    "reworded searches, the same rows in another order": [
        call("find", "\n".join(sorted(WORDS, key=lambda word: word[i % 4])), query=prose(i)) for i in range(9)
    ],
    "an error that quotes the input back": [
        call("sql", error=f"syntax error near '{prose(i)}' here", query=f"select {prose(i)}") for i in range(9)
    ],
    "times, ids and durations in the answer": [
        call(
            "search",
            {"took_ms": 7 * i, "request_id": f"{i:08x}", "at": f"2026-01-02T03:04:{10 + i}Z", "hit": prose(5)},
            q="a",
        )
        for i in range(9)
    ],
    "durations as clocks write them": [
        call("bash", f"nothing to do, real 0m{i}.234s, elapsed 0:00:{10 + i}.12", command="time make") for i in range(9)
    ],
    "generated names and line numbers": [
        call("bash", f"line {40 + i}: mvn: not found in /tmp/{0xABC1DE00 + i:x}", command="mvn test") for i in range(9)
    ],
    "an edit inserted again and again": [
        call(
            "edit",
            "\n".join([f"[{100 + i} lines total]", *(f"{n}: {rows(n)}" for n in range(i, i + 40))]),
            at=10,
            text="x",
        )
        for i in range(9)
    ],
    "a check that never changes between ever new edits": [
        one
        for i in range(20)
        for one in (call("edit", file_of(i), text=prose(i)), call("bash", "4 failed", command="make"))
    ],
    "a small answer to related questions": [
        call("bash", "0\n", command=f"find /data -type f -name notes {extra} | wc -l")
        for extra in ["", "-print", "-follow", "-mount", "-depth", "-print -mount", "-xdev", "-noleaf", "-xdev -print"]
    ],
    "a poll whose answer never changes": [call("get_job_status", {"state": "queued"}, job="j1")] * 16,
    "infrastructure that never answers": [
        call("get", error="HTTP 503 Service Unavailable", url=prose(i)) for i in range(9)
    ],
}
for period in (2, 3, 4, 5, 7, 13):
    MUST_TRIP[f"a cycle of period {period}"] = [
        call("open", file_of(i % period), path=prose(i % period, 3)) for i in range(4 * period)
    ]

MUST_PASS: dict[str, list[Call]] = {
    "pages": [call("orders", {"page": i, "ids": [f"{i:04x}{n:04x}" for n in range(9)]}, page=i) for i in range(20)],
    "iteration over ids": [
        call("customer", {"id": i, "name": prose(i, 2)}, customer_id=f"CUST-{i:06}") for i in range(20)
    ],
    "iteration over ids of which some are not there": [
        call("customer", error=f"customer CUST-{i:06} not found", customer_id=f"CUST-{i:06}") for i in range(20)
    ],
    "iteration over candidates": [call("shell", "False\n", command=f"check md5 of 'password{i}'") for i in range(20)],
    "iteration over numbers of which a few in a row are not there": [
        *[call("customer", error="NotFound: no such customer", customer_id=i) for i in range(5)],
        call("customer", {"name": prose(1)}, customer_id=5),
    ],
    "checks of one row after another": [
        call("validate", {"valid": True, "errors": [], "warnings": []}, row=i) for i in range(20)
    ],
    "inserts that say that there was no error": [
        call("insert", {"status": "ok", "error": None}, row={"name": prose(i, 3)}) for i in range(20)
    ],
    "commands that print nothing": [
        call("bash", {"stdout": "", "stderr": "", "exit_code": 0}, command=prose(i, 3)) for i in range(20)
    ],
    "a first look at each of many jobs": [
        call("job", {"state": "running", "since": "monday"}, job=f"{i:08x}") for i in range(20)
    ],
    "a first poll of each of many jobs": [
        Call(
            tool="job", arguments={"job": f"{i:08x}"}, outcome="running on its machine since monday morning", poll=True
        )
        for i in range(20)
    ],
    "scrolling": [call("scroll", prose(i), by=100) for i in range(20)],
    "chunks read with the same arguments": [call("read_output", prose(i, 60), session="s1") for i in range(20)],
    "inserts with a constant ok": [call("insert", {"ok": True}, row={"name": prose(i, 3), "n": i}) for i in range(20)],
    "flags set with a constant ok": [
        call("set_flag", {"ok": True}, feature="checkout", tenant=1000 + i) for i in range(20)
    ],
    "writes that return nothing": [call("write_row", None, row={"name": prose(i, 3)}) for i in range(20)],
    "edits of one file": [call("edit", "The file a.py has been edited.", path="a.py", new=prose(i)) for i in range(20)],
    "edits and tests in turn, the same failure for a while": [
        one
        for i in range(9)
        for one in (call("edit", file_of(i), text=prose(i)), call("bash", f"{9 - i // 2} failed", command="make"))
    ],
    "a poll that moves": [call("job_status", {"state": "running", "percent": i}, job="j") for i in range(40)],
    "a named poll within its limit": [call("job_status", {"state": "running"}, job="j")] * 12,
    "a poll named in humps": [call("getJobStatus", {"state": "active"}, job="j")] * 12,
    "a poll known by its answer": [call("fetch_report", {"ready": False}, report="r")] * 12,
    "a poll known by its pause": [call("bash", "no sign of life", command="sleep 60; tail log")] * 12,
    "a declared poll": [Call(tool="seats", arguments={"row": 1}, outcome=prose(1), poll=True)] * 12,
    "numbers that are the answer": [call("cpu", f"{i * 7 % 100}%", host="db1") for i in range(40)],
    "retries of 429 that succeed": [
        *[call("get", error="429 Too Many Requests", url="u")] * 5,
        call("get", prose(1), url="u"),
    ],
    "retries of a timeout that succeed": [
        *[call("get", error="TimeoutError: timed out", url="u")] * 5,
        call("get", prose(1), url="u"),
    ],
    "three times the same and then an answer": [
        *[call("get", error="ValueError: no", url="u")] * 3,
        call("get", prose(1), url="u"),
    ],
    "a few files read twice": [call("open", file_of(i % 4), path=prose(i % 4, 3)) for i in range(8)],
}


@pytest.mark.parametrize("shape", MUST_TRIP)
def test_a_loop_is_stopped(shape: str) -> None:
    assert trip(MUST_TRIP[shape]) is not None


@pytest.mark.parametrize("shape", MUST_PASS)
def test_what_makes_progress_is_not_stopped(shape: str) -> None:
    assert trip(MUST_PASS[shape]) is None


@pytest.mark.parametrize(
    ("shape", "limit"),
    [
        ("identical calls", 3),
        ("another page, the same rows", 3),
        ("the same error for ever new inputs", 5),
        ("a small answer to related questions", 6),
        ("a poll whose answer never changes", 12),
        ("infrastructure that never answers", 5),
    ],
)
def test_each_rule_stops_at_its_limit_and_not_before(shape: str, limit: int) -> None:
    judged = verdicts(MUST_TRIP[shape])
    levels = [one.level for one in judged[: limit + 1]]
    assert levels[-3:] == [Level.WARN, Level.NUDGE, Level.QUARANTINE]
    assert max(levels[:-3], default=Level.OK) < Level.NUDGE


def test_similar_inputs_get_one_repetition_more_than_equal_ones() -> None:
    similar = [
        call("bash", prose(1), command="find /srv/data -type f -name '*.log' -newer stamp -print " + extra)
        for extra in ("-a", "-b", "-c", "-d", "-e", "-f")
    ]
    assert trip(similar) == 4
    assert trip(similar[:1] * 6) == 3
    assert verdicts(similar)[4].similarity > 0.92


def test_the_threshold_is_strict_and_decides_what_is_similar() -> None:
    similar = MUST_TRIP["a small answer to related questions"]
    assert trip(similar[:5], threshold=0.5) == 4
    assert trip(similar[:5], threshold=1) is None


def test_something_new_takes_repetitions_back_and_not_all() -> None:
    again, new = call("get", prose(1), url="u"), call("look", prose(2), at="x")
    assert trip([again, again, again, new, again, again]) is None
    assert trip([again, again, again, new, again, again, again]) == 6
    tried = [call("sql", error="no such table: cars", query=prose(i)) for i in range(8)]
    assert trip([*tried[:5], new, *tried[5:]]) == 8
    pairs = [one for i in range(8) for one in (again, call("look", prose(i), at=prose(i)))]
    assert trip(pairs) is None


def test_infrastructure_errors_count_for_no_other_rule_and_not_across_an_answer() -> None:
    bad, good = call("get", error="ConnectionError: connection reset", url="u"), call("get", prose(1), url="v")
    assert trip([bad] * 5) is None
    six = verdicts([bad] * 6)[-1]
    assert (six.level, six.rule, six.transient, six.count) == (Level.QUARANTINE, "transient", True, 6)
    assert trip([bad] * 5 + [good] + [bad] * 5) is None


@pytest.mark.parametrize(
    "error",
    [
        "HTTPError: 500 Server Error: Internal Server Error for url: https://host/a",
        "HTTPError: 502 Server Error: Bad Gateway for url: https://host/a",
        "ConnectError: All connection attempts failed",
        "RemoteProtocolError: Server disconnected without sending a response.",
        "gaierror: [Errno -3] Temporary failure in name resolution",
        "OSError: [Errno 101] Network is unreachable",
        "BrokenPipeError: [Errno 32] Broken pipe",
        "ClientError: An error occurred (ThrottlingException) when calling the Invoke operation: Rate exceeded",
    ],
)
def test_what_the_common_clients_say_of_infrastructure_is_known(error: str) -> None:
    assert verdicts([call("get", error=error, url="u")] * 6)[-1].rule == "transient"


def test_a_failed_look_at_a_job_is_a_loop_unless_the_tool_is_declared_as_a_poll() -> None:
    failed = call("job_status", error="KeyError: no such job", job="j")
    assert trip([failed] * 6) == 3
    assert trip([dataclasses.replace(failed, poll=True)] * 12) is None


def test_volatile_keys_of_arguments_and_results_are_ignored() -> None:
    calls = [call("read", {"meta": {"load": prose(i)}, "text": prose(1)}, path="a", seed=prose(i)) for i in range(6)]
    assert trip(calls) is None
    assert trip([dataclasses.replace(one, volatile=("seed", "meta.load")) for one in calls]) == 3


@pytest.mark.parametrize("begin", [lambda d, n: d.turn(), lambda d, n: d.restart(n)], ids=["turn", "restart"])
def test_a_user_turn_and_a_release_begin_new_counts(begin: Callable[[Detector, int], None]) -> None:
    detector, one = Detector(LoopDetectorPolicy()), glimpse_of(call("get", prose(1), url="u"))
    first = [detector.observe(number, one).level for number in range(4)]
    begin(detector, 4)
    second = [detector.observe(number, one).level for number in range(4, 8)]
    assert first == second == [Level.OK, Level.WARN, Level.NUDGE, Level.QUARANTINE]


def test_calls_before_a_release_count_no_more_even_if_they_are_observed_later() -> None:
    detector, one = Detector(LoopDetectorPolicy()), glimpse_of(call("get", prose(1), url="u"))
    detector.restart(100)
    assert {detector.observe(number, one).level for number in range(100)} == {Level.OK}


def test_the_window_bounds_what_is_seen() -> None:
    cycle = [call("open", file_of(i % 13), path=prose(i % 13, 3)) for i in range(52)]
    assert trip(cycle, window=40) is not None
    assert trip(cycle, window=12) is None
    assert trip(MUST_TRIP["a poll whose answer never changes"], window=2) == 12


def test_a_verdict_says_the_rule_the_steps_and_what_would_have_been_new() -> None:
    error = verdicts(MUST_TRIP["the same error"])[3]
    assert (error.rule, error.count, error.limit, error.steps, error.failed) == ("again", 3, 3, (0, 1, 2, 3), True)
    assert "the same error repeated" in error.words()
    assert "steps 0, 1, 2, 3" in error.explain()
    assert "another outcome" in error.explain()
    assert "nothing new in between" in verdicts(MUST_TRIP["a cycle of period 5"])[-1].explain()
    assert verdicts([call("get", prose(1), url="u")])[0].explain().startswith("no loop")


def test_the_plain_rule_looks_at_inputs_only() -> None:
    pages = [call("orders", {"page": i}, customer="amber birch and sons", sort="created", page=i) for i in range(5)]
    assert trip(pages) is None
    assert trip(pages, rule="inputs") == 2
    assert trip(MUST_TRIP["a cycle of period 5"], rule="inputs") is None
    assert trip([call("a", i, q="the same") for i in range(3)], rule="inputs", max_repetitions=4) is None
    verdict = verdicts(pages, rule="inputs")[2]
    assert (verdict.rule, verdict.steps, verdict.count) == ("inputs", (0, 1, 2), 3)
    assert verdict.similarity > 0.92


def test_calls_of_two_tools_are_never_one_call() -> None:
    assert trip([call(f"tool_{i}", prose(1), q="x") for i in range(12)]) is None


def test_long_outcomes_that_differ_in_a_number_are_new() -> None:
    assert trip([call("bash", prose(1, 40) + f"\n{i} tests failed", command="make") for i in range(20)]) is None


def test_answers_that_are_nothing_but_generated_names_are_told_apart() -> None:
    assert trip([call("new_id", f"{0xABC1DE00 + i:x}", kind="order") for i in range(20)]) is None


def test_the_rule_off_judges_nothing() -> None:
    assert {one.level for one in verdicts([call("a", 1, q="x")] * 50, rule="off")} == {Level.OK}


@pytest.mark.parametrize("repetitions", [1, 2, 5])
def test_all_limits_follow_the_number_of_repetitions(repetitions: int) -> None:
    assert trip(MUST_TRIP["identical calls"], max_repetitions=repetitions) == repetitions
    assert (
        trip([call("s", error="ValueError: no", q=prose(i)) for i in range(30)], max_repetitions=repetitions)
        == 2 * repetitions - 1
    )
    assert trip([call("status", {"state": "queued"}, job="j1")] * 80, max_repetitions=repetitions) == 4 * repetitions


texts = st.text(st.sampled_from("ab 01\n'"), max_size=12)
some_calls = st.lists(
    st.builds(
        Call,
        tool=st.sampled_from(["read", "status"]),
        arguments=st.fixed_dictionaries({"q": texts}),
        outcome=st.one_of(texts, st.none(), st.just({"ok": True})),
        error=st.one_of(st.none(), st.sampled_from(["TimeoutError: x", "ValueError: 'ab ab ab ab ab ab'"])),
        vetoed=st.booleans(),
        poll=st.booleans(),
    ),
    max_size=30,
)


@given(some_calls, st.sampled_from(["outcome", "inputs"]), st.integers(1, 4))
def test_unpacked_glimpses_give_the_same_verdicts(calls: list[Call], rule: str, repetitions: int) -> None:
    policy = LoopDetectorPolicy(rule=rule, max_repetitions=repetitions)
    seen = [glimpse_of(one) for one in calls]
    again = [Glimpse.unpack(one.pack()) for one in seen]
    assert again == seen
    assert verdicts(again, policy) == verdicts(seen, policy)
