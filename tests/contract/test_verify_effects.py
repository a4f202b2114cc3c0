"""The auditor on effects: silent about every honest ledger, and precise about each forgery, however thorough."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from agent_run_ledger.kernel.effects import ActionState
from agent_run_ledger.ledger.verify import Report, verify_log
from agent_run_ledger.store import effect_reader, open_sqlite
from agent_run_ledger.testing import LedgerBroken, check_ledger
from tests.contract.effect_stories import RECON, Stories, edit, forge_words, places, rewrite

ACTIONS = 18


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("effects") / "written.db"
    stories = Stories(path)
    stories.all_of_them()
    assert set(stories.ledger.status().counts) == set(ActionState)
    stories.ledger.close()
    return path


@pytest.fixture
def ledger(written: Path, tmp_path: Path) -> Path:
    """A ledger with an action in each state, closed, to be forged."""
    return Path(shutil.copy(written, tmp_path / "forged.db"))


def audit(path: Path) -> Report:
    store = open_sqlite(path, create=False)
    try:
        return verify_log(store.reader(), log_id=store.log_id, is_copy=store.is_copy)
    finally:
        store.close()


def said(path: Path) -> list[str]:
    return [problem.text for problem in audit(path).problems]


def row_id(path: Path, key: str) -> int:
    """The row of the newest member of a key."""
    store = open_sqlite(path, create=False)
    try:
        return store.reader().effects.members(key)[-1].row_id
    finally:
        store.close()


def test_a_ledger_with_every_state_and_every_event_has_no_problems(ledger: Path) -> None:
    report = audit(ledger)
    assert report.problems == ()
    assert report.actions == ACTIONS
    check_ledger(ledger)


# What stands in rows only: one statement each, and the words that name it.

IN_ROWS: dict[str, tuple[str, str, str]] = {
    "a state that was never reached": (
        "proposed",
        "UPDATE actions SET state = 'available' WHERE action_row_id = {row}",
        "says state 'available', the log 'proposed'",
    ),
    "a doubt that was ended": (
        "unresolved",
        "UPDATE actions SET state = 'available', generation = NULL WHERE action_row_id = {row}",
        "says state 'available', the log 'unresolved'",
    ),
    "another generation": (
        "claimed",
        "UPDATE actions SET generation = 5 WHERE action_row_id = {row}",
        "says generation 5, the log 1",
    ),
    "a permit that was not handed out": (
        "unresolved",
        "UPDATE actions SET handed_out = 0 WHERE action_row_id = {row}",
        "says handed_out False, the log True",
    ),
    "another executor": (
        "available",
        "UPDATE actions SET executor = 'mallory' WHERE action_row_id = {row}",
        "says executor 'mallory', the log 'exec'",
    ),
    "a worker that is a number": (
        "claimed",
        "UPDATE actions SET claim_id = 0.5 WHERE action_row_id = {row}",
        "says claim_id 0.5, the log",
    ),
    "evidence less": (
        "succeeded",
        'UPDATE actions SET more = replace(more, \'"evidence":["\', \'"evidence":[],"e":["\') '
        "WHERE action_row_id = {row}",
        "the actions of key 'succeeded' cannot be read: a row of an action is not as it was written",
    ),
    "a state that there is not": (
        "proposed",
        "UPDATE actions SET state = 'done' WHERE action_row_id = {row}",
        "the actions of key 'proposed' cannot be read",
    ),
    "an approval more": (
        "proposed",
        "INSERT INTO approvals (approval_id, action_row_id, principal, epoch, nonce, statement_sha256) "
        "VALUES (x'00', {row}, 'cat', 0, x'00', zeroblob(32))",
        "says approvals [{'class': 'Approval'",
    ),
    "an approval less": (
        "available",
        "DELETE FROM approvals WHERE action_row_id = {row}",
        "says approvals [], the log [{'class': 'Approval'",
    ),
    "an approval of another principal": (
        "available",
        "UPDATE approvals SET principal = 'cat' WHERE action_row_id = {row}",
        "'principal': 'cat'",
    ),
    "other bytes to be sent": (
        "available",
        "UPDATE requests SET body = x'7b7d' WHERE action_row_id = {row}",
        "is not the one of its digest",
    ),
    "text in the place of bytes": (
        "available",
        "UPDATE requests SET body = 'available' WHERE action_row_id = {row}",
        "is no bytes",
    ),
    "no bytes to be sent": ("available", "DELETE FROM requests WHERE action_row_id = {row}", "is missing"),
    "bytes of an action that was rebuilt": (
        "rebuilt",
        "INSERT INTO requests (action_row_id, body) VALUES ({row}, x'00')",
        "is there, and the action was rebuilt without one",
    ),
    "a time of another moment": (
        "claimed",
        "UPDATE actions SET changed_at_ms = 5 WHERE action_row_id = {row}",
        "says changed_at_ms 5, leaf",
    ),
    "a proposal of another moment": (
        "claimed",
        "UPDATE actions SET proposed_at_ms = 5 WHERE action_row_id = {row}",
        "says proposed_at_ms 5, leaf",
    ),
    "another key": (
        "claimed",
        "UPDATE actions SET action_key = 'zzz' WHERE action_row_id = {row}",
        "says action_key 'zzz', the log 'claimed'",
    ),
    "no key": (
        "claimed",
        "UPDATE actions SET action_key = '' WHERE action_row_id = {row}",
        "says action_key '', the log 'claimed'",
    ),
    "an action that nobody proposed": (
        "proposed",
        "INSERT INTO actions SELECT 99, zeroblob(16), 'new', state, epoch, floor, generation, requester, executor, "
        "audience, target_class, request_sha256, not_before_ms, dispatch_before_ms, approvals_needed, revoked, "
        "claim_id, claim_key, worker, claimed_ms, prepare_leaf, opening, prepared_ms, permit_expires_ms, handed_out, "
        "in_doubt_since_ms, rebuilt, more, proposed_at_ms, changed_at_ms FROM actions WHERE action_row_id = {row}",
        "the rows of key 'new' are not the members that the log has, in its order",
    ),
    "an action that is gone": (
        "claimed",
        "DELETE FROM actions WHERE action_row_id = {row}",
        "belongs to an action that does not exist",
    ),
    "an approval of no action": (
        "proposed",
        "INSERT INTO approvals (approval_id, action_row_id, principal, epoch, nonce, statement_sha256) "
        "VALUES (x'00', {row} + 1000, 'cat', 0, x'00', zeroblob(32))",
        "for this approval",
    ),
    "a request of no action": (
        "proposed",
        "INSERT INTO requests (action_row_id, body) VALUES ({row} + 1000, x'00')",
        "for this request",
    ),
    "members in another order": (
        "superseded",
        "UPDATE actions SET action_row_id = 0 WHERE action_row_id = {row}; "
        "UPDATE action_records SET action_row_id = 0 WHERE action_row_id = {row}; "
        "UPDATE requests SET action_row_id = 0 WHERE action_row_id = {row}",
        "the rows of key 'superseded' are not the members that the log has, in its order",
    ),
}


@pytest.mark.parametrize(("key", "sql", "words"), IN_ROWS.values(), ids=IN_ROWS)
def test_a_row_that_is_not_what_the_rules_lead_to_is_named(ledger: Path, key: str, sql: str, words: str) -> None:
    assert edit(ledger, sql.format(row=row_id(ledger, key))) > 0
    problems = said(ledger)
    assert any(words in text for text in problems), problems
    with pytest.raises(LedgerBroken, match="forged"):
        check_ledger(ledger)


def test_approvals_and_requests_of_no_action_are_counted_and_the_first_hundred_named(ledger: Path) -> None:
    edit(
        ledger,
        "WITH RECURSIVE n (i) AS (VALUES (1000) UNION ALL SELECT i + 1 FROM n WHERE i < 1119) "
        "INSERT INTO requests SELECT i, x'00' FROM n",
    )
    report = audit(ledger)
    assert report.problems[0].text == "120 approvals, requests and answers belong to no action"
    assert report.problem_count == 101
    assert [one.text for one in report.problems[1:]] == [
        f"there is no action row {row} for this request" for row in range(1_000, 1_099)
    ]


# What stands beside leaves: a statement about the record of the claim of "claimed", and the words at its leaf.

BESIDE: dict[str, tuple[str, str]] = {
    "another payload": (
        "UPDATE action_records SET payload = CAST(replace(payload, 'w1', 'w2') AS BLOB) WHERE record_id = {at}",
        "the record is not the one whose MAC the leaf has",
    ),
    "another salt": (
        "UPDATE action_records SET salt = zeroblob(32) WHERE record_id = {at}",
        "the record is not the one whose MAC the leaf has",
    ),
    "a record less": (
        "DELETE FROM action_records WHERE record_id = {at}",
        "it has the MAC of a record that is not in the store",
    ),
    "a record more": (
        "INSERT INTO action_records SELECT record_id + 1, action_row_id, salt, payload FROM action_records "
        "WHERE record_id = {at}",
        "a record of an action at position 1, where the leaf has no change of one",
    ),
    "a record of another row": (
        "UPDATE action_records SET action_row_id = 1 WHERE record_id = {at}",
        "action of the record's row",
    ),
    "a record of no row": (
        "UPDATE action_records SET action_row_id = 999 WHERE record_id = {at}",
        "belongs to an action that does not exist",
    ),
    "a payload of another type": (
        "UPDATE action_records SET payload = CAST(payload AS TEXT) WHERE record_id = {at}",
        "a record of an action cannot be read",
    ),
    "another MAC in the leaf": (
        'UPDATE events SET envelope = CAST(replace(envelope, \'"mac":"\', \'"mac":"0\') AS BLOB) '
        "WHERE leaf_index = {at} >> 16",
        "the record is not the one whose MAC the leaf has",
    ),
    "no MAC in the leaf": (
        "UPDATE events SET envelope = CAST(replace(envelope, '\"mac\":', '\"mad\":') AS BLOB) "
        "WHERE leaf_index = {at} >> 16",
        "a change has other fields than envelope v1",
    ),
    "a leaf less": ("DELETE FROM events WHERE leaf_index = {at} >> 16", "a record of an action, whose leaf is missing"),
}


@pytest.mark.parametrize(("sql", "words"), BESIDE.values(), ids=BESIDE)
def test_a_record_that_is_not_the_leafs_is_named_at_its_leaf(ledger: Path, sql: str, words: str) -> None:
    (at,) = places(ledger, "claimed", "Claim")
    assert edit(ledger, sql.format(at=at)) > 0
    problems = [(problem.leaf_index, problem.text) for problem in audit(ledger).problems]
    assert any(index == at >> 16 and words in text for index, text in problems), problems


def test_a_record_of_the_last_leaf_is_named_where_that_is_missing(ledger: Path) -> None:
    size = audit(ledger).leaves
    edit(ledger, f"DELETE FROM events WHERE leaf_index = {size - 1}")
    problems = [(problem.leaf_index, problem.text) for problem in audit(ledger).problems]
    assert (size - 1, "a record of an action, whose leaf is missing") in problems


@pytest.mark.parametrize("leaf", [-3, 999])
def test_a_record_outside_the_log_is_named(ledger: Path, leaf: int) -> None:
    (at,) = places(ledger, "claimed", "Claim")
    columns = "action_row_id, salt, payload FROM action_records"
    edit(ledger, f"INSERT INTO action_records SELECT {leaf << 16}, {columns} WHERE record_id = {at}")
    problems = [(problem.leaf_index, problem.text) for problem in audit(ledger).problems]
    assert (leaf, "a record of an action outside the log that the head describes") in problems


def test_a_change_of_an_action_without_a_mac_is_none_of_version_1(ledger: Path) -> None:
    (at,) = places(ledger, "claimed", "Claim")
    rewrite(ledger, at, lambda tree: None, lambda line: line.pop("mac"))
    problems = [(problem.leaf_index, problem.text) for problem in audit(ledger).problems]
    assert (at >> 16, "a change has other fields than envelope v1") in problems


# History that was rewritten thoroughly, MACs, leaves and head: only the rules contradict it.

Tree = dict[str, Any]
Rewritten = tuple[str, str, int, Callable[[Tree], object], Callable[[Tree], object], str]


def _both_generations(tree: Tree) -> None:
    tree["row"]["generation"] = 2


def _claimed(change: Callable[[Tree], object], words: str) -> Rewritten:
    """The record of a claim rewritten, and of its leaf only what follows from that."""
    return "claimed", "Claim", 0, change, lambda line: None, words


REWRITTEN: dict[str, Rewritten] = {
    "another executor claims": _claimed(
        lambda tree: tree["command"]["actor"].update(principal="mallory"),
        "key 'claimed': the rules do not let it claim: wrong_executor",
    ),
    "a claim without a role": _claimed(
        lambda tree: tree["command"]["actor"].update(roles=["requester"]),
        "key 'claimed': the rules do not let it claim: wrong_role",
    ),
    "a claim with another generation": (
        "claimed",
        "Claim",
        0,
        _both_generations,
        lambda line: line.update(generation=2),
        "key 'claimed': the rules make other rows of claim than the records have",
    ),
    "two decisions in one leaf": (
        "superseded",
        "Edit",
        1,
        lambda tree: tree["command"]["now"].update(latest_ms=1_001),
        lambda line: None,
        "key 'superseded': the records of one leaf are of several decisions",
    ),
    "another state before it": (
        "claimed",
        "Claim",
        0,
        lambda tree: tree.update(old="proposed"),
        lambda line: line.update(old="proposed"),
        "key 'claimed': a record of claim names another state before it",
    ),
    "a number that no statement can hold": (
        "available",
        "Approve",
        0,
        lambda tree: tree["command"]["approval"]["statement"].update(epoch=1 << 60),
        lambda line: None,
        "key 'available': the rules cannot decide approve",
    ),
    "no transition at all": _claimed(
        lambda tree: tree.pop("ledger"), "the record is no transition: this is no record of a transition, version 1"
    ),
    "the record of another action": _claimed(
        lambda tree: tree["row"].update(action_id="00" * 16), f"in the leaf, '{'00' * 16}' in the record"
    ),
    "another old state than the leaf's": _claimed(
        lambda tree: tree.update(old="proposed"), "old state 'available' in the leaf, 'proposed' in the record"
    ),
    "another new state than the leaf's": (
        "claimed",
        "Claim",
        0,
        lambda tree: None,
        lambda line: line.update(new="prepared"),
        "new state 'prepared' in the leaf, 'claimed' in the record",
    ),
    "another generation than the leaf's": (
        "claimed",
        "Claim",
        0,
        _both_generations,
        lambda line: None,
        "generation 1 in the leaf, 2 in the record",
    ),
    "the record of another log": _claimed(
        lambda tree: tree["ledger"].update(ledger_id="00" * 16), f"'{'00' * 16}' in the record"
    ),
    "a claim by a clock that was doubted": _claimed(
        lambda tree: tree["ledger"].update(state="held", clock_doubted=True),
        "key 'claimed': the rules do not let it claim: ledger_time_untrusted",
    ),
    "a window that a doubted clock closed": (
        "expired",
        "Expire",
        0,
        lambda tree: tree["ledger"].update(state="held", clock_doubted=True),
        lambda line: None,
        "key 'expired': the rules do not let it expire: clock_untrusted",
    ),
    "a doubt beside an open ledger": _claimed(
        lambda tree: tree["ledger"].update(clock_doubted=True), "the ledger was open, and its clock doubted beside that"
    ),
    "a doubt beside a doubt": _claimed(
        lambda tree: tree["ledger"].update(clock_doubted=True, state="time_untrusted"),
        "the ledger was time_untrusted, and its clock doubted beside that",
    ),
    "the record of another epoch": _claimed(
        lambda tree: tree["ledger"].update(epoch=1), "epoch 0 in the leaf, 1 in the record"
    ),
}


@pytest.mark.parametrize(("key", "event", "which", "change", "line", "words"), REWRITTEN.values(), ids=REWRITTEN)
def test_history_that_was_rewritten_against_the_rules_is_named(
    ledger: Path,
    key: str,
    event: str,
    which: int,
    change: Callable[[Tree], object],
    line: Callable[[Tree], object],
    words: str,
) -> None:
    at = places(ledger, key, event)[which]
    rewrite(ledger, at, change, line)
    problems = [(problem.leaf_index, problem.text) for problem in audit(ledger).problems]
    assert any(index == at >> 16 and words in text for index, text in problems), problems
    assert not any("frontier" in text for _, text in problems)


def test_a_command_that_was_on_record_already_has_no_record_of_its_own(ledger: Path) -> None:
    """The records of a claim and of its preparation are swapped for two of the same claim."""
    (claim,), (prepare,) = places(ledger, "prepared", "Claim"), places(ledger, "prepared", "Prepare")
    store = open_sqlite(ledger, create=False)
    (first,) = store.reader().effects.leaf_transitions(first=claim >> 16, stop=(claim >> 16) + 1)
    store.close()
    tree = orjson.loads(first.payload)
    rewrite(
        ledger, prepare, lambda forged: forged.update(tree), lambda line: line.update(old="available", new="claimed")
    )
    assert "key 'prepared': the rules do not let it claim: it was on record already" in said(ledger)


def test_a_log_that_never_gave_authority_has_no_actions(ledger: Path) -> None:
    forge_words(ledger, b'"new":"authority"', b'"new":"authoritx"')
    problems = said(ledger)
    assert problems
    assert all("the log never gave this store authority" in text for text in problems)


def test_a_copy_that_was_not_in_recovery_is_named(tmp_path: Path) -> None:
    stories = Stories(tmp_path / "origin.db")
    action = stories.prepared("one")
    copy = tmp_path / "copy.db"
    store = open_sqlite(tmp_path / "origin.db", create=False)
    store.backup(copy)
    store.close()
    stories.ledger.close()
    with stories.reopened(copy) as ledger:
        ledger.observe(RECON, action.action_id, stories.look(action))
    assert audit(copy).problems == ()
    (at,) = places(copy, "one", "Observe")
    rewrite(copy, at, lambda tree: tree["ledger"].pop("state"))  # which means open
    (problem,) = audit(copy).problems
    assert problem.leaf_index == at >> 16
    assert problem.text.endswith("the log is a copy's, and the ledger was open")


def test_records_come_in_pages(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effect_reader, "_CHUNK_ROWS", 7)
    store = open_sqlite(ledger, create=False)
    reads = store.reader().effects
    ids = [record.record_id for record in reads.leaf_transitions(first=0, stop=999)]
    assert ids == sorted(set(ids))
    assert len(ids) == reads.count_transitions() > 50
    assert audit(ledger).problems == ()
    store.close()
