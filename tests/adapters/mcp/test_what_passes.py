"""Messages that are no calls of tools pass unchanged; lines that are no messages, or too long, pass nowhere."""

from __future__ import annotations

import json

import pytest

from tests.adapters.mcp.sessions import Place, Session, meta_of, text_of

TOOLS = 22

LIMIT = ("--max-line-bytes", "20000")


def test_requests_and_answers_pass_byte_for_byte(place: Place) -> None:
    with place.session() as session:
        session.write(b'{"jsonrpc":"2.0",   "id":"\\u0061", "method":"x/none", "params":{"z":1.10}}')
        assert json.loads(session.raw())["error"]["message"] == "no such method"
        session.write(b'{"jsonrpc":"2.0","id":5,"method":"x/raw"}')
        assert session.raw() == b'{"id":5,  "jsonrpc":"2.0","result":{"f":1.10,"e":"\\u00e9"}}\n'
        session.notify("x/note", {"a": [1]})
        assert session.ask("ping") == {"jsonrpc": "2.0", "id": 1, "result": {}}
        assert place.lines("notified") == ['notified x/note {"a": [1]}']
        session.end()


def test_lines_of_the_server_that_are_no_messages_are_reported_and_dropped(place: Place) -> None:
    with place.session() as session:
        assert text_of(session.call("garbage")) == "after garbage"
        assert session.said == []
        session.end()
        session.wait()
        assert "this is no JSON" in session.stderr()


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"no JSON", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","name":"order"}}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}', -32700),
        (b'"' + b"\xff" + b'"', -32700),
        (b"[" * 5000, -32700),
        (b'[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"order"}}]', -32600),
        (b"3", -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"order"}}', -32600),
        (b'{"jsonrpc":"2.0","id":[1],"method":"tools/call","params":{"name":"order"}}', -32600),
    ],
)
def test_lines_of_the_client_that_are_no_messages_reach_nobody(place: Place, line: bytes, code: int) -> None:
    with place.session() as session:
        session.write(line)
        assert json.loads(session.raw())["error"]["code"] == code
        assert session.ask("ping")["result"] == {}
        session.end()
    assert place.lines() == ["start"]


def test_a_call_without_an_id_reaches_nobody(place: Place) -> None:
    with place.session() as session:
        session.notify("tools/call", {"name": "order"})
        session.ask("ping")
        session.end()
        session.wait()
        assert "without an id" in session.stderr()
    assert place.calls() == 0


def test_an_id_that_is_open_is_refused(place: Place) -> None:
    with place.session() as session:
        session.begin("slow", {"seconds": 0.5})
        session.send("ping", message_id=1)
        session.send("ping", message_id="1")
        assert session.answer("1")["result"] == {}
        assert session.answer(1)["error"]["code"] == -32600
        assert text_of(session.answer(1)["result"]) == "started"
        session.end()


def test_a_request_over_the_limit_is_refused_by_its_id(place: Place) -> None:
    with place.session(*LIMIT) as session:
        assert session.ask("ping", {"x": "y" * 50_000})["error"]["code"] == -32600
        assert session.ask("ping", {"x": "y" * 19_000})["result"] == {}
        session.end()


def test_an_answer_over_the_limit_is_an_error_for_who_waits_for_it(place: Place) -> None:
    with place.session(*LIMIT) as session:
        waiting = session.send("x/huge", {"bytes": 10})
        assert "result" in session.answer(waiting)
        answer = session.ask("x/huge", {"bytes": 90_000})
        assert answer["error"]["code"] == -32000
        assert "20,000 bytes" in answer["error"]["message"]
        assert session.ask("ping")["result"] == {}
        session.end()


def test_where_the_id_cannot_be_seen_everything_open_fails(place: Place) -> None:
    with place.session(*LIMIT) as session:
        call = session.begin("slow", {"seconds": 2})
        place.until("call slow")
        lost = session.send("x/late-id", {"bytes": 90_000})
        assert session.answer(lost)["error"]["code"] == -32000
        assert meta_of(session.answer(call)["result"])["outcome"] == "unknown"
        session.end()


def test_the_result_of_a_call_over_the_limit_is_lost_and_the_call_is_not_repeated(place: Place) -> None:
    with place.session(*LIMIT) as session:
        said = session.call("huge", {"bytes": 90_000})
        assert meta_of(said)["outcome"] == "unknown"
        assert "longer than 20,000 bytes" in text_of(said)
        assert session.call("huge", {"bytes": 90_000}) == said
        assert len(text_of(session.call("huge", {"bytes": 15_000}))) == 15_000
        session.end()
    assert place.calls("huge") == 2


def _list(session: Session) -> list[str]:
    names: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = session.ask("tools/list", cursor)["result"]
        names += [tool["name"] for tool in page["tools"]]
        if "nextCursor" not in page:
            return names
        cursor = {"cursor": page["nextCursor"]}


def test_a_tool_that_is_redefined_within_a_run_is_reported_and_recorded(place: Place) -> None:
    with place.session() as first:
        assert len(_list(first)) == TOOLS
        first.call("echo")
        first.end()
        first.wait()
        assert "was redefined" not in first.stderr()
    with place.session(SERVER_DESCRIPTION="and send a copy to me") as second:
        _list(second)
        _list(second)
        second.call("echo")
        second.end()
        second.wait()
        assert second.stderr().count("tool 'place_order' was redefined by the server since this run began") == 1
    shown = place.arl("runs", "show", "r1")
    assert shown.count("mcp.tools.changed") == 1


def test_a_tool_that_is_redefined_within_a_run_is_not_trusted(place: Place) -> None:
    policy = place.policy('[tools."*"]\ntrust_hints = true\n')
    with place.session("--policy", policy) as first:
        _list(first)
        first.call("echo")
        first.end()
    with place.session("--policy", policy, SERVER_READ_STOCK="changed") as second:
        _list(second)
        second.call("echo", {"n": 1})
        assert meta_of(second.call("read_stock", {"die": True}))["outcome"] == "unknown"
        second.wait()


def test_hints_are_asked_for_where_the_client_has_not_listed_and_compared_with_the_first_listing(place: Place) -> None:
    policy = place.policy('[tools."*"]\ntrust_hints = true\n')
    with place.session("--policy", policy) as first:
        first.call("read_stock")
        assert len(place.lines("list")) == 2
        assert first.said == []
        first.end()
    with place.session("--policy", policy, SERVER_READ_STOCK="changed") as second:
        assert meta_of(second.call("read_stock", {"die": True}))["outcome"] == "unknown"
        second.wait()
        assert "'read_stock' was redefined" in second.stderr()


def test_a_server_that_says_a_key_twice_is_passed_on_as_it_is(place: Place) -> None:
    with place.session() as session:
        session.write(b'{"jsonrpc":"2.0","id":5,"method":"x/twice"}')
        assert session.raw() == b'{"id":5,"jsonrpc":"2.0","result":{"a":1,"a":NaN}}\n'
        session.end()
