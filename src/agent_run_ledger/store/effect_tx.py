"""The rows of effects within one write transaction, whatever the engine, as `ports.effects.EffectTx` wants them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from agent_run_ledger.errors import LedgerError, Misuse, Refused, Tampered
from agent_run_ledger.kernel.effects.action import Action, Approval, Now
from agent_run_ledger.kernel.effects.clock import (
    Correction,
    change_of_correction,
    correction_bytes,
    correction_mac,
)
from agent_run_ledger.kernel.effects.commands import Approve, Claim, CloseUnprepared, Expire, HandOut, Prepare
from agent_run_ledger.kernel.effects.reading import Sample
from agent_run_ledger.kernel.effects.record import Transition, change_of, transition_bytes, transition_mac
from agent_run_ledger.kernel.effects.trust_change import (
    TrustChange,
    TrustOnRecord,
    line_of_trust,
    trust_change_bytes,
    trust_change_mac,
)
from agent_run_ledger.ports.effects import StoredAnswer, StoredCorrection, StoredTransition, StoredTrustChange
from agent_run_ledger.store.effect_rows import (
    actions_from,
    correction_row,
    more_of,
    row_of_action,
    row_of_approval,
    transition_row,
    trust_change_row,
    trust_on_record,
)
from agent_run_ledger.store.rows import Row

if TYPE_CHECKING:
    from agent_run_ledger.store.row_tx import RowTx

_VERIFY = "nothing was written; `arl verify` compares the rows with the log"


class RowEffects:
    """See ports.effects.EffectTx. `q` are the statements of the engine by their names."""

    def __init__(self, tx: RowTx, q: Mapping[str, str]) -> None:
        self._tx = tx
        self._q = q
        self._row_ids: dict[bytes, int] = {}

    @property
    def epoch(self) -> int:
        """See ports.effects.EffectTx.epoch."""
        return self._tx.epoch

    def time_kept(self) -> tuple[Sample | None, tuple[int, int]]:
        """See ports.effects.EffectTx.time_kept."""
        count, latest_ms, wall_ms, uptime_ms, boot = self._tx.fetch(self._q["select_time_kept"], ())[0]
        mark = None if boot is None else Sample(wall_ms=wall_ms, uptime_ms=uptime_ms, boot=boot)
        return mark, (count, latest_ms)

    def put_time_mark(self, mark: Sample) -> None:
        """See ports.effects.EffectTx.put_time_mark."""
        self._tx.write_later(self._q["put_effect_time"], (mark.wall_ms, mark.uptime_ms, mark.boot))

    def correction(self, op_id: bytes) -> StoredCorrection | None:
        """See ports.effects.EffectTx.correction."""
        rows = self._tx.fetch(self._q["select_correction_of"], (op_id,))
        return correction_row(rows[0]) if rows else None

    def correct_clock(self, correction: Correction, *, salt: bytes) -> int:
        """See ports.effects.EffectTx.correct_clock."""
        payload, record_id = correction_bytes(correction), self._tx.next_record_id
        self._tx.add_change(change_of_correction(correction, correction_mac(salt, payload)))
        self._tx.write(self._q["insert_correction"], (record_id, correction.later_ms, salt, payload))
        self.put_time_mark(correction.new)
        return record_id

    def trust(self) -> TrustOnRecord | None:
        """See ports.effects.EffectTx.trust."""
        return trust_on_record(self._tx.fetch(self._q["select_trust"], ()))

    def is_before_trust(self, action_id: bytes) -> bool:
        """See ports.effects.EffectTx.is_before_trust."""
        return bool(self._tx.fetch(self._q["select_before_trust"], (action_id,)))

    def trust_change(self, op_id: bytes) -> StoredTrustChange | None:
        """See ports.effects.EffectTx.trust_change."""
        rows = self._tx.fetch(self._q["select_trust_change_of"], (op_id,))
        return trust_change_row(rows[0]) if rows else None

    def change_trust(self, change: TrustChange, *, salt: bytes) -> int:
        """See ports.effects.EffectTx.change_trust."""
        payload, record_id = trust_change_bytes(change), self._tx.next_record_id
        self._tx.add_change(line_of_trust(change, trust_change_mac(salt, payload)))
        bindings = (record_id, change.sha256, change.serial, salt, payload)
        try:
            self._tx.write(self._q["insert_trust_change"], bindings)
        except Misuse as error:
            if error.code != "constraint":
                raise
            said = f"the trust file with serial {change.serial} was let in, and the schema does not let it"
            raise self._tx.fail(Tampered(said, code="rules_disagree", hint=_VERIFY)) from error
        return record_id

    def members(self, action_key: str) -> tuple[Action, ...]:
        """See ports.effects.EffectTx.members."""
        return self._members("select_members", (action_key,))

    def members_of(self, action_id: bytes) -> tuple[Action, ...]:
        """See ports.effects.EffectTx.members_of."""
        return self._members("select_members_of", (action_id,))

    def landed(self, op_id: bytes) -> list[StoredTransition] | None:
        """See ports.effects.EffectTx.landed."""
        rows = self._tx.fetch(self._q["select_operation"], (op_id,))
        return [transition_row(row) for row in rows if row[0] is not None] if rows else None

    def transitions(self, action_id: bytes) -> list[StoredTransition]:
        """See ports.effects.EffectTx.transitions."""
        return [transition_row(row) for row in self._tx.fetch(self._q["select_action_records"], (action_id,))]

    def last_record_id(self, action_id: bytes) -> int:
        """See ports.effects.EffectTx.last_record_id."""
        last = self._tx.fetch(self._q["select_last_record"], (action_id,))[0][0]
        return -1 if last is None else int(last)

    def write(self, before: Action | None, transition: Transition, *, now: Now, salt: bytes, request: bytes) -> int:
        """See ports.effects.EffectTx.write."""
        row = transition.row
        try:
            if before is None:
                self._insert(row, request)
            else:
                self._move(before, transition, now)
        except Misuse as error:
            if error.code != "constraint":
                raise
            raise self._disagree(transition, "the schema does not") from error
        payload = transition_bytes(transition)
        record_id = self._tx.next_record_id
        self._tx.add_change(change_of(transition, transition_mac(salt, payload)))
        bindings = (record_id, self._row_ids[row.action_id], salt, payload)
        self._tx.write_later(self._q["insert_action_record"], bindings)
        return record_id

    def keep_answer(self, action_id: bytes, answer: StoredAnswer) -> None:
        """See ports.effects.EffectTx.keep_answer."""
        bindings = (self._row_ids[action_id], answer.evidence_id, answer.status, answer.body)
        self._tx.write_later(self._q["insert_answer"], bindings)

    def _insert(self, row: Action, request: bytes) -> None:
        row_id = self._tx.insert(self._q["insert_action"], row_of_action(row, self._tx.now_ms))
        self._row_ids[row.action_id] = row_id
        if not row.rebuilt:
            self._tx.write(self._q["insert_request"], (row_id, request))

    def _move(self, before: Action, transition: Transition, now: Now) -> None:
        row, row_id = transition.row, self._row_ids[before.action_id]
        for approval in row.approvals[len(before.approvals) :]:
            self._approve(approval, row_id)
        name, bindings = self._statement(before, transition, now)
        self._tx.write(self._q[name], bindings)
        if self._tx.changed_rows != 1:
            raise self._disagree(transition, "its row does not")

    def _approve(self, approval: Approval, row_id: int) -> None:
        try:
            self._tx.write(self._q["insert_approval"], row_of_approval(approval, row_id))
        except Misuse as error:
            if error.code != "constraint":
                raise
            said = f"approval {approval.approval_id.hex()} was counted already"
            raise self._tx.fail(Refused(said, code="approval_used", hint="an approval counts once")) from error

    def _disagree(self, transition: Transition, who: str) -> LedgerError:
        return self._tx.fail(
            Tampered(
                f"the rules let action {transition.row.action_id.hex()} {transition.command.event}, {who}",
                code="rules_disagree",
                hint=_VERIFY,
            )
        )

    def _statement(self, before: Action, transition: Transition, now: Now) -> tuple[str, Row]:
        """Return the conditional statement of an event, and what it is bound to: what was asked, not what was read."""
        row, at_ms, epoch, command = transition.row, self._tx.now_ms, self._tx.epoch, transition.command
        which = row.action_id
        if isinstance(command, Claim):
            claim: Row = (row.generation, row.claim_id, row.claim_key, row.worker, row.claimed_ms, at_ms, which)
            asked: Row = (command.request_sha256, command.actor.principal, epoch, now.earliest_ms, now.latest_ms)
            return "claim_action", claim + asked
        if isinstance(command, Prepare):
            permit: Row = (row.opening, row.prepared_ms, row.permit_expires_ms, at_ms, which)
            asked = (epoch, now.earliest_ms, now.latest_ms, command.actor.principal)
            return "prepare_action", (*permit, *_held_by(command), *asked)
        if isinstance(command, HandOut):
            opened: Row = (transition.ledger.opening, epoch, now.latest_ms, now.latest_ms, command.actor.principal)
            return "hand_out_action", (at_ms, which, *_held_by(command), *opened)
        if isinstance(command, Approve):
            return "approve_action", (row.state.value, at_ms, which, epoch, now.latest_ms)
        if isinstance(command, Expire):
            return "expire_action", (at_ms, which, now.latest_ms)
        if isinstance(command, CloseUnprepared):
            return "close_unprepared_action", (more_of(row), at_ms, which)
        # Two statements: one that names `generation` writes its index, even where it is what it was.
        name = "update_action" if row.generation == before.generation else "update_action_without_generation"
        new: Row = (row.state.value, int(row.revoked), row.in_doubt_since_ms, more_of(row), at_ms, which)
        return name, (*new, before.state.value, before.generation, before.revoked, before.handed_out)

    def _members(self, name: str, bindings: Row) -> tuple[Action, ...]:
        try:
            members = actions_from(self._tx.fetch(self._q[name], bindings))
        except LedgerError as error:
            raise self._tx.fail(error) from error
        for stored in members:
            self._row_ids[stored.action.action_id] = stored.row_id
        return tuple([stored.action for stored in members])


def _held_by(command: Prepare | HandOut) -> Row:
    """Return the claim and the worker that the caller says it is: the row must say the same."""
    return (command.claim_id, command.worker)
