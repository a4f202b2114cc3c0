"""The trust file on record: the first one that a ledger is opened under, and each that follows it, as a leaf."""

from __future__ import annotations

from typing import Final

from agent_run_ledger.effects.engine import Engine
from agent_run_ledger.effects.gate import NO_TRUST, other_trust
from agent_run_ledger.effects.refusals import error_of_trust
from agent_run_ledger.effects.trusting import SignedTrust, follow_trust, known_trust, open_trust
from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.effects import LedgerState, Standing
from agent_run_ledger.kernel.effects.reading import Reading
from agent_run_ledger.kernel.effects.trust_change import TrustChange, TrustOnRecord
from agent_run_ledger.kernel.record import SALT_BYTES
from agent_run_ledger.ports import Tx

_NO_CHANGE: Final = (LedgerState.RECOVERY, LedgerState.FROZEN)
"""Where a ledger may be an old one, nobody comes into power and nobody loses it."""


def adopt(engine: Engine) -> None:
    """Let a ledger be under the trust file that it is opened with: the one on record, or else the first.

    A copy is under none: it grants nothing. Refused: "no_trust" where one is on record and none is given,
    "other_trust" where it is another one. Else as `open_trust` says, of the first one.
    """
    trust = engine.gate.trust
    if engine.is_copy:
        return
    on_record = engine.store.reader().effects.trust()
    if trust is None and on_record is None:
        return
    if trust is None or on_record is not None:
        engine.gate.check_record(on_record)
        return
    first = trust

    def put_on_record(tx: Tx, ledger: Standing, reading: Reading) -> None:
        found = tx.effects.trust()
        if found is not None:  # somebody else was faster
            engine.gate.check_record(found)
            return
        opened = open_trust(first.signed, now=reading.now, expected_sha256=first.sha256)
        _write(engine, tx, ledger, reading, opened, before=None)

    engine.run(engine.entropy.uuid7(), put_on_record)


def follow(engine: Engine, signed: bytes, *, op_id: bytes | None = None) -> SignedTrust:
    """Let the trust file of an envelope take the place of the one in use, and return it.

    The same file again is on record already, and changes nothing. Refused: "no_trust" where there is none to follow,
    "other_trust" where this ledger was opened under another one than is in use by now, "op_id_used", and as
    `trusting.follow_trust` says. NotAdmitted while the ledger may be an old one.
    """
    before = engine.gate.trust
    if before is None:
        raise Refused("there is no trust file to follow", code="no_trust", hint=NO_TRUST)

    def put_on_record(tx: Tx, ledger: Standing, reading: Reading) -> SignedTrust:
        found = tx.effects.trust()
        again = None if found is None else _on_record(signed, found)
        if again is not None:
            return again
        if op_id is not None and tx.effects.landed(op_id) is not None:
            raise Refused(f"operation {op_id.hex()} was another one", code="op_id_used", hint="draw a new op_id")
        if found is None or found.sha256 != before.sha256:
            raise other_trust(before, found)
        after = follow_trust(signed, now=reading.now, before=before.trust)
        _write(engine, tx, ledger, reading, after, before=before.sha256)
        return after

    after = engine.run(engine.entropy.uuid7() if op_id is None else op_id, put_on_record)
    engine.gate.trust = after
    return after


def _on_record(signed: bytes, found: TrustOnRecord) -> SignedTrust | None:
    """Return the trust file of an envelope where it is the one on record, None where it is another."""
    try:
        return known_trust(signed, sha256=found.sha256)
    except Refused as error:
        if error.code != "other_trust":
            raise
        return None


def _write(
    engine: Engine, tx: Tx, ledger: Standing, reading: Reading, after: SignedTrust, *, before: bytes | None
) -> None:
    if ledger.state in _NO_CHANGE:
        raise error_of_trust(ledger.state)
    change = TrustChange(
        ledger_id=ledger.ledger_id,
        epoch=ledger.epoch,
        now=reading.now,
        sha256=after.sha256,
        serial=after.trust.serial,
        officers=after.signers,
        signed=after.signed.decode("utf-8"),
        before_sha256=before,
    )
    tx.effects.change_trust(change, salt=engine.entropy.token(SALT_BYTES))
