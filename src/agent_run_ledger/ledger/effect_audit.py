"""The auditor's check of effects: leaves, records and rows of actions compared, and the rules asked again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from hashlib import sha256
from itertools import chain, groupby, islice
from typing import Any, Final

import orjson

from agent_run_ledger.effects.answers import is_named_after
from agent_run_ledger.errors import LedgerError, Unavailable
from agent_run_ledger.kernel.effects import Accepted, Action, LedgerState, Rejected, Standing, Terms, WitnessPolicy
from agent_run_ledger.kernel.effects.evidence import Found
from agent_run_ledger.kernel.effects.plain import to_plain
from agent_run_ledger.kernel.effects.record import ACTION, Transition, transition_from, transition_mac
from agent_run_ledger.kernel.effects.reducer import decide
from agent_run_ledger.kernel.effects.strength import weaker
from agent_run_ledger.ledger.around import Around
from agent_run_ledger.ledger.by_leaf import UNREADABLE, ByLeaf, Note, readable
from agent_run_ledger.ledger.clock_audit import ClockAudit
from agent_run_ledger.ledger.trust_audit import TrustAudit
from agent_run_ledger.ports import Reader
from agent_run_ledger.ports.effects import StoredAction, StoredTransition

MOST_STRAYS: Final = 100
"""Records outside of the log that are named, before it and behind it."""

_SETTLE_TRIES = 50

Wrong = list[tuple[int | None, str]]


class EffectAudit:
    """The effects of one log, read twice: beside the leaves, and key by key.

    Beside the leaves (`begin`, `leaf`, `end`): each change of an action has the record whose MAC it names, which says
    the same of the same action, and no record is without a change. Key by key (`replay`): from nothing, the rules
    make of the recorded commands exactly the recorded rows, and the last of them are the stored ones. No approval and
    no request is without an action. Memory: what is on record of one key.
    """

    def __init__(self, reader: Reader, note: Note) -> None:
        self._reader = reader
        self._effects = reader.effects
        self._note = note
        self._beside: ByLeaf[StoredTransition] = ByLeaf(iter(()), note, "")
        self._trust = TrustAudit(reader, note)
        self._clock = ClockAudit(reader, note, self._trust.wrong_correction)
        self._owned = 0
        self._unread = False
        self._before: Standing | None = None
        self.actions = 0

    @property
    def witness(self) -> WitnessPolicy | None:
        """Which witness the ledger had at the last transition that was read, None before the first."""
        return None if self._before is None else self._before.witness

    def begin(self, first: int, stop: int) -> None:
        """Go on with leaves first ≤ index < stop."""
        self._beside = ByLeaf(self._records(first, stop), self._note, "a record of an action, whose leaf is missing")
        self._clock.begin(first, stop)
        self._trust.begin(first, stop)

    def leaf(self, index: int, changes: Sequence[Mapping[str, Any]], around: Around) -> None:
        """Check what one leaf says of actions, clock and trust files; `changes` are all of its, well-formed."""
        own = self._beside.of(index)
        for position, change in enumerate(changes):
            if change["type"] == ACTION:
                stored = own.pop(position, None)
                for text in (*self._wrong_beside(change, stored, around), *self._weaker(stored)):
                    self._note(index, f"change {position}, action {change['id']}: {text}")
        for position in own:
            self._note(index, f"a record of an action at position {position}, where the leaf has no change of one")
        self._clock.leaf(index, changes, around)
        self._trust.leaf(index, changes, around)

    def end(self) -> None:
        """Name the records that belong to none of the leaves since `begin`."""
        self._beside.finish()
        self._clock.end()
        self._trust.end()

    def look_for_strays(self, first: int, stop: int, size: Callable[[], int]) -> None:
        """Report records of leaves that the log does not have; `size` is asked after reading."""
        found = list(islice(self._readable(first, stop), MOST_STRAYS))
        now = size()
        for stored in found:
            if not 0 <= stored.leaf_index < now:
                self._note(stored.leaf_index, "a record of an action outside the log that the head describes")
        self._clock.look_for_strays(first, stop, size)
        self._trust.look_for_strays(first, stop, size)

    def replay(self, until: int) -> None:
        """Ask the rules again about every key. `until`: the leaf behind the last that was read.

        Raises Unavailable where one key changes faster than it can be read.
        """
        owned, seen = self._owned, 0
        try:
            self._look_for_ownerless()
            for key in chain([""], self._effects.keys()):
                seen += self._check_key(key, until)
        except UNREADABLE as error:
            self._note(None, f"the keys of actions cannot be read: {error}")
            return
        if seen != owned and not self._unread:
            self._note(None, f"{owned} records of actions stand beside leaves, {seen} belong to keys")

    def _wrong_beside(
        self, change: Mapping[str, Any], stored: StoredTransition | None, around: Around
    ) -> Iterator[str]:
        """Yield in what a change and the record beside it contradict each other or the log before them."""
        written = None
        if stored is None:
            yield "it has the MAC of a record that is not in the store"
        elif transition_mac(stored.salt, stored.payload).hex() != change["mac"]:
            yield "the record is not the one whose MAC the leaf has"
        else:
            try:
                written = transition_from(stored.payload)
            except UNREADABLE as error:
                yield f"the record is no transition: {error}"
        if stored is not None and written is not None:
            yield from _contradictions(change, stored, written, around)
            yield from self._clock.wrong_standing(written.ledger)
            yield from self._trust.wrong_command(written)
        self._clock.believe(None if written is None else written.command.now)

    def _look_for_ownerless(self) -> None:
        """Report approvals, requests and answers that belong to no action: the next one of that row would have them."""
        number, found = self._effects.ownerless(limit=MOST_STRAYS)
        if number:
            self._note(None, f"{number} approvals, requests and answers belong to no action")
        for kind, row_id in found:
            self._note(None, f"there is no action row {row_id} for this {kind}")

    def _weaker(self, stored: StoredTransition | None) -> list[str]:
        """Return in what the ledger was weaker at a transition than at the one before, in the order of the leaves."""
        try:
            now = None if stored is None else transition_from(stored.payload).ledger
        except UNREADABLE:  # said beside it
            return []
        before, self._before = self._before, now or self._before
        return [] if now is None or before is None else [f"the ledger was weaker: {one}" for one in weaker(now, before)]

    def _records(self, first: int, stop: int) -> Iterator[StoredTransition]:
        for stored in self._readable(first, stop):
            if stored.action_id is None:
                self._note(stored.leaf_index, f"record {stored.record_id} belongs to an action that does not exist")
            else:
                self._owned += 1
            yield stored

    def _readable(self, first: int, stop: int) -> Iterator[StoredTransition]:
        return readable(
            lambda begin, end: self._effects.leaf_transitions(first=begin, stop=end),
            first,
            stop,
            self._cannot_read,
            "a record of an action",
        )

    def _cannot_read(self, leaf_index: int | None, text: str) -> None:
        self._unread = True
        self._note(leaf_index, text)

    def _check_key(self, key: str, until: int) -> int:
        """Check one key until it did not change between two looks; return how many records below `until` it has."""
        try:
            rows = self._effects.members(key)
            for _ in range(_SETTLE_TRIES):
                records = sorted(
                    (record for row in rows for record in self._effects.transitions(row.action.action_id)),
                    key=lambda record: record.record_id,
                )
                wrong = self._contradictions(key, rows, records)
                before, rows = rows, self._effects.members(key) if wrong else rows
                if rows == before:
                    break
            else:
                raise Unavailable(
                    f"key {key!r} changes faster than it can be verified", hint="verify when it is quieter"
                )
        except UNREADABLE as error:
            self._cannot_read(None, f"the actions of key {key!r} cannot be read: {error}")
            return 0
        for leaf_index, text in wrong:
            self._note(leaf_index, text)
        self.actions += len(rows)
        return sum(record.leaf_index < until for record in records)

    def _contradictions(self, key: str, rows: list[StoredAction], records: list[StoredTransition]) -> Wrong:
        members: tuple[Action, ...] = ()
        wrong: Wrong = []
        for leaf_index, group in groupby(records, key=lambda record: record.leaf_index):
            try:
                written = [transition_from(record.payload) for record in group]
            except UNREADABLE:  # said when the leaf was read
                continue
            refuted = _refuted(members, written)
            if refuted:
                wrong.append((leaf_index, f"key {key!r}: {refuted}"))
            members = _after(members, written)
        if [row.action.action_id for row in rows] != [member.action_id for member in members]:
            wrong.append((None, f"the rows of key {key!r} are not the members that the log has, in its order"))
        by_id = {member.action_id: member for member in members}
        for row in rows:
            own = [record for record in records if record.action_id == row.action.action_id]
            member = by_id.get(row.action.action_id)
            if member is not None and own:
                wrong += [
                    (own[-1].leaf_index, text) for text in (*_differing(row.action, member), *self._times(row, own))
                ]
            wrong += [(None, text) for text in (*self._request(row.action), *self._answers(row.action))]
        return wrong

    def _times(self, row: StoredAction, own: list[StoredTransition]) -> list[str]:
        """Return in what the times of a row are not those of its first and its last leaf."""
        said = f"the row of action {row.action.action_id.hex()} says"
        return [
            f"{said} {name} {at_ms}, leaf {record.leaf_index} {time_ms}"
            for name, at_ms, record in (
                ("proposed_at_ms", row.proposed_at_ms, own[0]),
                ("changed_at_ms", row.changed_at_ms, own[-1]),
            )
            for time_ms in self._time_of(record.leaf_index)
            if at_ms != time_ms
        ]

    def _time_of(self, leaf_index: int) -> list[int]:
        """Return the time of a leaf; nothing where it cannot be read, which is said elsewhere."""
        try:
            return [
                orjson.loads(one.envelope)["time_ms"]
                for one in self._reader.events(first=leaf_index, stop=leaf_index + 1)
            ]
        except (LookupError, *UNREADABLE):
            return []

    def _request(self, action: Action) -> list[str]:
        body = self._effects.request(action.action_id)
        which = f"the request of action {action.action_id.hex()}"
        if action.rebuilt:
            return [] if body is None else [f"{which} is there, and the action was rebuilt without one"]
        if body is None:
            return [f"{which} is missing"]
        same = sha256(body).digest() == action.terms.request_sha256
        return [] if same else [f"{which} is not the one of its digest"]

    def _answers(self, action: Action) -> list[str]:
        """Return which answers are not those that evidence of the action is named after."""
        return [
            f"an answer of action {action.action_id.hex()} is none that its evidence {kept.evidence_id.hex()} names"
            for kept in self._effects.answers(action.action_id)
            if kept.evidence_id not in action.evidence or not any(is_named_after(kept, found) for found in Found)
        ]


def _contradictions(
    change: Mapping[str, Any], stored: StoredTransition, written: Transition, around: Around
) -> list[str]:
    row, ledger = written.row, written.ledger
    said = (
        ("action", change["id"], row.action_id.hex()),
        ("action of the record's row", change["id"], None if stored.action_id is None else stored.action_id.hex()),
        ("old state", change["old"], written.old),
        ("new state", change["new"], str(row.state)),
        ("generation", change["generation"], row.generation or 0),
        ("log", around.log_id_hex, ledger.ledger_id.hex()),
        ("epoch", around.epoch, ledger.epoch),
    )
    wrong = [
        f"{name} {in_leaf!r} in the leaf, {in_record!r} in the record"
        for name, in_leaf, in_record in said
        if in_leaf != in_record
    ]
    if not around.authority:
        wrong.append("the log never gave this store authority")
    if around.is_copy and ledger.state is not LedgerState.RECOVERY:
        wrong.append(f"the log is a copy's, and the ledger was {ledger.state}")
    if ledger.clock_doubted and ledger.state in (LedgerState.OPEN, LedgerState.TIME_UNTRUSTED):
        wrong.append(f"the ledger was {ledger.state}, and its clock doubted beside that")
    return wrong


def _refuted(members: tuple[Action, ...], written: Sequence[Transition]) -> str:
    """Return why the rules do not make these rows of a key's members, empty where they do."""
    command, ledger = written[0].command, written[0].ledger
    if any((one.command, one.ledger) != (command, ledger) for one in written):
        return "the records of one leaf are of several decisions"
    try:
        decision = decide(ledger, members, command)
    except (LedgerError, LookupError, ValueError, TypeError) as error:
        return f"the rules cannot decide {command.event}: {error}"
    if not isinstance(decision, Accepted):
        code = decision.code if isinstance(decision, Rejected) else "it was on record already"
        return f"the rules do not let it {command.event}: {code}"
    if decision.rows != tuple(one.row for one in written):
        return f"the rules make other rows of {command.event} than the records have"
    before = {member.action_id: str(member.state) for member in members}
    if any(one.old != before.get(one.row.action_id, "") for one in written):
        return f"a record of {command.event} names another state before it"
    return ""


def _after(members: tuple[Action, ...], written: Sequence[Transition]) -> tuple[Action, ...]:
    """Return the members of a key as the records of a leaf leave them."""
    rows = {one.row.action_id: one.row for one in written}
    kept = tuple(rows.pop(member.action_id, member) for member in members)
    return (*kept, *rows.values())


def _differing(stored: Action, logged: Action) -> list[str]:
    said = f"the row of action {stored.action_id.hex()} says"
    return [
        f"{said} {name} {_shown(in_row)}, the log {_shown(in_log)}"
        for name, in_row, in_log in (*_pairs(stored, logged), *_pairs(stored.terms, logged.terms))
        if in_row != in_log and name != "terms"
    ]


def _pairs(stored: Action | Terms, logged: Action | Terms) -> list[tuple[str, object, object]]:
    return [(field.name, getattr(stored, field.name), getattr(logged, field.name)) for field in fields(stored)]


def _shown(value: object) -> str:
    try:
        return repr(to_plain(value))
    except TypeError:  # a column of another type than it ever has
        return repr(value)
