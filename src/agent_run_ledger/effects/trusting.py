"""Opens signed trust files: one whose digest is known, or the next one after one that is trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.dsse import Envelope, envelope_bytes, read_envelope
from agent_run_ledger.kernel.effects import Now
from agent_run_ledger.kernel.effects.principals import PublicKey
from agent_run_ledger.kernel.effects.trust import TRUST_TYPE, TrustFile, trust_bytes, trust_sha256
from agent_run_ledger.kernel.effects.trust_reader import MAX_TRUST_BYTES, trust_from
from agent_run_ledger.keys import SigningKey, countersign, seal, signed_by

MAX_SIGNED_BYTES: Final = 2 * MAX_TRUST_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedTrust:
    """A trust file that enough of its officers signed, its digest, who they are, and the envelope that they signed."""

    trust: TrustFile
    sha256: bytes
    signers: frozenset[str]
    signed: bytes


def sign_trust(trust: TrustFile, keys: Sequence[SigningKey]) -> bytes:
    """Return a trust file in an envelope, signed by these keys. Whose they are, is asked of who opens it."""
    return envelope_bytes(seal(TRUST_TYPE, trust_bytes(trust), keys))


def cosign_trust(data: bytes, key: SigningKey, *, before: TrustFile | None = None) -> bytes:
    """Return a signed trust file with one more signature. Refused("signed_already"), and as `check_officer` says."""
    envelope = read_envelope(data, payload_type=TRUST_TYPE, limit=MAX_SIGNED_BYTES)
    check_officer(trust_from(envelope.payload), key.key_id, before=before)
    return envelope_bytes(countersign(envelope, key))


def check_officer(trust: TrustFile, key_id: str, *, before: TrustFile | None) -> None:
    """Refuse a key that is that of no officer of a trust file, nor of the one in use that it is to follow.

    Refused("not_an_officer"): their signature would count for nothing.
    """
    files = [trust] if before is None else [trust, before]
    if not any(officer.key(key_id) for one in files for officer in one.officers):
        which = "this trust file" if before is None else "this trust file, nor of the one before it"
        raise Refused(
            f"key {key_id} is that of no officer of {which}: its signature would count for nothing",
            code="not_an_officer",
            hint="an officer signs; who is one only of the file in use names its store with --db, or it with --trust",
        )


def open_trust(data: bytes, *, now: Now, expected_sha256: bytes | None) -> SignedTrust:
    """Return the trust file of a known digest.

    None: nobody knows it yet, and whoever wrote the file named the officers that signed it; compare the digest with
    what they say. Refused: "other_trust" for another digest, "few_officers" where too few of its officers signed it
    with keys that count now, and as `read_envelope` and `trust_from` say.
    """
    envelope, trust = _read(data)
    if expected_sha256 is not None:
        _check_digest(trust, expected_sha256)
    return SignedTrust(trust=trust, sha256=trust_sha256(trust), signers=_enough(envelope, trust, now), signed=data)


def known_trust(data: bytes, *, sha256: bytes) -> SignedTrust:
    """Return the trust file whose digest is on record, also when the keys that signed it count no more.

    It counted when it came into use, which the record says and an audit verifies. `signers` are all officers whose
    keys signed it, at any time. Refused: "other_trust" for another digest, and as `read_envelope` and `trust_from` say.
    """
    envelope, trust = _read(data)
    _check_digest(trust, sha256)
    signers = frozenset(
        officer.name for officer in trust.officers for key in officer.keys if signed_by(envelope, key.public)
    )
    return SignedTrust(trust=trust, sha256=sha256, signers=signers, signed=data)


def follow_trust(data: bytes, *, now: Now, before: TrustFile) -> SignedTrust:
    """Return the trust file that comes after a trusted one: enough officers of both signed it.

    Refused: "other_ledger", "old_serial" for one that is not newer, and as `open_trust` says.
    """
    envelope, trust = _read(data)
    if trust.ledger_id != before.ledger_id:
        raise Refused("the trust file is that of another ledger", code="other_ledger")
    if trust.serial <= before.serial:
        said = f"the trust file has the serial {trust.serial}, and {before.serial} is in use"
        raise Refused(said, code="old_serial")
    signers = _enough(envelope, before, now) | _enough(envelope, trust, now)
    return SignedTrust(trust=trust, sha256=trust_sha256(trust), signers=signers, signed=data)


def _read(data: bytes) -> tuple[Envelope, TrustFile]:
    envelope = read_envelope(data, payload_type=TRUST_TYPE, limit=MAX_SIGNED_BYTES)
    return envelope, trust_from(envelope.payload)


def _check_digest(trust: TrustFile, expected: bytes) -> None:
    found = trust_sha256(trust)
    if found != expected:
        said = f"the trust file has the digest {found.hex()}, and {expected.hex()} is expected"
        raise Refused(said, code="other_trust")


def read_signers(data: bytes, *, now: Now) -> tuple[TrustFile, frozenset[str]]:
    """Return the trust file of an envelope, and which of its officers signed it so far: it may not count yet."""
    envelope, trust = _read(data)
    return trust, _signers(envelope, trust, now)


def _signers(envelope: Envelope, trust: TrustFile, now: Now) -> frozenset[str]:
    """Return the officers of a trust file who signed an envelope with a key that counts now."""
    return frozenset(
        officer.name
        for officer in trust.officers
        for key in officer.keys
        if _counts(key, now) and signed_by(envelope, key.public)
    )


def _counts(key: PublicKey, now: Now) -> bool:
    return key.begun(now) and not key.over(now)


def officers_with_keys(trust: TrustFile, now: Now) -> frozenset[str]:
    """Return the officers of a trust file who have a key that counts at a time."""
    return frozenset(officer.name for officer in trust.officers if any(_counts(key, now) for key in officer.keys))


def _enough(envelope: Envelope, trust: TrustFile, now: Now) -> frozenset[str]:
    """Return the officers who signed, where they are enough."""
    signers = _signers(envelope, trust, now)
    if len(signers) < trust.officers_needed:
        said = f"{len(signers)} of the officers signed the trust file, and {trust.officers_needed} are needed"
        left = sorted(one.name for one in trust.officers if one.name not in signers)
        hint = f"`arl trust cosign` adds the signature of {' or '.join(left)}, with a key that counts now"
        raise Refused(said, code="few_officers", hint=hint)
    return signers
