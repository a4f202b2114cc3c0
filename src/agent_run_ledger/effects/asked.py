"""What is asked: whether a command can be recorded, and whether an operation that landed was the same one."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import orjson

from agent_run_ledger.effects.intents import check_text
from agent_run_ledger.effects.sizes import check_sizes
from agent_run_ledger.errors import Misuse, Refused, Tampered
from agent_run_ledger.kernel.effects import Action, Event
from agent_run_ledger.kernel.effects.clock import CorrectClock, correction_from
from agent_run_ledger.kernel.effects.commands import Command
from agent_run_ledger.kernel.effects.exact import is_exact
from agent_run_ledger.kernel.effects.plain import from_plain, to_plain
from agent_run_ledger.kernel.effects.record import transition_from
from agent_run_ledger.ports.effects import StoredCorrection, StoredTransition

C = TypeVar("C", bound=Command)

MIN_EVIDENCE_ID, MAX_EVIDENCE_ID = 16, 64
MAX_MARK = 1 << 31
"""The highest mark that a receiver's answer may set: a key has room above it for every later claim."""
MAX_GENERATION = 1 << 32
"""The highest generation that evidence may name: above every mark, and every claim above that."""

_DRAWN: Final[Mapping[Event, tuple[str, ...]]] = {
    Event.PROPOSE: ("action_id",),
    Event.EDIT: ("new_action_id",),
    Event.SUCCESSOR: ("new_action_id", "cosigned"),
    Event.CLAIM: ("claim_id",),
    Event.HAND_OUT: ("cosigned",),
    Event.OBSERVE: ("signatures",),
    Event.NOT_EXECUTED: ("signatures",),
    Event.WRITE_OFF: ("signatures",),
    Event.CLOSE_UNPREPARED: ("signatures",),
}
"""What a call draws or looks up for itself beside the time: not what is asked, so a repeated call may differ in it.

What a decision is signed over is the action as it stood before it, which a repeated call does not see any more.
"""


def checked(command: C) -> C:
    """Return a command as its record will hold it: a word that stands for one of an enum is that one.

    Misuse("bad_argument") for what a record could not hold exactly.
    """
    held = command if is_exact(command) else _as_recorded(command)
    check_sizes(held)
    for principal in (command.actor.principal, *getattr(command, "people", ()), *getattr(command, "officers", ())):
        check_principal(principal)
    for name in ("evidence", "fence"):
        evidence: Any = getattr(command, name, None)
        if evidence is None:
            continue
        if not MIN_EVIDENCE_ID <= len(evidence.evidence_id) <= MAX_EVIDENCE_ID:
            raise _bad(f"an evidence_id has {MIN_EVIDENCE_ID} to {MAX_EVIDENCE_ID} bytes, none twice")
        generation = getattr(evidence, "generation", None)
        if generation is not None and not 1 <= generation <= MAX_GENERATION:
            raise _bad(f"a generation is from 1 to {MAX_GENERATION}, not {generation}")
        if not 0 <= getattr(evidence, "mark", 0) <= MAX_MARK:
            raise _bad(f"a mark is from 0 to {MAX_MARK}, not {evidence.mark}")
    return held


def _as_recorded(command: C) -> C:
    """Return a command as it comes back from its record. Misuse("bad_argument") where it comes back as another."""
    try:
        plain = to_plain(command)
        orjson.dumps(plain, option=orjson.OPT_STRICT_INTEGER)
        held: C = from_plain(type(command), plain)
    except (TypeError, ValueError) as error:
        raise _bad(f"{command.event} was asked with values of other types: {error}") from error
    if held != command:
        raise _bad(f"{command.event} was asked with values that a record does not hold exactly")
    return held


def check_principal(name: str) -> None:
    """Misuse("bad_argument") unless there is one way to write this name: it is text in NFC of printable characters.

    No space is at its ends. Else one person could be two of those who have to decide together.
    """
    check_text("a principal", name)
    if name != name.strip() or not name.isprintable() or unicodedata.normalize("NFC", name) != name:
        raise _bad(f"a principal is printable, in NFC and without spaces at its ends, not {name!r}")


def rows_on_record(
    op_id: bytes, records: Sequence[StoredTransition], members: Sequence[Action], command: Command
) -> tuple[Action, ...]:
    """Return the rows that an operation wrote, as they stand now.

    Refused("op_id_used") where that operation asked for anything else.
    """
    try:
        done = [transition_from(record.payload) for record in records]
    except (ValueError, KeyError, TypeError) as error:
        raise Tampered(f"the record of operation {op_id.hex()} cannot be read: {error}", code="corrupt") from error
    rows = [member for one in done for member in members if member.action_id == one.row.action_id]
    if not done or not rows or not _same_question(done[0].command, command):
        raise _used(op_id)
    return tuple(rows)


def check_correction(command: CorrectClock) -> None:
    """Misuse("bad_argument") unless a record can hold this clock correction."""
    try:
        from_plain(CorrectClock, to_plain(command))
    except (TypeError, ValueError) as error:
        raise _bad(f"a clock correction was asked with values of other types: {error}") from error
    for principal in (command.actor.principal, *command.people):
        check_text("a principal", principal)


def check_same_correction(op_id: bytes, stored: StoredCorrection | None, command: CorrectClock) -> None:
    """Refused("op_id_used") unless an operation that landed was this correction of the same people."""
    try:
        done = None if stored is None else correction_from(stored.payload).command
    except (ValueError, KeyError, TypeError) as error:
        raise Tampered(f"the record of operation {op_id.hex()} cannot be read: {error}", code="corrupt") from error
    if done is None or (done.actor.principal, done.people) != (command.actor.principal, command.people):
        raise _used(op_id)


def _same_question(old: Command, new: Command) -> bool:
    if old.event is not new.event or old.actor.principal != new.actor.principal:
        return False
    left_open: dict[str, Any] = {name: getattr(old, name) for name in ("now", "actor", *_DRAWN.get(old.event, ()))}
    return replace(new, **left_open) == old


def _used(op_id: bytes) -> Refused:
    return Refused(f"operation {op_id.hex()} was another one", code="op_id_used", hint="draw a new op_id")


def _bad(said: str) -> Misuse:
    return Misuse(said, code="bad_argument")
