"""`arl trust show|follow`: shows a trust file beside the one on record, and puts one in use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent_run_ledger.cli.options import Db, Json, Trust, Yes

if TYPE_CHECKING:
    from agent_run_ledger.cli.settings import Setting
    from agent_run_ledger.effects.trusting import SignedTrust
    from agent_run_ledger.kernel.effects.principals import ApprovalPolicy
    from agent_run_ledger.kernel.effects.trust import TrustFile
    from agent_run_ledger.kernel.effects.trust_change import TrustOnRecord

File = Annotated[str, typer.Argument(metavar="FILE", help="The trust file that is to be used from now on.")]
FileOr = Annotated[str | None, typer.Argument(metavar="[FILE]", help="A trust file [default: that of the store].")]

_FIRST = (
    "No trust file is on record yet, and nobody but you can know that this is the right one: compare its digest with"
    " what its officers say. Use it from now on?"
)


def show(file: FileOr = None, trust: Trust = None, db: Db = None, as_json: Json = False) -> None:
    """Show a trust file: its digest, who signed it, who is missing, its policies, and if it is the one on record."""
    from agent_run_ledger.cli.output import print_json, show_named
    from agent_run_ledger.cli.settings import db_setting
    from agent_run_ledger.cli.trust_make import missing_words, nobody_lines, roles_of_nobody, signers_of
    from agent_run_ledger.kernel.effects.trust import trust_sha256
    from agent_run_ledger.ledger.authority import read_trust_file, trust_path_of

    path = Path(file) if file is not None else trust_path_of(db_setting(db).value, trust)
    found, signers = signers_of(read_trust_file(path))
    record, unprotected = _on_record(db)
    digest = trust_sha256(found)
    standing = _standing(digest, found.serial, record)
    if as_json:
        print_json(
            {
                "file": str(path),
                "sha256": digest.hex(),
                "serial": found.serial,
                "ledger_id": found.ledger_id.hex(),
                "officers": sorted(one.name for one in found.officers),
                "officers_needed": found.officers_needed,
                "signers": sorted(signers),
                "complete": len(signers) >= found.officers_needed,
                "on_record": None if record is None else {"sha256": record.sha256.hex(), "serial": record.serial},
                "in_use": record is not None and record.sha256 == digest,
                "policies": [_policy_json(found, one) for one in found.policies],
                "roles_of_nobody": roles_of_nobody(found),
                "not_protected": unprotected,
            }
        )
        return
    lines = [
        ("file", str(path)),
        ("digest", digest.hex()),
        ("serial", f"{found.serial}; {standing}"),
        ("ledger", found.ledger_id.hex()),
        ("officers", f"{found.officers_needed} of {', '.join(sorted(one.name for one in found.officers))}"),
        ("signed", ", ".join(sorted(signers)) or "by no officer yet"),
        ("missing", missing_words(found, signers)),
    ]
    lines += [("policy", _policy_words(found, one)) for one in found.policies]
    show_named([*lines, *nobody_lines(found)])
    _warn(unprotected)


def follow(file: File, yes: Yes = False, trust: Trust = None, db: Db = None, as_json: Json = False) -> None:
    """Put a signed trust file in use: on record, and in the place where the store's trust file is looked for.

    The first one of a store, or one that enough officers of it and of the one before signed. After an interruption the
    same command goes on where it was.
    """
    from agent_run_ledger.cli.settings import db_setting
    from agent_run_ledger.cli.stores import hints_for
    from agent_run_ledger.cli.trust_make import putting
    from agent_run_ledger.ledger.authority import read_trust_file, trust_path_of

    setting = db_setting(db)
    path, data = trust_path_of(setting.value, trust), read_trust_file(file)
    with hints_for(setting):
        record, _ = _on_record(db, needed=True)
        with putting(path, data):
            after = _put_in_use(setting, trust, data, record, yes=yes)
    _tell(path, after, record, as_json=as_json, unprotected=_on_record(db)[1])


def _put_in_use(
    setting: Setting, trust: str | None, data: bytes, record: TrustOnRecord | None, *, yes: bool
) -> SignedTrust:
    """Let a trust file be the one on record, and return it; where it is that already, nothing is written."""
    from agent_run_ledger.cli.confirm import confirm
    from agent_run_ledger.cli.effect_stores import deciding_effects
    from agent_run_ledger.cli.folding import note_folded
    from agent_run_ledger.cli.output import note
    from agent_run_ledger.cli.trust_make import nobody_words
    from agent_run_ledger.kernel.effects.trust import trust_sha256
    from agent_run_ledger.ledger.authority import opened_trust
    from agent_run_ledger.ledger.effect_ledger import EffectLedger
    from agent_run_ledger.store import durability_of

    given = opened_trust(setting.value, data)
    if nobody := nobody_words(given.trust):
        note_folded(f"under it nobody may {nobody}: what takes one of these roles is refused")
    if record is not None and record.sha256 != trust_sha256(given.trust):
        with deciding_effects(setting.value, trust) as here:
            return here.ledger.follow_trust(data)
    if record is None:
        note(f"digest {given.sha256.hex()}, serial {given.trust.serial}, signed by {', '.join(sorted(given.signers))}")
        confirm(_FIRST, yes=yes)
    with EffectLedger(setting.value, durability=durability_of(setting.value), trust=given):
        return given


def _tell(
    path: Path, after: SignedTrust, record: TrustOnRecord | None, *, as_json: bool, unprotected: tuple[str, ...]
) -> None:
    from agent_run_ledger.cli.output import print_json, say
    from agent_run_ledger.cli.trust_make import roles_of_nobody
    from agent_run_ledger.cli.words import clean

    changed = record is None or record.sha256 != after.sha256
    if as_json:
        print_json(
            {
                "file": str(path),
                "sha256": after.sha256.hex(),
                "serial": after.trust.serial,
                "signers": sorted(after.signers),
                "changed": changed,
                "roles_of_nobody": roles_of_nobody(after.trust),
                "not_protected": unprotected,
            }
        )
        return
    what = "in use from now on" if changed else "in use already"
    say(f"trust file with the serial {after.trust.serial}, signed by {', '.join(sorted(after.signers))}: {what}")
    say(f"it lies in {clean(path)}; digest {after.sha256.hex()}")
    _warn(unprotected)


def _on_record(db: str | None, *, needed: bool = False) -> tuple[TrustOnRecord | None, tuple[str, ...]]:
    """Return which trust file is on record in the configured store, and what nothing guards it against."""
    from agent_run_ledger.cli.effect_stores import not_protected
    from agent_run_ledger.cli.settings import db_setting
    from agent_run_ledger.cli.stores import is_somewhere, reading

    if not needed and not is_somewhere(db_setting(db)):
        return None, ()
    with reading(db) as store:
        return store.reader().effects.trust(), not_protected(store)


def _standing(digest: bytes, serial: int, record: TrustOnRecord | None) -> str:
    if record is None:
        return "none is on record"
    if record.sha256 == digest:
        return "the one on record"
    older = "older than" if serial <= record.serial else "not"
    return f"{older} the one on record, which has the serial {record.serial}"


def _policy_words(trust: TrustFile, policy: ApprovalPolicy) -> str:
    from agent_run_ledger.cli.words import duration_words

    people = f", {policy.people_needed} by people" if policy.people_needed else ""
    return (
        f"{policy.name}: {policy.approvals_needed} of {', '.join(sorted(policy.approvers))}{people}, within "
        f"{duration_words(policy.max_window_ms)}; {trust.policy_sha256(policy).hex()}"
    )


def _policy_json(trust: TrustFile, policy: ApprovalPolicy) -> dict[str, object]:
    return {
        "name": policy.name,
        "policy_sha256": trust.policy_sha256(policy).hex(),
        "approvals_needed": policy.approvals_needed,
        "people_needed": policy.people_needed,
        "approvers": sorted(policy.approvers),
        "max_window_ms": policy.max_window_ms,
    }


def _warn(words: tuple[str, ...]) -> None:
    from agent_run_ledger.cli.effect_stores import warn

    warn(words)
