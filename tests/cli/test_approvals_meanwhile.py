"""`arl approvals` where others decide meanwhile: two who review at once, a decision that came first, a claim."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent_run_ledger import EffectLedger, open_effects
from agent_run_ledger.effects import ActionState, ActionView, TargetClass
from agent_run_ledger.ledger.authority import actor_of
from agent_run_ledger.testing import check_ledger
from tests.cli.approval_desk import propose
from tests.cli.conftest import COMMAND, Arl, Ended
from tests.cli.trusted_store import Trusted

KEY = "refund:17"


@pytest.fixture
def two(db: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trusted]:
    """A store in which ann and ben both have to approve one action."""
    made = Trusted(db)
    monkeypatch.setenv("AGENT_RUN_LEDGER_TRUST", str(made.trust))
    made.propose(KEY, policy_sha256=made.digest("both"), approvals_needed=2)
    yield made
    check_ledger(db)


@pytest.fixture
def desk(arl: Arl, db: Path) -> Path:
    assert arl("init", "--local", "--name", "ann", "--db", db).code == 0
    return db


@contextmanager
def reviewing(trusted: Trusted, name: str) -> Iterator[Callable[[bytes], str]]:
    """Somebody reads on a terminal of their own what they are asked about; what they answer ends it."""
    master, slave = pty.openpty()
    words = ["approvals", "grant", KEY, "--db", str(trusted.path), "--key", str(trusted.key(name))]
    process = subprocess.Popen([*COMMAND, *words], stdin=slave, stdout=slave, stderr=slave, close_fds=True)
    os.close(slave)
    said = b""
    while b"[y/N]" not in said:
        said += os.read(master, 1 << 16)

    def answer(words: bytes) -> str:
        os.write(master, words)
        told = b""
        try:
            while chunk := os.read(master, 1 << 16):
                told += chunk
        except OSError:  # the other end is closed
            pass
        process.wait()
        return told.decode("utf-8", "replace")

    try:
        yield answer
    finally:
        process.kill()
        process.wait()
        os.close(master)


def test_two_who_review_at_the_same_time_both_approve(two: Trusted) -> None:
    with reviewing(two, "ann") as ann, reviewing(two, "ben") as ben:
        assert "approved by ann" in ann(b"y\n")
        assert "approved by ben" in ben(b"y\n")
    with two.open() as ledger:
        (view,) = ledger.inspect(KEY)
        assert (view.state, set(view.approvals)) == (ActionState.AVAILABLE, {"ann", "ben"})


def test_an_approval_at_the_same_moment_is_told_what_to_do(
    two: Trusted, arl: Arl, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant = EffectLedger.grant

    def after_ann(ledger: EffectLedger, envelope: bytes) -> ActionView:
        monkeypatch.setattr(EffectLedger, "grant", grant)
        assert arl("approvals", "grant", KEY, "--db", two.path, "--key", two.key("ann"), "--yes").code == 0
        return ledger.grant(envelope)

    monkeypatch.setattr(EffectLedger, "grant", after_ann)
    words = ("approvals", "grant", KEY, "--db", two.path, "--key", two.key("ben"), "--yes", "--json")
    error = arl(*words).error
    assert (error["code"], "type it again" in error["hint"]) == ("other_instance", True)
    assert arl(*words).json["state"] == "available"


@pytest.mark.parametrize("command", ["grant", "reject"])
def test_what_is_decided_already_is_said_in_words_with_what_leads_on(arl: Arl, desk: Path, command: str) -> None:
    view = propose(desk)
    assert arl("approvals", "reject", KEY, "--db", desk).code == 0
    refused = arl("approvals", command, KEY, *(["--yes"] if command == "grant" else []), "--db", desk)
    assert refused.code == 1
    assert f"an action that is rejected takes no {'approve' if command == 'grant' else 'reject'}\n" in refused.err
    assert f"`arl effects show {view.action_id.hex()} --db {desk}`" in refused.err


def test_what_somebody_decides_while_another_reads_is_said_with_what_leads_on(
    arl: Arl, desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = propose(desk)

    def meanwhile(question: str, *, yes: bool) -> None:
        with open_effects(desk) as ledger:
            assert ledger.trust is not None
            ledger.reject(actor_of(ledger.trust, "ann"), view.action_id)

    monkeypatch.setattr("agent_run_ledger.cli.confirm.confirm", meanwhile)
    error = arl("approvals", "grant", KEY, "--db", desk, "--json", "--yes").error
    assert error["code"] == "rejected"
    assert f"`arl effects show {view.action_id.hex()} --db {desk}`" in error["hint"]


# -- a revocation of what a worker has -------------------------------------------------------------------------------


def claimed(desk: Path, arl: Arl, target: TargetClass, *, upto: str) -> ActionView:
    """An approved action that a worker has: claimed, prepared, or with its permit in hand."""
    view = propose(desk, KEY, target_class=target)
    assert arl("approvals", "grant", KEY, "--yes", "--db", desk).code == 0
    with open_effects(desk) as ledger:
        assert ledger.trust is not None
        worker = actor_of(ledger.trust, "worker")
        claim = ledger.claim(worker, view.action_id, worker="w", request_sha256=view.request_sha256)
        own = {"claim_id": claim.claim_id, "worker": "w"}
        if upto != "claimed":
            ledger.prepare(worker, view.action_id, **own)
        if upto == "handed out":
            ledger.hand_out(worker, view.action_id, **own)
        return ledger.get(view.action_id)


def revoked(desk: Path, arl: Arl) -> Ended:
    return arl("approvals", "revoke", KEY, "--yes", "--db", desk)


@pytest.mark.parametrize("upto", ["claimed", "prepared"])
def test_a_revocation_says_that_what_a_worker_has_stays_open_and_what_ends_it(arl: Arl, desk: Path, upto: str) -> None:
    view = claimed(desk, arl, TargetClass.N, upto=upto)
    done = revoked(desk, arl)
    assert (done.code, f"is {upto}" in done.out) == (0, True)
    assert "stays open" in done.err
    assert "a drain (path-dead, signed) and a look after it" in done.err
    assert f"`arl effects doubt {view.action_id.hex()} --db {desk}`" in done.err
    with open_effects(desk) as ledger:  # as it says
        assert ledger.get(view.action_id).state in (ActionState.CLAIMED, ActionState.PREPARED)
    assert arl("effects", "doubt", view.action_id.hex(), "--db", desk).code == 0


def test_a_revocation_of_what_may_have_been_sent_says_so(arl: Arl, desk: Path) -> None:
    claimed(desk, arl, TargetClass.N, upto="handed out")
    assert "it may have been sent" in revoked(desk, arl).err
    assert arl("effects", "doubt", KEY, "--db", desk).code == 0
    assert "a revocation ends no doubt" in revoked(desk, arl).err


@pytest.mark.parametrize(
    ("target", "ends"),
    [(TargetClass.V, "a drain (expiry) and a look after it"), (TargetClass.F, "the receiver's fence")],
)
def test_what_ends_a_revoked_claim_depends_on_the_target(arl: Arl, desk: Path, target: TargetClass, ends: str) -> None:
    claimed(desk, arl, target, upto="claimed")
    assert ends in revoked(desk, arl).err


def test_a_revocation_of_what_nobody_has_leaves_nothing_open(arl: Arl, desk: Path) -> None:
    propose(desk)
    done = arl("approvals", "revoke", KEY, "--yes", "--db", desk, "--json")
    assert (done.json["state"], done.json["left_open"]) == ("revoked", None)
    claimed_too = propose(desk, "refund:18")
    assert "open" not in arl("approvals", "revoke", claimed_too.action_id.hex(), "--yes", "--db", desk).err
