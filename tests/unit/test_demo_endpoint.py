"""The endpoint's reviewer against a real HTTP server on the loopback: answers, refusals, losses, no word of the key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from agent_run_ledger.demo.audit.shapes import ImportGraph, MeasuredTree
from agent_run_ledger.demo.endpoint import AnswerLost, EndpointBusy, EndpointRefused, EndpointReviewer
from agent_run_ledger.demo.questions import Question, TreeCase
from agent_run_ledger.demo.reviewers import estimated_tokens
from tests.unit.demo_server import GOOD, KEY, Endpoint, answered, serving, status

GRAPH = ImportGraph(edges=(), cycles=(), deferred_cycles=(), outside=())
CASE = TreeCase(measured=MeasuredTree(modules=()), graph=GRAPH, unparsed=(), reviews=())
QUESTION = Question(step="review_01", system="You review.", prompt="Source: ü", case=CASE)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving() as served:
        yield served


def reviewer_of(endpoint: Endpoint, path: str = "/v1", **settings: Any) -> EndpointReviewer:
    return EndpointReviewer(
        **{"base_url": endpoint.url + path, "api_key": KEY, "model": "m", "timeout_s": 30.0, **settings}
    )


def test_a_question_is_posted_and_its_usage_is_read(endpoint: Endpoint) -> None:
    endpoint.replies.append(answered(GOOD))
    answer = reviewer_of(endpoint, "/v1/?version=2").answer(QUESTION)
    assert (answer.text, answer.tokens_in, answer.tokens_out, answer.estimated) == ("answer", 11, 7, False)
    (asked,) = endpoint.asked
    assert asked["path"] == "/v1/chat/completions?version=2"
    assert asked["headers"]["Authorization"] == f"Bearer {KEY}"
    assert asked["headers"]["Content-Type"] == "application/json"
    assert asked["body"] == {
        "model": "m",
        "messages": [{"role": "system", "content": "You review."}, {"role": "user", "content": "Source: ü"}],
    }


def test_without_a_key_no_authorization_is_sent(endpoint: Endpoint) -> None:
    endpoint.replies.append(answered(GOOD))
    reviewer_of(endpoint, api_key="").answer(QUESTION)
    assert "Authorization" not in endpoint.asked[0]["headers"]


@pytest.mark.parametrize(
    "usage", [None, {}, {"prompt_tokens": 3}, {"prompt_tokens": -1, "completion_tokens": True}, "much", [1]]
)
def test_without_a_usable_usage_the_tokens_are_estimated_and_said_to_be(endpoint: Endpoint, usage: object) -> None:
    endpoint.replies.append(answered({**GOOD, "usage": usage}))
    answer = reviewer_of(endpoint).answer(QUESTION)
    assert answer.estimated
    assert answer.tokens_in == estimated_tokens(QUESTION.system + QUESTION.prompt)
    assert answer.tokens_out == estimated_tokens("answer")


@pytest.mark.parametrize("code", [408, 409, 425, 429, 500, 502, 503, 529])
def test_try_later_is_busy_and_says_what_was_said(endpoint: Endpoint, code: int) -> None:
    endpoint.replies.append(status(code, b'{"error": "slow\x1b[2J down"}'))
    with pytest.raises(EndpointBusy, match=rf"answered {code}.*slow\\x1b\[2J down"):
        reviewer_of(endpoint).answer(QUESTION)


@pytest.mark.parametrize("code", [400, 401, 403, 404, 422])
def test_other_statuses_are_refusals_without_the_key(endpoint: Endpoint, code: int) -> None:
    endpoint.replies.append(status(code, f"wrong key {KEY}".encode()))
    with pytest.raises(EndpointRefused, match=rf"answered {code}: wrong key \[key\]") as caught:
        reviewer_of(endpoint).answer(QUESTION)
    assert KEY not in str(caught.value)
    assert "OPENAI_API_KEY" in caught.value.hint


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_refused_so_that_the_key_stays_here(endpoint: Endpoint, code: int) -> None:
    endpoint.replies.append(status(code, Location=f"{endpoint.url}/elsewhere"))
    with pytest.raises(EndpointRefused, match=f"answered {code}"):
        reviewer_of(endpoint).answer(QUESTION)
    assert len(endpoint.asked) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"choices": []}',
        b'{"choices": [{"message": {"content": null}}]}',
        b'{"choices": [{"message": {"content": [{"text": "x"}]}}]}',
        b'{"choices": {"0": 1}}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_an_answer_that_cannot_be_read_is_lost_because_it_may_have_been_paid(endpoint: Endpoint, body: bytes) -> None:
    endpoint.replies.append(status(200, body))
    with pytest.raises(AnswerLost, match="without choices"):
        reviewer_of(endpoint).answer(QUESTION)


def test_a_broken_connection_after_the_question_is_lost(endpoint: Endpoint) -> None:
    endpoint.replies.append(lambda handler: handler.connection.close())
    with pytest.raises(AnswerLost, match="did not finish its answer"):
        reviewer_of(endpoint).answer(QUESTION)


def test_an_answer_that_ends_too_early_is_lost(endpoint: Endpoint) -> None:
    def half(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(json.dumps(GOOD).encode())

    endpoint.replies.append(half)
    with pytest.raises(AnswerLost, match="did not finish its answer"):
        reviewer_of(endpoint).answer(QUESTION)


def test_silence_ends_at_the_timeout(endpoint: Endpoint) -> None:
    endpoint.replies.append(lambda handler: endpoint.hold.wait() and None)
    with pytest.raises(AnswerLost, match="timed out"):
        reviewer_of(endpoint, timeout_s=0.05).answer(QUESTION)


def test_an_answer_that_only_trickles_ends_at_the_timeout_too(endpoint: Endpoint) -> None:
    def trickle(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        for _ in range(1_000):
            if not endpoint.hold.wait(0.01):
                handler.wfile.write(b" ")
                handler.wfile.flush()

    endpoint.replies.append(trickle)
    with pytest.raises(AnswerLost, match="timed out"):
        reviewer_of(endpoint, timeout_s=0.3).answer(QUESTION)


def test_an_answer_without_end_is_cut_off(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_run_ledger.demo.endpoint.MAX_ANSWER_BYTES", 1_000)
    endpoint.replies.append(status(200, b" " * 100_000))
    with pytest.raises(AnswerLost, match="larger than"):
        reviewer_of(endpoint).answer(QUESTION)


def test_an_endpoint_that_is_not_there_is_busy(endpoint: Endpoint) -> None:
    reviewer = reviewer_of(endpoint)
    closed = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    url = f"http://127.0.0.1:{closed.server_port}"
    closed.server_close()
    with pytest.raises(EndpointBusy, match="cannot be reached"):
        EndpointReviewer(base_url=url, api_key=KEY, model="m", timeout_s=reviewer.timeout_s).answer(QUESTION)


def test_the_key_is_in_no_repr_label_or_environment(endpoint: Endpoint) -> None:
    reviewer = reviewer_of(endpoint, "/v1?token=secret")
    for shown in (repr(reviewer), reviewer.label, json.dumps(dict(reviewer.environment))):
        assert KEY not in shown
    assert "secret" not in reviewer.label
    assert "secret" not in json.dumps(dict(reviewer.environment))
