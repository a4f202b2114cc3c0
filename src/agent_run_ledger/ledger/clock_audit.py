"""The auditor's check of clock corrections: their leaves and records compared, and the rule asked again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from agent_run_ledger.kernel.effects import LedgerState, Now, Rejected, Standing
from agent_run_ledger.kernel.effects.clock import Correction, correct, correction_from, correction_mac, is_correction
from agent_run_ledger.ledger.around import Around
from agent_run_ledger.ledger.by_leaf import UNREADABLE, ByLeaf, Note, readable
from agent_run_ledger.ports import Reader
from agent_run_ledger.ports.effects import StoredCorrection

MOST_STRAYS: Final = 100
"""Records outside of the log that are named, before it and behind it."""


class ClockAudit:
    """The clock corrections of one log, read beside its leaves, and what time the log believed before each.

    `count` and `latest_ms` are what rules were told of corrections up to here; None where one cannot be read.
    """

    def __init__(self, reader: Reader, note: Note, unauthorised: Callable[[Correction], list[str]]) -> None:
        """`unauthorised` says why those who decided might not, by the trust file that was in use."""
        self._effects = reader.effects
        self._note = note
        self._unauthorised = unauthorised
        self._beside: ByLeaf[StoredCorrection] = ByLeaf(iter(()), note, "")
        self._believed_ms: int | None = None
        self.count = 0
        self.latest_ms: int | None = 0

    def begin(self, first: int, stop: int) -> None:
        """Go on with leaves first ≤ index < stop."""
        self._beside = ByLeaf(
            self._readable(first, stop), self._note, "a record of a clock correction, whose leaf is missing"
        )

    def leaf(self, index: int, changes: Sequence[Mapping[str, Any]], around: Around) -> None:
        """Check what one leaf says of the clock; `changes` are all of the leaf's, well-formed."""
        own = self._beside.of(index)
        for position, change in enumerate(changes):
            if is_correction(change):
                for text in self._wrong(change, own.pop(position, None), around):
                    self._note(index, f"change {position}, a clock correction: {text}")
        for position in own:
            self._note(index, f"a record of a clock correction at position {position}, where the leaf has none")

    def end(self) -> None:
        """Name the records that belong to none of the leaves since `begin`."""
        self._beside.finish()

    def believe(self, now: Now | None) -> None:
        """Take the time of a decision: one moment was believed, a span was not. None for one that cannot be read."""
        if now is None:
            self._believed_ms = None
        elif now.earliest_ms == now.latest_ms:
            self._believed_ms = now.latest_ms

    def wrong_standing(self, ledger: Standing) -> list[str]:
        """Return in what a recorded standing says other corrections than the log."""
        if self.latest_ms is None or (ledger.corrections, ledger.corrected_ms) == (self.count, self.latest_ms):
            return []
        return [
            f"{ledger.corrections} clock corrections up to {ledger.corrected_ms} ms in the record, "
            f"{self.count} up to {self.latest_ms} ms in the log"
        ]

    def look_for_strays(self, first: int, stop: int, size: Callable[[], int]) -> None:
        """Report records of leaves that the log does not have; `size` is asked after reading."""
        found = list(islice(self._readable(first, stop), MOST_STRAYS))
        now = size()
        for stored in found:
            if not 0 <= stored.leaf_index < now:
                self._note(stored.leaf_index, "a record of a clock correction outside the log that the head describes")

    def _wrong(self, change: Mapping[str, Any], stored: StoredCorrection | None, around: Around) -> Iterator[str]:
        """Yield in what a change and the record beside it contradict each other, the log before them, or the rule."""
        asked = None
        if change.get("mac") is None:
            yield "the leaf has no MAC of its record"
        elif stored is None:
            yield "it has the MAC of a record that is not in the store"
        elif correction_mac(stored.salt, stored.payload).hex() != change["mac"]:
            yield "the record is not the one whose MAC the leaf has"
        else:
            try:
                asked = correction_from(stored.payload)
            except UNREADABLE as error:
                yield f"the record is none: {error}"
        if asked is None or stored is None:
            self.count, self.latest_ms, self._believed_ms = self.count + 1, None, None
            return
        yield from self._contradictions(change, stored, asked, around)
        self.count += 1
        self.latest_ms = None if self.latest_ms is None else max(self.latest_ms, asked.later_ms)
        self._believed_ms = asked.new.wall_ms

    def _contradictions(
        self, change: Mapping[str, Any], stored: StoredCorrection, asked: Correction, around: Around
    ) -> Iterator[str]:
        if change["old"] != LedgerState.TIME_UNTRUSTED or change["generation"] != 0:
            yield f"old state {change['old']!r}, generation {change['generation']}"
        said = (asked.ledger.ledger_id.hex(), asked.ledger.epoch)
        if said != (around.log_id_hex, around.epoch):
            yield f"log and epoch {(around.log_id_hex, around.epoch)} in the leaf, {said} in the record"
        if around.is_copy or not around.authority:
            yield "the log is a copy's, or never gave this store authority"
        yield from self.wrong_standing(asked.ledger)
        if stored.later_ms != asked.later_ms:
            yield f"its row says {stored.later_ms} ms, its record {asked.later_ms} ms"
        if self._believed_ms is not None and asked.old.wall_ms != self._believed_ms:
            yield f"it set aside {asked.old.wall_ms} ms, and {self._believed_ms} ms was believed"
        decided = correct(asked)
        if isinstance(decided, Rejected):
            yield f"the rule does not allow it: {decided.code}"
        yield from self._unauthorised(asked)

    def _readable(self, first: int, stop: int) -> Iterator[StoredCorrection]:
        return readable(
            lambda begin, end: self._effects.leaf_corrections(first=begin, stop=end),
            first,
            stop,
            self._note,
            "a record of a clock correction",
        )
