"""What is on record of effects, as people see it: members of keys, the inbox, requests, answers, the ledger itself."""

from __future__ import annotations

from contextlib import suppress

from agent_run_ledger.effects.engine import Engine
from agent_run_ledger.effects.intents import check_text
from agent_run_ledger.effects.refusals import unknown_action
from agent_run_ledger.effects.sizes import check_id, check_limit, check_states
from agent_run_ledger.effects.trusting import SignedTrust
from agent_run_ledger.effects.views import READ_BY_CLOCK, ActionView, LedgerView, ledger_view, view_of
from agent_run_ledger.effects.witnessing import Witnessing
from agent_run_ledger.errors import Unavailable
from agent_run_ledger.kernel.effects import Action, ActionState, Standing
from agent_run_ledger.kernel.effects.reading import read_time
from agent_run_ledger.kernel.effects.states import CLOSED
from agent_run_ledger.ledger.effect_opening import stored_request
from agent_run_ledger.ledger.local_trust import trust_words
from agent_run_ledger.ports.effects import StoredAnswer, TimeSource
from agent_run_ledger.store import AnyStore


class EffectRecords:
    """The reads of `EffectLedger`: none of them writes or waits for who does."""

    _store: AnyStore
    _time: TimeSource
    _witnessing: Witnessing
    _engine: Engine

    def now_ms(self) -> int:
        """Return the time by which windows are decided, as the clock says it now: Unix milliseconds."""
        return self._time.sample().wall_ms

    def inspect(self, key: str) -> list[ActionView]:
        """Return all members of a key, oldest first; the last one is the one that counts."""
        check_text("an action key", key)
        return [self._view(one.action) for one in self._store.reader().effects.members(key)]

    def get(self, action_id: bytes) -> ActionView:
        """Return one member. Refused("unknown_action")."""
        return self._view(self._action(action_id))

    def inbox(self, *states: ActionState, after: ActionView | None = None, limit: int = 100) -> list[ActionView]:
        """Return open actions, oldest first, `limit` at a time; `states`: only those in one of them."""
        wanted = check_states(states) or tuple(state for state in ActionState if state not in CLOSED)
        check_limit(limit)
        if after is not None:
            check_id(getattr(after, "action_id", None))
        reader = self._store.reader().effects
        last = None if after is None else reader.action(after.action_id)
        after_row_id = -1 if last is None else last.row_id
        return [self._view(one.action) for one in reader.in_states(wanted, after_row_id=after_row_id, limit=limit)]

    def request(self, action_id: bytes) -> bytes:
        """Return the exact bytes of an action. Tampered where they are not the ones of its digest."""
        return stored_request(self._store, action_id)

    @property
    def trust(self) -> SignedTrust | None:
        """Whose signatures count here, None where the caller says so."""
        return self._engine.gate.trust

    def answers(self, action_id: bytes) -> list[StoredAnswer]:
        """Return what the target of an action answered, in the order in which it came; none that nobody kept."""
        check_id(action_id)
        return self._store.reader().effects.answers(action_id)

    def status(self) -> LedgerView:
        """Return where the ledger stands, and what nothing guards against."""
        return ledger_view(self._standing(), self._store.reader().effects.counts(), self._unsigned())

    # -- inside -------------------------------------------------------------------------------------------------------

    def _view(self, row: Action) -> ActionView:
        """Return a row as it is to be read now; what landed is told also where the clock cannot be read any more."""
        now_ms = None
        if row.state in READ_BY_CLOCK:
            with suppress(Unavailable):
                now_ms = self._time.sample().wall_ms
        return view_of(row, self._witnessing.policy, now_ms=now_ms, bound_ms=self._engine.settings.bound_ms)

    def _unsigned(self) -> tuple[str, ...]:
        return trust_words(self._store.location, trusted=self.trust is not None)

    def _standing(self) -> Standing:
        """Return where the ledger stands, without waiting for who writes."""
        reader = self._store.reader()
        reading = read_time(reader.effects.time_mark(), self._time.sample())
        return self._engine.standing(reader.head().epoch, reader.effects.corrections(), reading)

    def _action(self, action_id: bytes) -> Action:
        check_id(action_id)
        found = self._store.reader().effects.action(action_id)
        if found is None:
            raise unknown_action(action_id)
        return found.action
