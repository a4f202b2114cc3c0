"""`arl effects observe`: what somebody saw at the target, or that nothing more can arrive there."""

from __future__ import annotations

from hashlib import file_digest
from typing import TYPE_CHECKING, Annotated

import typer

from agent_run_ledger.cli.options import ActionId, Db, Json, Key, PassphraseFile, Trust, Yes
from agent_run_ledger.cli.who import As_program, As_role
from agent_run_ledger.errors import Misuse, Refused
from agent_run_ledger.kernel.effects.evidence import Covers, Drain, DrainKind, Found, Observation
from agent_run_ledger.kernel.effects.states import Role

if TYPE_CHECKING:
    from agent_run_ledger.cli.who import Asking
    from agent_run_ledger.kernel.effects.action import Action

Saw = Annotated[Found | None, typer.Option("--found", help="What a look at the target saw.")]
Drained = Annotated[
    str | None,
    typer.Option(
        "--drain",
        metavar="WHY",
        help="Nothing more can arrive: expiry (the receiver refuses every permit there is) or path-dead.",
    ),
]
Whose = Annotated[Covers | None, typer.Option("--covers", help="Whose way is dead, with --drain path-dead.")]
After = Annotated[
    str | None,
    typer.Option("--after", metavar="DRAIN", help="The drain that was on record when you looked, by its first digits."),
]
Proof = Annotated[
    str | None,
    typer.Option("--evidence", metavar="FILE", help="What you keep of it: its digest becomes part of the evidence id."),
]
LEAST_DIGITS = 8
_EXECUTED_ASKS = "Record that {key} was executed? That ends every other way out of a doubt, and is not taken back."
_FRESH_BYTES = 16
_SAID_BY_NAME = frozenset({Found.NOTHING, Found.UNKNOWN})
"""What a program may say by its name alone: what settles nothing before a key decides on it."""


def observe(
    action: ActionId,
    found: Saw = None,
    drain: Drained = None,
    covers: Whose = None,
    after: After = None,
    evidence: Proof = None,
    yes: Yes = False,
    name: As_program = None,
    role: As_role = None,
    key: Key = None,
    passphrase_file: PassphraseFile = None,
    trust: Trust = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Record evidence, which decides nothing by itself: a look at the target, or that nothing more can arrive.

    It is the word of who says so. Look first, then record it; a look that comes before the drain shows that it
    happened, never that it did not. That it was executed ends every other way out, and is asked about first. Under a
    trust file a key says who that is; a look that saw nothing, or cannot tell, may also be that of a program that has
    no keys there, by --as NAME, which nobody checks.
    """
    from agent_run_ledger.cli.confirm import confirm
    from agent_run_ledger.cli.effects_done import hints_about, print_done
    from agent_run_ledger.cli.who import Said, asking
    from agent_run_ledger.cli.words import clean
    from agent_run_ledger.ledger.effect_inbox import find_action

    _check(found, drain, covers, after)
    digest = None if evidence is None else _digest_of(evidence)
    said = Said(name=name, role=role, key=key, passphrase_file=passphrase_file)
    with asking(db, trust, said, role=Role.RECONCILER, by_name=found in _SAID_BY_NAME) as asked:
        row = find_action(asked.store, action).action
        if found is Found.EXECUTED:
            confirm(_EXECUTED_ASKS.format(key=clean(row.action_key)), yes=yes)
        evidence_id = _evidence_id(digest)
        piece: Observation | Drain
        if found is None:
            piece = _drain(asked, row, _kind_of(str(drain)), covers, evidence_id)
        else:
            piece = _look(asked, row, found, _drain_named(row, after), evidence_id)
        with hints_about(row):
            asked.ledger.observe(asked.actor, row.action_id, piece, sign=asked.sign if found is None else None)
        did = "evidence recorded" if found is not None else f"drain {evidence_id.hex()} recorded"
        if found is Found.NOTHING and after is None:
            did += ", with no drain before it: it does not show that nothing can happen any more"
        print_done(asked, row.action_id, did, as_json=as_json, evidence_id=evidence_id.hex())


def _check(found: Found | None, drain: str | None, covers: Covers | None, after: str | None) -> None:
    if (found is None) == (drain is None):
        raise Misuse(
            "evidence is a look or a drain", code="usage", hint="give --found WHAT, --drain expiry or --drain path-dead"
        )
    if after is not None and found is None:
        raise Misuse("a drain comes after no drain", code="usage", hint="--after goes with --found")
    if drain is not None and _kind_of(drain) is DrainKind.EXPIRY and covers is not None:
        raise Misuse("an expiry is everybody's", code="usage", hint="--covers goes with --drain path-dead")
    if drain is not None and _kind_of(drain) is DrainKind.PATH_DEAD and covers is None:
        raise Misuse(
            "whose way is dead has to be said", code="usage", hint="--covers worker, or --covers every_executor"
        )


def _kind_of(drain: str) -> DrainKind:
    try:
        return DrainKind(drain.replace("-", "_"))
    except ValueError as error:
        raise Misuse(f"{drain!r} is no drain", code="usage", hint="give --drain expiry or --drain path-dead") from error


def _look(asked: Asking, row: Action, found: Found, after: bytes | None, evidence_id: bytes) -> Observation:
    return Observation(
        evidence_id=evidence_id,
        action_key=row.action_key,
        epoch=asked.store.reader().head().epoch,
        observer=asked.actor.principal,
        found=found,
        after=after,
    )


def _drain(asked: Asking, row: Action, kind: DrainKind, covers: Covers | None, evidence_id: bytes) -> Drain:
    return Drain(
        evidence_id=evidence_id,
        action_key=row.action_key,
        epoch=asked.store.reader().head().epoch,
        observer=asked.actor.principal,
        kind=kind,
        covers=covers or Covers.EVERY_EXECUTOR,
    )


def _drain_named(row: Action, after: str | None) -> bytes | None:
    """Return the drain on record that a look names. It is never filled in: only who looked knows what was first."""
    if after is None:
        return None
    drain = row.drain
    if len(after) < LEAST_DIGITS:
        raise Misuse(f"{after!r} names no drain", code="usage", hint=f"give at least its first {LEAST_DIGITS} digits")
    if drain is None or not drain.evidence_id.hex().startswith(after.lower()):
        raise Refused(
            f"the drain {after!r} is not the one on record",
            code="other_drain",
            hint=f"`arl effects show {row.action_id.hex()}` names it; look again once it is on record",
        )
    return drain.evidence_id


def _evidence_id(digest: bytes | None) -> bytes:
    """Return an id that no other evidence has: 16 bytes drawn now, then the digest of the file that is kept."""
    from agent_run_ledger.entropy import SystemEntropy

    return SystemEntropy().token(_FRESH_BYTES) + (digest or b"")


def _digest_of(path: str) -> bytes:
    with open(path, "rb") as file:
        return file_digest(file, "sha256").digest()
