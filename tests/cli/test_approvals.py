"""`arl approvals`: what waits, exactly what would be approved, and decisions that are made with a key."""

from __future__ import annotations

import os
import pty
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from agent_run_ledger import EffectLedger, open_effects
from agent_run_ledger.effects import ActionView, TargetClass
from agent_run_ledger.keys import Secret, SigningKey, write_key
from agent_run_ledger.ledger.authority import actor_of
from agent_run_ledger.ledger.local_trust import LOCAL
from agent_run_ledger.testing import check_ledger
from tests.cli.approval_desk import propose, refund, state
from tests.cli.conftest import COMMAND, Arl

HOSTILE = "refund:\x1b[2J\x1b]0;owned\x07\u202e17"


@pytest.fixture
def desk(arl: Arl, db: Path) -> Path:
    assert arl("init", "--local", "--name", "ann", "--db", db).code == 0
    return db


def test_the_list_is_what_waits_the_oldest_first(arl: Arl, desk: Path) -> None:
    assert "nothing waits" in arl("approvals", "list", "--db", desk).out
    views = [propose(desk, f"refund:{number}") for number in range(4)]
    arl("approvals", "grant", "refund:1", "--yes", "--db", desk)
    listed = arl("approvals", "list", "--db", desk, "--json").json
    assert [one["action_key"] for one in listed["waiting"]] == ["refund:0", "refund:2", "refund:3"]
    assert listed["more"] is False
    lines = [line for line in arl("approvals", "list", "--db", desk).out.splitlines() if "refund:" in line]
    assert [line.split()[0] for line in lines] == [views[at].action_id.hex()[:13] for at in (0, 2, 3)]
    some = arl("approvals", "list", "--limit", "2", "--db", desk, "--json").json
    assert (len(some["waiting"]), some["more"]) == (2, True)


def test_an_id_of_the_list_stays_in_one_piece_on_a_narrow_terminal(
    arl: Arl, desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    view = propose(desk, "refund:17")
    listed = arl("approvals", "list", "--db", desk)
    named = view.action_id.hex()[:13]
    assert named in listed.out.split()
    assert arl("approvals", "show", named, "--db", desk).code == 0
    assert f"arl approvals show {view.action_id.hex()} --db {desk}" in listed.err


def test_every_status_line_says_what_a_local_trust_file_does_not_protect(arl: Arl, desk: Path) -> None:
    propose(desk)
    for command in (
        ("list",),
        ("show", "refund:17"),
        ("grant", "refund:17", "--yes"),
        ("revoke", "refund:17", "--yes"),
    ):
        done = arl("approvals", *command, "--db", desk)
        assert f"not protected: {LOCAL}" in done.err, command
    assert LOCAL in arl("approvals", "list", "--db", desk, "--json").json["not_protected"]
    assert LOCAL in arl("doctor", "--db", desk).out
    assert f"not protected: {LOCAL}" in arl("trust", "show", "--db", desk).err


def test_what_is_shown_is_the_display_of_the_exact_bytes(arl: Arl, desk: Path) -> None:
    view = propose(desk)
    shown = arl("approvals", "show", "refund:17", "--db", desk)
    assert '  |   "cents": 3000,' in shown.out
    assert f"request {view.request_sha256.hex()}" in shown.out
    assert "1 of 1, by ann" in shown.out
    told = arl("approvals", "show", "refund:17", "--db", desk, "--json").json
    assert told["action"]["may_approve"] == ["ann"]
    assert told["action"]["policy"] == "local"
    assert told["display"].startswith("arl/display/v1\nrequest ")


def test_an_approval_is_signed_counts_and_can_be_claimed(arl: Arl, desk: Path) -> None:
    view = propose(desk)
    done = arl("approvals", "grant", view.action_id.hex()[:20], "--yes", "--db", desk)
    assert done.code == 0, done.err
    assert '|   "cents": 3000,' in done.out
    assert f"approved by ann: action {view.action_id.hex()} of refund:17 is available" in done.out
    with open_effects(desk) as ledger:
        assert ledger.trust is not None
        worker = actor_of(ledger.trust, "worker")
        grant = ledger.claim(worker, view.action_id, worker="w", request_sha256=view.request_sha256)
        assert grant.granted_now
    check_ledger(desk)


def test_nobody_approves_what_nobody_saw(arl: Arl, shell: Arl, desk: Path) -> None:
    view = propose(desk)
    for options in (("--json",), ()):
        done = shell("approvals", "grant", "refund:17", "--db", desk, *options)
        assert done.code == 2
        assert "--yes" in done.err
    assert state(desk, view) == "proposed"


def test_who_is_asked_and_does_not_say_yes_approves_nothing(desk: Path) -> None:
    view = propose(desk)
    for answer, expected in ((b"n\n", "proposed"), (b"\n", "proposed"), (b"y\n", "available")):
        out = answered(["approvals", "grant", "refund:17", "--db", str(desk)], answer)
        assert "Approve exactly this as ann?" in out
        assert out.index("cents") < out.index("Approve exactly this")
        assert state(desk, view) == expected


def test_with_json_nobody_is_asked_on_a_terminal(desk: Path) -> None:
    view = propose(desk)
    out = answered(["approvals", "grant", "refund:17", "--json", "--db", str(desk)], b"y\n")
    assert "with --json nobody sees what is approved" in out
    assert "[y/N]" not in out
    assert state(desk, view) == "proposed"


def answered(arguments: list[str], answer: bytes) -> str:
    """Run a command on a terminal of its own, and answer its question."""
    master, slave = pty.openpty()
    process = subprocess.Popen([*COMMAND, *arguments], stdin=slave, stdout=slave, stderr=slave, close_fds=True)
    os.close(slave)
    said = b""
    try:
        while b"[y/N]" not in said:
            said += os.read(master, 1 << 16)
        os.write(master, answer)
        while chunk := os.read(master, 1 << 16):
            said += chunk
    except OSError:  # the other end is closed
        pass
    process.wait()
    os.close(master)
    return said.decode("utf-8", "replace")


def test_a_rejection_and_a_revocation_are_made_by_who_may(arl: Arl, desk: Path) -> None:
    first, second = propose(desk, "refund:1"), propose(desk, "refund:2")
    operator = Path(f"{desk}.local") / "operator.pem"
    assert arl("approvals", "reject", "refund:1", "--key", operator, "--db", desk).code == 2
    assert arl("approvals", "reject", "refund:1", "--db", desk).code == 0
    approver = Path(f"{desk}.local") / "approver.pem"
    assert arl("approvals", "revoke", "refund:2", "--yes", "--key", approver, "--db", desk).code == 2
    assert arl("approvals", "revoke", "refund:2", "--yes", "--db", desk).code == 0
    assert (state(desk, first), state(desk, second)) == ("rejected", "revoked")


def test_a_key_that_is_nobodys_decides_nothing(arl: Arl, desk: Path, tmp_path: Path) -> None:
    view = propose(desk)
    write_key(tmp_path / "eve.pem", SigningKey.draw())
    for command in ("grant", "reject", "revoke"):
        yes = [] if command == "reject" else ["--yes"]
        done = arl("approvals", command, "refund:17", *yes, "--key", tmp_path / "eve.pem", "--db", desk, "--json")
        assert (done.code, done.error["code"]) == (1, "other_key")
    operator = Path(f"{desk}.local") / "operator.pem"
    done = arl("approvals", "grant", "refund:17", "--yes", "--key", operator, "--db", desk, "--json")
    assert done.error["code"] == "not_an_approver"
    assert state(desk, view) == "proposed"


def test_a_key_that_others_can_read_is_not_used(arl: Arl, desk: Path) -> None:
    propose(desk)
    (Path(f"{desk}.local") / "approver.pem").chmod(0o644)
    assert arl("approvals", "grant", "refund:17", "--yes", "--db", desk, "--json").error["code"] == "exposed"


def test_a_passphrase_comes_from_a_file_and_is_no_argument(arl: Arl, desk: Path, tmp_path: Path) -> None:
    propose(desk)
    approver = Path(f"{desk}.local") / "approver.pem"
    from agent_run_ledger.keys import read_key

    write_key(tmp_path / "sealed.pem", read_key(approver), passphrase=Secret(b"open sesame"))
    word = tmp_path / "word"
    word.write_text("open sesame\n")
    word.chmod(0o600)
    sealed = ("approvals", "grant", "refund:17", "--yes", "--key", tmp_path / "sealed.pem", "--db", desk)
    needed = arl(*sealed, "--json")
    assert needed.error["code"] == "passphrase_needed"
    assert "--passphrase-file" in needed.error["hint"]
    done = arl(*sealed, "--passphrase-file", word)
    assert done.code == 0, done.err
    assert "sesame" not in done.out + done.err + needed.err


def test_a_name_that_may_be_several_actions_is_none(arl: Arl, desk: Path) -> None:
    first = propose(desk, "refund:1")
    digits = first.action_id.hex()
    second, third = propose(desk, digits), propose(desk, digits[:20])
    refused = arl("approvals", "grant", digits[:20], "--yes", "--db", desk, "--json")
    assert (refused.code, refused.error["code"]) == (1, "ambiguous")
    assert state(desk, third) == "proposed"
    shown = arl("approvals", "show", digits, "--db", desk, "--json").json["action"]["action_key"]
    assert shown == "refund:1", "all digits are always an id"
    assert arl("approvals", "show", second.action_id.hex(), "--db", desk).code == 0
    assert arl("approvals", "show", "refund:nobody", "--db", desk, "--json").error["code"] == "unknown_action"
    assert arl("approvals", "show", digits[:5], "--db", desk, "--json").error["code"] == "unknown_action"
    assert arl("approvals", "show", digits[:6], "--db", desk, "--json").error["code"] == "ambiguous"


def test_bytes_without_the_display_that_is_signed_are_not_approved(arl: Arl, desk: Path) -> None:
    view = propose(desk, request=b"no request of ours")
    other = propose(desk, "refund:18", display_sha256=b"e" * 32)
    for one in (view, other):
        done = arl("approvals", "grant", one.action_key, "--yes", "--db", desk, "--json")
        assert done.error["code"] == "no_display"
        assert "have no display" in arl("approvals", "show", one.action_key, "--db", desk).out
        assert state(desk, one) == "proposed"


def test_hostile_names_move_no_cursor(arl: Arl, desk: Path) -> None:
    propose(desk, HOSTILE, audience="https://\x1b[31mpay\u202e", preconditions=(("a\x07", "b\x1b[2J"),))
    outputs = [
        arl("approvals", "list", "--db", desk),
        arl("approvals", "show", HOSTILE, "--db", desk),
        arl("approvals", "grant", HOSTILE, "--yes", "--db", desk),
        arl("approvals", "revoke", HOSTILE, "--yes", "--db", desk),
    ]
    for done in outputs:
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e]", done.out + done.err)
    assert "\\x1b[2J" in outputs[0].out


@pytest.mark.parametrize("command", [("show",), ("grant", "--yes")])
def test_letters_that_look_like_others_are_named_to_who_approves(
    arl: Arl, desk: Path, command: tuple[str, ...]
) -> None:
    hostile = {
        "audience": "https://p\u0430y.example",  # a Cyrillic letter
        "preconditions": (("o\u0301wner", "ann\u200b"),),  # an accent of its own, and nothing to see
    }
    view = propose(desk, "refund:\u202e17", **hostile)
    shown = arl("approvals", command[0], view.action_id.hex(), *command[1:], "--db", desk).out
    assert "https://p\u0430y.example" in shown
    assert "\u0430=U+0430" in shown
    for escaped in (r"o\u{301}wner", r"ann\u{200b}", r"refund:\u{202e}17"):
        assert escaped in shown
    assert not set(shown) & {"\u0301", "\u200b", "\u202e"}
    plain = propose(desk, "refund:18", audience="https://pay.example")
    assert "CAREFUL" not in arl("approvals", "show", plain.action_id.hex(), "--db", desk).out


def test_a_store_without_a_trust_file_has_no_commands_that_decide(arl: Arl, db: Path) -> None:
    arl("init", "--db", db)
    assert arl("approvals", "list", "--db", db).code == 0
    from agent_run_ledger import EffectLedger
    from agent_run_ledger.effects import Actor, Intent, Role, TargetClass

    with EffectLedger(db) as ledger:
        intent = Intent(
            request=refund(),
            executor="worker",
            audience="x",
            target_class=TargetClass.N,
            not_before_ms=0,
            dispatch_before_ms=1 << 50,
            policy_sha256=bytes(32),
            display_sha256=bytes(32),
        )
        ledger.propose(Actor("agent", frozenset({Role.REQUESTER})), "refund:17", intent)
    for command in ("grant", "reject", "revoke"):
        yes = [] if command == "reject" else ["--yes"]
        refused = arl("approvals", command, "refund:17", *yes, "--db", db, "--json")
        assert (refused.code, refused.error["code"]) == (1, "no_trust")
        assert "arl init --local" in refused.error["hint"]


MISSING: list[tuple[str, ...]] = [("list",), ("show", "x"), ("grant", "x", "--yes"), ("reject", "x")]


@pytest.mark.parametrize("command", MISSING)
def test_no_command_makes_a_store(arl: Arl, db: Path, command: tuple[str, ...]) -> None:
    refused = arl("approvals", *command, "--db", db, "--json")
    assert (refused.code, refused.error["code"]) == (1, "no_store")
    assert not db.exists()


def test_looking_puts_no_trust_file_on_record(arl: Arl, db: Path) -> None:
    arl("init", "--db", db)
    from agent_run_ledger.ledger.authority import now_here
    from agent_run_ledger.ledger.local_authority import make_local
    from agent_run_ledger.store import open_sqlite

    def size() -> int:
        store = open_sqlite(db, create=False, readonly=True)
        try:
            return store.reader().head().size
        finally:
            store.close()

    store = open_sqlite(db, create=False)
    log_id = store.log_id
    store.close()
    make_local(db, log_id, name="ann", now=now_here())
    before = size()
    look: list[Callable[[], object]] = [
        lambda: arl("approvals", "list", "--db", db),
        lambda: arl("trust", "show", "--db", db),
        lambda: arl("principals", "list", "--db", db),
        lambda: arl("doctor", "--db", db),
    ]
    for one in look:
        one()
    assert size() == before


def test_another_process_proposes_and_another_one_grants(shell: Arl, desk: Path) -> None:
    """From `init --local` to the claim, each in a process of its own."""
    program = (
        "import sys; from pathlib import Path; from tests.cli.approval_desk import propose;"
        "print(propose(Path(sys.argv[1])).action_id.hex())"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program, desk], cwd=root, capture_output=True, text=True, check=True)
    action_id = done.stdout.strip()
    granted = shell("approvals", "grant", action_id, "--yes", "--json", "--db", desk)
    assert granted.code == 0, granted.err
    assert granted.json["state"] == "available"
    claim = (
        "import sys\n"
        "from agent_run_ledger import open_effects\n"
        "from agent_run_ledger.ledger.authority import actor_of\n"
        "with open_effects(sys.argv[1]) as ledger:\n"
        "    view = ledger.get(bytes.fromhex(sys.argv[2]))\n"
        "    who = actor_of(ledger.trust, 'worker')\n"
        "    print(ledger.claim(who, view.action_id, worker='w', request_sha256=view.request_sha256).granted_now)\n"
    )
    done = subprocess.run([sys.executable, "-c", claim, desk, action_id], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
    check_ledger(desk)


def test_what_a_writer_changes_after_it_was_shown_is_neither_signed_nor_counted(
    arl: Arl, desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = propose(desk)

    def meanwhile(question: str, *, yes: bool) -> None:
        with closing(sqlite3.connect(desk)) as file:
            (guard,) = file.execute("SELECT sql FROM sqlite_schema WHERE name = 'actions_lasting'").fetchone()
            file.executescript(
                "BEGIN; DROP TRIGGER actions_lasting;"
                f"UPDATE actions SET audience = 'https://evil.example'; {guard}; END"
            )

    monkeypatch.setattr("agent_run_ledger.cli.confirm.confirm", meanwhile)
    done = arl("approvals", "grant", "refund:17", "--db", desk)
    assert "sent to https://pay.example" in re.sub(" +", " ", done.out)
    assert (done.code, "another executor, audience" in done.err) == (1, True)
    with open_effects(desk) as ledger:
        found = ledger.get(view.action_id)
        assert (found.audience, str(found.state), found.approvals) == ("https://evil.example", "proposed", ())


def test_the_class_that_is_shown_is_the_one_that_is_signed(
    arl: Arl, desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    propose(desk)
    get = EffectLedger.get

    def other(ledger: EffectLedger, action_id: bytes) -> ActionView:
        return replace(get(ledger, action_id), target_class=TargetClass.V, guarantee="anything", checks_expiry=True)

    monkeypatch.setattr(EffectLedger, "get", other)
    shown = arl("approvals", "grant", "refund:17", "--yes", "--db", desk).out
    assert "class i: remembers an idempotency key" in shown
    assert "never ends by time alone" in shown
