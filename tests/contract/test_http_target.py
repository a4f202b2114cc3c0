"""The HTTP target against real servers: one request for each dispatch, and no more said of it than is known."""

from __future__ import annotations

import socket
import ssl
import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger.errors import Misuse
from agent_run_ledger.kernel.effects import TargetClass
from agent_run_ledger.kernel.effects.evidence import Found
from agent_run_ledger.kernel.effects.permit import Permit
from agent_run_ledger.kernel.effects.report import Answered, Lost, NotSent, Report
from agent_run_ledger.kernel.effects.request import Call, Request
from agent_run_ledger.ports.targets import Sending
from agent_run_ledger.probes import install
from agent_run_ledger.targets import HttpTarget, http
from tests.contract.target_certificates import certificate
from tests.contract.target_servers import Behaviour, answer, drips, floods, read_request, says, serving, stalls

REFUND = Request.json("POST", "/refunds?x=1", {"cents": 3000}, headers={"X-Tenant": "7"})
PERMIT = Permit(
    iss="00" * 16, aud="", sub="exe", jti="11" * 16, act="refund:17", gen=1, ep=0, req="22" * 32, pre=(), nbf=0, exp=1
)
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone"


def sending(request: Request | Call = REFUND, in_time: Any = lambda: True) -> Sending:
    return Sending(request=request, permit=PERMIT, idempotency_key="k" * 64, in_time=in_time)


def said(behave: Behaviour, **settings: Any) -> tuple[Report, int]:
    """What a target reports of a server that behaves so, and how many connections it made."""
    with serving(behave) as server:
        report = http(server.url, timeout_s=settings.pop("timeout_s", 30.0), **settings).send(sending())
    return report, server.connections


def test_exactly_the_approved_request_goes_out() -> None:
    with serving(answer(201, b"done")) as server:
        target = http(f"{server.url}/base/", "Idempotency-Key", headers={"Authorization": "Bearer s3cret"})
        report = target.send(sending())
    assert report == Answered(found=Found.EXECUTED, status=201, body_sha256=sha256(b"done").digest(), body=b"done")
    assert server.requests == [
        b"POST /base/refunds?x=1 HTTP/1.1\r\n"
        b"host: 127.0.0.1:%d\r\nconnection: close\r\ncontent-length: 14\r\n"
        % server.port
        + b"content-type: application/json\r\nx-tenant: 7\r\n"
        b"authorization: Bearer s3cret\r\nidempotency-key: " + b"k" * 64 + b'\r\n\r\n{"cents":3000}'
    ]
    assert server.connections == 1


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_a_success_is_an_observation_that_it_was_done(status: int) -> None:
    report, connections = said(answer(status, b""))
    assert report == Answered(found=Found.EXECUTED, status=status, body_sha256=sha256(b"").digest())
    assert connections == 1


@pytest.mark.parametrize(
    "status",
    [101, 199, 202, 207, 300, 301, 302, 303, 307, 308, 400, 401, 403, 404, 408, 409, 412, 422, 425, 429, 500, 502, 503],
)
def test_any_other_answer_says_nothing_of_what_happened_and_is_asked_once(status: int) -> None:
    with (
        serving(answer(200)) as elsewhere,
        serving(answer(status, b"", head=f"location: {elsewhere.url}/\r\nretry-after: 0\r\n")) as server,
    ):
        report = http(server.url).send(sending())
    assert isinstance(report, Answered)
    assert (report.found, report.status) == (Found.UNKNOWN, status)
    assert (server.connections, len(server.requests), elsewhere.connections) == (1, 1, 0)


def test_a_status_may_be_declared_a_success_but_no_refusal_may() -> None:
    report, _ = said(answer(202), executed=frozenset({202}))
    assert isinstance(report, Answered)
    assert report.found is Found.EXECUTED
    with pytest.raises(Misuse, match="200 to 299"):
        http("https://pay.example", executed=frozenset({200, 409}))


BROKEN: dict[str, tuple[Behaviour, Lost]] = {
    "closed without an answer": (says(b""), Lost(reason="broken")),
    "reset without an answer": (says(b"", reset=True), Lost(reason="broken")),
    "reset in the head": (says(b"HTTP/1.1 200 O", reset=True), Lost(reason="broken")),
    "no HTTP": (says(b"SSH-2.0-x\r\n\r\n"), Lost(reason="no_http")),
    "too many headers": (says(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200), Lost(reason="no_http")),
    "cut in the body": (says(WHOLE[:-1]), Lost(reason="answer_cut_short", status=200)),
    "reset in the body": (says(WHOLE[:-1], reset=True), Lost(reason="broken", status=200)),
    "cut in a chunk": (
        says(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\ndo"),
        Lost(reason="answer_cut_short", status=200),
    ),
    "no chunk": (
        says(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"),
        Lost(reason="answer_cut_short", status=200),
    ),
}


@pytest.mark.parametrize("how", BROKEN)
def test_an_answer_that_does_not_end_is_none(how: str) -> None:
    behave, report = BROKEN[how]
    seen, connections = said(behave)
    if "reset" in how and isinstance(seen, Lost):  # how much of it came before the reset is chance
        assert seen in (report, Lost(reason="broken"))
    else:
        assert seen == report
    assert connections == 1


@pytest.mark.parametrize(
    "raw",
    [b"HTTP/1.0 200 OK\r\n\r\ndone", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\ndone\r\n0\r\n\r\n",
     b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE],
)  # fmt: skip
def test_a_whole_answer_in_another_form_is_whole(raw: bytes) -> None:
    report, _ = said(says(raw))
    assert report == Answered(found=Found.EXECUTED, status=200, body_sha256=sha256(b"done").digest(), body=b"done")


@pytest.mark.parametrize(
    ("behave", "status"), [(stalls(), None), (stalls(b"HTTP/1.1 200 OK\r\n"), None), (stalls(WHOLE[:-1]), 200)]
)
def test_what_does_not_come_in_time_is_lost(behave: Behaviour, status: int | None) -> None:
    assert said(behave, timeout_s=1.0) == (Lost(reason="timeout", status=status), 1)


@pytest.mark.parametrize(
    ("raw", "then", "status"),
    [(b"HTTP/1.1 200 OK\r\na: ", b"b", None), (b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n", b"x", 200)],
)
def test_bytes_that_drip_do_not_lengthen_the_time(raw: bytes, then: bytes, status: int | None) -> None:
    over: list[threading.Event] = []
    with serving(drips(raw, then, lambda: over[0])) as server:
        over.append(server.over)
        assert http(server.url, timeout_s=1.0).send(sending()) == Lost(reason="timeout", status=status)


@pytest.mark.parametrize("framing", [b"content-length: 1073741824\r\n", b""])
def test_of_a_gigabyte_no_more_than_the_limit_is_read(framing: bytes) -> None:
    report, connections = said(floods(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n", 1 << 30))
    assert (report, connections) == (Lost(reason="answer_too_long", status=200), 1)


@pytest.mark.parametrize(("most", "whole"), [(4, True), (3, False)])
def test_the_limit_of_an_answer_is_to_the_byte(most: int, whole: bool) -> None:
    report, _ = said(says(WHOLE), max_answer_bytes=most)
    assert isinstance(report, Answered) is whole


def test_a_request_that_the_server_never_reads_ends_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        target = http(f"http://127.0.0.1:{listening.getsockname()[1]}", timeout_s=1.0)
        big = Request.bytes("POST", "/", bytes(15 << 20))
        assert target.send(sending(big)) == Lost(reason="timeout")


def test_a_refused_connection_says_that_nothing_was_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    assert http(f"http://127.0.0.1:{port}").send(sending()) == NotSent(reason="refused")


def test_a_name_that_leads_nowhere_says_that_nothing_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> Any:
        raise socket.gaierror("s3cret")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert http("https://pay.example").send(sending()) == NotSent(reason="no_such_host")


def test_plain_text_goes_to_no_other_machine_whatever_a_name_leads_to(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 80))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert http("http://localhost", timeout_s=1.0).send(sending()) == NotSent(reason="failed")


def test_of_a_hosts_addresses_the_first_that_answers_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        dead = listening.getsockname()[1]
    with serving(answer(200)) as server:
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in (dead, server.port)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        report = http(server.url).send(sending())
    assert isinstance(report, Answered)
    assert len(server.requests) == 1


def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(answer(200)) as proxy, serving(answer(200)) as server:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        http(server.url).send(sending())
    assert (proxy.connections, server.connections) == (0, 1)


def test_after_the_permit_is_over_not_a_byte_is_sent() -> None:
    came: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def look() -> None:
            connection, _ = listening.accept()
            with connection:
                came.append(connection.recv(1))

        looking = threading.Thread(target=look)
        looking.start()
        target = http(f"http://127.0.0.1:{listening.getsockname()[1]}")
        assert target.send(sending(in_time=lambda: False)) == NotSent(reason="permit_expired")
        looking.join(timeout=30)
    assert came == [b""]


def test_whether_it_is_in_time_is_asked_once_connected_and_before_the_first_byte() -> None:
    order: list[str] = []
    with serving(answer(200)) as server:
        replaced = install(order.append)
        try:
            http(server.url).send(sending(in_time=lambda: order.append(f"asked, {len(server.requests)} came") or True))
        finally:
            install(replaced)
    assert order == ["target.connected", "asked, 0 came", "target.written", "target.status"]


SECRET = "s3cret-4711"


def _raises() -> dict[str, str]:
    raise RuntimeError(f"the vault at {SECRET} is shut")


@pytest.mark.parametrize(
    "headers",
    [_raises, lambda: {"authorization": f"{SECRET}\r\n"}, lambda: {"host": SECRET}, lambda: {"x-tenant": SECRET},
     lambda: {f"x {SECRET}": "a"}, lambda: {"idempotency-key": SECRET}, lambda: SECRET],
)  # fmt: skip
def test_credentials_that_cannot_be_had_or_sent_stop_it_and_are_not_told(headers: Any) -> None:
    with serving(answer(200)) as server:
        target = http(server.url, "Idempotency-Key", headers=headers)
        report = target.send(sending())
    assert report == NotSent(reason="credentials")
    assert (server.connections, SECRET in repr(report) + repr(target)) == (0, False)


def test_credentials_are_asked_for_anew_each_time() -> None:
    given = iter(["one", "two"])
    with serving(answer(200)) as server:
        target = http(server.url, headers=lambda: {"authorization": next(given)})
        for _ in range(2):
            target.send(sending())
    assert [b"authorization: one" in server.requests[0], b"authorization: two" in server.requests[1]] == [True, True]


def test_no_secret_is_in_what_a_target_says_of_itself_and_in_its_errors() -> None:
    target = http("https://pay.example", headers={"Authorization": SECRET})
    assert SECRET not in f"{target!r} {target} {target.audience}"
    for wrong in ({"authorization": f"{SECRET}\n"}, {"content-length": SECRET}, {f"a {SECRET[:0]}": SECRET}):
        with pytest.raises(Misuse) as refusal:
            http("https://pay.example", headers=wrong)
        assert (refusal.value.code, SECRET in str(refusal.value)) == ("bad_target", False)
        assert refusal.value.__cause__ is None


def test_what_a_target_cannot_send_is_refused_before_anything() -> None:
    target = http("https://pay.example", "X-Once", headers={"X-Key": "s"})
    target.check(REFUND)
    for request in (
        Call.of("f", {}),
        Request.bytes("GET", "/", headers={"x-key": "a"}),
        Request.bytes("GET", "/", headers={"x-once": "a"}),
    ):
        with pytest.raises(Misuse) as refusal:
            target.check(request)
        assert refusal.value.code == "other_request"


@pytest.mark.parametrize(
    "settings",
    [{"timeout_s": 0.0}, {"timeout_s": 3_601.0}, {"timeout_s": float("nan")}, {"max_answer_bytes": -1},
     {"idempotency_header": "authorization"}, {"idempotency_header": "a b"}, {"idempotency_header": "Host"},
     {"idempotency_header": "X-Key", "headers": {"x-key": "s"}}],
)  # fmt: skip
def test_a_target_that_bounds_nothing_or_cannot_be_sent_to_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(Misuse) as refusal:
        http("https://pay.example", **settings)
    assert refusal.value.code == "bad_target"


def test_the_class_follows_from_the_idempotency_header() -> None:
    assert http("https://pay.example").target_class is TargetClass.N
    assert http("https://pay.example", "Idempotency-Key").target_class is TargetClass.I


# -- TLS ----------------------------------------------------------------------------------------------------------


def _tls(folder: Path, target: Any, behave: Behaviour) -> tuple[Report, int]:
    with serving(behave, wrap=certificate(folder).serve) as server:
        return target(f"https://localhost:{server.port}").send(sending()), len(server.requests)


def _trusting(folder: Path) -> Any:
    return lambda url: http(url, tls=ssl.create_default_context(cafile=str(certificate(folder).path)))


def test_a_server_of_a_known_ca_is_talked_to(tmp_path: Path) -> None:
    report, came = _tls(tmp_path, _trusting(tmp_path), answer(200, b"done"))
    assert isinstance(report, Answered)
    assert (report.found, report.body, came) == (Found.EXECUTED, b"done", 1)


def test_a_server_that_nobody_vouches_for_is_sent_nothing(tmp_path: Path) -> None:
    assert _tls(tmp_path, http, answer(200)) == (NotSent(reason="untrusted"), 0)


def test_a_server_of_another_name_is_sent_nothing(tmp_path: Path) -> None:
    made = certificate(tmp_path, name="elsewhere.example")
    with serving(answer(200), wrap=made.serve) as server:
        target = http(f"https://localhost:{server.port}", tls=ssl.create_default_context(cafile=str(made.path)))
        assert target.send(sending()) == NotSent(reason="untrusted")
    assert server.requests == []


def test_a_server_without_tls_is_sent_nothing() -> None:
    with serving(answer(200)) as server:
        target = http(server.url.replace("http://127.0.0.1", "https://localhost"), timeout_s=1.0)
        report = target.send(sending())
    assert isinstance(report, NotSent)
    assert server.requests == []


def test_an_end_that_tls_did_not_say_is_no_end(tmp_path: Path) -> None:
    report, came = _tls(tmp_path, _trusting(tmp_path), says(b"HTTP/1.0 200 OK\r\n\r\npart of i"))
    assert (report, came) == (Lost(reason="failed", status=200), 1)


def test_a_context_that_takes_any_certificate_is_refused() -> None:
    blind, nameless = ssl.create_default_context(), ssl.create_default_context()
    blind.check_hostname = nameless.check_hostname = False
    blind.verify_mode = ssl.CERT_NONE
    for tls in (blind, nameless):
        with pytest.raises(Misuse) as refusal:
            http("https://pay.example", tls=tls)
        assert refusal.value.code == "unverified_tls"


# -- addresses ----------------------------------------------------------------------------------------------------

AUDIENCES = {
    "https://pay.example": "https://pay.example",
    "HTTPS://Pay.Example:443/": "https://pay.example",
    "https://pay.example:8443/v1/": "https://pay.example:8443/v1",
    "http://localhost:80": "http://localhost",
    "http://[::1]:8080/a": "http://[::1]:8080/a",
    "https://[2001:db8::1]": "https://[2001:db8::1]",
    "http://127.9.9.9": "http://127.9.9.9",
}


@pytest.mark.parametrize("url", AUDIENCES)
def test_the_audience_is_one_for_one_place(url: str) -> None:
    assert http(url).audience == AUDIENCES[url]


@pytest.mark.parametrize(
    "url",
    ["", "pay.example", "//pay.example", "ftp://pay.example", "https://", "https:///a", "https://ann:s3cret@pay.example",
     "https://s3cret@pay.example", "https://@pay.example", "https://pay.example?a=s3cret", "https://pay.example/?",
     "https://pay.example/#", "https://pay.example:x", "https://pay.example:99999", "https://pay.example/a b",
     "https://pay.example/\n", "https://pay\t.example", "https://päy.example", "https://pay.example\\@evil.example",
     "https://pay.example/../a", "https://pay.example/%2e%2e", "https://pay.example//a/..", "https://[::1", "https://a%41b/"],
)  # fmt: skip
def test_a_url_that_is_more_or_less_than_a_place_is_refused(url: str) -> None:
    with pytest.raises(Misuse) as refusal:
        http(url)
    assert refusal.value.code == "bad_url"
    assert "s3cret" not in str(refusal.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://pay.example",
        "http://10.0.0.1",
        "http://localhost.evil.example",
        "http://0.0.0.0",
        "http://[::]",
        "http://2130706433",
    ],
)
def test_plain_http_to_another_machine_must_be_allowed(url: str) -> None:
    with pytest.raises(Misuse) as refusal:
        http(url)
    assert refusal.value.code == "plain_http"
    assert http(url, allow_plain_http=True).audience == url


def test_a_target_is_a_value_that_is_not_changed() -> None:
    assert isinstance(http("https://pay.example"), HttpTarget)
    with pytest.raises(AttributeError):
        http("https://pay.example").timeout_s = 1  # type: ignore[misc]


def test_the_servers_of_these_tests_see_what_comes() -> None:
    with serving(answer(200)) as server, socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\ncontent-length: 2\r\n\r\n")
        raw.sendall(b"ab")
        assert raw.recv(12) == b"HTTP/1.1 200"
    assert server.requests == [b"GET / HTTP/1.1\r\ncontent-length: 2\r\n\r\nab"]
    left, right = socket.socketpair()
    with left, right:
        left.sendall(b"GET / HTTP/1.1\r\ncontent-length: 2\r\n\r\na")
        left.shutdown(socket.SHUT_WR)
        assert read_request(right) == b""
