"""The way of one approved action through its claim to its target, and what is on record of it afterwards."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Protocol

from agent_run_ledger.effects.answers import MAX_ANSWER_BYTES
from agent_run_ledger.effects.views import ActionView
from agent_run_ledger.errors import LedgerError, Refused, Tampered, Unavailable, Uncertain
from agent_run_ledger.kernel.effects.commands import Actor, DoubtBy
from agent_run_ledger.kernel.effects.evidence import FenceAnswer, Found, Observation, Receipt
from agent_run_ledger.kernel.effects.idempotency import idempotency_key_of
from agent_run_ledger.kernel.effects.permit import Permit
from agent_run_ledger.kernel.effects.reading import Sample
from agent_run_ledger.kernel.effects.report import Answered, Lost, NotSent, Report, evidence_id
from agent_run_ledger.kernel.effects.request import BadRequest, request_from
from agent_run_ledger.kernel.effects.states import SAME_PERMIT_AGAIN
from agent_run_ledger.kernel.once_more import once_more
from agent_run_ledger.ports import Entropy
from agent_run_ledger.ports.effects import TimeSource
from agent_run_ledger.ports.targets import Sending, Target
from agent_run_ledger.probes import reach

CLAIM_DOMAIN: Final = b"arl/dispatch-claim/v1\n"
_KEY_BYTES: Final = 16


class Claimed(Protocol):
    """What `claim` returns: see ledger.effect_ledger.Grant."""

    @property
    def claim_id(self) -> bytes:
        """The claim's id."""
        ...


class HandedOut(Protocol):
    """What `hand_out` returns: see ledger.effect_ledger.Dispatch."""

    @property
    def permit(self) -> Permit:
        """The permit."""
        ...

    @property
    def request(self) -> bytes:
        """The exact bytes."""
        ...

    @property
    def handed_now(self) -> bool:
        """Whether that call handed it out."""
        ...


class Actions(Protocol):
    """What a dispatcher needs of a ledger: see ledger.effect_ledger.EffectLedger for each."""

    def get(self, action_id: bytes) -> ActionView: ...  # noqa: D102
    def request(self, action_id: bytes) -> bytes: ...  # noqa: D102
    def claim(  # noqa: D102
        self, actor: Actor, action_id: bytes, *, worker: str, request_sha256: bytes, claim_key: bytes | None = None
    ) -> Claimed: ...
    def prepare(  # noqa: D102
        self, actor: Actor, action_id: bytes, *, claim_id: bytes, worker: str
    ) -> ActionView: ...
    def hand_out(  # noqa: D102
        self, actor: Actor, action_id: bytes, *, claim_id: bytes, worker: str
    ) -> HandedOut: ...
    def outcome(  # noqa: D102
        self,
        actor: Actor,
        action_id: bytes,
        evidence: Receipt | FenceAnswer | Observation,
        *,
        answer: Answered | None = None,
    ) -> ActionView: ...
    def doubt(  # noqa: D102
        self, actor: Actor, action_id: bytes, *, by: DoubtBy, worker: str | None = None
    ) -> ActionView: ...
    def observe(  # noqa: D102
        self, actor: Actor, action_id: bytes, evidence: Observation, *, answer: Answered | None = None
    ) -> ActionView: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatched:
    """What became of one dispatch. `view`: succeeded, or unresolved with a doubt on record.

    `evidence_id`: that of the target's answer on record, None where there was none, or where it could not be recorded
    beside the doubt.
    """

    view: ActionView
    report: Report
    evidence_id: bytes | None


class Unrecorded(Uncertain):
    """The target was reached, or may have been, and the ledger does not have what it said: `report` does."""

    code = "not_recorded"

    def __init__(self, message: str, *, report: Report) -> None:
        super().__init__(message, hint="do not send it again: record the doubt, or reconcile it by evidence")
        self.report = report


class Dispatcher:
    """One worker's way to one target.

    Guarantees: nothing is sent without a permit that was handed out to this call, unless the receiver takes one permit
    for one effect however often it comes; nothing after the permit's end; nothing but the bytes whose digest the permit
    has; nothing to another target than the approved one. After the hand-out every way on ends in a recorded success or
    a recorded doubt, or in `Unrecorded`, with the action `prepared` until somebody records the doubt. Nothing is ever
    sent a second time here.
    """

    def __init__(
        self, ledger: Actions, target: Target, *, actor: Actor, worker: str, time: TimeSource, entropy: Entropy
    ) -> None:
        """`worker` names this process, and another one after a restart; `time` is the clock of the ledger."""
        self._ledger = ledger
        self._target = target
        self._actor = actor
        self._worker = worker
        self._time = time
        self._entropy = entropy

    def dispatch(self, action_id: bytes) -> Dispatched:
        """Claim, prepare, send and record an available action.

        Refused, Pending, Unavailable, NotAdmitted, Misuse and Uncertain of the ledger: nothing was sent by this call.
        A claim that was made stays, and after Pending the same call goes on with it. Refused("other_target",
        "other_class", "not_a_request") come before the claim, as does the target's own Misuse. Tampered: the bytes are
        not the approved ones; nothing was sent. Unrecorded: see there.
        """
        view = self._checked(action_id)
        claim_id = self._ledger.claim(
            self._actor,
            action_id,
            worker=self._worker,
            request_sha256=view.request_sha256,
            claim_key=sha256(CLAIM_DOMAIN + self._worker.encode() + b"\n" + action_id).digest()[:_KEY_BYTES],
        ).claim_id
        reach("dispatch.claimed")
        self._ledger.prepare(self._actor, action_id, claim_id=claim_id, worker=self._worker)
        reach("dispatch.prepared")
        asked = self._time.sample()
        handed = self._ledger.hand_out(self._actor, action_id, claim_id=claim_id, worker=self._worker)
        reach("dispatch.handed_out")
        if not handed.handed_now and view.target_class not in SAME_PERMIT_AGAIN:
            raise Refused(f"the permit of action {action_id.hex()} was handed out before", code="handed_out")
        report = self._sent(view, handed, asked)
        reach("dispatch.sent")
        dispatched = self._recorded(view, handed.permit, report)
        reach("dispatch.recorded")
        return dispatched

    def _checked(self, action_id: bytes) -> ActionView:
        """Return the action. Refused for what this way to this target is not good for."""
        view, named = self._ledger.get(action_id), f"action {action_id.hex()}"
        if view.audience != self._target.audience:
            raise Refused(f"{named} is approved for {view.audience}, not {self._target.audience}", code="other_target")
        if self._target.target_class is not view.target_class:
            raise Refused(
                f"{named} is approved for a receiver of class {view.target_class}, this way is of class "
                f"{self._target.target_class}",
                code="other_class",
            )
        try:
            request = request_from(self._ledger.request(action_id))
        except BadRequest as error:
            raise Refused(f"{named}: {error.message}", code="not_a_request") from error
        self._target.check(request)
        return view

    def _sent(self, view: ActionView, handed: HandedOut, asked: Sample) -> Report:
        """Send it and return what the target says; from here on whatever ends this call leaves a doubt behind."""
        permit = handed.permit
        try:
            digest = sha256(handed.request).hexdigest()
            if digest != permit.req or digest != view.request_sha256.hex():
                raise Tampered(f"the bytes of action {view.action_id.hex()} are not the approved ones", code="corrupt")

            def in_time() -> bool:
                return lives(permit, asked, self._time.sample())

            try:
                if not in_time():
                    return NotSent(reason="permit_expired")
            except Unavailable:
                return NotSent(reason="no_time")
            reach("dispatch.sending")
            request, key = request_from(handed.request), idempotency_key_of(permit)
            return self._target.send(Sending(request=request, permit=permit, idempotency_key=key, in_time=in_time))
        except Tampered:
            self._doubt_quietly(view)
            raise
        except Exception as error:
            return Lost(reason="target_failed", raised=type(error).__name__)
        except BaseException:
            self._doubt_quietly(view)
            raise

    def _recorded(self, view: ActionView, permit: Permit, report: Report) -> Dispatched:
        """Put on record what the target said: a success, or the doubt and then what was answered."""
        evidence = self._evidence(permit, report)
        try:
            if isinstance(evidence, Receipt) or (evidence is not None and evidence.found is Found.EXECUTED):
                done = once_more(
                    lambda: self._ledger.outcome(self._actor, view.action_id, evidence, answer=_answer(report))
                )
                return Dispatched(view=done, report=report, evidence_id=evidence.evidence_id)
            doubted = once_more(lambda: self._doubt(view))
        except LedgerError as error:
            self._doubt_quietly(view)
            raise Unrecorded(
                f"action {view.action_id.hex()} was handed out, and what the target said is not on record: {error}",
                report=report,
            ) from error
        if evidence is None:
            return Dispatched(view=doubted, report=report, evidence_id=None)
        try:
            observed = once_more(
                lambda: self._ledger.observe(self._actor, view.action_id, evidence, answer=_answer(report))
            )
        except LedgerError:
            return Dispatched(view=doubted, report=report, evidence_id=None)
        return Dispatched(view=observed, report=report, evidence_id=evidence.evidence_id)

    def _evidence(self, permit: Permit, report: Report) -> Receipt | Observation | None:
        """Return what is evidence in a report: the answer as this executor observed it, or the receiver's receipt."""
        if isinstance(report, Receipt):
            return report
        if not isinstance(report, Answered):
            return None
        return Observation(
            evidence_id=evidence_id(self._entropy.uuid7(), report),
            action_key=permit.act,
            epoch=permit.ep,
            observer=self._actor.principal,
            found=report.found,
            after=None,
            generation=permit.gen,
            request_sha256=bytes.fromhex(permit.req),
        )

    def _doubt(self, view: ActionView) -> ActionView:
        return self._ledger.doubt(self._actor, view.action_id, by=DoubtBy.WORKER, worker=self._worker)

    def _doubt_quietly(self, view: ActionView) -> None:
        """Record the doubt beside an error that says more. Where it cannot be, the action stays prepared."""
        with suppress(LedgerError):
            self._doubt(view)


def _answer(report: Report) -> Answered | None:
    """Return the answer of which the body is there to be kept, and not longer than a kept one may be."""
    whole = isinstance(report, Answered) and sha256(report.body).digest() == report.body_sha256
    return report if whole and isinstance(report, Answered) and len(report.body) <= MAX_ANSWER_BYTES else None


def lives(permit: Permit, asked: Sample, now: Sample) -> bool:
    """Return whether a permit lives at `now`: by the clock, and by the time since `asked`, before the hand-out.

    A clock that is set back between the two gives no permit a longer life.
    """
    return now.wall_ms < permit.exp and now.uptime_ms - asked.uptime_ms < permit.exp - asked.wall_ms
