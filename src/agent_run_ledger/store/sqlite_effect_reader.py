"""Reads of effects on SQLite, as `ports.effects.EffectReader` wants them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from agent_run_ledger.errors import Tampered
from agent_run_ledger.kernel.effects.states import ActionState
from agent_run_ledger.ports.effects import StoredAction, StoredTransition
from agent_run_ledger.store.sqlite_driver import Connection, Row
from agent_run_ledger.store.sqlite_effect_rows import action_from, transition_row
from agent_run_ledger.store.sqlite_effects import EFFECTS_FILE
from agent_run_ledger.store.sqlite_migrations import QUERIES_FILE
from agent_run_ledger.store.statements import statements

T = TypeVar("T")

_CHUNK_ROWS = 1_000


class Locked(Protocol):
    """Runs a function with the reader's connection while nobody else of this process uses it."""

    def __call__(self, fn: Callable[[Connection], T]) -> T: ...  # noqa: D102


class SqliteEffectReader:
    """See ports.effects.EffectReader."""

    def __init__(self, locked: Locked) -> None:
        self._locked = locked
        self._q = statements(EFFECTS_FILE)

    def members(self, action_key: str) -> list[StoredAction]:
        """See ports.effects.EffectReader.members."""
        return self._actions("select_members", (action_key,))

    def action(self, action_id: bytes) -> StoredAction | None:
        """See ports.effects.EffectReader.action."""
        found = self._actions("select_action", (action_id,))
        return found[0] if found else None

    def in_states(self, states: Sequence[ActionState], *, after_row_id: int, limit: int) -> list[StoredAction]:
        """See ports.effects.EffectReader.in_states."""
        found = [
            one
            for state in states
            for one in self._actions("select_actions_in_state", (state.value, after_row_id, limit))
        ]
        return sorted(found, key=lambda one: one.row_id)[:limit]

    def keys(self) -> Iterator[str]:
        """See ports.effects.EffectReader.keys."""
        last = ""
        while rows := self._fetch("select_keys_after", (last, _CHUNK_ROWS)):
            for row in rows:
                yield row[0]
            last = rows[-1][0]

    def counts(self) -> Mapping[ActionState, int]:
        """See ports.effects.EffectReader.counts."""
        return {ActionState(state): number for state, number in self._fetch("count_actions", ())}

    def request(self, action_id: bytes) -> bytes | None:
        """See ports.effects.EffectReader.request."""
        rows = self._fetch("select_request", (action_id,))
        body: Any = rows[0][0] if rows else None
        if rows and not isinstance(body, bytes):
            raise Tampered(f"the request of action {action_id.hex()} is no bytes", code="corrupt")
        found: bytes | None = body
        return found

    def transitions(self, action_id: bytes) -> list[StoredTransition]:
        """See ports.effects.EffectReader.transitions."""
        return [transition_row(row) for row in self._fetch("select_action_records", (action_id,))]

    def last_record_id(self, action_id: bytes) -> int:
        """See ports.effects.EffectReader.last_record_id."""
        last = self._fetch("select_last_record", (action_id,))[0][0]
        return -1 if last is None else int(last)

    def leaf_transitions(self, *, first: int, stop: int) -> Iterator[StoredTransition]:
        """See ports.effects.EffectReader.leaf_transitions."""
        after, before = first << 16, stop << 16
        while rows := self._fetch("select_action_records_between", (after, before, _CHUNK_ROWS)):
            for row in rows:
                yield transition_row(row)
            after = rows[-1][0] + 1

    def count_transitions(self) -> int:
        """See ports.effects.EffectReader.count_transitions."""
        return int(self._fetch("count_action_records", ())[0][0])

    def _fetch(self, name: str, bindings: Row) -> list[Row]:
        sql = self._q[name]
        return self._locked(lambda connection: connection.execute(sql, bindings).fetchall())

    def _actions(self, name: str, bindings: Row) -> list[StoredAction]:
        """Read actions and their approvals in one read transaction."""
        q = statements(QUERIES_FILE)

        def read(connection: Connection) -> list[tuple[Row, list[Row]]]:
            connection.execute(q["begin_read"])
            try:
                rows = connection.execute(self._q[name], bindings).fetchall()
                approvals = self._q["select_approvals"]
                return [(row, connection.execute(approvals, (row[27],)).fetchall()) for row in rows]
            finally:
                connection.execute(q["rollback"])

        return [action_from(row, approvals) for row, approvals in self._locked(read)]
