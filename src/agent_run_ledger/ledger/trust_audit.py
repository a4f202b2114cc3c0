"""The auditor's check of trust files and of what was asked under them: every signature is verified again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from agent_run_ledger.effects.authorizing import check_command, check_officers, only_narrows
from agent_run_ledger.effects.trusting import SignedTrust, follow_trust, open_trust
from agent_run_ledger.effects.verifying import verify_recorded
from agent_run_ledger.errors import LedgerError
from agent_run_ledger.kernel.effects import Action, ActionState
from agent_run_ledger.kernel.effects.clock import Correction
from agent_run_ledger.kernel.effects.commands import Approve
from agent_run_ledger.kernel.effects.decided import Decision, evidence_before
from agent_run_ledger.kernel.effects.reading import read_time
from agent_run_ledger.kernel.effects.record import Transition
from agent_run_ledger.kernel.effects.trust_change import (
    TrustChange,
    is_trust_change,
    line_of_trust,
    trust_change_from,
    trust_change_mac,
)
from agent_run_ledger.ledger.around import Around
from agent_run_ledger.ledger.by_leaf import UNREADABLE, ByLeaf, Note, readable
from agent_run_ledger.ports import Reader
from agent_run_ledger.ports.effects import StoredTrustChange

MOST_STRAYS: Final = 100
"""Records outside of the log that are named, before it and behind it."""


class TrustAudit:
    """The trust files of one log, read beside its leaves: which one was in use where, and whether it counted.

    After one that cannot be read, or did not count, nothing is said of what was asked until the next one.
    """

    def __init__(self, reader: Reader, note: Note) -> None:
        self._effects = reader.effects
        self._note = note
        self._beside: ByLeaf[StoredTrustChange] = ByLeaf(iter(()), note, "")
        self._known = True
        self._in_use: SignedTrust | None = None
        self._before: bytes | None = None

    def begin(self, first: int, stop: int) -> None:
        """Go on with leaves first ≤ index < stop."""
        self._beside = ByLeaf(
            self._readable(first, stop), self._note, "a record of a trust file, whose leaf is missing"
        )

    def leaf(self, index: int, changes: Sequence[Mapping[str, Any]], around: Around) -> None:
        """Check what one leaf says of trust files; `changes` are all of the leaf's, well-formed."""
        own = self._beside.of(index)
        for position, change in enumerate(changes):
            if is_trust_change(change):
                for text in self._wrong(change, own.pop(position, None), around):
                    self._note(index, f"change {position}, a trust file: {text}")
        for position in own:
            self._note(index, f"a record of a trust file at position {position}, where the leaf has none")

    def end(self) -> None:
        """Name the records that belong to none of the leaves since `begin`."""
        self._beside.finish()

    def wrong_command(self, written: Transition) -> list[str]:
        """Return why what a record says was asked did not count under the trust file that was in use.

        What only narrows may have come by the trust file before: nothing is said of that.
        """
        command, trust = written.command, self._in_use
        if only_narrows(command) or not self._known or trust is None:
            return []
        if isinstance(command, Approve):
            return self._wrong_approval(written, command, trust)
        try:
            check_command(trust.trust, written.ledger, _row_before(written), command, command.now)
        except LedgerError as error:
            return [f"{command.actor.principal!r} may not ask for {command.event} under the trust file: {error.code}"]
        return []

    def wrong_correction(self, asked: Correction) -> list[str]:
        """Return why those who corrected the clock might not, under the trust file that was in use."""
        if not self._known or self._in_use is None:
            return []
        try:
            check_officers(self._in_use.trust, asked.command, read_time(asked.new, asked.new).now)
        except LedgerError as error:
            return [f"it does not count under the trust file: {error.code}"]
        return []

    def _wrong_approval(self, written: Transition, command: Approve, trust: SignedTrust) -> list[str]:
        if not command.approval.signature:
            return ["it was approved without a signature, under a trust file"]
        before = replace(written.row, approvals=written.row.approvals[:-1])
        try:
            verify_recorded(command.approval, trust.trust, ledger=written.ledger, action=before, now=command.now)
        except LedgerError as error:
            return [f"the approval does not count under the trust file: {error.code}"]
        return []

    def look_for_strays(self, first: int, stop: int, size: Callable[[], int]) -> None:
        """Report records of leaves that the log does not have; `size` is asked after reading."""
        found = list(islice(self._readable(first, stop), MOST_STRAYS))
        now = size()
        for stored in found:
            if not 0 <= stored.leaf_index < now:
                self._note(stored.leaf_index, "a record of a trust file outside the log that the head describes")

    def _wrong(self, change: Mapping[str, Any], stored: StoredTrustChange | None, around: Around) -> Iterator[str]:
        """Yield in what a change and the record beside it contradict each other, the log before them, or the rule."""
        made = None
        if change.get("mac") is None:
            yield "the leaf has no MAC of its record"
        elif stored is None:
            yield "it has the MAC of a record that is not in the store"
        elif trust_change_mac(stored.salt, stored.payload).hex() != change["mac"]:
            yield "the record is not the one whose MAC the leaf has"
        else:
            try:
                made = trust_change_from(stored.payload)
            except UNREADABLE as error:
                yield f"the record is none: {error}"
        if made is None or stored is None:
            self._known = False
            return
        yield from self._contradictions(change, stored, made, around)
        yield from self._in_force(made)

    def _contradictions(
        self, change: Mapping[str, Any], stored: StoredTrustChange, made: TrustChange, around: Around
    ) -> Iterator[str]:
        line = line_of_trust(made, b"")
        if (change["old"], change["generation"]) != (line.old, line.generation):
            yield f"old state {change['old']!r}, generation {change['generation']}"
        said = (made.ledger_id.hex(), made.epoch)
        if said != (around.log_id_hex, around.epoch):
            yield f"log and epoch {(around.log_id_hex, around.epoch)} in the leaf, {said} in the record"
        if around.is_copy or not around.authority:
            yield "the log is a copy's, or never gave this store authority"
        if (stored.sha256, stored.serial) != (made.sha256, made.serial):
            yield f"its row says serial {stored.serial} and {stored.sha256.hex()}, its record others"
        if self._known and made.before_sha256 != self._before:
            yield "it follows another one than the one that was in use"

    def _in_force(self, made: TrustChange) -> Iterator[str]:
        """Take a trust file for the one in use from here on; yield why it did not count when it came."""
        signed, before = made.signed.encode("utf-8"), self._in_use
        follows = self._known and before is not None
        self._before, self._in_use, self._known = made.sha256, None, False
        try:
            opened = open_trust(signed, now=made.now, expected_sha256=made.sha256)
            if follows and before is not None:
                opened = follow_trust(signed, now=made.now, before=before.trust)
        except LedgerError as error:
            yield f"it did not count: {error.code}"
            return
        self._in_use, self._known = opened, True
        if (opened.trust.ledger_id, opened.trust.serial) != (made.ledger_id, made.serial):
            yield "its record names another ledger or serial than itself"
        if opened.signers != made.officers:
            yield f"its record names the officers {sorted(made.officers)}, and {sorted(opened.signers)} signed it"

    def _readable(self, first: int, stop: int) -> Iterator[StoredTrustChange]:
        return readable(
            lambda begin, end: self._effects.leaf_trust_changes(first=begin, stop=end),
            first,
            stop,
            self._note,
            "a record of a trust file",
        )


def _row_before(written: Transition) -> Action | None:
    """Return the member that was asked about, as far as it was asked about; None for one that the command made."""
    command, row = written.command, written.row
    if getattr(command, "action_id", None) != row.action_id or not written.old:
        return None
    if not isinstance(command, Decision):
        return row
    state = next((one for one in ActionState if one == written.old), row.state)  # a forged record may say anything
    return replace(row, state=state, evidence=evidence_before(row, command))
