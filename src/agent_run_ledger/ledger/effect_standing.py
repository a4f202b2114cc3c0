"""Where an effect ledger stands for who only looks: by its latest transition, its clock mark and the clock here."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent_run_ledger.kernel.effects import LedgerState, Now, Standing
from agent_run_ledger.kernel.effects.reading import read_time
from agent_run_ledger.ledger.effect_opening import standing_on_record
from agent_run_ledger.ledger.effect_time import time_of
from agent_run_ledger.ports import Store
from agent_run_ledger.ports.effects import TimeSource
from agent_run_ledger.store import SqliteStore


@dataclass(frozen=True, slots=True, kw_only=True)
class OnRecord:
    """Where a ledger stands and what time it is. `used`: it has had a transition; before, its settings are defaults.

    `trusted`: it is under a trust file.
    """

    standing: Standing
    now: Now
    used: bool
    trusted: bool


def on_record(store: Store, time: TimeSource | None = None) -> OnRecord:
    """Return where the ledger of a store stands, without waiting for who writes, and without a witness.

    Settings and kind of witness are those of the latest transition; whether that witness answers is not asked.
    Tampered("corrupt") where that transition's record cannot be read; Unavailable("no_time").
    """
    reader, before = store.reader(), standing_on_record(store)
    number, corrected_ms = reader.effects.corrections()
    reading = read_time(reader.effects.time_mark(), time_of(store, time).sample())
    state = LedgerState.OPEN if reading.trusted else LedgerState.TIME_UNTRUSTED
    standing = replace(
        before or Standing(ledger_id=store.log_id),
        ledger_id=store.log_id,
        opening=b"",
        state=LedgerState.RECOVERY if isinstance(store, SqliteStore) and store.is_copy else state,
        epoch=reader.head().epoch,
        corrections=number,
        corrected_ms=corrected_ms,
    )
    trusted = reader.effects.trust() is not None
    return OnRecord(standing=standing, now=reading.now, used=before is not None, trusted=trusted)
