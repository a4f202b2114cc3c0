"""Reads of effects, whatever the engine, as `ports.effects.EffectReader` wants them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from agent_run_ledger.errors import Tampered
from agent_run_ledger.kernel.effects.reading import Sample
from agent_run_ledger.kernel.effects.states import ActionState
from agent_run_ledger.kernel.effects.trust_change import TrustOnRecord
from agent_run_ledger.ports.effects import (
    StoredAction,
    StoredAnswer,
    StoredCorrection,
    StoredTransition,
    StoredTrustChange,
)
from agent_run_ledger.store.effect_rows import (
    actions_from,
    answer_row,
    correction_row,
    transition_row,
    trust_change_row,
    trust_on_record,
)
from agent_run_ledger.store.rows import Row

T = TypeVar("T")

_CHUNK_ROWS = 1_000
_ID_DIGITS = 32
_HELD = (ActionState.CLAIMED, ActionState.PREPARED)
_OLDEST = dict.fromkeys(_HELD, "select_oldest_claimed") | {ActionState.UNRESOLVED: "select_oldest_in_doubt"}
"""Which statement finds those that wait longest in a state; in another one they wait since their proposal."""


class Found(Protocol):
    """What a statement found."""

    def fetchall(self) -> list[Row]: ...  # noqa: D102


class Asked(Protocol):
    """The part of a connection that these reads use, of whichever driver."""

    def execute(self, query: Any, params: Any = None, /) -> Found: ...  # noqa: D102


class Locked(Protocol):
    """Runs a function with the reader's connection while nobody else of this process uses it."""

    def __call__(self, fn: Callable[[Asked], T], /) -> T: ...  # noqa: D102


class RowEffectReader:
    """See ports.effects.EffectReader. `q` are the statements of the engine by their names."""

    def __init__(self, locked: Locked, location: str, q: Mapping[str, str]) -> None:
        self._locked = locked
        self._location = location
        self._q = q

    def corrections(self) -> tuple[int, int]:
        """See ports.effects.EffectReader.corrections."""
        count, latest_ms = self._fetch("select_corrections", ())[0]
        return count, latest_ms

    def time_mark(self) -> Sample | None:
        """See ports.effects.EffectReader.time_mark."""
        rows = self._fetch("select_effect_time", ())
        return Sample(wall_ms=rows[0][0], uptime_ms=rows[0][1], boot=rows[0][2]) if rows else None

    def trust(self) -> TrustOnRecord | None:
        """See ports.effects.EffectReader.trust."""
        return trust_on_record(self._fetch("select_trust", ()))

    def ownerless(self, *, limit: int) -> tuple[int, list[tuple[str, int]]]:
        """See ports.effects.EffectReader.ownerless."""
        rows = self._fetch("select_ownerless", (limit,))
        return (rows[0][2] if rows else 0), [(kind, row_id) for kind, row_id, _ in rows]

    def latest(self) -> StoredTransition | None:
        """See ports.effects.EffectReader.latest."""
        rows = self._fetch("select_latest_record", ())
        return transition_row(rows[0]) if rows else None

    def members(self, action_key: str) -> list[StoredAction]:
        """See ports.effects.EffectReader.members."""
        return actions_from(self._fetch("select_members", (action_key,)))

    def action(self, action_id: bytes) -> StoredAction | None:
        """See ports.effects.EffectReader.action."""
        found = actions_from(self._fetch("select_action", (action_id,)))
        return found[0] if found else None

    def in_states(self, states: Sequence[ActionState], *, after_row_id: int, limit: int) -> list[StoredAction]:
        """See ports.effects.EffectReader.in_states."""
        in_state = self._q["select_row_ids_in_state"]

        def read(connection: Asked) -> list[Row]:
            row_ids = [
                row[0]
                for state in states
                for row in connection.execute(in_state, (state.value, after_row_id, limit)).fetchall()
            ]
            return connection.execute(self._q["select_actions"], (str(sorted(row_ids)[:limit]),)).fetchall()

        return self._actions(read)

    def oldest(self, states: Sequence[ActionState], *, limit: int) -> list[StoredAction]:
        """See ports.effects.EffectReader.oldest."""
        asked = [(self._q[_OLDEST.get(state, "select_oldest_proposed")], (state.value, limit)) for state in states]
        return self._longest(asked, limit)

    def stranded(self, *, over_ms: int, limit: int) -> list[StoredAction]:
        """See ports.effects.EffectReader.stranded."""
        sql = self._q["select_stranded"]
        return self._longest([(sql, (state.value, over_ms, limit)) for state in _HELD], limit)

    def count_stranded(self, *, over_ms: int) -> int:
        """See ports.effects.EffectReader.count_stranded."""
        return sum(int(self._fetch("count_stranded", (state.value, over_ms))[0][0]) for state in _HELD)

    def waiting_since(self, *, now_ms: int) -> int | None:
        """See ports.effects.EffectReader.waiting_since."""
        rows = self._fetch("select_oldest_waiting", (now_ms,))
        return int(rows[0][0]) if rows else None

    def ids_with(self, prefix: str, *, limit: int) -> list[bytes]:
        """See ports.effects.EffectReader.ids_with."""
        first, last = (bytes.fromhex(prefix.ljust(_ID_DIGITS, digit)) for digit in "0f")
        return [row[0] for row in self._fetch("select_ids_between", (first, last, limit))]

    def keys(self) -> Iterator[str]:
        """See ports.effects.EffectReader.keys."""
        last = ""
        while rows := self._fetch("select_keys_after", (last, _CHUNK_ROWS)):
            for row in rows:
                yield row[0]
            last = rows[-1][0]

    def counts(self) -> Mapping[ActionState, int]:
        """See ports.effects.EffectReader.counts."""
        counted = self._fetch("count_actions", ())
        try:
            return {ActionState(state): number for state, number in counted}
        except ValueError as error:
            raise Tampered(f"{self._location}: an action is in no known state: {error}", code="corrupt") from error

    def request(self, action_id: bytes) -> bytes | None:
        """See ports.effects.EffectReader.request."""
        rows = self._fetch("select_request", (action_id,))
        if not rows:
            return None
        body: Any = rows[0][0]
        if not isinstance(body, bytes):
            raise Tampered(f"{self._location}: the request of action {action_id.hex()} is no bytes", code="corrupt")
        return body

    def answers(self, action_id: bytes) -> list[StoredAnswer]:
        """See ports.effects.EffectReader.answers."""
        return [answer_row(row) for row in self._fetch("select_answers", (action_id,))]

    def transitions(self, action_id: bytes) -> list[StoredTransition]:
        """See ports.effects.EffectReader.transitions."""
        return [transition_row(row) for row in self._fetch("select_action_records", (action_id,))]

    def last_record_id(self, action_id: bytes) -> int:
        """See ports.effects.EffectReader.last_record_id."""
        last = self._fetch("select_last_record", (action_id,))[0][0]
        return -1 if last is None else int(last)

    def leaf_transitions(self, *, first: int, stop: int) -> Iterator[StoredTransition]:
        """See ports.effects.EffectReader.leaf_transitions."""
        return map(transition_row, self._beside("select_action_records_between", first, stop))

    def leaf_corrections(self, *, first: int, stop: int) -> Iterator[StoredCorrection]:
        """See ports.effects.EffectReader.leaf_corrections."""
        return map(correction_row, self._beside("select_corrections_between", first, stop))

    def leaf_trust_changes(self, *, first: int, stop: int) -> Iterator[StoredTrustChange]:
        """See ports.effects.EffectReader.leaf_trust_changes."""
        return map(trust_change_row, self._beside("select_trust_changes_between", first, stop))

    def count_transitions(self) -> int:
        """See ports.effects.EffectReader.count_transitions."""
        return int(self._fetch("count_action_records", ())[0][0])

    def _fetch(self, name: str, bindings: Row) -> list[Row]:
        sql = self._q[name]
        return self._locked(lambda connection: connection.execute(sql, bindings).fetchall())

    def _beside(self, name: str, first: int, stop: int) -> Iterator[Row]:
        """Yield the rows of records of leaves first ≤ index < stop, a chunk at a time."""
        after, before = first << 16, stop << 16
        while rows := self._fetch(name, (after, before, _CHUNK_ROWS)):
            yield from rows
            after = rows[-1][0] + 1

    def _longest(self, asked: Sequence[tuple[str, Row]], limit: int) -> list[StoredAction]:
        """Return the actions of statements that give a moment and a row id, the earliest moments first."""
        order: dict[int, int] = {}

        def read(connection: Asked) -> list[Row]:
            found = [row for sql, bindings in asked for row in connection.execute(sql, bindings).fetchall()]
            order.update((row[1], place) for place, row in enumerate(sorted(found)[:limit]))
            return connection.execute(self._q["select_actions"], (str(list(order)),)).fetchall()

        return sorted(self._actions(read), key=lambda one: order[one.row_id])

    def _actions(self, read: Callable[[Asked], list[Row]]) -> list[StoredAction]:
        """Read actions with several statements in one read transaction."""
        q = self._q

        def read_all(connection: Asked) -> list[Row]:
            connection.execute(q["begin_read"])
            try:
                return read(connection)
            finally:
                connection.execute(q["rollback"])

        return actions_from(self._locked(read_all))
