"""The operator's inbox: the actions that wait for somebody, the oldest first, each with what may be done next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent_run_ledger.effects.views import ActionView, view_of
from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.effects import ActionState
from agent_run_ledger.kernel.effects.action import Action
from agent_run_ledger.kernel.effects.advice import Way, ways
from agent_run_ledger.kernel.effects.ages import deadline_ms, is_stranded, since_ms
from agent_run_ledger.kernel.effects.states import CLOSED
from agent_run_ledger.ledger.effect_standing import OnRecord, on_record
from agent_run_ledger.ports.effects import EffectReader, StoredAction, TimeSource
from agent_run_ledger.store import AnyStore

OPEN_STATES = tuple(state for state in ActionState if state not in CLOSED)
ID_DIGITS = 32
LEAST_DIGITS = 6
"""How many digits of an action's id a person has to give: fewer are rather a key."""
_HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One action of the inbox: since when it waits (see `ages.since_ms`), whether its worker fell silent, and its ways.

    `silent_ms`: when its worker's permit or window was over by every clock, None for one that is not stranded.
    `trusted`: its ledger is under a trust file, so that keys say who decides.
    """

    action: Action
    view: ActionView
    proposed_at_ms: int
    changed_at_ms: int
    since_ms: int
    age_ms: int
    silent_ms: int | None
    ways: tuple[Way, ...]
    trusted: bool

    @property
    def stranded(self) -> bool:
        """Whether it is a claim whose worker is silent."""
        return self.silent_ms is not None


def read_inbox(
    store: AnyStore,
    states: Sequence[ActionState] = (),
    *,
    key: str | None = None,
    limit: int,
    time: TimeSource | None = None,
) -> list[Waiting]:
    """Return the actions in these states, all open ones without, that wait longest; `key`: only members of it."""
    where = on_record(store, time)
    wanted, reader = tuple(states) or OPEN_STATES, store.reader().effects
    if key is None:
        return [waiting(reader, where, one) for one in reader.oldest(wanted, limit=limit)]
    found = [waiting(reader, where, one) for one in reader.members(key) if one.action.state in wanted]
    return sorted(found, key=lambda one: one.since_ms)[:limit]


def read_doubts(
    store: AnyStore, *, key: str | None = None, limit: int, time: TimeSource | None = None
) -> list[Waiting]:
    """Return what is in doubt: unresolved actions, and claims whose worker fell silent, the oldest first."""
    where, reader = on_record(store, time), store.reader().effects
    if key is None:
        over_ms = where.now.earliest_ms - where.standing.bound_ms
        stored = reader.oldest((ActionState.UNRESOLVED,), limit=limit) + reader.stranded(over_ms=over_ms, limit=limit)
    else:
        stored = reader.members(key)
    found = [waiting(reader, where, one) for one in stored]
    doubts = [one for one in found if one.stranded or one.action.state is ActionState.UNRESOLVED]
    return sorted(doubts, key=lambda one: one.since_ms)[:limit]


def waiting(reader: EffectReader, where: OnRecord, stored: StoredAction) -> Waiting:
    """Return one action as it waits now."""
    action, now, bound_ms = stored.action, where.now, where.standing.bound_ms
    since = since_ms(action, stored.proposed_at_ms)
    members = tuple(one.action for one in reader.members(action.action_key))
    return Waiting(
        action=action,
        view=view_of(action, where.standing.witness, now_ms=now.earliest_ms, bound_ms=bound_ms),
        proposed_at_ms=stored.proposed_at_ms,
        changed_at_ms=stored.changed_at_ms,
        since_ms=since,
        age_ms=max(0, now.latest_ms - since),
        silent_ms=deadline_ms(action) + bound_ms if is_stranded(action, now, bound_ms) else None,
        ways=ways(where.standing, members, action, now),
        trusted=where.trusted,
    )


def find_action(store: AnyStore, named: str) -> StoredAction:
    """Return the action that a person names: by its id, by the first digits of it, or its key's newest member.

    All 32 digits are an id. Refused: "unknown_action", "ambiguous" where it could be several.
    """
    reader = store.reader().effects
    found = [found for found in (reader.action(one) for one in _ids(reader, named)) if found is not None]
    if len(named) == ID_DIGITS and found:
        return found[0]
    members = reader.members(named) if len(named) > 0 else []
    if len(found) + bool(members) > 1:
        raise Refused(f"{named!r} could be several actions", code="ambiguous", hint="give all 32 digits of the id")
    if not found and not members:
        raise Refused(
            f"there is no action and no key {named!r}", code="unknown_action", hint="`arl effects list` shows them"
        )
    return (found or members)[-1]


def _ids(reader: EffectReader, named: str) -> list[bytes]:
    digits = named.lower()
    if not LEAST_DIGITS <= len(digits) <= ID_DIGITS or not set(digits) <= _HEX:
        return []
    return reader.ids_with(digits, limit=2)
