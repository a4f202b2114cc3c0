"""Every CHECK, index and trigger of the tables of effects refuses what it is there for, and only that."""

from __future__ import annotations

from typing import Any

import apsw
import pytest

from agent_run_ledger.effects import ActionState, TargetClass
from tests.contract.effect_kit import A
from tests.contract.effect_scratch import NAMES, Scratch, sized
from tests.unit.effects.examples import APPROVAL, row
from tests.unit.effects.examples import MS as CLAIMED_MS

CLAIM: dict[str, Any] = {
    "generation": 1,
    "claim_id": b"claim",
    "claim_key": b"key",
    "worker": "w1",
    "claimed_ms": CLAIMED_MS,
}
PREPARED: dict[str, Any] = {
    "state": "prepared", **CLAIM, "prepare_leaf": 1, "opening": b"o", "prepared_ms": 1, "permit_expires_ms": 2,
}  # fmt: skip


def _columns(**changes: Any) -> dict[str, Any]:
    """The columns of a proposed action, with changes."""
    base: dict[str, Any] = {
        "action_id": b"first member 16.", "action_key": "refund:17", "state": "proposed", "epoch": 0, "floor": 0,
        "requester": "ann", "executor": "exe", "audience": "a", "target_class": "n", "request_sha256": bytes(32),
        "not_before_ms": 1, "dispatch_before_ms": 100, "approvals_needed": 1, "revoked": 0, "prepare_leaf": 0,
        "handed_out": 0, "rebuilt": 0, "more": b"{}", "proposed_at_ms": 1, "changed_at_ms": 1,
    }  # fmt: skip
    return base | changes


FLAWS: dict[str, dict[str, Any]] = {
    "short id": {"action_id": b"short"},
    "unknown state": {"state": "retrying"},
    "epoch below 0": {"epoch": -1},
    "floor below 0": {"floor": -1},
    "generation at the floor": {**CLAIM, "state": "claimed", "generation": 1, "floor": 1},
    "unknown class": {"target_class": "x"},
    "short digest": {"request_sha256": b"short"},
    "empty window": {"dispatch_before_ms": 1},
    "no approvals": {"approvals_needed": 0},
    "half revoked": {"revoked": 2},
    "half prepared": {"prepare_leaf": 2, "opening": b"o", "prepared_ms": 1, "permit_expires_ms": 2},
    "permit after the window": {**PREPARED, "permit_expires_ms": 101},
    "half handed out": {**PREPARED, "handed_out": 2},
    "half rebuilt": {"rebuilt": 2},
    "claimed without a generation": {"state": "claimed"},
    "prepared without a generation": {**PREPARED, "generation": None},
    "generation without a claim": {**CLAIM, "state": "unresolved", "in_doubt_since_ms": 1, "claim_id": None},
    "generation without a claim key": {**CLAIM, "state": "claimed", "claim_key": None},
    "generation without a worker": {**CLAIM, "state": "claimed", "worker": None},
    "generation without a time": {**CLAIM, "state": "claimed", "claimed_ms": None},
    "prepared without a leaf": {**PREPARED, "prepare_leaf": 0},
    "leaf without an opening": {**PREPARED, "opening": None},
    "leaf without a time": {**PREPARED, "prepared_ms": None},
    "leaf without an end": {**PREPARED, "permit_expires_ms": None},
    "handed out without a leaf": {**CLAIM, "state": "claimed", "handed_out": 1},
    "doubt without a time": {**CLAIM, "state": "unresolved"},
    "revoked without the mark": {"state": "revoked"},
    **{
        f"no {name}": {name: None}
        for name in (
            *("action_id", "action_key", "state", "epoch", "floor", "requester", "executor", "audience"),
            *("target_class", "request_sha256", "not_before_ms", "dispatch_before_ms", "approvals_needed", "revoked"),
            *("prepare_leaf", "handed_out", "rebuilt", "more", "proposed_at_ms", "changed_at_ms"),
        )
    },
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_row_with_one_flaw_is_refused_by_its_check(flaw: str) -> None:
    with pytest.raises(apsw.ConstraintError, match=r"CHECK|NOT NULL"):
        Scratch().bare().insert(**_columns(**FLAWS[flaw]))


@pytest.mark.parametrize("target", TargetClass)
@pytest.mark.parametrize("state", ActionState)
def test_a_row_of_every_state_and_class_is_held(state: ActionState, target: TargetClass) -> None:
    action = sized(row(state, revoked=state is A.REVOKED))
    scratch = Scratch().bare()
    scratch.put(action)
    assert scratch.update(f"target_class = '{target}'") == 1
    assert scratch.update("dispatch_before_ms = permit_expires_ms WHERE permit_expires_ms IS NOT NULL") in (0, 1)


def test_a_rebuilt_row_needs_no_claim() -> None:
    Scratch().insert(**_columns(state="succeeded", rebuilt=1, generation=1))


def _raises(said: str) -> Any:
    return pytest.raises(apsw.ConstraintError, match=said)


# Indexes


def test_an_id_belongs_to_one_action() -> None:
    scratch = Scratch()
    scratch.insert(**_columns())
    with _raises("UNIQUE constraint failed: actions.action_id"):
        scratch.insert(**_columns(action_key="another"))


@pytest.mark.parametrize("state", ["proposed", "available", "claimed", "prepared", "unresolved"])
def test_a_key_has_one_open_member(state: str) -> None:
    scratch = Scratch().bare()
    scratch.insert(**_columns(**{**PREPARED, "state": state, "in_doubt_since_ms": 1}))
    scratch.insert(**_columns(action_id=b"another key 16 .", action_key="closed", state="rejected"))
    scratch.guard()
    with _raises("this key has an open member"):
        scratch.insert(**_columns(action_id=b"second member 16"))
    scratch.insert(**_columns(action_id=b"third member 16.", action_key="another"))
    scratch.insert(**_columns(action_id=b"fourth member 16", action_key="closed"))


def test_a_generation_of_a_key_belongs_to_one_member() -> None:
    scratch = Scratch().bare()
    scratch.insert(**_columns(**{**CLAIM, "state": "superseded"}))
    with _raises("UNIQUE constraint failed: actions.action_key, actions.generation"):
        scratch.insert(**_columns(**{**CLAIM, "state": "claimed", "action_id": b"second member 16"}))
    scratch.insert(**_columns(**{**CLAIM, "state": "claimed", "action_id": b"second member 16", "generation": 2}))
    for number in range(2):
        scratch.insert(**_columns(state="rejected", action_id=b"unclaimed 16 ..%d" % number))


@pytest.mark.parametrize(
    ("sql", "index"),
    [
        ("SELECT 1 FROM actions WHERE action_key = 'k' ORDER BY action_row_id", "actions_members"),
        (
            "SELECT 1 FROM actions WHERE state = 'proposed' AND action_row_id > 1 ORDER BY action_row_id",
            "actions_inbox",
        ),
        ("SELECT max(record_id) FROM action_records WHERE action_row_id = 1", "action_records_of"),
    ],
)
def test_what_is_asked_often_is_found_by_an_index(sql: str, index: str) -> None:
    plan = " ".join(str(line) for line in Scratch().file.execute(f"EXPLAIN QUERY PLAN {sql}"))
    assert index in plan
    assert "TEMP B-TREE" not in plan


# How an action begins


@pytest.mark.parametrize("state", ActionState)
def test_an_action_begins_as_proposed_or_in_doubt(state: ActionState) -> None:
    scratch = Scratch()
    columns = _columns(state=state, in_doubt_since_ms=1)
    if state in (A.PROPOSED, A.UNRESOLVED):
        scratch.insert(**columns)
    else:
        with pytest.raises(apsw.ConstraintError):
            scratch.insert(**columns)


BEGINNINGS: dict[str, dict[str, Any]] = {
    "rebuilt": {"rebuilt": 1},
    "claimed": {**CLAIM, "state": "unresolved", "in_doubt_since_ms": 1},
    "prepared": {k: v for k, v in PREPARED.items() if k not in (*CLAIM, "state")},
    "revoked": {"revoked": 1},
    "succeeded": {**CLAIM, "state": "succeeded"},
    "rebuilt without a generation": {"state": "succeeded", "rebuilt": 1},
    "rebuilt and in doubt": {"state": "unresolved", "rebuilt": 1, "generation": 1, "in_doubt_since_ms": 1},
}


@pytest.mark.parametrize("flaw", BEGINNINGS)
def test_no_action_begins_with_what_comes_later(flaw: str) -> None:
    with _raises("no action begins there"):
        Scratch().insert(**_columns(**BEGINNINGS[flaw]))


EARLY: dict[str, str] = {
    "an approval": "INSERT INTO approvals (approval_id, action_row_id, principal, epoch, nonce, statement_sha256) "
    "VALUES (x'01', 1, 'dan', 0, x'00', zeroblob(32))",
    "a request": "INSERT INTO requests (action_row_id, body) VALUES (1, x'00')",
}


@pytest.mark.parametrize("what", EARLY)
def test_no_action_begins_with_an_approval_or_a_request_that_was_there_before(what: str) -> None:
    scratch = Scratch()
    scratch.file.execute("PRAGMA foreign_keys = OFF")  # as a forger has it
    scratch.file.execute(EARLY[what])
    with _raises("were there before their action"):
        scratch.insert(**_columns())


# What stays

LASTING: dict[str, tuple[dict[str, Any], str]] = {
    "action_row_id": ({}, "action_row_id = 7"),
    "action_id": ({}, "action_id = x'30313233343536373839303132333435'"),
    "action_key": ({}, "action_key = 'another'"),
    "epoch": ({}, "epoch = 1"),
    "floor": ({}, "floor = 1"),
    "requester": ({}, "requester = 'eve'"),
    "executor": ({}, "executor = 'eve'"),
    "audience": ({}, "audience = 'b'"),
    "target_class": ({}, "target_class = 'f'"),
    "request_sha256": ({}, "request_sha256 = zeroblob(31) || x'01'"),
    "not_before_ms": ({}, "not_before_ms = 2"),
    "dispatch_before_ms": ({}, "dispatch_before_ms = 101"),
    "approvals_needed": ({}, "approvals_needed = 2"),
    "proposed_at_ms": ({}, "proposed_at_ms = 2"),
    "rebuilt": ({}, "rebuilt = 1"),
    "revoked": ({"revoked": 1}, "revoked = 0"),
    "handed_out": ({**PREPARED, "handed_out": 1}, "handed_out = 0"),
    "prepare_leaf": ({**PREPARED, "state": "unresolved", "in_doubt_since_ms": 1}, "prepare_leaf = 0"),
    "claim_id": (PREPARED, "claim_id = x'00'"),
    "claim_key": (PREPARED, "claim_key = x'00'"),
    "worker": (PREPARED, "worker = 'w2'"),
    "claimed_ms": (PREPARED, "claimed_ms = 2"),
    "opening": (PREPARED, "opening = x'00'"),
    "prepared_ms": (PREPARED, "prepared_ms = 2"),
    "permit_expires_ms": (PREPARED, "permit_expires_ms = 3"),
    "generation": (PREPARED, "generation = 2"),
    "generation away": ({**PREPARED, "state": "unresolved", "in_doubt_since_ms": 1}, "generation = NULL"),
    "generation changed when superseded": (PREPARED, "generation = 2, state = 'superseded'"),
}


@pytest.mark.parametrize("what", LASTING)
def test_what_was_signed_and_what_was_done_does_not_change(what: str) -> None:
    stored, assignment = LASTING[what]
    scratch = Scratch().bare()
    scratch.insert(**_columns(**stored))
    scratch.guard()
    with _raises("this of an action does not change"):
        scratch.update(assignment)


CHANGING: list[tuple[dict[str, Any], str]] = [
    ({}, "revoked = 1"),
    ({}, "more = x'00', changed_at_ms = 2, in_doubt_since_ms = 3"),
    (PREPARED, "handed_out = 1"),
    (PREPARED, "generation = NULL, state = 'superseded'"),
    ({**CLAIM, "state": "claimed"}, "state = 'prepared', prepare_leaf = 1, opening = x'00', prepared_ms = 9, "
     "permit_expires_ms = 10"),
]  # fmt: skip


@pytest.mark.parametrize(("stored", "assignment"), CHANGING)
def test_what_comes_later_may_come(stored: dict[str, Any], assignment: str) -> None:
    scratch = Scratch().bare()
    scratch.insert(**_columns(**stored))
    scratch.guard()
    assert scratch.update(assignment) == 1


# Approvals


@pytest.mark.parametrize("old", ["proposed", "available"])
def test_what_is_available_or_claimed_has_the_approvals_that_it_needs(old: str) -> None:
    new = "available" if old == "proposed" else "claimed"
    claim = (
        ""
        if new == "available"
        else ", generation = 1, claim_id = x'00', claim_key = x'00', worker = 'w', claimed_ms = 1"
    )
    scratch = Scratch().bare()
    scratch.put(sized(row(A(old), approvals=())))
    scratch.guard()
    with _raises("too few approvals"):
        scratch.update(f"state = '{new}'{claim}")
    insert = "INSERT INTO approvals (approval_id, action_row_id, principal, epoch, nonce, statement_sha256) VALUES "
    scratch.file.execute(f"{insert} (x'01', 1, 'old', 1, x'00', zeroblob(32))")  # of another epoch
    with _raises("too few approvals"):
        scratch.update(f"state = '{new}'{claim}")
    scratch.file.execute(f"{insert} (x'02', 1, 'bob', 0, x'00', zeroblob(32))")
    assert scratch.update(f"state = '{new}'{claim}") == 1
    assert scratch.update("more = x'00'") == 1


def test_approvals_of_another_action_do_not_count() -> None:
    scratch = Scratch()
    scratch.insert(**_columns())
    scratch.insert(**_columns(action_id=b"second member 16", action_key="another"))
    scratch.file.execute(
        "INSERT INTO approvals (approval_id, action_row_id, principal, epoch, nonce, statement_sha256) "
        "VALUES (x'01', 2, 'bob', 0, x'00', zeroblob(32))"
    )
    with _raises("too few approvals"):
        scratch.update("state = 'available' WHERE action_row_id = 1")
    assert scratch.update("state = 'available' WHERE action_row_id = 2") == 1


def _approval(**changes: Any) -> tuple[Any, ...]:
    values: dict[str, Any] = {
        "approval_id": b"a2", "action_row_id": 1, "principal": "dan", "epoch": 0, "nonce": b"n",
        "statement_sha256": bytes(32),
    }  # fmt: skip
    return tuple({**values, **changes}.values())


APPROVAL_FLAWS: dict[str, dict[str, Any]] = {
    "an approval id twice": {"approval_id": APPROVAL.approval_id},
    "a principal twice": {"principal": APPROVAL.principal},
    "no action": {"action_row_id": 99},
    "an epoch below 0": {"epoch": -1},
    "a short digest": {"statement_sha256": b"short"},
    **{f"no {name}": {name: None} for name in ("approval_id", "action_row_id", "principal", "epoch", "nonce")},
    "no digest": {"statement_sha256": None},
}


@pytest.mark.parametrize("flaw", APPROVAL_FLAWS)
def test_an_approval_with_one_flaw_is_refused(flaw: str) -> None:
    scratch = Scratch().bare()
    scratch.put(sized(row(A.PROPOSED, approvals=(APPROVAL,))))
    scratch.guard()
    insert = (
        "INSERT INTO approvals (approval_id, action_row_id, principal, epoch, nonce, statement_sha256) "
        "VALUES (?, ?, ?, ?, ?, ?)"
    )
    with pytest.raises(apsw.ConstraintError):
        scratch.file.execute(insert, _approval(**APPROVAL_FLAWS[flaw]))
    scratch.file.execute(insert, _approval())


# History


HISTORY = {
    "actions": "actions are history",
    "approvals": "approvals are history",
    "requests": "a request is what was approved",
    "answers": "an answer is what came",
    "action_records": "records are history",
    "clock_corrections": "corrections are history",
    "trust_changes": "trust files are history",
}


def _filled() -> Scratch:
    scratch = Scratch().bare()
    scratch.put(sized(row(A.PROPOSED, approvals=(APPROVAL,))))
    scratch.file.execute("INSERT INTO requests (action_row_id, body) VALUES (1, x'00')")
    scratch.file.execute("INSERT INTO answers (action_row_id, evidence_id, body) VALUES (1, x'01', x'00')")
    scratch.file.execute("INSERT INTO action_records VALUES (65536, 1, zeroblob(32), x'00')")
    scratch.file.execute("INSERT INTO clock_corrections VALUES (65536, 1, zeroblob(32), x'00')")
    scratch.file.execute("INSERT INTO trust_changes VALUES (65536, zeroblob(32), 5, zeroblob(32), x'00')")
    return scratch.guard()


@pytest.mark.parametrize("table", HISTORY)
def test_nothing_is_deleted(table: str) -> None:
    with _raises(HISTORY[table]):
        _filled().file.execute(f"DELETE FROM {table}")


@pytest.mark.parametrize("table", [table for table in HISTORY if table != "actions"])
def test_what_was_written_is_not_written_over(table: str) -> None:
    with _raises(HISTORY[table]):
        column = {"clock_corrections": "later_ms", "trust_changes": "serial"}.get(table, "action_row_id")
        _filled().file.execute(f"UPDATE {table} SET {column} = 1")


RECORD_FLAWS = {
    "a record twice": "INSERT INTO action_records VALUES (65536, 1, zeroblob(32), x'00')",
    "a record of no action": "INSERT INTO action_records VALUES (65537, 9, zeroblob(32), x'00')",
    "a short salt": "INSERT INTO action_records VALUES (65537, 1, x'00', x'00')",
    "no salt": "INSERT INTO action_records VALUES (65537, 1, NULL, x'00')",
    "no payload": "INSERT INTO action_records VALUES (65537, 1, zeroblob(32), NULL)",
    "no row": "INSERT INTO action_records VALUES (65537, NULL, zeroblob(32), x'00')",
    "a request twice": "INSERT INTO requests VALUES (1, x'00')",
    "a request of no action": "INSERT INTO requests VALUES (9, x'00')",
    "a request without bytes": "INSERT INTO requests VALUES (2, NULL)",
    "a correction twice": "INSERT INTO clock_corrections VALUES (65536, 1, zeroblob(32), x'00')",
    "a correction of no time": "INSERT INTO clock_corrections VALUES (65537, NULL, zeroblob(32), x'00')",
    "a correction with a short salt": "INSERT INTO clock_corrections VALUES (65537, 1, x'00', x'00')",
    "a correction without salt": "INSERT INTO clock_corrections VALUES (65537, 1, NULL, x'00')",
    "a correction without payload": "INSERT INTO clock_corrections VALUES (65537, 1, zeroblob(32), NULL)",
    "a trust file of a short digest": "INSERT INTO trust_changes VALUES (65539, x'00', 9, zeroblob(32), x'00')",
    "a trust file of no digest": "INSERT INTO trust_changes VALUES (65539, NULL, 9, zeroblob(32), x'00')",
    "a trust file of no serial": "INSERT INTO trust_changes VALUES (65539, zeroblob(32), NULL, zeroblob(32), x'00')",
    "a trust file of the same serial": "INSERT INTO trust_changes VALUES (65539, zeroblob(32), 6, zeroblob(32), x'00')",
    "a trust file of an older serial": "INSERT INTO trust_changes VALUES (65539, zeroblob(32), 4, zeroblob(32), x'00')",
    "a trust file before the last": "INSERT INTO trust_changes VALUES (65537, zeroblob(32), 9, zeroblob(32), x'00')",
    "a trust file with a short salt": "INSERT INTO trust_changes VALUES (65539, zeroblob(32), 9, x'00', x'00')",
    "a trust file without payload": "INSERT INTO trust_changes VALUES (65539, zeroblob(32), 9, zeroblob(32), NULL)",
    "a second mark of time": "INSERT INTO effect_time VALUES (2, 1, 1, 'boot')",
    "a mark without a clock": "INSERT INTO effect_time VALUES (1, NULL, 1, 'boot')",
    "a mark without an uptime": "INSERT INTO effect_time VALUES (1, 1, NULL, 'boot')",
    "a mark without a boot": "INSERT INTO effect_time VALUES (1, 1, 1, NULL)",
}


@pytest.mark.parametrize("flaw", RECORD_FLAWS)
def test_a_record_a_request_or_a_mark_with_one_flaw_is_refused(flaw: str) -> None:
    scratch = _filled()
    scratch.insert(**_columns(action_id=b"second member 16", action_key="another"))
    scratch.file.execute("INSERT INTO action_records VALUES (65538, 1, zeroblob(32), x'00')")
    scratch.file.execute("INSERT INTO clock_corrections VALUES (65538, 1, zeroblob(32), x'00')")
    scratch.file.execute("INSERT INTO trust_changes VALUES (65538, zeroblob(32), 6, zeroblob(32), x'00')")
    with pytest.raises(apsw.ConstraintError):
        scratch.file.execute(RECORD_FLAWS[flaw])


def test_the_columns_are_those_that_the_store_writes() -> None:
    assert set(_columns()) | set(PREPARED) | {"in_doubt_since_ms"} == set(NAMES)
