"""A claim verifies the approvals on record again: who can write the rows approves nothing, and no key that is gone."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import EffectLedger, Refused
from agent_run_ledger.effects import ActionState, ActionView, Actor, Event, Role
from agent_run_ledger.effects.verifying import approval_said, read_approval
from agent_run_ledger.kernel.effects import Now
from agent_run_ledger.kernel.effects.approval import VerifiedApproval
from agent_run_ledger.kernel.effects.commands import Approve
from agent_run_ledger.kernel.effects.record import Transition, transition_bytes, transition_from
from tests.contract.approval_kit import Approvals, approvals, someone
from tests.contract.effect_kit import EXE, START_MS, WINDOW_MS
from tests.contract.test_trust_on_record import OFFICERS
from tests.unit.effects.trust_examples import key, public

A, E = ActionState, Event


def said(kit: Approvals, view: ActionView, approver: str, **changes: Any) -> VerifiedApproval:
    """What an envelope of theirs says, whoever signed it."""
    return approval_said(*read_approval(kit.signed(view, approver, **changes)))


class Writer:
    """Somebody who can write a copy of the database, past the schema's guards and without the rules."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = sqlite3.connect(path, isolation_level=None)
        self.guards = dict(self.file.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall())

    def run(self, sql: str, *bindings: Any) -> None:
        for name in self.guards:
            self.file.execute(f"DROP TRIGGER {name}")
        self.file.execute(sql, bindings)
        for guard in self.guards.values():
            self.file.execute(guard)

    def approve(self, view: ActionView, *given: VerifiedApproval, on_record: bool = True) -> None:
        """Make an action available that these are said to have approved."""
        (row_id,) = self.file.execute(
            "SELECT action_row_id FROM actions WHERE action_id = ?", (view.action_id,)
        ).fetchone()
        for one in given:
            self.run(
                "INSERT INTO approvals (approval_id, action_row_id, principal, epoch, nonce, statement_sha256)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                one.approval_id, row_id, one.principal, view.epoch, one.statement.nonce, one.signed_sha256,
            )  # fmt: skip
            if on_record:
                self._record(row_id, one)
        self.run("UPDATE actions SET state = 'available' WHERE action_row_id = ?", row_id)

    def _record(self, row_id: int, one: VerifiedApproval) -> None:
        last, payload = self.file.execute("SELECT record_id, payload FROM action_records ORDER BY 1 DESC").fetchone()
        before = transition_from(payload)
        actor = Actor(one.principal, frozenset({Role.APPROVER}))
        asked = Approve(actor=actor, now=Now(START_MS, START_MS), action_id=before.row.action_id, approval=one)
        forged = Transition(command=asked, ledger=before.ledger, old="proposed", row=before.row)
        self.run(
            "INSERT INTO action_records (record_id, action_row_id, salt, payload) VALUES (?, ?, ?, ?)",
            last + 1, row_id, b"s" * 32, transition_bytes(forged),
        )  # fmt: skip


@contextmanager
def written(kit: Approvals, tmp_path: Path) -> Iterator[Writer]:
    """A writer at a copy of the store."""
    kit.ledger.close()
    writer = Writer(Path(shutil.copy(kit.path, tmp_path / "written.db")))
    kit.reopen()
    with closing(writer.file):
        yield writer


def claimed(kit: Approvals, writer: Writer, view: ActionView) -> str:
    """The code with which its claim is refused there, or the state that it leads to."""
    with EffectLedger(writer.path, time=kit.ticks, settings=kit.settings, trust=kit.signed_trust) as ledger:
        try:
            grant = ledger.claim(EXE, view.action_id, worker="w", request_sha256=view.request_sha256)
        except Refused as refused:
            return refused.code
        return str(grant.view.state)


def test_what_was_signed_is_claimed_and_a_row_that_says_so_is_not(tmp_path: Path) -> None:
    with approvals() as kit:
        view = kit.asked()
        bob = said(kit, view, "bob")
        with written(kit, tmp_path) as writer:
            writer.approve(view, bob, on_record=False)
            assert claimed(kit, writer, view) == "not_signed"
        with written(kit, tmp_path) as writer:
            writer.approve(view, bob)  # the same with bob's own signature on record
            assert claimed(kit, writer, view) == "claimed"


FORGED: dict[str, tuple[Callable[[Approvals, ActionView], tuple[VerifiedApproval, ...]], str]] = {
    "no signature": (lambda kit, view: (replace(said(kit, view, "bob"), key_id="", signature=b""),), "not_signed"),
    "a signature of another": (lambda kit, view: (said(kit, view, "bob", by=key("eve")),), "other_key"),
    "a signature that is none": (
        lambda kit, view: (replace(said(kit, view, "bob"), signature=b"s" * 64),),
        "bad_signature",
    ),
    "one who is no approver": (lambda kit, view: (said(kit, view, "ola"),), "not_an_approver"),
    "other bytes": (lambda kit, view: (said(kit, view, "bob", audience="https://evil.example"),), "other_terms"),
    "none at all": (lambda kit, view: (), "few_approvals"),
}


@pytest.mark.parametrize(("given", "expected"), FORGED.values(), ids=FORGED)
def test_what_a_writer_of_the_database_says_was_approved_is_not_claimed(
    given: Callable[[Approvals, ActionView], tuple[VerifiedApproval, ...]], expected: str, tmp_path: Path
) -> None:
    with approvals() as kit:
        view = kit.asked()
        with written(kit, tmp_path) as writer:
            writer.approve(view, *given(kit, view))
            assert claimed(kit, writer, view) == expected


def test_the_rules_of_approvals_hold_at_the_claim_too(tmp_path: Path) -> None:
    with approvals() as kit:
        view = kit.two_asked()
        bob, dan, ann = (said(kit, view, name) for name in ("bob", "dan", "ann"))
        for given, expected in (
            ((bob,), "few_approvals"),
            ((bob, bob), "constraint"),
            ((bob, ann), "not_signed"),  # ann asked for it
            ((bob, dan), "claimed"),
        ):
            with written(kit, tmp_path) as writer:
                if expected == "constraint":
                    with pytest.raises(sqlite3.IntegrityError):
                        writer.approve(view, *given)
                    continue
                writer.approve(view, *given)
                assert claimed(kit, writer, view) == expected


def test_a_writer_changes_no_number_of_approvals(tmp_path: Path) -> None:
    with approvals() as kit:
        view = kit.two_asked()
        bob = said(kit, view, "bob")
        with written(kit, tmp_path) as writer:
            writer.run("UPDATE actions SET approvals_needed = 1")
            writer.approve(view, bob)
            assert claimed(kit, writer, view) == "other_count"


def test_what_was_approved_is_not_claimed_with_other_terms(tmp_path: Path) -> None:
    with approvals() as kit:
        view = kit.asked()
        assert kit.grant(view, kit.signed(view)).state is A.AVAILABLE
        with written(kit, tmp_path) as writer:
            writer.run("UPDATE actions SET audience = 'https://evil.example'")
            assert claimed(kit, writer, view) == "other_terms"


@pytest.mark.parametrize("state", [A.CLAIMED, A.UNRESOLVED, A.SUCCEEDED, A.NOT_EXECUTED, A.REVOKED])
def test_a_row_that_stands_as_available_again_is_not_claimed_again(state: ActionState, tmp_path: Path) -> None:
    with approvals() as kit:
        revoked = state is A.REVOKED
        view = kit.reach(A.AVAILABLE if revoked else state)
        if revoked:
            view = kit.move(E.REVOKE, view)
        with written(kit, tmp_path) as writer:
            gone = "claim_id claim_key worker claimed_ms opening prepared_ms permit_expires_ms in_doubt_since_ms"
            rest = ", ".join(f"{column} = NULL" for column in ("generation", *gone.split()))
            writer.run(f"UPDATE actions SET state = 'available', revoked = 0, prepare_leaf = 0, handed_out = 0, {rest}")
            assert claimed(kit, writer, view) == "moved_before"


def test_what_a_key_approved_is_not_claimed_after_the_trust_file_has_it_no_more() -> None:
    with approvals() as kit:
        view, other = kit.asked("before"), kit.asked("after")
        kit.grant(view, kit.signed(view))
        kit.grant(other, kit.signed(other, "dan"))
        principals = tuple(
            someone("bob", Role.APPROVER, keys=(public("bob's new one", 0, START_MS * 2),))
            if one.name == "bob"
            else one
            for one in kit.trust.principals
        )
        kit.follow(replace(kit.trust, serial=2, principals=principals), *OFFICERS)
        assert kit.refused(lambda: kit.move(E.CLAIM, view)).code == "other_key"
        assert kit.move(E.CLAIM, other).state is A.CLAIMED
        assert kit.move(E.REVOKE, view).state is A.REVOKED


def test_what_a_key_approved_in_its_time_is_claimed_after_it() -> None:
    with approvals() as kit:
        ends = START_MS + WINDOW_MS // 2
        principals = tuple(
            someone("bob", Role.APPROVER, keys=(public("bob", 0, ends),)) if one.name == "bob" else one
            for one in kit.trust.principals
        )
        kit.follow(replace(kit.trust, serial=2, principals=principals), *OFFICERS)
        view, late = kit.asked(), kit.asked("late")
        kit.grant(view, kit.signed(view))
        kit.ticks.tick(ends - kit.now())
        assert kit.refusal(kit.signed(late)) == "key_expired"
        assert kit.move(E.CLAIM, view).state is A.CLAIMED


def test_a_record_that_cannot_be_read_lets_nothing_be_claimed(tmp_path: Path) -> None:
    with approvals() as kit:
        view = kit.asked()
        kit.grant(view, kit.signed(view))
        with written(kit, tmp_path) as writer:
            writer.run(
                "UPDATE action_records SET payload = x'7b7d' "
                "WHERE record_id = (SELECT min(record_id) FROM action_records)"
            )
            with pytest.raises(Exception, match="cannot be read") as error:
                claimed(kit, writer, view)
            assert getattr(error.value, "code", None) == "corrupt"
