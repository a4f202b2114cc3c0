"""The findings of `arl doctor` about the trust file and keys: which one is in use, and what it does not protect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_run_ledger.errors import LedgerError
from agent_run_ledger.kernel.store_urls import is_url

if TYPE_CHECKING:
    from agent_run_ledger.cli.doctor_checks import Findings
    from agent_run_ledger.kernel.effects.trust import TrustFile
    from agent_run_ledger.store import AnyStore

SOON_DAYS: Final = 30
_DAY_MS: Final = 86_400_000


def look_at_trust(found: Findings, store: AnyStore) -> None:
    """Note which trust file is on record, whether it is the one that is found, and where its keys lie."""
    from agent_run_ledger.ledger.authority import find_authority
    from agent_run_ledger.ledger.local_trust import LOCAL, UNSIGNED

    _look_for_keys(found, store.location)
    if not store.authority or store.is_copy:
        return
    on_record = store.reader().effects.trust()
    found.numbers["trust_serial"] = None if on_record is None else on_record.serial
    try:
        authority = find_authority(store.location, on_record=store.reader().effects.trust)
    except LedgerError as error:
        found.add("bad", "trust file", error.message, error.hint, exit_code=error.exit_code)
        return
    if on_record is None:
        folder = " --folder DIR" if is_url(store.location) else ""
        advice = f"`arl init --local{folder}` makes one for this machine; docs/guide/approvals.md is about more"
        found.add("note", "trust file", UNSIGNED, advice)
    elif authority is None:
        advice = (
            "name it with AGENT_RUN_LEDGER_TRUST, or put the folder that was beside the store back from a backup: "
            "without it nothing is proposed, approved or claimed"
        )
        found.add("warn", "trust file", f"serial {on_record.serial} is on record, and none is found", advice)
    elif authority.signed.sha256 != on_record.sha256:
        words = f"serial {on_record.serial} is on record, and {authority.path} is another one"
        found.add("bad", "trust file", words, "put the right one back, or `arl trust follow` it")
    elif authority.local:
        found.add("warn", "trust file", f"serial {on_record.serial}; {LOCAL}", "keep keys elsewhere for real effects")
    else:
        found.add("ok", "trust file", f"serial {on_record.serial}, {authority.path}")
    if on_record is not None and authority is not None and authority.signed.sha256 == on_record.sha256:
        _look_at_officers(found, authority.trust)


def _look_for_keys(found: Findings, location: str) -> None:
    """Warn of private keys that lie where the store does, under whatever name."""
    from agent_run_ledger.cli.words import listed
    from agent_run_ledger.ledger.local_trust import stray_keys

    keys = stray_keys(location)
    if keys:
        words = f"private keys lie beside this database: {listed(keys)}"
        advice = "keep each where only its owner can read it: who can read that folder can sign with what lies there"
        found.add("warn", "keys", words, advice)


def _look_at_officers(found: Findings, trust: TrustFile) -> None:
    """Warn while there is time of a trust file that soon nothing can follow any more."""
    from agent_run_ledger.effects.trusting import officers_with_keys
    from agent_run_ledger.kernel.effects import Now
    from agent_run_ledger.ledger.authority import now_here

    now = now_here()
    soon = Now(now.earliest_ms + SOON_DAYS * _DAY_MS, now.latest_ms + SOON_DAYS * _DAY_MS)
    left, later = len(officers_with_keys(trust, now)), len(officers_with_keys(trust, soon))
    if left < trust.officers_needed:
        words = f"{left} officers have keys that count, and {trust.officers_needed} are needed: no other can follow it"
        found.add("bad", "officers", words, "docs/guide/approvals.md says what goes on, and what is left to do")
    elif later < trust.officers_needed:
        words = f"in {SOON_DAYS} days {later} officers have keys that count, and {trust.officers_needed} are needed"
        found.add("warn", "officers", words, "sign a later trust file with new keys, and `arl trust follow` it before")
