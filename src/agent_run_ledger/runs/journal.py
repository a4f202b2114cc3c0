"""The write side of a live attempt: one commit concludes calls, starts others, and ends the run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent_run_ledger import codecs
from agent_run_ledger.errors import Superseded
from agent_run_ledger.kernel.budget import Reserve, reserve_bytes
from agent_run_ledger.kernel.counters import Counters
from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.kernel.once_more import once_more
from agent_run_ledger.kernel.record import SALT_BYTES, Record, RecordKind, record_mac
from agent_run_ledger.kernel.states import CallState, RunState
from agent_run_ledger.ports import InFlight, Question, RunRow, Tx
from agent_run_ledger.probes import reach
from agent_run_ledger.runs.abandoned import abandoned
from agent_run_ledger.runs.attempt import MAX_STORED_BYTES, Attempt, Context
from agent_run_ledger.runs.batches import STOPPED, Above, Batch, Concluded, Loop, Started, Waits, Written, waits_of
from agent_run_ledger.runs.budgets import BUDGET, Accounts, Excess, ancestors, read_counters
from agent_run_ledger.runs.calls import CallIdentity
from agent_run_ledger.runs.endings import Ending
from agent_run_ledger.runs.leaf_check import load_value
from agent_run_ledger.runs.loose import Loose
from agent_run_ledger.runs.operate import quarantine
from agent_run_ledger.runs.other_run import store_replaced
from agent_run_ledger.runs.reasons import BREAKER
from agent_run_ledger.runs.watch import Watch

NEW_STATE = {
    RecordKind.RESULT: CallState.RECORDED,
    RecordKind.ERROR: CallState.FAILED,
    RecordKind.RESCUED: CallState.RESCUED,
}


class Journal:
    """Guarantees: a record and its leaf land together; a superseded attempt writes nothing; a run that was cancelled
    or quarantined meanwhile, or is within one that was, keeps results as evidence and starts nothing; what would
    exceed a budget is not started, and its run is quarantined in the same commit."""

    def __init__(
        self, context: Context, attempt: Attempt, watch: Watch | None = None, *, referenced: Collection[int] = ()
    ) -> None:
        self._context = context
        self._attempt = attempt
        self._referenced = referenced
        self.watch = watch
        self._row: RunRow = attempt.row
        self.run_id = attempt.row.run_id
        self.row_id = attempt.row.row_id
        self.queue = attempt.row.queue
        self.attempt = attempt.row.attempt
        reader = context.store.reader()
        self._above = ancestors(reader.get_run, attempt.row)
        budgets = reader.budgets(attempt.row.row_id)
        self.limited = frozenset(tool for tool, kept in budgets.items() if read_counters(kept, tool).limits is not None)
        own = (attempt.row.row_id,) if budgets else ()  # only a START could add one
        self._known: dict[bytes, Counters] = {}
        self._loose = Loose(context.store.location, attempt.row)
        self._accounted = own + self._above  # one above may get a budget at any time
        self._asked_first = [Question("standing", self.row_id), *(Question("budgets", one) for one in self._accounted)]

    def started(
        self, lane: int, index: int, identity: CallIdentity, tries: int, reserve: Reserve | None = None
    ) -> Started:
        """Return a start for the next batch."""
        at_ms = self._context.clock.now_ms()
        return Started(lane=lane, index=index, identity=identity, tries=tries, at_ms=at_ms, reserve=reserve)

    def conclude(
        self,
        started: Started,
        ended: Ending,
        *,
        because: list[str],
        code: bytes,
        more: Mapping[str, object] | None = None,
    ) -> Concluded:
        """Build the record of a call that ended, outside any lock of the store. `more`: what else is kept beside it."""
        packed = ended.packed
        salt = self._context.entropy.token(SALT_BYTES)
        identity = started.identity
        record = Record(
            kind=ended.kind,
            run_uid=self._row.run_uid,
            salt=salt,
            scope=identity.scope,
            name=identity.name,
            fingerprint=identity.fingerprint,
            occurrence=identity.occurrence,
            attempt=self.attempt,
            tries=started.tries,
            started_at_ms=started.at_ms,
            ended_at_ms=self._context.clock.now_ms(),
            inputs=identity.stored_inputs(salt, because, after=started.after, called=started.called, more=more),
            code=code,
            value_sha256=b"" if packed is None else packed.value_sha256,
            encoding=0 if packed is None else packed.encoding,
            payload=ended.payload if packed is None else packed.payload,
            usage=ended.usage,
        )
        return Concluded(started=started, record=record)

    def value(self, identity: CallIdentity, packed: codecs.Packed, *, after: int) -> Record:
        """Build the record of a value of the run's own, which no body made."""
        salt, now_ms = self._context.entropy.token(SALT_BYTES), self._context.clock.now_ms()
        return Record(
            kind=RecordKind.RESULT,
            run_uid=self._row.run_uid,
            salt=salt,
            scope=identity.scope,
            name=identity.name,
            fingerprint=identity.fingerprint,
            occurrence=identity.occurrence,
            attempt=self.attempt,
            started_at_ms=now_ms,
            ended_at_ms=now_ms,
            inputs=identity.stored_inputs(salt, [], after=after),
            value_sha256=packed.value_sha256,
            encoding=packed.encoding,
            payload=packed.payload,
        )

    def commit(self, batch: Batch) -> Written:
        """Write one batch in one transaction.

        Results are not given up where the connection is lost in the middle. It is synced where it holds how a call
        ended and nothing else says so, the run's end or QUARANTINE, or the start of a call that may not run again.
        """
        self._attempt.hold(self._context.store)
        macs = [record_mac(item.record) for item in batch.concluded]
        reach("record.before")
        unsafe = any(not start.repeatable for start in batch.starts)
        ended = any(not item.started.kept_elsewhere for item in batch.concluded)
        synced = ended or batch.end_state is not None or batch.loop is not None or unsafe
        transact = self._context.store.transact if self.watch is None else self._timed
        new_id, first = self._context.entropy.uuid7, self._asked_first
        commit: Callable[[], Written] = lambda: transact(  # noqa: E731
            new_id(), lambda tx: self._write(tx, batch, macs), sync=synced, first=first
        )
        written = once_more(commit) if batch.concluded else commit()
        self._loose.committed(written, sync=synced)
        reach("record.after")
        return written

    def load(self, record_id: int) -> Any:
        """Return the value of a record. See `load_value`."""
        return load_value(
            self._context.store, self.run_id, record_id, run_uid=self._row.run_uid, referenced=self._referenced
        )

    def _timed(self, op_id: bytes, write: Callable[[Tx], Written], *, sync: bool, first: Sequence[Question]) -> Written:
        now_s = self._context.clock.monotonic_s
        moments = [now_s()]

        def locked(tx: Tx) -> Written:
            moments.append(now_s())
            return write(tx)

        failure: BaseException | None = None
        try:
            return self._context.store.transact(op_id, locked, sync=sync, first=first)
        except BaseException as error:
            failure = error
            raise
        finally:
            if self.watch is not None:
                locked_s = moments[1] if len(moments) > 1 else None
                self.watch.committed(began_s=moments[0], locked_s=locked_s, ended_s=now_s(), error=failure)

    def _write(self, tx: Tx, batch: Batch, macs: list[bytes]) -> Written:
        mine = self._row
        standing = tx.standing(mine.row_id)
        if standing.run_uid != mine.run_uid:
            raise store_replaced(self._context.store, mine)
        if standing.generation != mine.generation:
            raise Superseded(
                f"attempt {mine.attempt} of run {mine.run_id!r} was taken over by generation {standing.generation}",
                hint="this process must stop; its unrecorded results are not part of the run",
            )
        live = standing.state is RunState.RUNNING
        if not live:
            self._refuse_erased(tx, batch)
        accounts = Accounts(tx, self._accounted, self._known) if self._accounted else None
        ending = (*(item.started for item in batch.concluded), *batch.abandoned)
        self._loose.put_back(tx, ending, self._in_flight, lambda: self._add_start(tx), accounts, live=live)
        value_ids = [self._add_value(tx, record) for record in batch.values] if live else []
        record_ids = [self._add(tx, item, mac) for item, mac in zip(batch.concluded, macs, strict=True)]
        lanes = {item.started.lane for item in batch.concluded}
        left_ids = [self._leave(tx, start) for start in batch.abandoned] if batch.abandoned else []
        if accounts is not None:
            self._account(accounts, batch)
        written = Written(
            state=standing.state,
            reason=standing.reason,
            record_ids=tuple(record_ids),
            value_ids=tuple(value_ids),
            left_ids=tuple(left_ids),
            losses=tx.losses,
        )
        if live and batch.starts:
            self._begin(tx, batch.starts, accounts, written)
            lanes.difference_update(start.lane for start in batch.starts[: written.started])
        for lane in lanes:
            tx.clear_in_flight(mine.row_id, lane)
        if live and batch.loop is not None:
            self._trip(tx, batch.loop, written)
        ends = written.state is RunState.RUNNING and batch.end_state is not None
        if accounts is not None:
            if ends:
                accounts.pass_time()
                for waits in waits_of(batch, left_ids):
                    accounts.take_back(waits.name, left=waits.left, reserve=waits.reserve)
            accounts.write()
        if ends:
            row = replace(mine, state=standing.state, reason=standing.reason)  # under one generation the rest stays
            written.end_id = self._end(tx, row, batch, record_ids, waits_of(batch, left_ids))
            written.state = batch.end_state or written.state
        return written

    def _account(self, accounts: Accounts, batch: Batch) -> None:
        """Settle what ended in every budget it belongs to."""
        for item in batch.concluded:
            accounts.settle(item.record, item.started.reserve)
        for start in batch.abandoned:
            accounts.doubt(start.identity.name, start.reserve)

    def _begin(self, tx: Tx, starts: Sequence[Started], accounts: Accounts | None, written: Written) -> None:
        """Mark the starts that may be, up to the first one that may not, and say in `written` how it went."""
        for row_id in self._above:
            standing = tx.standing(row_id)
            if standing.state in STOPPED:
                run_id = tx.get_run(row_id).run_id
                written.above = Above(run_id=run_id, state=standing.state, reason=standing.reason)
                return
        for start in starts:
            excess = None if accounts is None else accounts.begin(start.identity.name, start.reserve)
            if excess is not None:
                self._exceeded(tx, excess, written)
                return
            self._mark(tx, start)
            written.started += 1

    def _exceeded(self, tx: Tx, excess: Excess, written: Written) -> None:
        """Quarantine the run whose budget has no room for one more call."""
        reason = excess.reason
        quarantine(
            tx,
            excess.row_id,
            actor=BUDGET,
            reason=reason,
            salt=self._context.entropy.token(SALT_BYTES),
            content=excess.content(self.run_id),
        )
        row = tx.get_run(excess.row_id)
        if excess.row_id == self._row.row_id:
            written.state, written.reason = row.state, reason
        else:
            written.above = Above(run_id=row.run_id, state=row.state, reason=reason)

    def _trip(self, tx: Tx, loop: Loop, written: Written) -> None:
        """Quarantine the run, which went in circles, in the commit of the call that shows it."""
        salt, row_id = self._context.entropy.token(SALT_BYTES), self._row.row_id
        if quarantine(tx, row_id, actor=BREAKER, reason=loop.reason, salt=salt, content=loop.content):
            written.state, written.reason = RunState.QUARANTINED, loop.reason

    def _refuse_erased(self, tx: Tx, batch: Batch) -> None:
        """The result of a call whose mark was erased is no evidence: recorded, it would outlive the erasure."""
        erased = {mark.lane for mark in tx.in_flight(self._row.row_id) if not mark.fingerprint}
        for item in batch.concluded:
            if item.started.lane in erased:
                raise Superseded(
                    f"step {item.record.name!r} of run {self.run_id!r} was erased while it ran",
                    hint="this process must stop; its unrecorded results are not part of the run",
                )

    def _add(self, tx: Tx, item: Concluded, mac: bytes) -> int:
        change = Change(
            type="step",
            id=self._row.run_uid,
            old=CallState.STARTED,
            new=NEW_STATE[item.record.kind],
            generation=self._row.generation,
            mac=mac,
        )
        return tx.add_record(self._row.row_id, item.record, change)

    def _add_value(self, tx: Tx, record: Record) -> int:
        """A value of the run's own: started and recorded in one leaf, so that no mark of it ever stands."""
        uid, generation = self._row.run_uid, self._row.generation
        tx.add_change(Change(type="step", id=uid, old=CallState.NONE, new=CallState.STARTED, generation=generation))
        change = Change(
            type="step",
            id=uid,
            old=CallState.STARTED,
            new=CallState.RECORDED,
            generation=generation,
            mac=record_mac(record),
        )
        return tx.add_record(self._row.row_id, record, change)

    def _leave(self, tx: Tx, start: Started) -> int:
        mine = self._row
        record, change = abandoned(
            self._in_flight(start),
            run_uid=mine.run_uid,
            salt=self._context.entropy.token(SALT_BYTES),
            generation=mine.generation,
            now_ms=tx.now_ms,
            taken=start.taken,
        )
        tx.clear_in_flight(mine.row_id, start.lane)
        return tx.add_record(mine.row_id, record, change)

    def _in_flight(self, start: Started) -> InFlight:
        mine, identity = self._row, start.identity
        return InFlight(
            run_row_id=mine.row_id,
            lane=start.lane,
            name=identity.name,
            scope=identity.scope,
            fingerprint=identity.fingerprint,
            occurrence=identity.occurrence,
            attempt=mine.attempt,
            tries=start.tries,
            generation=mine.generation,
            started_at_ms=start.at_ms,
            repeatable=start.repeatable,
            after_record_id=start.after,
            reserved=reserve_bytes(start.reserve),
        )

    def _mark(self, tx: Tx, start: Started) -> None:
        start.losses = tx.losses
        tx.put_in_flight(self._in_flight(start))
        self._add_start(tx)

    def _add_start(self, tx: Tx) -> None:
        mine = self._row
        tx.add_change(
            Change(type="step", id=mine.run_uid, old=CallState.NONE, new=CallState.STARTED, generation=mine.generation)
        )

    def _end(self, tx: Tx, row: RunRow, batch: Batch, record_ids: Sequence[int], waits_for: Sequence[Waits]) -> int:
        content = batch.end(record_ids) if batch.end is not None else {}
        if waits_for:
            content["waits_for"] = sorted(waits.record_id for waits in waits_for)
        packed = codecs.pack(content, limit_bytes=MAX_STORED_BYTES)
        record = Record(
            kind=RecordKind.END,
            run_uid=row.run_uid,
            salt=self._context.entropy.token(SALT_BYTES),
            attempt=row.attempt,
            started_at_ms=tx.now_ms,
            ended_at_ms=tx.now_ms,
            value_sha256=packed.value_sha256,
            encoding=packed.encoding,
            payload=packed.payload,
        )
        state = batch.end_state or row.state
        change = Change(
            type="run", id=row.run_uid, old=row.state, new=state, generation=row.generation, mac=record_mac(record)
        )
        record_id = tx.add_record(row.row_id, record, change)
        tx.update_run(
            row,
            state=state,
            reason=batch.end_reason,
            generation=row.generation,
            attempt=row.attempt,
            holder=row.holder,
            start_record_id=row.start_record_id,
            last_start_record_id=row.last_start_record_id,
            end_record_id=record_id,
        )
        return record_id
