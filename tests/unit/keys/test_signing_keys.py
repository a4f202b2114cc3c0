"""Private keys: they sign, they come back from their PEM, and they are shown nowhere."""

from __future__ import annotations

import copy
import pickle
import traceback
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.errors import LedgerError, Refused
from agent_run_ledger.kernel.dsse import pae
from agent_run_ledger.keys import Secret, SigningKey, countersign, seal, signed_by, verify
from tests.unit.effects.trust_examples import key

ANN, BOB = key("ann"), key("bob")
PHRASE = Secret(b"correct horse")
ORDER = 2**252 + 27742317777372353535851937790883648493


def secrets_of(owner: SigningKey) -> list[bytes]:
    """The private key in every form in which it could slip out."""
    raw = owner._private.private_bytes_raw()
    body = owner.pem().reveal().split(b"\n")[1]
    of_the_seed = body[22:]  # what is before it is in every key
    return [raw, raw.hex().encode(), body, of_the_seed, repr(raw)[2:-1].encode(), PHRASE.reveal()]


def test_a_signature_of_the_specification_is_made() -> None:
    # RFC 8032, section 7.1, test 2.
    seed = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
    signer = SigningKey(Ed25519PrivateKey.from_private_bytes(seed))
    assert signer.public.hex() == "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    assert signer.sign(b"\x72").hex() == (
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )


@given(st.binary(max_size=40), st.integers(0, 511))
def test_one_flipped_bit_of_a_signature_is_seen(message: bytes, bit: int) -> None:
    signature = bytearray(ANN.sign(message))
    assert verify(ANN.public, bytes(signature), message)
    signature[bit // 8] ^= 1 << bit % 8
    assert not verify(ANN.public, bytes(signature), message)


def test_a_signature_has_one_form() -> None:
    signature = ANN.sign(b"m")
    larger = int.from_bytes(signature[32:], "little") + ORDER
    assert not verify(ANN.public, signature[:32] + larger.to_bytes(32, "little"), b"m")


@pytest.mark.parametrize("public", [b"", ANN.public[:31], ANN.public + b"\0", BOB.public, b"\xff" * 32])
def test_another_key_verifies_nothing(public: bytes) -> None:
    assert not verify(public, ANN.sign(b"m"), b"m")


@pytest.mark.parametrize("signature", [b"", ANN.sign(b"m")[:63], ANN.sign(b"m") + b"\0", ANN.sign(b"n")])
def test_another_signature_is_none(signature: bytes) -> None:
    assert not verify(ANN.public, signature, b"m")


def test_two_drawn_keys_differ() -> None:
    assert SigningKey.draw().public != SigningKey.draw().public


@pytest.mark.parametrize("phrase", [None, PHRASE])
def test_a_key_comes_back_from_its_pem(phrase: Secret | None) -> None:
    pem = ANN.pem(phrase)
    assert (b"ENCRYPTED" in pem.reveal()) == (phrase is not None)
    assert SigningKey.from_pem(pem, phrase).sign(b"m") == ANN.sign(b"m")


def test_the_file_is_the_pkcs8_of_other_tools() -> None:
    # RFC 8410, section 7: a version, the object id of Ed25519, and the 32 bytes.
    der = bytes.fromhex("302e020100300506032b657004220420") + ANN._private.private_bytes_raw()
    title = b"PRIVATE KEY-----\n"
    assert ANN.pem().reveal() == b"-----BEGIN " + title + b64encode(der) + b"\n-----END " + title


def test_a_key_without_a_passphrase_ignores_one() -> None:
    assert SigningKey.from_pem(ANN.pem(), PHRASE).key_id == ANN.key_id


def _other_key() -> Secret:
    curve = generate_private_key(SECP256R1())
    return Secret(curve.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


REFUSED: dict[str, tuple[str, Callable[[], object]]] = {
    "no passphrase": ("passphrase_needed", lambda: SigningKey.from_pem(ANN.pem(PHRASE))),
    "another passphrase": ("wrong_passphrase", lambda: SigningKey.from_pem(ANN.pem(PHRASE), Secret(b"other"))),
    "an empty passphrase": ("empty_passphrase", lambda: ANN.pem(Secret(b""))),
    "a damaged key": (
        "no_ed25519_key",
        lambda: SigningKey.from_pem(Secret(ANN.pem().reveal().replace(b"MC4", b"NC4"))),
    ),
    "half a key": ("no_ed25519_key", lambda: SigningKey.from_pem(Secret(ANN.pem().reveal()[:60]))),
    "nothing": ("no_ed25519_key", lambda: SigningKey.from_pem(Secret(b""))),
    "a key of another kind": ("no_ed25519_key", lambda: SigningKey.from_pem(_other_key())),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_key_is_refused_and_shows_nothing(name: str) -> None:
    code, ask = REFUSED[name]
    with pytest.raises(Refused) as refusal:
        ask()
    assert refusal.value.code == code
    assert_shows_nothing(refusal.value)


def assert_shows_nothing(error: LedgerError) -> None:
    """No secret in an error, its chain, or the local variables of this library on its way."""
    told = traceback.TracebackException.from_exception(error, capture_locals=True)
    frames = [frame for frame in told.stack if "agent_run_ledger" in frame.filename]
    assert frames
    seen = [str(error), repr(error), repr(error.args), *(str(frame.locals) for frame in frames)]
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None
    for text in seen:
        for secret in secrets_of(ANN):
            assert secret.decode("latin-1") not in text


def test_a_key_and_a_secret_show_nothing() -> None:
    shown = [repr(ANN), str(ANN), f"{ANN}", repr(PHRASE), str(PHRASE), repr(SimpleNamespace(a=ANN, b=[PHRASE]))]
    assert ANN.key_id in shown[0]
    for text in shown:
        for secret in secrets_of(ANN):
            assert secret.decode("latin-1") not in text
    assert not hasattr(ANN, "__dict__")
    assert not hasattr(PHRASE, "__dict__")


@pytest.mark.parametrize("held", [ANN, PHRASE], ids=["key", "secret"])
@pytest.mark.parametrize("way", [pickle.dumps, copy.copy, copy.deepcopy])
def test_neither_travels(held: object, way: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError, match="travel"):
        way(held)


def test_an_envelope_has_a_signature_of_each_key() -> None:
    sealed = seal("type", b"payload", [ANN, BOB])
    assert [one.key_id for one in sealed.signatures] == [ANN.key_id, BOB.key_id]
    assert [one.value for one in sealed.signatures] == [one.sign(pae("type", b"payload")) for one in (ANN, BOB)]
    assert signed_by(sealed, ANN.public)
    assert signed_by(sealed, BOB.public)
    assert not signed_by(sealed, key("dan").public)


def test_a_key_signs_once() -> None:
    with pytest.raises(Refused) as refusal:
        countersign(seal("type", b"payload", [ANN]), ANN)
    assert refusal.value.code == "signed_already"


def test_a_signature_counts_under_its_own_type_payload_and_name_only() -> None:
    sealed = seal("type", b"payload", [ANN])
    (made,) = sealed.signatures
    others: list[dict[str, Any]] = [{"payload_type": "other"}, {"payload": b"other"}]
    for changes in others:
        assert not signed_by(replace(sealed, **changes), ANN.public)
    assert not signed_by(replace(sealed, signatures=(replace(made, key_id=BOB.key_id),)), ANN.public)
