"""The rules that settle a doubt: success, evidence, not executed, written off, closed unprepared."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Any, Final, TypeAlias

from agent_run_ledger.kernel.effects.action import Action, ends_by_time, highest_mark
from agent_run_ledger.kernel.effects.commands import (
    CloseUnprepared,
    NotExecuted,
    Observe,
    Outcome,
    Success,
    WriteOff,
)
from agent_run_ledger.kernel.effects.decision import Accepted, Case, Decision, Guard
from agent_run_ledger.kernel.effects.dispatching import by_its_executor, nobody_saw_it
from agent_run_ledger.kernel.effects.evidence import (
    Covers,
    Drain,
    DrainKind,
    FenceAnswer,
    Found,
    Observation,
    Receipt,
)
from agent_run_ledger.kernel.effects.states import FENCING, ActionState, Event, TargetClass

SuccessEvidence: TypeAlias = Receipt | FenceAnswer | Observation
REBUILT_DOMAIN: Final = b"agent-run-ledger/rebuilt-member/v1\n"


def _about_this_key(case: Case[Outcome] | Case[Success] | Case[Observe]) -> bool:
    return case.command.evidence.action_key == case.row.action_key


def _from_its_receiver(case: Case[Outcome] | Case[Success]) -> bool:
    evidence = case.command.evidence
    return isinstance(evidence, Observation) or evidence.receiver == case.row.terms.audience


def _says_success(case: Case[Outcome] | Case[Success]) -> bool:
    evidence = case.command.evidence
    return isinstance(evidence, Receipt) or evidence.found is Found.EXECUTED


def _unused(case: Case[Any], evidence_id: bytes) -> bool:
    """Whether no member's evidence has this id. Else a later drain with it would give an older look its meaning."""
    return all(evidence_id not in member.evidence for member in case.members)


def _unused_or_seen(case: Case[Outcome] | Case[Success]) -> bool:
    """Whether it is new, or the very observation on record, by which a success may be decided."""
    evidence = case.command.evidence
    return evidence == case.row.observation or _unused(case, evidence.evidence_id)


def _told_by_its_observer(case: Case[Outcome] | Case[Success]) -> bool:
    """Whether an observation is the actor's own, or was put on record by who made it."""
    evidence = case.command.evidence
    own = not isinstance(evidence, Observation) or evidence.observer == case.command.actor.principal
    return own or evidence == case.row.observation


def _seen_in_epoch(case: Case[Outcome] | Case[Success]) -> bool:
    evidence = case.command.evidence
    return not isinstance(evidence, Observation) or evidence.epoch == case.ledger.epoch


def _names_a_lost_member(row: Action, members: tuple[Action, ...], evidence: SuccessEvidence) -> bool:
    """Whether evidence is about a member that this history does not have."""
    generation, digest = evidence.generation, evidence.request_sha256
    other = generation != row.generation or (digest is not None and digest != row.terms.request_sha256)
    taken = any(member.generation == generation for member in members if member is not row)
    return generation is not None and other and not taken


def rebuilt_id(action_key: str, evidence_id: bytes) -> bytes:
    """Return the id (16 bytes) of the member that is rebuilt from evidence: the same for the same evidence.

    SHA-256(REBUILT_DOMAIN ‖ key in UTF-8 ‖ NUL ‖ evidence id), of which the first 16 bytes.
    """
    return sha256(REBUILT_DOMAIN + action_key.encode() + b"\0" + evidence_id).digest()[:16]


def _rebuilt_is_new(case: Case[Outcome] | Case[Success]) -> bool:
    row, evidence = case.row, case.command.evidence
    new_id = rebuilt_id(row.action_key, evidence.evidence_id)
    lost = _names_a_lost_member(row, case.members, evidence)
    return not lost or all(member.action_id != new_id for member in case.members)


OUTCOME: Final[tuple[Guard[Outcome], ...]] = (
    Guard("wrong_executor", "another executor carries it out; a reconciler can decide", by_its_executor),
    Guard("other_key", "the evidence is about another key", _about_this_key),
    Guard("other_receiver", "another receiver signed it", _from_its_receiver),
    Guard("says_no_success", "the evidence does not say that it was executed", _says_success),
    Guard("other_observer", "who looked tells what was seen", _told_by_its_observer),
    Guard("other_epoch", "it was seen in another epoch", _seen_in_epoch),
    Guard("evidence_used", "evidence with this id is on record already", _unused_or_seen),
    Guard("id_taken", "another member has the id that the rebuilt one would have", _rebuilt_is_new),
)

SUCCESS: Final[tuple[Guard[Success], ...]] = (
    Guard(
        "reconciler_is_executor",
        "who carries it out cannot decide what became of it",
        lambda c: c.command.actor.principal != c.row.terms.executor,
    ),
    Guard("other_key", "the evidence is about another key", _about_this_key),
    Guard("other_receiver", "another receiver signed it", _from_its_receiver),
    Guard("says_no_success", "the evidence does not say that it was executed", _says_success),
    Guard("other_observer", "who looked tells what was seen", _told_by_its_observer),
    Guard("other_epoch", "it was seen in another epoch", _seen_in_epoch),
    Guard("evidence_used", "evidence with this id is on record already", _unused_or_seen),
    Guard("id_taken", "another member has the id that the rebuilt one would have", _rebuilt_is_new),
)


def _is_drain(case: Case[Observe]) -> Drain | None:
    evidence = case.command.evidence
    return evidence if isinstance(evidence, Drain) else None


def _by_expiry(case: Case[Observe]) -> bool:
    drain = _is_drain(case)
    return drain is not None and drain.kind is DrainKind.EXPIRY


def _not_contradicted(case: Case[Observe]) -> bool:
    evidence, seen = case.command.evidence, case.row.observation
    denies = isinstance(evidence, Observation) and evidence.found is not Found.EXECUTED
    return not denies or seen is None or seen.found is not Found.EXECUTED


def _after_what_is_on_record(case: Case[Observe]) -> bool:
    """Whether the drain that a look names was there first: nothing recorded later comes before it."""
    evidence, drain = case.command.evidence, case.row.drain
    if not isinstance(evidence, Observation) or evidence.after is None:
        return True
    return drain is not None and evidence.after == drain.evidence_id


def _drains_at_all(case: Case[Observe]) -> bool:
    return _is_drain(case) is None or case.row.terms.target_class is not TargetClass.F


def _has_timer(case: Case[Observe]) -> bool:
    """Whether the receiver itself refuses a permit that is over; for a plain target no time is ever enough."""
    terms = case.row.terms
    return not _by_expiry(case) or ends_by_time(terms.target_class, checks_expiry=terms.checks_expiry)


def _permits_over(case: Case[Observe]) -> bool:
    """Whether the last permit there can be is over by every clock.

    Where this history prepared nothing, a lost one may have, at the latest before the doubt was recorded; where the
    clock was corrected since, by any clock up to the latest that was set aside.
    """
    row, ledger = case.row, case.ledger
    last = row.permit_expires_ms
    if last is None:
        since = case.command.now.latest_ms if row.in_doubt_since_ms is None else row.in_doubt_since_ms
        last = max(since, ledger.corrected_ms) + ledger.max_permit_ms
    return not _by_expiry(case) or case.command.now.earliest_ms >= last + ledger.bound_ms


def _covers_enough(case: Case[Observe]) -> bool:
    """Whether dead paths are enough of them: after an admission the lost history may have had other workers."""
    drain = _is_drain(case)
    if drain is None or drain.kind is DrainKind.EXPIRY or drain.covers is Covers.EVERY_EXECUTOR:
        return True
    return case.row.worker is not None and not case.ledger.admitted


OBSERVE: Final[tuple[Guard[Observe], ...]] = (
    Guard("other_key", "the evidence is about another key", _about_this_key),
    Guard(
        "other_observer",
        "evidence is recorded by who stands for it",
        lambda c: c.command.evidence.observer == c.command.actor.principal,
    ),
    Guard("other_epoch", "it was seen in another epoch", lambda c: c.command.evidence.epoch == c.ledger.epoch),
    Guard(
        "evidence_used",
        "evidence with this id is on record already",
        lambda c: _unused(c, c.command.evidence.evidence_id),
    ),
    Guard("other_drain", "it names a drain that is not on record", _after_what_is_on_record),
    Guard("contradicted", "an execution was seen before, and that does not go away", _not_contradicted),
    Guard(
        "nothing_to_drain",
        "a claim that is not prepared is closed or doubted first",
        lambda c: _is_drain(c) is None or c.row.state is not ActionState.CLAIMED,
    ),
    Guard("fence_instead", "this receiver fences within the effect's transaction: ask it", _drains_at_all),
    Guard(
        "drain_by_executor",
        "who carries it out cannot say that nothing more will come",
        lambda c: _is_drain(c) is None or c.command.actor.principal != c.row.terms.executor,
    ),
    Guard("no_timer", "this receiver checks no expiry, so no time is enough", _has_timer),
    Guard(
        "clock_untrusted",
        "the clock is not trusted, so it cannot say that a permit is over",
        lambda c: not _by_expiry(c) or c.ledger.clock_trusted,
    ),
    Guard("permit_may_live", "a permit may not be over yet", _permits_over),
    Guard("covers_too_little", "another executor may still reach the target", _covers_enough),
)


def _nobody_is_executor(case: Case[NotExecuted] | Case[WriteOff]) -> bool:
    return case.row.terms.executor not in case.command.people | {case.command.actor.principal}


def _deciding(case: Case[NotExecuted] | Case[WriteOff]) -> int:
    return len(case.command.people | {case.command.actor.principal})


def _fence_of_key(case: Case[NotExecuted] | Case[CloseUnprepared]) -> bool:
    fence = case.command.fence
    return fence is None or fence.action_key == case.row.action_key


def _fence_of_receiver(case: Case[NotExecuted] | Case[CloseUnprepared]) -> bool:
    fence = case.command.fence
    return fence is None or fence.receiver == case.row.terms.audience


def _can_fence(case: Case[NotExecuted] | Case[CloseUnprepared]) -> bool:
    return case.command.fence is None or case.row.terms.target_class in FENCING


def _fence_of_epoch(case: Case[NotExecuted] | Case[CloseUnprepared]) -> bool:
    fence = case.command.fence
    return fence is None or fence.epoch == case.ledger.epoch


def _fence_found_none(case: Case[NotExecuted] | Case[CloseUnprepared]) -> bool:
    fence = case.command.fence
    return fence is None or fence.found is not Found.EXECUTED


def _fence_knows(case: Case[CloseUnprepared]) -> bool:
    fence = case.command.fence
    return fence is None or fence.found is not Found.UNKNOWN


def _fence_high(case: Case[NotExecuted] | Case[CloseUnprepared]) -> bool:
    fence = case.command.fence
    return fence is None or fence.mark >= highest_mark(case.members)


def _fence_unused(case: Case[NotExecuted] | Case[CloseUnprepared]) -> bool:
    fence = case.command.fence
    return fence is None or _unused(case, fence.evidence_id)


def _asked_if_it_can(case: Case[NotExecuted]) -> bool:
    """Whether a receiver that can fence was asked to: without its mark an older copy could still send."""
    return case.command.fence is not None or case.row.terms.target_class not in FENCING


def _settled_by_fence(case: Case[NotExecuted]) -> bool:
    """Whether the answer alone is enough; where F-minus knows no outcome, drain and observation come on top."""
    fence = case.command.fence
    return fence is not None and fence.found is Found.NOTHING


def _unknown_by_class(case: Case[NotExecuted]) -> bool:
    fence = case.command.fence
    unknown = fence is not None and fence.found is Found.UNKNOWN
    return not unknown or case.row.terms.target_class is TargetClass.F_MINUS


def _drained(case: Case[NotExecuted]) -> bool:
    drain = case.row.drain
    return _settled_by_fence(case) or (drain is not None and drain.epoch == case.ledger.epoch)


def _by_timer(case: Case[NotExecuted]) -> bool:
    """Whether the decision rests on a clock that said, when the drain was recorded, that every permit was over."""
    drain = case.row.drain
    return not _settled_by_fence(case) and drain is not None and drain.kind is DrainKind.EXPIRY


def _seen_nothing(case: Case[NotExecuted]) -> bool:
    seen = case.row.observation
    fresh = seen is not None and seen.found is Found.NOTHING and seen.epoch == case.ledger.epoch
    return _settled_by_fence(case) or fresh


def _seen_after_drain(case: Case[NotExecuted]) -> bool:
    drain, seen = case.row.drain, case.row.observation
    after = drain is not None and seen is not None and seen.after == drain.evidence_id
    return _settled_by_fence(case) or after


def _others_saw(case: Case[NotExecuted]) -> bool:
    seen = case.row.observation
    return _settled_by_fence(case) or (seen is not None and seen.observer != case.row.terms.executor)


NOT_EXECUTED: Final[tuple[Guard[NotExecuted], ...]] = (
    Guard("reconciler_is_executor", "who carries it out cannot decide what became of it", _nobody_is_executor),
    Guard(
        "few_people",
        "the policy wants more people for this decision",
        lambda c: _deciding(c) >= c.ledger.people_for_not_executed,
    ),
    Guard("seen_executed", "somebody saw that it was executed: that is the outcome", nobody_saw_it),
    Guard("not_asked", "this receiver can fence, so it is asked", _asked_if_it_can),
    Guard("no_fence", "a receiver of this class cannot fence", _can_fence),
    Guard("fence_of_other_key", "the answer is about another key", _fence_of_key),
    Guard("fence_of_other_receiver", "another receiver signed it", _fence_of_receiver),
    Guard("fence_of_other_epoch", "the receiver was asked in another epoch", _fence_of_epoch),
    Guard("receiver_executed", "the receiver executed it: that is the outcome", _fence_found_none),
    Guard("outcome_unknown", "the receiver accepted it and does not know how it ended", _unknown_by_class),
    Guard("mark_below", "the receiver would still take a request of this key", _fence_high),
    Guard("evidence_used", "evidence with this id is on record already", _fence_unused),
    Guard("no_drain", "nothing on record shows that nothing more can arrive", _drained),
    Guard(
        "clock_untrusted",
        "the clock is not trusted, so it may have ended the permits too early",
        lambda c: not _by_timer(c) or c.ledger.clock_trusted,
    ),
    Guard(
        "drain_before_correction",
        "the clock by which the permits were over has been corrected since",
        lambda c: not _by_timer(c) or c.row.drain_corrections == c.ledger.corrections,
    ),
    Guard("no_observation", "nobody looked in this epoch and saw nothing", _seen_nothing),
    Guard(
        "observation_before_drain", "somebody looked before it was sure that nothing more arrives", _seen_after_drain
    ),
    Guard("executors_word", "the executor's own word is no evidence that it did nothing", _others_saw),
)


def _told_nothing(case: Case[WriteOff]) -> bool:
    """Whether no look at the target told anything. An answer of which nothing follows is on record as such a look."""
    return case.row.observation is None or case.row.observation.found is Found.UNKNOWN


WRITE_OFF: Final[tuple[Guard[WriteOff], ...]] = (
    Guard("reconciler_is_executor", "who carries it out cannot decide what became of it", _nobody_is_executor),
    Guard("few_people", "to give up finding out takes two people", lambda c: _deciding(c) >= 2),
    Guard(
        "observable",
        "the target can be observed, so look",
        lambda c: c.command.nobody_can_observe and _told_nothing(c),
    ),
)


def _confirmed(case: Case[CloseUnprepared]) -> bool:
    """Whether something outside the database says that this history is the only one, or that the receiver fenced."""
    ledger = case.ledger
    return case.command.fence is not None or (ledger.witnessed and not ledger.lost_leaves)


CLOSE_UNPREPARED: Final[tuple[Guard[CloseUnprepared], ...]] = (
    Guard(
        "reconciler_is_executor",
        "who carries it out cannot decide what became of it",
        lambda c: c.command.actor.principal != c.row.terms.executor,
    ),
    Guard("seen_executed", "somebody saw it executed, whoever sent it", nobody_saw_it),
    Guard("prepared_before", "it was prepared, so it may have been sent", lambda c: not c.row.prepare_leaf),
    Guard("needs_fence_or_drain", "this may not be the only history: fence it, or doubt and drain", _confirmed),
    Guard("no_fence", "a receiver of this class cannot fence", _can_fence),
    Guard("fence_of_other_key", "the answer is about another key", _fence_of_key),
    Guard("fence_of_other_receiver", "another receiver signed it", _fence_of_receiver),
    Guard("fence_of_other_epoch", "the receiver was asked in another epoch", _fence_of_epoch),
    Guard("receiver_executed", "the receiver executed it: that is the outcome", _fence_found_none),
    Guard("outcome_unknown", "the receiver accepted it and does not know how it ended", _fence_knows),
    Guard("mark_below", "the receiver would still take a request of this key", _fence_high),
    Guard("evidence_used", "evidence with this id is on record already", _fence_unused),
)


def outcome(case: Case[Outcome]) -> Decision:
    """Record a success that the executor reports with evidence."""
    return _succeeded(case.row, case.members, Event.OUTCOME, case.command.evidence)


def success(case: Case[Success]) -> Decision:
    """Record a success that a reconciler decides by evidence."""
    return _succeeded(case.row, case.members, Event.SUCCESS, case.command.evidence)


def _succeeded(row: Action, members: tuple[Action, ...], event: Event, evidence: SuccessEvidence) -> Accepted:
    """Close the open member. Evidence that names another one, of a lost history, rebuilds that one as succeeded.

    Where a closed member of this history has the named generation, nothing closed is changed: the open member is
    closed as succeeded, for the key's effect happened, and its evidence names the generation.
    """
    generation, digest = evidence.generation, evidence.request_sha256
    kept = row.evidence if evidence == row.observation else (*row.evidence, evidence.evidence_id)
    if generation is None or not _names_a_lost_member(row, members, evidence):
        changed = replace(row, state=ActionState.SUCCEEDED, evidence=kept)
        return Accepted(event=event, old=row.state, new=changed.state, rows=(changed,))
    if generation == row.generation:
        # The same generation with other bytes: it was this claim's in the lost history. Its number goes to the member
        # that has the effect, for no two members share one.
        row = replace(row, generation=None)
    superseded = replace(row, state=ActionState.SUPERSEDED, evidence=kept)
    terms = replace(row.terms, request_sha256=digest or row.terms.request_sha256)
    rebuilt = Action(
        action_key=row.action_key,
        action_id=rebuilt_id(row.action_key, evidence.evidence_id),
        epoch=row.epoch,
        floor=generation - 1,
        state=ActionState.SUCCEEDED,
        requester=row.requester,
        terms=terms,
        generation=generation,
        replaces=row.action_id,
        evidence=(evidence.evidence_id,),
        demoted_epoch=row.demoted_epoch,
        rebuilt=True,
    )
    return Accepted(event=event, old=row.state, new=superseded.state, rows=(superseded, rebuilt))


def observe(case: Case[Observe]) -> Decision:
    """Put evidence on record. With a drain on record nothing of the claim is handed out any more."""
    row, evidence = case.row, case.command.evidence
    kept = (*row.evidence, evidence.evidence_id)
    if isinstance(evidence, Drain):
        changed = replace(row, drain=evidence, drain_corrections=case.ledger.corrections, evidence=kept)
    else:
        changed = replace(row, observation=evidence, evidence=kept)
    return Accepted(event=Event.OBSERVE, old=row.state, new=row.state, rows=(changed,))


def not_executed(case: Case[NotExecuted]) -> Decision:
    """Close it as not executed, by a fence or by a drain and the look after it."""
    return _closed_unexecuted(case, Event.NOT_EXECUTED)


def close_unprepared(case: Case[CloseUnprepared]) -> Decision:
    """Close what was never prepared; after that it cannot be."""
    return _closed_unexecuted(case, Event.CLOSE_UNPREPARED)


def _closed_unexecuted(case: Case[NotExecuted] | Case[CloseUnprepared], event: Event) -> Accepted:
    row, fence = case.row, case.command.fence
    changed = replace(
        row,
        state=ActionState.NOT_EXECUTED,
        fenced_mark=row.fenced_mark if fence is None else fence.mark,
        evidence=row.evidence if fence is None else (*row.evidence, fence.evidence_id),
    )
    return Accepted(event=event, old=row.state, new=changed.state, rows=(changed,), cosign_first=case.ledger.witnessed)


def write_off(case: Case[WriteOff]) -> Decision:
    """Close it without an answer. Nothing ever follows it."""
    changed = replace(case.row, state=ActionState.WRITTEN_OFF)
    return Accepted(event=Event.WRITE_OFF, old=case.row.state, new=changed.state, rows=(changed,))
