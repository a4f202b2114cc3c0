"""Opening the effects of a store for a command: to look at them, or to decide, under the trust file if it has one."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent_run_ledger.cli.folding import note_folded
from agent_run_ledger.cli.settings import Setting, db_setting
from agent_run_ledger.cli.stores import hints_for
from agent_run_ledger.cli.words import clean
from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.store_urls import is_url

if TYPE_CHECKING:
    from agent_run_ledger.effects.views import ActionView
    from agent_run_ledger.ledger.authority import Authority
    from agent_run_ledger.ledger.effect_ledger import EffectLedger
    from agent_run_ledger.ports.effects import StoredAction
    from agent_run_ledger.store import AnyStore

NO_TRUST = "`arl init --local` makes one for this machine; `arl trust new` begins one for several people"
NO_TRUST_AT_SERVER = (
    "name it with --trust or AGENT_RUN_LEDGER_TRUST; `arl init --local --folder DIR` makes one for this machine, "
    "`arl trust new` begins one for several people"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deciding:
    """A ledger that is open for decisions, how its store was named, and the trust file it is under, if any."""

    ledger: EffectLedger
    setting: Setting
    found: Authority | None

    @property
    def authority(self) -> Authority:
        """The trust file. Refused("no_trust") where there is none."""
        return _there(self.found, self.setting)


@contextmanager
def deciding_effects(db: str | None, trust: str | None, *, needs_trust: bool = True) -> Generator[Deciding, None, None]:
    """Open the effects of the configured store under its trust file, with the settings that it was used with.

    Refused: "no_trust" where it has none and `needs_trust`, and as `find_authority` and `EffectLedger` say.
    """
    from agent_run_ledger.cli.copies import log_on_stderr
    from agent_run_ledger.ledger.authority import find_authority
    from agent_run_ledger.ledger.effect_ledger import EffectLedger
    from agent_run_ledger.store import durability_of

    setting = db_setting(db)
    with hints_for(setting), log_on_stderr():
        durability = durability_of(setting.value)
        found = find_authority(setting.value, trust)
        if needs_trust:
            _there(found, setting)
        signed = None if found is None else found.signed
        with EffectLedger(setting.value, durability=durability, trust=signed) as ledger:
            yield Deciding(ledger=ledger, setting=setting, found=found)


def authority_of(db: str | None, trust: str | None) -> Authority:
    """Return the trust file of the configured store. Refused("no_trust") where it has none."""
    from agent_run_ledger.ledger.authority import find_authority

    setting = db_setting(db)
    with hints_for(setting):
        return _there(find_authority(setting.value, trust), setting)


def _there(found: Authority | None, setting: Setting) -> Authority:
    if found is None:
        from agent_run_ledger.effects.gate import NAME_TRUST
        from agent_run_ledger.ledger.authority import trust_in_use

        in_use = trust_in_use(setting.value)
        if in_use is not None:
            said = f"{setting.shown} is under a trust file with the serial {in_use.serial}, and none is found"
            raise Refused(said, code="no_trust", hint=NAME_TRUST)
        hint = NO_TRUST_AT_SERVER if is_url(setting.value) else NO_TRUST
        raise Refused(f"{setting.shown} has no trust file", code="no_trust", hint=hint)
    return found


def view_in(store: AnyStore, stored: StoredAction) -> ActionView:
    """Return a stored action as people see it, in a store that is open for reading only."""
    from agent_run_ledger.effects.views import view_of
    from agent_run_ledger.kernel.effects import WitnessPolicy
    from agent_run_ledger.ledger.effect_opening import standing_on_record

    standing = standing_on_record(store)
    witness = WitnessPolicy.NONE if standing is None else standing.witness
    bound_ms = 0 if standing is None else standing.bound_ms
    return view_of(stored.action, witness, now_ms=time.time_ns() // 1_000_000, bound_ms=bound_ms)


def not_protected(store: AnyStore) -> tuple[str, ...]:
    """Return in words what nothing guards the effects of a store against, as far as the store says it."""
    from agent_run_ledger.effects.views import unprotected
    from agent_run_ledger.kernel.effects import WitnessPolicy
    from agent_run_ledger.ledger.effect_opening import standing_on_record
    from agent_run_ledger.ledger.local_trust import trust_words

    standing = standing_on_record(store)
    witness = WitnessPolicy.NONE if standing is None else standing.witness
    trusted = store.reader().effects.trust() is not None
    return (*unprotected(witness), *trust_words(store.location, trusted=trusted))


def warn(words: Sequence[str]) -> None:
    """Print on stderr what nothing guards against."""
    for one in words:
        note_folded(f"not protected: {clean(one)}")
