"""Where an effect ledger stands for who only looks: by its latest transition, its clock mark and the clock here."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent_run_ledger.effects.engine import Settings
from agent_run_ledger.effects.system_time import CheckedTime, SystemTime
from agent_run_ledger.errors import Tampered
from agent_run_ledger.kernel.effects import LedgerState, Now, Standing
from agent_run_ledger.kernel.effects.reading import read_time
from agent_run_ledger.kernel.effects.record import transition_from
from agent_run_ledger.ports import Store
from agent_run_ledger.ports.effects import TimeSource
from agent_run_ledger.store import SqliteStore


@dataclass(frozen=True, slots=True, kw_only=True)
class OnRecord:
    """Where a ledger stands and what time it is. `used`: it has had a transition; before, its settings are defaults."""

    standing: Standing
    now: Now
    used: bool


def on_record(store: Store, time: TimeSource | None = None) -> OnRecord:
    """Return where the ledger of a store stands, without waiting for who writes, and without a witness.

    Settings and kind of witness are those of the latest transition; whether that witness answers is not asked.
    Tampered("corrupt") where that transition's record cannot be read; Unavailable("no_time").
    """
    reader = store.reader()
    latest, (number, corrected_ms) = reader.effects.latest(), reader.effects.corrections()
    try:
        before = Standing(ledger_id=store.log_id) if latest is None else transition_from(latest.payload).ledger
    except (ValueError, KeyError, TypeError) as error:
        raise Tampered(f"the record of the latest transition cannot be read: {error}", code="corrupt") from error
    reading = read_time(reader.effects.time_mark(), CheckedTime(time or SystemTime()).sample())
    state = LedgerState.OPEN if reading.trusted else LedgerState.TIME_UNTRUSTED
    standing = replace(
        before,
        ledger_id=store.log_id,
        opening=b"",
        state=LedgerState.RECOVERY if isinstance(store, SqliteStore) and store.is_copy else state,
        epoch=reader.head().epoch,
        corrections=number,
        corrected_ms=corrected_ms,
    )
    return OnRecord(standing=standing, now=reading.now, used=latest is not None)


def settings_on_record(store: Store) -> Settings:
    """Return the settings of the latest transition: with less nobody may open the ledger."""
    standing = on_record(store).standing
    return Settings(
        bound_ms=standing.bound_ms,
        max_permit_ms=standing.max_permit_ms,
        people_for_not_executed=standing.people_for_not_executed,
        officers_needed=standing.officers_needed,
    )
