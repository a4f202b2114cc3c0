"""The ledger's side of the search: the product's own decisions about one key, asked once each and remembered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from agent_run_ledger.kernel.effects import Accepted, Action, Decision, Now, Recorded, Role, Standing, Terms
from agent_run_ledger.kernel.effects.action import highest_mark
from agent_run_ledger.kernel.effects.approval import VerifiedApproval, statement_of, statement_sha256
from agent_run_ledger.kernel.effects.commands import (
    Actor,
    Admit,
    Approve,
    Claim,
    CloseUnprepared,
    Command,
    Doubt,
    DoubtBy,
    Expire,
    HandOut,
    NotExecuted,
    Observe,
    Outcome,
    Prepare,
    Propose,
    Reject,
    Revoke,
    Success,
    Successor,
    WriteOff,
)
from agent_run_ledger.kernel.effects.evidence import Covers, Drain, DrainKind, FenceAnswer, Found, Observation, Receipt
from agent_run_ledger.kernel.effects.reducer import decide
from agent_run_ledger.kernel.effects.states import ARROWS, ActionState, Event

KEY = "refund:17"
BYTES = b"b" * 32
NOW_MS, PERMIT_MS, BOUND_MS, END_MS = 1_000, 10, 1, 100_000
OVER_MS = 0
NOW = Now(NOW_MS, NOW_MS)
LATE = Now(END_MS, END_MS)

REQUESTER = Actor("ann", frozenset({Role.REQUESTER}))
APPROVER = Actor("bob", frozenset({Role.APPROVER}))
EXECUTOR = Actor("exe", frozenset({Role.EXECUTOR}))
RECONCILER = Actor("rec", frozenset({Role.RECONCILER}))
OPERATOR = Actor("ops", frozenset({Role.OPERATOR}))
REVOKER = Actor("rev", frozenset({Role.REVOKER}))
OFFICER = Actor("off", frozenset({Role.OFFICER}))

Members = tuple[Action, ...]
Question = tuple[Any, ...]


class Reply(NamedTuple):
    """What an accepted or recorded question leads to; `broken`: which invariant the transition breaks, if one."""

    decision: Decision
    ledger: int
    members: int
    broken: str | None = None


class Store:
    """Standings and members by number, and every answer of the product's `decide` that was asked for."""

    def __init__(self, terms: Terms, first: Standing) -> None:
        """Begin with an empty key in a ledger that stands at `first`."""
        self.terms = terms
        self._numbers: dict[object, int] = {}
        self.values: list[Any] = []
        self._replies: dict[tuple[int, int, Question], Reply | None] = {}
        self._aged: dict[int, int] = {}
        self.first = self.number(first), self.number(())

    def number(self, value: object) -> int:
        """The number of a value; equal values have one."""
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self.values)
            self.values.append(value)
        return found

    def ask(self, ledger: int, members: int, question: Question) -> Reply | None:
        """The reply to one question, None when the product refuses it or nothing would come of it."""
        at = (ledger, members, question)
        if at not in self._replies:
            self._replies[at] = self._decided(*at)
        return self._replies[at]

    def aged(self, members: int) -> int:
        """The members after so much time that every permit is over and every doubt is old."""
        if members not in self._aged:
            rows: Members = self.values[members]
            older = tuple(
                replace(
                    row,
                    permit_expires_ms=None if row.permit_expires_ms is None else OVER_MS,
                    in_doubt_since_ms=None if row.in_doubt_since_ms is None else OVER_MS,
                )
                for row in rows
            )
            self._aged[members] = self.number(older)
        return self._aged[members]

    def _decided(self, ledger: int, members: int, question: Question) -> Reply | None:
        standing: Standing = self.values[ledger]
        rows: Members = self.values[members]
        if question[0] == "hand out" and question[2]:
            standing = replace(standing, opening=b"restarted")
        command = QUESTIONS[question[0]](standing, rows, self.terms, *question[1:])
        if command is None:
            return None
        decision = decide(standing, rows, command)
        if isinstance(decision, Recorded):
            return Reply(decision, ledger, members) if decision.same_permit else None
        if not isinstance(decision, Accepted):
            return None
        after = tuple(_told_apart(row) for row in _merged(rows, decision.rows))
        broken = _broken(rows, after, decision)
        stands = ledger if decision.ledger is None else self.number(decision.ledger)
        return Reply(decision, stands, self.number(after), broken)


def _merged(rows: Members, changed: Members) -> Members:
    """The members with the changed ones in their places and the new ones at the end."""
    known = {row.action_id for row in rows}
    by_id = {row.action_id: row for row in changed}
    return (*(by_id.get(row.action_id, row) for row in rows), *(row for row in changed if row.action_id not in known))


def _told_apart(row: Action) -> Action:
    """The row without what no rule asks for: worlds that differ only in that are one."""
    drain = row.drain
    if drain is not None:
        drain = replace(drain, kind=DrainKind.PATH_DEAD, covers=Covers.EVERY_EXECUTOR)
    if row.state in (ActionState.SUPERSEDED, ActionState.SUCCEEDED):
        return Action(
            action_key=row.action_key,
            action_id=row.action_id,
            epoch=0,
            floor=row.mark,
            generation=row.generation,
            state=row.state,
            requester="",
            terms=row.terms,
        )
    doubted = row.in_doubt_since_ms
    if doubted is not None and row.permit_expires_ms is not None:
        doubted = OVER_MS
    return replace(row, drain=drain, evidence=(), in_doubt_since_ms=doubted, replaces=None)


def _broken(before: Members, after: Members, decision: Accepted) -> str | None:
    """What of the numbered invariants a transition breaks within one history, None when nothing."""
    generations = [row.generation for row in after if row.generation is not None]
    if len(set(generations)) != len(generations):
        return "1: two members with one generation"
    if highest_mark(after) < highest_mark(before):
        return "6: the mark of the key fell"
    if sum(not row.closed for row in after) > 1 or (after and after[-1].state is ActionState.SUPERSEDED):
        return "two open members, or none that stands for the key"
    arrow = ARROWS.get((decision.old, decision.event))
    if decision.event is not Event.ADMIT and (arrow is None or decision.new not in arrow.new):
        return "a transition that the table does not have"
    if decision.new is ActionState.AVAILABLE and decision.event is not Event.APPROVE:
        return "a way back to available"
    closed = {row.action_id: row.state for row in before if row.closed}
    changed = {row.state for row in after if row.action_id in closed and row.state is not closed[row.action_id]}
    if changed - {ActionState.SUPERSEDED} and decision.event is not Event.ADMIT:
        return "a closed member changed"
    return None


def _newest(rows: Members) -> bytes:
    return rows[-1].action_id if rows else b""


def _id(rows: Members) -> bytes:
    return b"member-%d" % len(rows)


def _approve(ledger: Standing, rows: Members, terms: Terms, epoch: int) -> Command | None:
    if not rows:
        return None
    statement = statement_of(replace(ledger, epoch=epoch), rows[-1], approver="bob", nonce=b"n")
    approval = VerifiedApproval(
        approval_id=b"a", statement=statement, signed_sha256=statement_sha256(statement), principal="bob"
    )
    return Approve(actor=APPROVER, now=NOW, action_id=_newest(rows), approval=approval)


def _claim(ledger: Standing, rows: Members, terms: Terms) -> Command | None:
    worker = f"w{ledger.epoch}.{highest_mark(rows) + 1}"
    return Claim(
        actor=EXECUTOR,
        now=NOW,
        action_id=_newest(rows),
        claim_id=b"claim",
        claim_key=worker.encode(),
        worker=worker,
        request_sha256=BYTES,
    )


def _hand_out(ledger: Standing, rows: Members, terms: Terms, cosigned: bool, again: bool) -> Command | None:
    """By the process that prepared it, or by one that was started after its end and knows the claim."""
    worker = (rows[-1].worker or "") if rows else ""
    return HandOut(
        actor=EXECUTOR,
        now=NOW,
        action_id=_newest(rows),
        claim_id=b"claim",
        worker=f"{worker}, restarted" if again else worker,
        cosigned=cosigned,
    )


def _prepare(ledger: Standing, rows: Members, terms: Terms) -> Command | None:
    worker = (rows[-1].worker or "") if rows else ""
    return Prepare(
        actor=EXECUTOR, now=NOW, action_id=_newest(rows), claim_id=b"claim", worker=worker, permit_ms=PERMIT_MS
    )


def _drain(ledger: Standing, rows: Members, terms: Terms, kind: DrainKind, covers: Covers) -> Command | None:
    if rows and rows[-1].drain is not None and rows[-1].drain.epoch == ledger.epoch:
        return None
    drain = Drain(
        evidence_id=b"drain-%d" % ledger.epoch,
        action_key=KEY,
        epoch=ledger.epoch,
        observer="rec",
        kind=kind,
        covers=covers,
    )
    return Observe(actor=RECONCILER, now=NOW, action_id=_newest(rows), evidence=drain)


def _observation(ledger: Standing, rows: Members, found: Found) -> Observation:
    drain = rows[-1].drain if rows else None
    after = None if drain is None else drain.evidence_id
    return Observation(
        evidence_id=b"seen", action_key=KEY, epoch=ledger.epoch, observer="rec", found=found, after=after
    )


def _observe(ledger: Standing, rows: Members, terms: Terms, found: Found) -> Command | None:
    seen = _observation(ledger, rows, found)
    if not rows or rows[-1].observation == seen:
        return None
    return Observe(actor=RECONCILER, now=NOW, action_id=_newest(rows), evidence=seen)


def _observe_ahead(ledger: Standing, rows: Members, terms: Terms) -> Command | None:
    """A look that names the drain of this epoch before it is on record."""
    if rows and rows[-1].drain is not None and rows[-1].drain.epoch == ledger.epoch:
        return None
    seen = replace(_observation(ledger, rows, Found.NOTHING), after=b"drain-%d" % ledger.epoch)
    return Observe(actor=RECONCILER, now=NOW, action_id=_newest(rows), evidence=seen)


def _seen_executed(ledger: Standing, rows: Members, terms: Terms) -> Command | None:
    seen = _observation(ledger, rows, Found.EXECUTED)
    return Success(actor=RECONCILER, now=NOW, action_id=_newest(rows), evidence=seen)


def _receipt(ledger: Standing, rows: Members, terms: Terms, generation: int) -> Command | None:
    receipt = Receipt(
        evidence_id=b"receipt of generation %d" % generation,
        action_key=KEY,
        receiver=terms.audience,
        generation=generation,
        request_sha256=BYTES,
    )
    return Outcome(actor=EXECUTOR, now=NOW, action_id=_newest(rows), evidence=receipt)


def fence_mark(rows: Members) -> int:
    """The mark that a reconciler asks the receiver to fence at."""
    return highest_mark(rows)


def _fence(
    ledger: Standing, rows: Members, terms: Terms, close: bool, mark: int, found: Found, generation: int | None
) -> Command | None:
    answer = FenceAnswer(
        evidence_id=b"fence",
        action_key=KEY,
        receiver=terms.audience,
        epoch=ledger.epoch,
        mark=mark,
        found=found,
        generation=generation,
        request_sha256=None if generation is None else BYTES,
    )
    if found is Found.EXECUTED:
        return Outcome(actor=EXECUTOR, now=NOW, action_id=_newest(rows), evidence=answer)
    if close:
        return CloseUnprepared(actor=RECONCILER, now=NOW, action_id=_newest(rows), fence=answer)
    return NotExecuted(actor=RECONCILER, now=NOW, action_id=_newest(rows), fence=answer)


def _admit(ledger: Standing, rows: Members, terms: Terms, lost: bool) -> Command | None:
    return Admit(
        actor=OFFICER,
        now=NOW,
        epoch=ledger.epoch + 1,
        outside_epoch=ledger.epoch,
        officers=frozenset({"off"}),
        stopped_ms=NOW_MS - PERMIT_MS - BOUND_MS,
        lost_leaves=lost,
        origin_frozen=True,
    )


QUESTIONS: dict[str, Callable[..., Command | None]] = {
    "propose": lambda g, m, t: (
        None if m else Propose(actor=REQUESTER, now=NOW, action_key=KEY, action_id=_id(m), terms=t)
    ),
    "approve": _approve,
    "reject": lambda g, m, t: Reject(actor=APPROVER, now=NOW, action_id=_newest(m)),
    "revoke": lambda g, m, t: Revoke(actor=REVOKER, now=NOW, action_id=_newest(m)),
    "expire": lambda g, m, t: Expire(actor=OPERATOR, now=LATE, action_id=_newest(m)),
    "claim": _claim,
    "prepare": _prepare,
    "hand out": _hand_out,
    "doubt": lambda g, m, t: Doubt(actor=OPERATOR, now=NOW, action_id=_newest(m), by=DoubtBy.OPERATOR),
    "drain": _drain,
    "observe": _observe,
    "observe ahead": _observe_ahead,
    "observed success": _seen_executed,
    "receipt": _receipt,
    "not executed": lambda g, m, t: NotExecuted(actor=RECONCILER, now=NOW, action_id=_newest(m)),
    "fence": _fence,
    "close unprepared": lambda g, m, t: CloseUnprepared(actor=RECONCILER, now=NOW, action_id=_newest(m)),
    "write off": lambda g, m, t: WriteOff(
        actor=RECONCILER, now=NOW, action_id=_newest(m), nobody_can_observe=True, people=frozenset({"sam"})
    ),
    "successor": lambda g, m, t, cosigned: Successor(
        actor=REQUESTER, now=NOW, action_id=_newest(m), new_action_id=_id(m), terms=t, cosigned=cosigned
    ),
    "admit": _admit,
}
"""How each question is put to the product."""
