"""The way that the effect kit stands on: what passes, what strikes once, and what is never handed on."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from agent_run_ledger.errors import Misuse
from agent_run_ledger.testing.effect_path import CutPath, OnTheWay, can_be_cut
from tests.contract.target_servers import Server, answer, serving

REQUEST = b"POST /refunds HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\n{}"
HANDED_ON = b"POST /refunds HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nconnection: close\r\n\r\n{}"
ANSWER = b"HTTP/1.1 201 Said\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"


def says(connection: socket.socket) -> None:
    connection.sendall(ANSWER)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(says) as one:
        yield one


@pytest.fixture
def path(server: Server) -> Iterator[CutPath]:
    with closing(CutPath(server.url)) as one:
        yield one


def port_of(path: CutPath) -> int:
    return int(path.url.rpartition(":")[2])


def ask(path: CutPath, request: bytes = REQUEST, patience_s: float = 20.0) -> bytes:
    """Send a request, and return all that comes; nothing where the connection is reset or stays silent."""
    with socket.create_connection(("127.0.0.1", port_of(path)), 20.0) as connection:
        connection.sendall(request)
        connection.settimeout(patience_s)
        parts = b""
        with suppress(OSError):
            while part := connection.recv(4_096):
                parts += part
        return parts


def test_a_request_passes_whole_and_ends_its_connection(server: Server, path: CutPath) -> None:
    assert ask(path) == ANSWER
    assert (server.requests, path.seen, path.struck) == ([HANDED_ON], 1, 0)


@pytest.mark.parametrize("fault", [OnTheWay.TWICE, OnTheWay.TWICE_AT_ONCE])
def test_a_fault_strikes_one_request_and_no_other(server: Server, path: CutPath, fault: OnTheWay) -> None:
    path.strike(fault)
    assert ask(path) == ANSWER
    path.rest()
    assert (server.requests, path.struck) == ([HANDED_ON] * 2, 1)
    assert ask(path) == ANSWER
    assert (len(server.requests), path.seen, path.struck) == (3, 2, 1)


def test_a_cut_reply_is_none_and_the_request_arrived(server: Server, path: CutPath) -> None:
    path.strike(OnTheWay.REPLY_CUT)
    assert ask(path) == b""
    assert server.requests == [HANDED_ON]


@pytest.mark.parametrize(
    ("fault", "status", "arrived"),
    [(OnTheWay.ANSWERED_503, b"503 Service Unavailable", 0), (OnTheWay.ANSWERED_502, b"502 Bad Gateway", 1)],
)
def test_an_error_for_an_answer_is_whole_and_only_a_bad_gateway_handed_the_request_on(
    server: Server, path: CutPath, fault: OnTheWay, status: bytes, arrived: int
) -> None:
    path.strike(fault)
    head, _, body = ask(path).partition(b"\r\n\r\n")
    assert head.splitlines()[0] == b"HTTP/1.1 " + status
    assert body == b'{"error":"' + status + b'"}'
    assert f"content-length: {len(body)}".encode() in head.splitlines()
    assert (server.requests, path.struck) == ([HANDED_ON] * arrived, 1)
    assert ask(path) == ANSWER


def test_a_fault_can_strike_every_request_until_another_is_told(server: Server, path: CutPath) -> None:
    path.strike(OnTheWay.ANSWERED_503, always=True)
    assert [ask(path)[9:12], ask(path)[9:12]] == [b"503", b"503"]
    assert (server.requests, path.struck) == ([], 2)
    path.strike(OnTheWay.TWICE)
    assert [ask(path), ask(path)] == [ANSWER, ANSWER]
    assert (len(server.requests), path.struck) == (3, 3)


def test_a_late_reply_comes_after_everybody_hung_up(server: Server, path: CutPath) -> None:
    path.strike(OnTheWay.REPLY_LATE)
    assert ask(path, patience_s=0.2) == b""
    path.rest()
    assert server.requests == [HANDED_ON]


def test_a_late_request_arrives_when_it_is_let_go(server: Server, path: CutPath) -> None:
    path.strike(OnTheWay.REQUEST_LATE)
    assert ask(path, patience_s=0.2) == b""
    assert server.requests == []
    path.release()
    path.rest()
    assert server.requests == [HANDED_ON]


def test_refused_means_no_connection_and_the_address_stays(server: Server, path: CutPath) -> None:
    path.refuse()
    with pytest.raises(ConnectionRefusedError):
        ask(path)
    path.accept()
    assert ask(path) == ANSWER
    assert len(server.requests) == 1


def test_the_last_request_can_come_again_at_another_address(server: Server, path: CutPath) -> None:
    with pytest.raises(Misuse, match="no request"):
        path.repeat()
    ask(path)
    with serving(says) as other:
        path.lead_to(other.url)
        path.repeat()
        assert (other.requests, len(server.requests)) == ([HANDED_ON], 1)


def test_rest_waits_for_what_nobody_has_taken_yet(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    listen = CutPath._listen
    monkeypatch.setattr(CutPath, "_listen", lambda self: None)
    path = CutPath(server.url)
    with socket.create_connection(("127.0.0.1", port_of(path)), 20.0) as dead:
        dead.sendall(REQUEST)
    seen: list[int] = []

    def rest() -> None:
        begun.set()
        path.rest()
        seen.append(len(server.requests))

    begun = threading.Event()
    resting = threading.Thread(target=rest)
    resting.start()
    begun.wait()
    listen(path)
    resting.join()
    path.close()
    assert seen == [1]


@pytest.mark.parametrize("size", [0, 20, len(REQUEST) - 1])
def test_half_a_request_is_never_handed_on(server: Server, path: CutPath, size: int) -> None:
    with socket.create_connection(("127.0.0.1", port_of(path)), 20.0) as connection:
        connection.sendall(REQUEST[:size])
    assert ask(path) == ANSWER
    path.rest()
    assert (server.requests, path.seen) == ([HANDED_ON], 1)


def test_chunks_and_who_waits_to_be_told_to_go_on(path: CutPath) -> None:
    head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port_of(path)), 20.0) as connection:
        connection.sendall(head)
        assert connection.recv(64) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"2\r\n{}\r\n")
        connection.sendall(b"0\r\n\r\n")
        assert connection.recv(4_096) != b""
    path.rest()
    assert path.seen == 1


def test_a_target_that_is_gone_gives_no_answer() -> None:
    with serving(answer(200)) as gone:
        url = gone.url
    with closing(CutPath(url)) as path:
        path.strike(OnTheWay.TWICE_AT_ONCE)
        assert ask(path) == b""
        path.rest()


@pytest.mark.parametrize(
    ("url", "can"),
    [
        ("http://127.0.0.1:80", True),
        ("http://localhost:80/v1", True),
        ("http://[::1]:80", True),
        ("https://127.0.0.1:80", False),
        ("http://pay.example", False),
        ("", False),
    ],
)
def test_only_plain_http_on_this_machine_can_be_cut(url: str, can: bool) -> None:
    assert can_be_cut(url) is can
    if not can:
        with pytest.raises(Misuse):
            CutPath(url)


def test_the_path_of_a_url_stays(server: Server) -> None:
    with closing(CutPath(f"{server.url}/v1/")) as path:
        assert path.url.endswith("/v1")
