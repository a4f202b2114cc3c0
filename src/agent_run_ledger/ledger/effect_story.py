"""The whole story of a key: its members, each transition with who asked and by what evidence, and the request."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from agent_run_ledger.errors import Tampered
from agent_run_ledger.kernel.effects.commands import Command
from agent_run_ledger.kernel.effects.display import display
from agent_run_ledger.kernel.effects.record import Transition, transition_from
from agent_run_ledger.kernel.effects.request import BadRequest
from agent_run_ledger.ledger.effect_inbox import Waiting, waiting
from agent_run_ledger.ledger.effect_standing import OnRecord, on_record
from agent_run_ledger.ports.effects import EffectReader, StoredAction, TimeSource
from agent_run_ledger.store import AnyStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One transition of a member: in which leaf, and what it says."""

    leaf_index: int
    transition: Transition

    @property
    def command(self) -> Command:
        """Who asked for what, and when it was decided."""
        return self.transition.command


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The bytes of a member. `display`: what approvers are shown, None for bytes that are no request, version 1.

    `size` is None where the ledger has no bytes: the member was rebuilt from a receipt. `intact`: they are the ones of
    the digest. `shown_as_approved`: the display has the digest that approvers signed.
    """

    size: int | None
    intact: bool
    display: str | None
    shown_as_approved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member of a key, where it stands, what was asked for, and what became of it so far."""

    waiting: Waiting
    asked: Asked
    told: tuple[Told, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A key with all its members, oldest first. `where`: how the ledger stands."""

    action_key: str
    where: OnRecord
    members: tuple[Member, ...]


def read_story(store: AnyStore, action_key: str, *, time: TimeSource | None = None) -> Story:
    """Return what is on record of a key. Tampered("corrupt") where a record cannot be read."""
    where, reader = on_record(store, time), store.reader().effects
    return Story(
        action_key=action_key,
        where=where,
        members=tuple(_member(reader, where, one) for one in reader.members(action_key)),
    )


def _member(reader: EffectReader, where: OnRecord, stored: StoredAction) -> Member:
    action = stored.action
    body = reader.request(action.action_id)
    return Member(
        waiting=waiting(reader, where, stored),
        asked=_asked(body, action.terms.request_sha256, action.terms.display_sha256),
        told=tuple(
            Told(leaf_index=one.leaf_index, transition=_transition(one.payload, one.record_id))
            for one in reader.transitions(action.action_id)
        ),
    )


def _asked(body: bytes | None, request_sha256: bytes, display_sha256: bytes) -> Asked:
    if body is None:
        return Asked(size=None, intact=False, display=None, shown_as_approved=False)
    intact = sha256(body).digest() == request_sha256
    try:
        words = display(body)
    except BadRequest:
        return Asked(size=len(body), intact=intact, display=None, shown_as_approved=False)
    same = sha256(words.encode("utf-8")).digest() == display_sha256
    return Asked(size=len(body), intact=intact, display=words, shown_as_approved=same)


def _transition(payload: bytes, record_id: int) -> Transition:
    try:
        return transition_from(payload)
    except (ValueError, KeyError, TypeError) as error:
        raise Tampered(f"record {record_id} of a transition cannot be read: {error}", code="corrupt") from error
