"""One question to the rules inside of one write transaction: members read, decided, written, and one leaf."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from agent_run_ledger.effects.asked import check_correction, check_same_correction, checked, rows_on_record
from agent_run_ledger.effects.gate import Gate
from agent_run_ledger.effects.refusals import error_of, error_of_correction, unknown_action
from agent_run_ledger.effects.telling import Telling
from agent_run_ledger.effects.witnessing import Witnessing
from agent_run_ledger.errors import LedgerError, Misuse, NotAdmitted, Unavailable
from agent_run_ledger.kernel.effects import Accepted, Action, LedgerState, Now, Recorded, Rejected, Standing
from agent_run_ledger.kernel.effects.clock import CorrectClock, Correction, correct
from agent_run_ledger.kernel.effects.commands import Command, HandOut, Propose, Successor
from agent_run_ledger.kernel.effects.reading import Reading, read_time
from agent_run_ledger.kernel.effects.record import Transition
from agent_run_ledger.kernel.effects.reducer import decide
from agent_run_ledger.kernel.record import SALT_BYTES
from agent_run_ledger.ports import Entropy, Store, Tx
from agent_run_ledger.ports.effects import EffectObserver, StoredAnswer, TimeSource
from agent_run_ledger.probes import reach

T = TypeVar("T")

OPENING_BYTES = 16

LIMITS: Final[Mapping[str, tuple[int, int]]] = {
    "bound_ms": (0, 3_600_000),
    "max_permit_ms": (1, 60_000),
    "people_for_not_executed": (1, 100),
    "officers_needed": (1, 100),
}
"""The least and the most of each setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a ledger decides: see `Standing` for each. An opening may ask for more than those before it, never for less.

    Misuse("bad_settings") for what is not an integer, or outside of `LIMITS`.
    """

    bound_ms: int = 1_000
    max_permit_ms: int = 60_000
    people_for_not_executed: int = 1
    officers_needed: int = 1

    def __post_init__(self) -> None:
        """See above."""
        for name, (least, most) in LIMITS.items():
            number: object = getattr(self, name)
            if type(number) is not int or not least <= number <= most:
                raise Misuse(f"{name} is an integer from {least} to {most}, not {number!r:.40}", code="bad_settings")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of a question. `accepted`: this call changed it; else it is what was on record already.

    `rows` are the members that the transition wrote, or the one on record; `leaf_index` is that of its leaf, -1 where
    nothing was written. `cosign_first`: nobody is told before the witness has seen that leaf.
    """

    accepted: bool
    rows: tuple[Action, ...]
    leaf_index: int
    ledger: Standing
    cosign_first: bool = False
    same_permit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What comes with a question: the bytes that a new member sends, a target's answer, the envelope of an approval.

    The first two are kept. `signed` is verified inside of the transaction, as `Gate` says.
    """

    request: bytes = b""
    answer: StoredAnswer | None = None
    signed: bytes | None = None


NOTHING: Final = Beside()

Members = tuple[Action, ...]
Ask = Callable[[Now], Command]
"""Builds the command. The time, and what the witness has seen, are read after the locks and take the place of what it
is given."""


class Engine:
    """Guarantees: rows change if and only if a leaf is appended, in one transaction; the time is read after the locks;
    what is refused changed nothing. `opening` is drawn anew for every engine.
    """

    def __init__(
        self,
        store: Store,
        *,
        time: TimeSource,
        entropy: Entropy,
        witnessing: Witnessing,
        settings: Settings,
        is_copy: bool,
        gate: Gate | None = None,
        observers: Sequence[EffectObserver] = (),
    ) -> None:
        self.store = store
        self.entropy = entropy
        self.witnessing = witnessing
        self.settings = settings
        self.is_copy = is_copy
        self.gate = gate or Gate(None)
        self.opening = entropy.token(OPENING_BYTES)
        self._time = time
        self._telling = Telling(observers)

    def ask(self, action_id: bytes, ask: Ask, *, op_id: bytes | None = None, beside: Beside = NOTHING) -> Answer:
        """Decide about one action and write what follows. See `ask_of_key` for errors; Refused("unknown_action")."""
        return self._ask(lambda tx: self._members_of(tx, action_id), ask, op_id, beside)

    def ask_of_key(self, action_key: str, ask: Ask, *, op_id: bytes | None = None, beside: Beside = NOTHING) -> Answer:
        """Decide about a key and write what follows.

        `op_id` (16 bytes): the same operation again returns what is on record and grants nothing. Refused, Pending,
        Unavailable, NotAdmitted, Misuse: nothing changed (see `refusals`). Uncertain where the commit's outcome cannot
        be looked up. Tampered where rules and rows disagree.
        """
        return self._ask(lambda tx: tx.effects.members(action_key), ask, op_id, beside)

    def correct_clock(self, asked: CorrectClock, *, op_id: bytes | None = None) -> Standing:
        """Let the time that is read after the locks be the mark, and return where the ledger stands then.

        The same operation again changes nothing. Errors as of `ask_of_key`.
        """
        check_correction(asked)
        operation = self.entropy.uuid7() if op_id is None else op_id
        reach("effect.before")
        ledger = self._transact(operation, lambda tx: self._correct(tx, asked, op_id))
        reach("effect.after")
        return ledger

    def run(self, operation: bytes, fn: Callable[[Tx, Standing, Reading], T]) -> T:
        """Run one transaction of the ledger itself, with where it stands and what time it is after the locks."""

        def within(tx: Tx) -> T:
            mark, corrections = tx.effects.time_kept()
            reading = read_time(mark, self._time.sample())
            return fn(tx, self.standing(tx.effects.epoch, corrections, reading), reading)

        reach("effect.before")
        done = self._transact(operation, within)
        reach("effect.after")
        return done

    def standing(self, epoch: int, corrections: tuple[int, int], reading: Reading) -> Standing:
        """Return where the ledger stands in this epoch, after these corrections, at this reading of the clocks."""
        number, corrected_ms = corrections
        state = self._state(reading)
        return Standing(
            ledger_id=self.store.log_id,
            opening=self.opening,
            state=state,
            epoch=epoch,
            witness=self.witnessing.policy,
            bound_ms=self.settings.bound_ms,
            max_permit_ms=self.settings.max_permit_ms,
            people_for_not_executed=self.settings.people_for_not_executed,
            officers_needed=self.settings.officers_needed,
            corrections=number,
            corrected_ms=corrected_ms,
            clock_doubted=not reading.trusted and state is not LedgerState.TIME_UNTRUSTED,
        )

    def _state(self, reading: Reading) -> LedgerState:
        if self.is_copy:
            return LedgerState.RECOVERY
        if self.witnessing.state is not LedgerState.OPEN:
            return self.witnessing.state
        return LedgerState.OPEN if reading.trusted else LedgerState.TIME_UNTRUSTED

    def _ask(self, members_of: Callable[[Tx], Members], ask: Ask, op_id: bytes | None, beside: Beside) -> Answer:
        asked = checked(ask(Now(0, 0)))
        operation = self.entropy.uuid7() if op_id is None else op_id
        reach("effect.before")
        try:
            answer = self._transact(operation, lambda tx: self._decide(tx, members_of(tx), asked, op_id, beside))
        except LedgerError as error:
            self._telling.failed(asked.event, error)
            raise
        self._telling.answered(asked.event, accepted=answer.accepted)
        reach("effect.after")
        return answer

    def _transact(self, operation: bytes, fn: Callable[[Tx], T]) -> T:
        """Run one transaction; where only the witness's silence forbids it, ask the witness and then once more."""
        try:
            return self.store.transact(operation, fn)
        except Unavailable as error:
            if error.code != f"ledger_{LedgerState.HELD}" or self.witnessing.look() is not LedgerState.OPEN:
                raise
            return self.store.transact(operation, fn)

    def _correct(self, tx: Tx, command: CorrectClock, op_id: bytes | None) -> Standing:
        new = self._time.sample()
        mark, corrections = tx.effects.time_kept()
        old = mark or new
        ledger = self.standing(tx.effects.epoch, corrections, read_time(old, new))
        if op_id is not None and tx.effects.landed(op_id) is not None:
            check_same_correction(op_id, tx.effects.correction(op_id), command)
            return ledger
        asked = Correction(command=command, ledger=ledger, old=old, new=new)
        corrected = correct(asked)
        if isinstance(corrected, Rejected):
            raise error_of_correction(corrected)
        self.gate.check_correction(tx.effects, command, read_time(new, new).now)
        tx.effects.correct_clock(asked, salt=self.entropy.token(SALT_BYTES))
        return corrected

    def _members_of(self, tx: Tx, action_id: bytes) -> Members:
        members = tx.effects.members_of(action_id)
        if not members:
            raise unknown_action(action_id)
        return members

    def _decide(self, tx: Tx, members: Members, asked: Command, op_id: bytes | None, beside: Beside) -> Answer:
        mark, corrections = tx.effects.time_kept()
        reading = read_time(mark, self._time.sample())
        ledger = self.standing(tx.effects.epoch, corrections, reading)
        command = self._as_of_now(tx, asked, reading.now, ledger)
        if op_id is not None and (records := tx.effects.landed(op_id)) is not None:
            rows = rows_on_record(op_id, records, members, command)
            if not isinstance(command, HandOut):  # whether a permit may be told again is for the rules to say
                return Answer(accepted=False, rows=rows, leaf_index=-1, ledger=ledger)
        self.gate.verify(tx.effects, ledger, members, command, beside.signed)
        decision = decide(ledger, members, command)
        if isinstance(decision, Rejected):
            key = command.action_key if isinstance(command, Propose) else members[0].action_key
            raise error_of(command, key, decision)
        if isinstance(decision, Recorded):
            return Answer(
                accepted=False,
                rows=(decision.action,),
                leaf_index=-1,
                ledger=ledger,
                same_permit=decision.same_permit,
            )
        self.gate.admit(tx.effects, ledger, members, command)
        answer = self._write(tx, members, command, decision, ledger, reading.now, beside)
        if reading.mark != mark:  # else it stands there already: a mark has its milliseconds for several transitions
            tx.effects.put_time_mark(reading.mark)
        return answer

    def _as_of_now(self, tx: Tx, asked: Command, now: Now, ledger: Standing) -> Command:
        """Return what is asked, with the time, and with whether the witness has seen what is last on record here."""
        if not isinstance(asked, HandOut | Successor):
            return replace(asked, now=now)
        seen = not ledger.witnessed or self.witnessing.has_seen(tx.effects.last_record_id(asked.action_id) >> 16)
        return replace(asked, now=now, cosigned=seen)

    def _write(
        self,
        tx: Tx,
        members: tuple[Action, ...],
        command: Command,
        decision: Accepted,
        ledger: Standing,
        now: Now,
        beside: Beside,
    ) -> Answer:
        if decision.ledger is not None:
            raise NotAdmitted("an admission is not a transition of one action", code="not_here")
        before = {member.action_id: member for member in members}
        record_id, effects = -1, tx.effects
        for row in decision.rows:
            old = before.get(row.action_id)
            transition = Transition(command=command, ledger=ledger, old="" if old is None else str(old.state), row=row)
            salt = self.entropy.token(SALT_BYTES)
            record_id = effects.write(old, transition, now=now, salt=salt, request=beside.request)
        if beside.answer is not None:
            effects.keep_answer(decision.rows[-1].action_id, beside.answer)
        return Answer(
            accepted=True,
            rows=decision.rows,
            leaf_index=record_id >> 16,
            ledger=ledger,
            cosign_first=decision.cosign_first,
        )
