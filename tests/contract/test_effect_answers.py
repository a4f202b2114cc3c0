"""What a target answered: kept with the evidence that it is, read again, and held against it by the auditor."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from agent_run_ledger import Misuse
from agent_run_ledger.effects import Found
from agent_run_ledger.kernel.effects.evidence import Observation
from agent_run_ledger.kernel.effects.report import Answered, evidence_id
from agent_run_ledger.testing import LedgerBroken, check_ledger
from tests.contract.effect_kit import EXE, A, Kit, effects
from tests.contract.effect_stories import edit
from tests.contract.engine_kit import each_engine, only_a_file
from tests.contract.test_dispatcher import CONFLICT, DONE, dispatcher, ready

pytestmark = each_engine


def _observation(kit: Kit, action_key: str, name: bytes, found: Found = Found.EXECUTED) -> Observation:
    epoch = kit.ledger.status().epoch
    return Observation(evidence_id=name, action_key=action_key, epoch=epoch, observer="exe", found=found, after=None)


def test_the_answer_of_a_success_is_kept_and_read_after_a_restart() -> None:
    with ready() as (kit, view, target):
        done = dispatcher(kit, target).dispatch(view.action_id)
        kit.reopen()
        (kept,) = kit.ledger.answers(view.action_id)
        assert (kept.evidence_id, kept.status, kept.body) == (done.evidence_id, 201, b"done")


def test_an_answer_that_is_no_success_is_kept_for_who_looks_into_the_doubt() -> None:
    said = Answered(found=Found.UNKNOWN, status=409, body_sha256=sha256(b"in use").digest(), body=b"in use")
    with ready(said) as (kit, view, target):
        done = dispatcher(kit, target).dispatch(view.action_id)
        assert done.view.state is A.UNRESOLVED
        assert [(one.status, one.body) for one in kit.ledger.answers(view.action_id)] == [(409, b"in use")]


def test_of_an_answer_without_its_body_nothing_is_kept() -> None:
    said = Answered(found=Found.EXECUTED, status=201, body_sha256=sha256(b"elsewhere").digest())
    with ready(said) as (kit, view, target):
        done = dispatcher(kit, target).dispatch(view.action_id)
        assert (done.view.state, kit.ledger.answers(view.action_id)) == (A.SUCCEEDED, [])


WRONG = {
    "another answer": (DONE, CONFLICT),
    "another body": (DONE, Answered(found=Found.EXECUTED, status=201, body_sha256=DONE.body_sha256, body=b"other")),
    "too much of it": (
        DONE,
        Answered(
            found=Found.EXECUTED,
            status=201,
            body_sha256=sha256(bytes((1 << 20) + 1)).digest(),
            body=bytes((1 << 20) + 1),
        ),
    ),
}


@pytest.mark.parametrize("which", WRONG)
def test_an_answer_that_the_evidence_is_not_named_after_is_refused_and_nothing_is_written(which: str) -> None:
    named, answer = WRONG[which]
    if which == "too much of it":
        named = answer
    with effects() as kit:
        view = kit.reach(A.PREPARED)
        evidence = _observation(kit, view.action_key, evidence_id(bytes(16), named))
        with pytest.raises(Misuse) as caught:
            kit.ledger.outcome(EXE, view.action_id, evidence, answer=answer)
        assert caught.value.code == "other_answer"
        assert kit.ledger.get(view.action_id) == view
        assert kit.ledger.answers(view.action_id) == []


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE answers SET body = x'00'",
        "UPDATE answers SET status = 200",
        "UPDATE answers SET evidence_id = zeroblob(48)",
        "UPDATE answers SET action_row_id = 7",
    ],
)
@only_a_file
def test_an_answer_that_was_changed_is_named_by_the_auditor(sql: str, tmp_path: Path) -> None:
    with ready() as (kit, view, target):
        dispatcher(kit, target).dispatch(view.action_id)
        kit.ledger.close()
        check_ledger(kit.path)
        assert edit(kit.path, sql) == 1
        with pytest.raises(LedgerBroken, match="answer"):
            check_ledger(kit.path)
        edit(kit.path, "DELETE FROM answers")  # what the auditor has seen is not looked at again on leaving
        kit.reopen()
