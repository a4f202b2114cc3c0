"""`arl actions propose|successor`: exact bytes from a file become an action that others approve."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger.effects import ActionState, Actor, Call, Role, request_bytes
from agent_run_ledger.kernel.effects.display import display_sha256
from agent_run_ledger.kernel.effects.request import Request
from agent_run_ledger.testing import check_ledger
from tests.cli.conftest import Arl, Ended
from tests.cli.effect_store import PAY, POLICY, Effects, described
from tests.cli.trusted_store import Trusted

Ask = Callable[..., Ended]
TERMS = ("--target", PAY, "--executor", "payer", "--approval", POLICY, "--as", "agent")


@pytest.fixture
def effects(db: Path) -> Iterator[Effects]:
    made = Effects(db, bound_ms=1_000)  # as the command line opens a ledger that nobody has used
    yield made
    check_ledger(db)


@pytest.fixture
def ask(arl: Arl, db: Path) -> Ask:
    """Run `arl actions WORDS` on the store, for JSON."""
    return lambda *words: arl("actions", *words, "--db", db, "--json")


def stored(effects: Effects, key: str) -> bytes:
    with effects.open() as ledger:
        return ledger.request(ledger.inspect(key)[-1].action_id)


DESCRIBED: dict[str, tuple[dict[str, Any], bytes]] = {
    "json": (
        {"method": "POST", "path": "/refunds", "json": {"b": 1, "a": [None]}, "headers": {"X-Tenant": "7"}},
        request_bytes(Request.json("POST", "/refunds", {"a": [None], "b": 1}, headers={"x-tenant": "7"})),
    ),
    "text": (
        {"method": "PUT", "path": "/notes/1", "text": "für Ann", "content_type": "text/plain"},
        request_bytes(Request.bytes("PUT", "/notes/1", "für Ann".encode(), content_type="text/plain")),
    ),
    "base64": (
        {"method": "POST", "path": "/raw", "base64": "AP8="},
        request_bytes(Request.bytes("POST", "/raw", b"\x00\xff")),
    ),
    "no body": ({"method": "DELETE", "path": "/x"}, request_bytes(Request.bytes("DELETE", "/x"))),
    "call": (
        {"call": "refund", "arguments": {"order": "17"}},
        request_bytes(Call.of("refund", {"order": "17"})),
    ),
}


@pytest.mark.parametrize("name", list(DESCRIBED))
def test_a_description_becomes_the_bytes_that_are_approved(
    effects: Effects, ask: Ask, tmp_path: Path, name: str
) -> None:
    parts, expected = DESCRIBED[name]
    done = ask("propose", described(tmp_path, **parts), "--key", "k", *TERMS).json
    assert done["action"]["request_sha256"] == sha256(expected).hexdigest()
    assert stored(effects, "k") == expected
    with effects.open() as ledger:
        row = ledger._store.reader().effects.members("k")[0].action
    assert row.terms.display_sha256 == display_sha256(expected)


def test_request_bytes_are_taken_as_they_are_from_a_file_or_stdin(
    effects: Effects, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = request_bytes(Request.json("POST", "/refunds", {"n": 1}))
    file = tmp_path / "request.bin"
    file.write_bytes(raw)
    assert ask("propose", file, "--key", "file", *TERMS).code == 0
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw)))
    assert ask("propose", "-", "--key", "stdin", *TERMS).code == 0
    assert stored(effects, "file") == stored(effects, "stdin") == raw


def test_the_terms_are_those_that_were_given(effects: Effects, ask: Ask, tmp_path: Path) -> None:
    file = described(tmp_path, method="POST", path="/refunds", json={})
    options = ("--class", "i", "--checks-expiry", "--approvals", "2", "--window", "30m", "--needs", "uid=7=8")
    done = ask("propose", file, "--key", "k", *TERMS, *options).json
    assert (done["action"]["class"], done["action"]["approvals_needed"]) == ("i", 2)
    with effects.open() as ledger:
        terms = ledger._store.reader().effects.members("k")[0].action.terms
    assert terms.dispatch_before_ms - terms.not_before_ms == 30 * 60_000
    assert (terms.checks_expiry, terms.preconditions, terms.policy_sha256.hex()) == (True, (("uid", "7=8"),), POLICY)


def test_the_same_bytes_are_the_same_action_and_others_are_refused(effects: Effects, ask: Ask, tmp_path: Path) -> None:
    file = described(tmp_path, method="POST", path="/refunds", json={"n": 1})
    first, again = (ask("propose", file, "--key", "k", *TERMS).json["action"]["action_id"] for _ in range(2))
    assert first == again
    other = described(tmp_path, method="POST", path="/refunds", json={"n": 2})
    ended = ask("propose", other, "--key", "k", *TERMS)
    assert (ended.code, ended.error["code"]) == (1, "key_taken")


def test_what_is_on_record_already_is_said_to_be_and_keeps_its_terms(
    effects: Effects, ask: Ask, arl: Arl, tmp_path: Path
) -> None:
    file = described(tmp_path, method="POST", path="/refunds", json={"n": 1})
    assert ask("propose", file, "--key", "k", *TERMS).json["did"] == "on record as proposed"
    before = effects.leaves()
    again = ask("propose", file, "--key", "k", *TERMS, "--approvals", "2").json
    assert again["did"] == "already on record, with the terms of its first proposal; nothing was added"
    assert (again["action"]["approvals_needed"], effects.leaves()) == (1, before)
    said = arl("actions", "propose", file, "--key", "k", *TERMS, "--db", effects.path).out
    assert said.splitlines()[0].endswith(": " + again["did"])


@pytest.mark.parametrize(
    "held",
    [
        b"",
        b"[]",
        b"no json",
        b'{"method":"POST","path":"/x","json":1.5}',
        b'{"method":"POST","path":"/x","method":"GET"}',
        b'{"method":"POST","path":"/x","json":1,"text":"a"}',
        b'{"method":"POST","path":"/x","json":1,"content_type":"text/plain"}',
        b'{"method":"POST","path":"//evil.example/x"}',
        b'{"method":"POST","path":"/x","headers":{"authorization":"Bearer secret-token-1"}}',
        b'{"method":"POST","path":"/x","headers":{"x":7}}',
        b'{"method":"POST","path":"/x","headers":[]}',
        b'{"method":"POST","path":"/x","base64":"%%"}',
        b'{"method":"POST"}',
        b'{"method":"POST","path":"/x","url":"https://evil.example"}',
        b'{"call":"x"}',
        b'{"call":"x","arguments":[]}',
        b'{"call":"x","arguments":{},"method":"POST"}',
        b'arl/request/v1\n{"kind": "call","name":"refund"}\n{}',
    ],
)
def test_what_is_no_request_is_refused_before_anything_is_asked(
    effects: Effects, ask: Ask, tmp_path: Path, held: bytes
) -> None:
    before, file = effects.leaves(), tmp_path / "request"
    file.write_bytes(held)
    ended = ask("propose", file, "--key", "k", *TERMS)
    assert (ended.code, ended.error["code"]) == (2, "bad_request")
    assert "secret-token" not in ended.err
    assert effects.leaves() == before


@pytest.mark.parametrize(
    ("option", "value", "code"),
    [
        ("--approval", "finance", "bad_policy"),
        ("--approval", "AB" * 32, "bad_policy"),
        ("--window", "soon", "usage"),
        ("--window", "0h", "usage"),
        ("--needs", "uid", "usage"),
        ("--key", "", "bad_intent"),
        ("--role", "approver", "wrong_role"),
    ],
)
def test_terms_that_cannot_be_are_refused(
    effects: Effects, ask: Ask, tmp_path: Path, option: str, value: str, code: str
) -> None:
    before, file = effects.leaves(), described(tmp_path, method="POST", path="/refunds")
    ended = ask("propose", file, "--key", "k", *TERMS, option, value)
    assert (ended.code, ended.error["code"], effects.leaves()) == (2, code, before)


def test_a_file_that_is_not_there_is_said(effects: Effects, ask: Ask, tmp_path: Path) -> None:
    ended = ask("propose", tmp_path / "none", "--key", "k", *TERMS)
    assert (ended.code, ended.error["code"]) == (5, "os_error")


def test_a_successor_has_the_bytes_and_terms_of_the_one_before_unless_it_says(
    effects: Effects, ask: Ask, arl: Arl, tmp_path: Path
) -> None:
    old = effects.expired("k")
    assert ask("successor", "k", "--as", "agent").error["code"] == "proposed", "what is open has none"
    assert arl("effects", "expire", "k", "--as", "ops", "--db", effects.path).code == 0
    done = ask("successor", "k", "--as", "agent").json
    assert done["action"]["replaces"] == old.action_id.hex()
    assert done["action"]["request_sha256"] == old.request_sha256.hex()
    assert (done["action"]["target"], done["action"]["class"], done["action"]["executor"]) == (PAY, "v", "payer")
    assert done["action"]["approvals"] == []
    assert effects.get(old).state is ActionState.SUPERSEDED

    assert ask("successor", old.action_id.hex(), "--as", "agent").error["code"] == "superseded"
    effects.expired("k2")
    arl("effects", "expire", "k2", "--as", "ops", "--db", effects.path)
    file = described(tmp_path, method="POST", path="/refunds", json={"n": 2})
    other = ("--executor", "payer-2", "--approval", "cd" * 32, "--approvals", "2", "--window", "1h")
    done = ask("successor", "k2", file, *other, "--as", "agent").json
    assert (done["action"]["executor"], done["action"]["approvals_needed"]) == ("payer-2", 2)
    assert json.dumps({"n": 2}, separators=(",", ":")).encode() in stored(effects, "k2")


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ((), (PAY, "i", True)),
        (("--class", "n"), (PAY, "n", False)),
        (("--target", "https://new.example"), ("https://new.example", "i", False)),
    ],
)
def test_nobody_said_of_another_target_that_it_refuses_what_is_over(
    effects: Effects, ask: Ask, tmp_path: Path, named: tuple[str, ...], expected: tuple[str, str, bool]
) -> None:
    file = described(tmp_path, method="POST", path="/refunds", json={})
    asked = ask("propose", file, "--key", "k", *TERMS, "--class", "i", "--checks-expiry").json["action"]
    with effects.open() as ledger:
        ledger.reject(Actor("finance", frozenset({Role.APPROVER})), bytes.fromhex(asked["action_id"]))
    assert ask("successor", "k", *named, "--as", "agent").code == 0
    with effects.open() as ledger:
        terms = ledger._store.reader().effects.members("k")[-1].action.terms
    assert (terms.audience, terms.target_class, terms.checks_expiry) == expected


def test_a_successor_of_bytes_that_cannot_be_shown_needs_a_file(effects: Effects, ask: Ask, arl: Arl) -> None:
    view = effects.propose("raw", request=b"\x00", display_sha256=bytes(32))
    with effects.open() as ledger:
        ledger.reject(Actor("finance", frozenset({Role.APPROVER})), view.action_id)
    ended = ask("successor", "raw", "--as", "agent")
    assert (ended.code, ended.error["code"], ended.error["hint"]) == (2, "bad_request", "give a FILE")


def test_under_a_trust_file_who_approves_is_shown_that_time_may_end_a_doubt(arl: Arl, db: Path, tmp_path: Path) -> None:
    made = Trusted(db)
    file = described(tmp_path, method="POST", path="/refunds", json={})
    terms = ("--target", PAY, "--executor", "payer", "--approval", "finance", "--as", "agent", "--class", "i")
    of = ("--trust", made.trust, "--db", db)
    for name, more, said in (
        ("never", (), "never ends by time alone"),
        ("timed", ("--checks-expiry",), "may end by time alone"),
    ):
        assert arl("actions", "propose", file, "--key", name, *terms, *more, *of).code == 0
        shown = arl("approvals", "show", name, *of).out
        assert "class i: remembers an idempotency key" in shown
        assert said in shown
        assert arl("approvals", "show", name, *of, "--json").json["action"]["checks_expiry"] is bool(more)
