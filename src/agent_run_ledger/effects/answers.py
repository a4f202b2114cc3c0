"""What is kept of a target's answer, and whether it is the one that the evidence on record is named after."""

from __future__ import annotations

from hashlib import sha256

from agent_run_ledger.effects.engine import NOTHING, Beside
from agent_run_ledger.errors import Misuse
from agent_run_ledger.kernel.effects.evidence import Found
from agent_run_ledger.kernel.effects.report import Answered, report_sha256
from agent_run_ledger.ports.effects import StoredAnswer

MAX_ANSWER_BYTES = 1 << 20


def kept_answer(evidence: object, answer: Answered | None) -> Beside:
    """Return what is written beside the transition of some evidence.

    Misuse("other_answer") for an answer that this evidence is not named after, or of more than MAX_ANSWER_BYTES.
    """
    if answer is None:
        return NOTHING
    named: object = getattr(evidence, "evidence_id", None)
    if len(answer.body) > MAX_ANSWER_BYTES:
        raise Misuse(f"an answer that is kept has at most {MAX_ANSWER_BYTES:,} bytes", code="other_answer")
    same_body = sha256(answer.body).digest() == answer.body_sha256
    if not isinstance(named, bytes) or not same_body or named[16:] != report_sha256(answer):
        raise Misuse("this evidence is not named after this answer", code="other_answer", hint="see `evidence_id`")
    return Beside(answer=StoredAnswer(evidence_id=named, status=answer.status, body=answer.body))


def is_named_after(stored: StoredAnswer, found: Found) -> bool:
    """Return whether evidence has the name of this answer, where it found that."""
    answered = Answered(found=found, status=stored.status, body_sha256=sha256(stored.body).digest())
    return stored.evidence_id[16:] == report_sha256(answered)
