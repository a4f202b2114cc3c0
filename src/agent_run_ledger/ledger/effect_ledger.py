"""The effect ledger as people use it: every transition of an action, and what is on record of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from agent_run_ledger.effects.answers import kept_answer
from agent_run_ledger.effects.asked import checked
from agent_run_ledger.effects.dispatching import Dispatcher
from agent_run_ledger.effects.engine import NOTHING, Answer, Ask, Beside, Engine, Settings
from agent_run_ledger.effects.gate import Gate
from agent_run_ledger.effects.grants import Dispatch, Grant
from agent_run_ledger.effects.intents import Intent, check_text
from agent_run_ledger.effects.signing import Sign
from agent_run_ledger.effects.sizes import check_nonce
from agent_run_ledger.effects.trust_record import adopt, follow
from agent_run_ledger.effects.trusting import SignedTrust
from agent_run_ledger.effects.views import ActionView, LedgerView, ledger_view
from agent_run_ledger.effects.witnessing import Witnessing, waits
from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.errors import Pending, Refused
from agent_run_ledger.kernel.effects import Now, WitnessPolicy
from agent_run_ledger.kernel.effects.approval import Statement, VerifiedApproval, statement_of
from agent_run_ledger.kernel.effects.clock import CorrectClock
from agent_run_ledger.kernel.effects.commands import (
    Actor,
    Approve,
    Claim,
    CloseUnprepared,
    Doubt,
    DoubtBy,
    Edit,
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
from agent_run_ledger.kernel.effects.decided import decision_bytes
from agent_run_ledger.kernel.effects.evidence import Drain, FenceAnswer, Observation, Receipt
from agent_run_ledger.kernel.effects.permit import permit_of
from agent_run_ledger.kernel.effects.report import Answered
from agent_run_ledger.ledger.effect_opening import refuse_unfit, refuse_weaker, settings_on_record
from agent_run_ledger.ledger.effect_records import EffectRecords
from agent_run_ledger.ledger.effect_time import time_of
from agent_run_ledger.ports import Entropy
from agent_run_ledger.ports.effects import EffectObserver, TimeSource, Witness
from agent_run_ledger.ports.targets import Target
from agent_run_ledger.store import named_store, open_store
from agent_run_ledger.store.sqlite_store import WAIT_S

D = TypeVar("D", Observe, NotExecuted, WriteOff, CloseUnprepared)

_NEVER = Now(0, 0)
"""The time of a question before it is asked: the transaction puts its own in the place."""

PERMIT_MS = 60_000
KEY_BYTES = 16


class EffectLedger(EffectRecords):
    """The effects of one store.

    Guarantees: an action is claimed by one worker at most once in each generation, over all processes and restarts;
    a permit is handed out only for the claim's own preparation, once, through the same opening of the ledger; nothing
    but recorded evidence ends a doubt, and no exception, timeout or restart leads back to an action that can be
    claimed. Every method is one transaction, and what it refuses changed nothing.

    Not guaranteed: exactly once. Without a witness an older copy of the file that is put back is not noticed. That
    `Actor` names who asks is for the caller to have checked. With a trust file the ledger asks for nothing by who has
    not the role there, and verifies every approval itself, and every decision that ends a doubt without the effect;
    without one all that is for the caller to have done too.

    Errors of every method: Refused, Pending, Unavailable, NotAdmitted and Misuse changed nothing. Uncertain: the
    commit's outcome cannot be looked up now; the same call with the same `op_id` (16 bytes) tells it. Pending
    ("not_witnessed"): done, and not to be told before the witness has seen it; the same call again with the same
    `op_id`. Thread-safe. Also a context manager.
    """

    def __init__(
        self,
        db_path: str | os.PathLike[str] | None = None,
        *,
        url: str | None = None,
        durability: str = "full",
        witness: Witness | None = None,
        time: TimeSource | None = None,
        entropy: Entropy | None = None,
        settings: Settings | None = None,
        trust: SignedTrust | None = None,
        observers: Sequence[EffectObserver] = (),
        wait_s: float = WAIT_S,
    ) -> None:
        """Open the effects of an existing store, in a file or at a server (postgresql://…); it never makes one.

        Refused: no_store, no_authority (`arl init` gives it), network_filesystem, weaker_settings (than those of the
        latest transition), no_trust and other_trust (than the one on record). A copy opens in recovery: it can be read
        and observed, and grants nothing. `witness`: the memory outside of the database, None for none. `settings`: by
        default those of the latest transition. `trust`: whose signatures count (`open_effects` finds it); without one
        `approve` takes its caller's word. `observers` are told of each answer.
        """
        self._store = open_store(named_store(db_path, url), create=False, durability=durability, wait_s=wait_s)
        try:
            refuse_unfit(self._store, trust, is_copy=self._store.is_copy)
            self._entropy = entropy or SystemEntropy()
            self._time = time_of(self._store, time)
            self._witnessing = Witnessing(self._store, witness)
            self._engine = Engine(
                self._store,
                time=self._time,
                entropy=self._entropy,
                witnessing=self._witnessing,
                settings=settings or settings_on_record(self._store),
                is_copy=self._store.is_copy,
                gate=Gate(trust),
                observers=observers,
            )
            refuse_weaker(self._store, self._standing)
            self._witnessing.look()
            adopt(self._engine)
        except BaseException:
            self._store.close()
            raise

    # -- before the claim -------------------------------------------------------------------------------------------

    def propose(self, actor: Actor, key: str, intent: Intent, *, op_id: bytes | None = None) -> ActionView:
        """Ask for an action under a key that is named outside of the model; the same bytes again are the same action.

        Refused("key_taken") for other bytes under the key: only a successor goes on there.
        """
        check_text("an action key", key)
        action_id, terms = self._entropy.uuid7(), intent.terms()
        answer = self._engine.ask_of_key(
            key,
            lambda now: Propose(actor=actor, now=now, action_key=key, action_id=action_id, terms=terms),
            op_id=op_id,
            beside=Beside(request=intent.request),
        )
        return self._told(answer)

    def edit(self, actor: Actor, action_id: bytes, intent: Intent, *, op_id: bytes | None = None) -> ActionView:
        """Supersede what was proposed by a member with other bytes, and return that one."""
        new_id, terms = self._entropy.uuid7(), intent.terms()
        return self._asked(
            action_id,
            lambda now: Edit(actor=actor, now=now, action_id=action_id, new_action_id=new_id, terms=terms),
            op_id,
            beside=Beside(request=intent.request),
        )

    def reject(self, actor: Actor, action_id: bytes, *, op_id: bytes | None = None) -> ActionView:
        """Close what was proposed."""
        return self._asked(action_id, lambda now: Reject(actor=actor, now=now, action_id=action_id), op_id)

    def statement(self, action_id: bytes, *, approver: str, nonce: bytes) -> Statement:
        """Return what an approver has to sign for an action as the ledger stands. `nonce`: 16 to 64 bytes."""
        check_text("an approver", approver)
        check_nonce(nonce)

        return statement_of(self._standing(), self._action(action_id), approver=approver, nonce=nonce)

    def approve(
        self, actor: Actor, action_id: bytes, approval: VerifiedApproval, *, op_id: bytes | None = None
    ) -> ActionView:
        """Count one approval whose signature the caller verified; with the last one needed it is available.

        Refused("not_signed") where there is a trust file: then only `grant` counts.
        """
        return self._asked(
            action_id, lambda now: Approve(actor=actor, now=now, action_id=action_id, approval=approval), op_id
        )

    def grant(self, envelope: bytes, *, op_id: bytes | None = None) -> ActionView:
        """Count one signed approval, verified against the trust file inside of the transaction that counts it.

        Who approves, and what, the envelope says itself (docs/formats/approval.md, with the codes of what does not
        count). Refused("no_trust") where there is no trust file.
        """
        said = self._engine.gate.said(envelope)
        return self._told(
            self._engine.ask(
                said.action_id, lambda now: replace(said, now=now), op_id=op_id, beside=Beside(signed=envelope)
            )
        )

    def successor(self, actor: Actor, action_id: bytes, intent: Intent, *, op_id: bytes | None = None) -> ActionView:
        """Put a new member, which needs approvals of its own, in the place of one that did not happen."""
        new_id, terms = self._entropy.uuid7(), intent.terms()
        self._covered(action_id)  # so that the witness is asked before; the transaction decides by what it has seen
        return self._asked(
            action_id,
            lambda now: Successor(actor=actor, now=now, action_id=action_id, new_action_id=new_id, terms=terms),
            op_id,
            beside=Beside(request=intent.request),
        )

    def revoke(self, actor: Actor, action_id: bytes, *, op_id: bytes | None = None) -> ActionView:
        """Forbid what was not prepared. It cancels nothing that was sent."""
        return self._asked(action_id, lambda now: Revoke(actor=actor, now=now, action_id=action_id), op_id)

    def expire(self, actor: Actor, action_id: bytes, *, op_id: bytes | None = None) -> ActionView:
        """Close what nobody claimed in its window."""
        return self._asked(action_id, lambda now: Expire(actor=actor, now=now, action_id=action_id), op_id)

    # -- the claim and what follows it -------------------------------------------------------------------------------

    def claim(
        self,
        actor: Actor,
        action_id: bytes,
        *,
        worker: str,
        request_sha256: bytes,
        claim_key: bytes | None = None,
        op_id: bytes | None = None,
    ) -> Grant:
        """Take an approved action for one worker: one process, and after a restart another one.

        `request_sha256`: of the bytes that the worker means to send. `claim_key` (16 bytes): the same one of the same
        worker again returns the record, never a second grant; without one it is the `op_id`, if there is one.
        Refused for who comes second.
        """
        check_text("a worker", worker)
        key = (op_id or self._entropy.token(KEY_BYTES)) if claim_key is None else claim_key
        claim_id = self._entropy.uuid7()
        answer = self._engine.ask(
            action_id,
            lambda now: Claim(
                actor=actor,
                now=now,
                action_id=action_id,
                claim_id=claim_id,
                claim_key=key,
                worker=worker,
                request_sha256=request_sha256,
            ),
            op_id=op_id,
        )
        row = answer.rows[0]
        if row.claim_id is None or (row.claim_key, row.worker) != (key, worker):
            raise Refused(f"operation on action {action_id.hex()} was no claim of {worker!r}", code="op_id_used")
        return Grant(view=self._view(row), claim_id=row.claim_id, granted_now=answer.accepted)

    def prepare(
        self,
        actor: Actor,
        action_id: bytes,
        *,
        claim_id: bytes,
        worker: str,
        permit_ms: int = PERMIT_MS,
        op_id: bytes | None = None,
    ) -> ActionView:
        """Write down the intention to send, before anything is sent. The permit lives `permit_ms`, or to the window's
        end. What this returns permits nothing yet: see `hand_out`."""
        return self._asked(
            action_id,
            lambda now: Prepare(
                actor=actor, now=now, action_id=action_id, claim_id=claim_id, worker=worker, permit_ms=permit_ms
            ),
            op_id,
        )

    def hand_out(
        self, actor: Actor, action_id: bytes, *, claim_id: bytes, worker: str, op_id: bytes | None = None
    ) -> Dispatch:
        """Hand the permit out, once, with the exact bytes: from here on only evidence says what became of it.

        Pending("not_cosigned") while the witness has not seen the preparation. Tampered where the stored bytes are not
        the approved ones: then nothing was handed out.
        """
        self._covered(action_id)  # so that the witness is asked before; the transaction decides by what it has seen
        request = self.request(action_id)
        answer = self._engine.ask(
            action_id,
            lambda now: HandOut(
                actor=actor, now=now, action_id=action_id, claim_id=claim_id, worker=worker, cosigned=False
            ),
            op_id=op_id,
        )
        row = answer.rows[0]
        permit = permit_of(answer.ledger, row)
        return Dispatch(view=self._view(row), permit=permit, request=request, handed_now=answer.accepted)

    def outcome(
        self,
        actor: Actor,
        action_id: bytes,
        evidence: Receipt | FenceAnswer | Observation,
        *,
        answer: Answered | None = None,
        op_id: bytes | None = None,
    ) -> ActionView:
        """Record a success that the executor reports, with the receiver's receipt or an observation.

        `answer`: the target's answer that the observation is, kept with it; its evidence_id is made by `evidence_id`.
        """
        return self._asked(
            action_id,
            lambda now: Outcome(actor=actor, now=now, action_id=action_id, evidence=evidence),
            op_id,
            beside=kept_answer(evidence, answer),
            of_success=True,
        )

    def doubt(
        self, actor: Actor, action_id: bytes, *, by: DoubtBy, worker: str | None = None, op_id: bytes | None = None
    ) -> ActionView:
        """Record that nobody knows how it ended. It is never claimable again."""
        return self._asked(
            action_id, lambda now: Doubt(actor=actor, now=now, action_id=action_id, by=by, worker=worker), op_id
        )

    def dispatcher(self, target: Target, actor: Actor, *, worker: str) -> Dispatcher:
        """Return one worker's way to one target, by this ledger's clock: claim, send once, and record what came."""
        return Dispatcher(self, target, actor=actor, worker=worker, time=self._time, entropy=self._entropy)

    # -- what ends a doubt --------------------------------------------------------------------------------------------

    def observe(
        self,
        actor: Actor,
        action_id: bytes,
        evidence: Observation | Drain,
        *,
        answer: Answered | None = None,
        sign: Sign | None = None,
        op_id: bytes | None = None,
    ) -> ActionView:
        """Record evidence, which decides nothing by itself. `answer` as of `outcome`; `sign` as of `write_off`, for a
        drain by dead paths."""
        asked = self._signed(Observe(actor=actor, now=_NEVER, action_id=action_id, evidence=evidence), sign)
        return self._asked(action_id, lambda now: replace(asked, now=now), op_id, beside=kept_answer(evidence, answer))

    def reconcile_success(
        self,
        actor: Actor,
        action_id: bytes,
        evidence: Receipt | FenceAnswer | Observation,
        *,
        op_id: bytes | None = None,
    ) -> ActionView:
        """Decide, by evidence and not as the executor, that it happened."""
        return self._asked(
            action_id,
            lambda now: Success(actor=actor, now=now, action_id=action_id, evidence=evidence),
            op_id,
            of_success=True,
        )

    def reconcile_not_executed(
        self,
        actor: Actor,
        action_id: bytes,
        *,
        fence: FenceAnswer | None = None,
        people: frozenset[str] = frozenset(),
        sign: Sign | None = None,
        op_id: bytes | None = None,
    ) -> ActionView:
        """Decide that it did not happen and cannot any more: by a fence, or a drain and the look after it.

        `sign` as of `write_off`. A program that has no key in the trust file decides without, by drain and look alone.
        """
        asked = NotExecuted(actor=actor, now=_NEVER, action_id=action_id, fence=fence, people=people)
        asked = self._signed(asked, sign)
        return self._asked(action_id, lambda now: replace(asked, now=now), op_id)

    def write_off(
        self,
        actor: Actor,
        action_id: bytes,
        *,
        nobody_can_observe: bool,
        people: frozenset[str],
        sign: Sign | None = None,
        op_id: bytes | None = None,
    ) -> ActionView:
        """Give up finding out, for good: nothing ever follows it. Takes two people.

        `sign`: with a trust file, what signs the decision for all who decide (`effects.signing`). It is asked before
        the transaction, about the action as it stands; what is recorded meanwhile makes it `bad_signature`.
        """
        asked = WriteOff(
            actor=actor, now=_NEVER, action_id=action_id, nobody_can_observe=nobody_can_observe, people=people
        )
        asked = self._signed(asked, sign)
        return self._asked(action_id, lambda now: replace(asked, now=now), op_id)

    def close_unprepared(
        self,
        actor: Actor,
        action_id: bytes,
        *,
        fence: FenceAnswer | None = None,
        sign: Sign | None = None,
        op_id: bytes | None = None,
    ) -> ActionView:
        """Close what was never prepared. Without a witness it needs the receiver's fence. `sign` as of `write_off`."""
        asked = self._signed(CloseUnprepared(actor=actor, now=_NEVER, action_id=action_id, fence=fence), sign)
        return self._asked(action_id, lambda now: replace(asked, now=now), op_id)

    # -- the clock ----------------------------------------------------------------------------------------------------

    def correct_clock(
        self, actor: Actor, people: frozenset[str] = frozenset(), *, op_id: bytes | None = None
    ) -> LedgerView:
        """Record officers' word that the clock is right as it is now, so that a ledger in time_untrusted goes on.

        Windows are decided by the corrected clock. Nothing closed comes back, and a permit that was prepared at what
        is now a later time is not handed out. Refused("time_trusted") where nothing waits for the clock,
        Refused("few_officers") for fewer than `Settings.officers_needed`. See docs/formats/effect.md.
        """
        counts = self._store.reader().effects.counts()
        asked = CorrectClock(actor=actor, people=people)
        return ledger_view(self._engine.correct_clock(asked, op_id=op_id), counts, self._unsigned())

    def follow_trust(self, signed: bytes, *, op_id: bytes | None = None) -> SignedTrust:
        """Put the trust file of an envelope in the place of the one in use, on record, and return it.

        It has a higher serial, and enough officers of both signed it. The file itself is for the caller to put in its
        place (`arl trust follow` does both). Errors as of `trusting.follow_trust`.
        """
        return follow(self._engine, signed, op_id=op_id)

    def close(self) -> None:
        """Close the ledger; a second call does nothing."""
        self._store.close()

    def __enter__(self) -> EffectLedger:
        """Return the ledger."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    # -- inside -------------------------------------------------------------------------------------------------------

    def _signed(self, asked: D, sign: Sign | None) -> D:
        """Return a decision with the signatures of who decides it, about the action as it stands."""
        if sign is None:
            return asked
        decision = decision_bytes(self._standing(), self._action(asked.action_id), checked(asked))
        return replace(asked, signatures=tuple(sign(decision)))

    def _asked(
        self,
        action_id: bytes,
        ask: Ask,
        op_id: bytes | None,
        *,
        beside: Beside = NOTHING,
        of_success: bool = False,
    ) -> ActionView:
        return self._told(self._engine.ask(action_id, ask, op_id=op_id, beside=beside), of_success=of_success)

    def _told(self, answer: Answer, *, of_success: bool = False) -> ActionView:
        """Return what a transition left, once it may be told. A success may be at once, also of what was revoked."""
        row = answer.rows[-1]
        if not (answer.cosign_first or (waits(row) and not of_success)):
            return self._view(row)
        if not (self._witnessing.covers(answer.leaf_index) if answer.accepted else self._covered(row.action_id)):
            raise Pending(
                f"action {row.action_id.hex()} is {row.state}, and the witness has not seen that yet",
                code="not_witnessed",
                hint="the same call with the same op_id tells when it has",
            )
        return self._view(row)

    def _covered(self, action_id: bytes) -> bool:
        """Return whether the witness has seen the last transition of an action. Without a witness: True."""
        if self._witnessing.policy is WitnessPolicy.NONE:
            return True
        last = self._store.reader().effects.last_record_id(action_id)
        return last >= 0 and self._witnessing.covers(last >> 16)
