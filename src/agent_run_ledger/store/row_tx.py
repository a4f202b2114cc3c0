"""One write transaction in rows, whatever the engine, as `ports.Tx` wants it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from agent_run_ledger.errors import LedgerError, Misuse, Refused, Superseded, Tampered
from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.kernel.erasure import filler
from agent_run_ledger.kernel.record import Record
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ports import InFlight, Question, RunRow, RunStanding
from agent_run_ledger.store.rows import (
    LANE_BITS,
    Row,
    budgets_from,
    in_flight_from,
    place_of,
    row_of_in_flight,
    row_of_record,
    run_from,
    standing_from,
)

if TYPE_CHECKING:
    from agent_run_ledger.store.effect_tx import RowEffects

T = TypeVar("T")

_POSITION_BITS = 16
_ASKED = {
    "find_run": "select_run_by_id",
    "standing": "select_standing",
    "in_flight": "select_in_flight",
    "budgets": "select_budgets",
    "is_erased": "select_erased",
}


def statement_of(question: Question) -> tuple[str, Row]:
    """Return the name of the statement that answers a question, and its values."""
    about = question.about
    if question.method == "in_flight" and isinstance(about, int):
        return _ASKED[question.method], (about << LANE_BITS, (about + 1) << LANE_BITS)
    return _ASKED[question.method], (about,)


class RowTx(ABC):
    """See ports.Tx. The commit looks at `changes` and `wrote`; `failure` is what nobody may swallow.

    An engine runs its statements, all of which take their values and give their columns in one order.
    """

    __slots__ = (
        "_effects",
        "_leaf_index",
        "_location",
        "_q",
        "changes",
        "epoch",
        "failure",
        "losses",
        "now_ms",
        "wrote",
    )

    def __init__(self, q: Mapping[str, str], *, location: str, now_ms: int, leaf_index: int, epoch: int) -> None:
        self.now_ms = now_ms
        self.epoch = epoch
        self.losses = 0
        self._effects: RowEffects | None = None
        self.changes: list[Change] = []
        self.wrote = False
        self.failure: LedgerError | None = None
        self._q = q
        self._location = location
        self._leaf_index = leaf_index

    @abstractmethod
    def fetch(self, sql: str, bindings: Row) -> list[Row]:
        """Return the rows of a statement."""

    @abstractmethod
    def write(self, sql: str, bindings: Row) -> None:
        """Run a statement that changes rows, and set `wrote`."""

    def write_later(self, sql: str, bindings: Row) -> None:
        """Run a statement whose answer nobody needs: an engine may wait for it with its next question.

        What it refuses is raised then, or by the commit, of which nothing lands.
        """
        self.write(sql, bindings)

    @abstractmethod
    def insert(self, sql: str, bindings: Row) -> int:
        """Run a statement that makes one row, set `wrote`, and return the row id that the row got."""

    @property
    @abstractmethod
    def changed_rows(self) -> int:
        """How many rows the last statement changed."""

    @abstractmethod
    def breaks_unique(self, error: Misuse) -> bool:
        """Return whether a row was refused because another one has its unique values."""

    @property
    def size(self) -> int:
        """How many leaves the log has before that of this transaction."""
        return self._leaf_index

    @property
    def effects(self) -> RowEffects:
        """See ports.Tx.effects."""
        if self._effects is None:
            from agent_run_ledger.store.effect_tx import RowEffects  # only who has effects loads their rules

            self._effects = RowEffects(self, self._effect_statements())
        return self._effects

    def find_run(self, run_id: str) -> RunRow | None:
        """See ports.Tx.find_run."""
        rows = self._ask("find_run", run_id)
        return self._known(run_from, rows[0]) if rows else None

    def get_run(self, row_id: int) -> RunRow:
        """See ports.Tx.get_run."""
        return self._known(run_from, self._fetch_run("select_run", row_id))

    def standing(self, row_id: int) -> RunStanding:
        """See ports.Tx.standing."""
        return self._known(standing_from, self._one(self._ask("standing", row_id), row_id))

    def insert_run(
        self,
        *,
        run_uid: bytes,
        run_id: str,
        holder: str,
        parent_row_id: int | None = None,
        forked_from_row_id: int | None = None,
        queue: str | None = None,
    ) -> RunRow:
        """See ports.Tx.insert_run. Refused("run_exists") for a run_id or run_uid that is taken."""
        state, now_ms = RunState.RUNNING, self.now_ms
        try:
            links = (parent_row_id, forked_from_row_id, queue)
            row_id = self.insert(self._q["insert_run"], (run_uid, run_id, state.value, now_ms, now_ms, holder, *links))
        except Misuse as error:
            if self.breaks_unique(error):
                raise self.fail(Refused(f"there is already a run {run_id!r}", code="run_exists")) from error
            raise
        if queue is not None:
            self.announce()
        return RunRow(
            row_id=row_id,
            run_uid=run_uid,
            run_id=run_id,
            state=state,
            reason="",
            generation=1,
            attempt=1,
            created_at_ms=now_ms,
            updated_at_ms=now_ms,
            holder=holder,
            parent_row_id=parent_row_id,
            forked_from_row_id=forked_from_row_id,
            queue=queue,
        )

    def announce(self) -> None:
        """Let workers elsewhere hear of it, once this transaction has committed, where an engine can tell them."""
        return

    def update_run(
        self,
        row: RunRow,
        *,
        state: RunState,
        reason: str = "",
        generation: int,
        attempt: int,
        holder: str,
        start_record_id: int | None,
        last_start_record_id: int | None,
        end_record_id: int | None,
    ) -> None:
        """See ports.Tx.update_run."""
        new = (state.value, reason, generation, attempt, holder, start_record_id, last_start_record_id, end_record_id)
        self._write("update_run", (*new, self.now_ms, row.row_id, row.generation, row.state.value))
        if self.changed_rows != 1:
            raise self.fail(
                Superseded(
                    f"run {row.run_id!r} is no longer {row.state} under generation {row.generation}",
                    hint="another attempt or an operator has it now",
                )
            )

    def add_change(self, change: Change) -> None:
        """See ports.Tx.add_change. Misuse beyond 65,536 changes in one transaction."""
        if len(self.changes) >> _POSITION_BITS:
            raise self.fail(Misuse("a transaction holds at most 65,536 changes", code="leaf_full"))
        self.changes.append(change)

    def add_record(self, run_row_id: int, record: Record, change: Change) -> int:
        """See ports.Tx.add_record."""
        if change.mac is None:
            raise self.fail(Misuse(f"record {record.name!r}: its change carries no MAC", code="mac_missing"))
        record_id = self.next_record_id
        self.add_change(change)
        try:
            self.write_later(self._q["insert_record"], row_of_record(record_id, run_row_id, record))
        except Misuse as error:
            if self.breaks_unique(error):
                raise self.fail(
                    Refused(
                        f"step {record.name!r}, occurrence {record.occurrence}, is already recorded in this run",
                        code="already_recorded",
                    )
                ) from error
            raise
        return record_id

    def erase_records(self, run_row_id: int, record_ids: Sequence[int]) -> int:
        """See ports.Tx.erase_records. The filler keeps the keys of erased results apart: a fingerprint has 32 bytes."""
        erased, wrote = 0, self.wrote
        for record_id in record_ids:
            self._write("erase_record", (filler(record_id), record_id, run_row_id))
            erased += self.changed_rows
        self.wrote = wrote or erased > 0
        return erased

    def erase_marks(self, run_row_id: int, lanes: Sequence[int]) -> None:
        """See ports.Tx.erase_marks."""
        for lane in lanes:
            self._write("erase_mark", (place_of(run_row_id, lane),))

    def put_in_flight(self, mark: InFlight) -> None:
        """See ports.Tx.put_in_flight."""
        self.write_later(self._q["put_in_flight"], row_of_in_flight(mark))

    def clear_in_flight(self, run_row_id: int, lane: int) -> None:
        """See ports.Tx.clear_in_flight."""
        place = (place_of(run_row_id, lane),)
        if self.wrote:
            self.write_later(self._q["clear_in_flight"], place)
            return
        self._write("clear_in_flight", place)
        self.wrote = self.changed_rows > 0

    def in_flight(self, run_row_id: int) -> list[InFlight]:
        """See ports.Tx.in_flight."""
        return [in_flight_from(row) for row in self._ask("in_flight", run_row_id)]

    def budgets(self, run_row_id: int) -> dict[str, bytes]:
        """See ports.Tx.budgets."""
        return budgets_from(self._ask("budgets", run_row_id))

    def is_erased(self, record_id: int) -> bool | None:
        """See ports.Tx.is_erased."""
        rows = self._ask("is_erased", record_id)
        return bool(rows[0][0]) if rows else None

    def put_budget(self, run_row_id: int, tool: str, counters: bytes) -> None:
        """See ports.Tx.put_budget."""
        self.write_later(self._q["put_budget"], (run_row_id, tool, counters))

    @property
    def next_record_id(self) -> int:
        """The record id that belongs to the next change: leaf index << 16 | position."""
        return self._leaf_index << _POSITION_BITS | len(self.changes)

    def fail(self, failure: LedgerError) -> LedgerError:
        """Let nothing of this transaction land, whoever swallows `failure`, and return it."""
        self.failure = failure
        return failure

    @abstractmethod
    def _effect_statements(self) -> Mapping[str, str]:
        """Return the engine's statements of effects by their names."""

    def _fetch(self, name: str, bindings: Row) -> list[Row]:
        return self.fetch(self._q[name], bindings)

    def _write(self, name: str, bindings: Row) -> None:
        self.write(self._q[name], bindings)

    def _ask(self, method: str, about: int | str) -> list[Row]:
        return self._fetch(*statement_of(Question(cast(Any, method), about)))

    def _fetch_run(self, name: str, row_id: int) -> Row:
        return self._one(self._fetch(name, (row_id,)), row_id)

    def _one(self, rows: list[Row], row_id: int) -> Row:
        if not rows:
            raise self.fail(Tampered(f"{self._location}: there is no run in row {row_id}", code="row_missing"))
        return rows[0]

    def _known(self, convert: Callable[[Row], T], row: Row) -> T:
        try:
            return convert(row)
        except KeyError as error:
            failure = Tampered(f"{self._location}: a run is in no known state: {error}", code="corrupt")
            raise self.fail(failure) from error
