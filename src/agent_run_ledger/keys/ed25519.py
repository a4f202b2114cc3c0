"""Signs and verifies by Ed25519 (RFC 8032)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.public_keys import key_id_of
from agent_run_ledger.keys.secret import Secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PLAIN: Final = b"-----BEGIN PRIVATE KEY-----"
ENCRYPTED: Final = b"-----BEGIN ENCRYPTED PRIVATE KEY-----"


class SigningKey:
    """A private key, which shows its public half only: 32 bytes, and the id of them."""

    __slots__ = ("_private", "key_id", "public")

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private: Final = private
        self.public: Final = private.public_key().public_bytes_raw()
        self.key_id: Final = key_id_of(self.public)

    @classmethod
    def draw(cls) -> SigningKey:
        """Return a new key, by the randomness of the operating system."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_pem(cls, pem: Secret, passphrase: Secret | None = None) -> SigningKey:
        """Return the key of a PKCS#8 PEM. A key that is not encrypted needs no passphrase, and ignores one.

        Refused: "passphrase_needed", "wrong_passphrase", "no_ed25519_key" for all that is something else.
        """
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        encrypted = pem.reveal().startswith(ENCRYPTED)
        if not encrypted and not pem.reveal().startswith(PLAIN):
            raise Refused("this is no private key in PKCS#8 PEM", code="no_ed25519_key")
        if encrypted and passphrase is None:
            raise Refused("the key is encrypted, and no passphrase was given", code="passphrase_needed")
        try:
            private = load_pem_private_key(
                pem.reveal(), passphrase.reveal() if encrypted and passphrase is not None else None
            )
        except (ValueError, TypeError, UnsupportedAlgorithm):
            code = "wrong_passphrase" if encrypted else "no_ed25519_key"
            raise Refused("the key cannot be read: it is damaged, or the passphrase is another", code=code) from None
        if not isinstance(private, Ed25519PrivateKey):
            raise Refused("this is a private key, but none of Ed25519", code="no_ed25519_key")
        return cls(private)

    def pem(self, passphrase: Secret | None = None) -> Secret:
        """Return the key as PKCS#8 PEM, encrypted where there is a passphrase. Refused("empty_passphrase")."""
        from cryptography.hazmat.primitives import serialization as form

        if passphrase is not None and not passphrase.reveal():
            raise Refused("an empty passphrase protects nothing", code="empty_passphrase")
        how: form.KeySerializationEncryption = form.NoEncryption()
        if passphrase is not None:
            how = form.BestAvailableEncryption(passphrase.reveal())
        return Secret(self._private.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, how))

    def sign(self, message: bytes) -> bytes:
        """Return the signature, 64 bytes, always the same for the same message."""
        return self._private.sign(message)

    def __repr__(self) -> str:
        return f"SigningKey({self.key_id})"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied."""
        raise TypeError("a private key does not travel")


def verify(public: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether the holder of a public key signed exactly these bytes. Nothing about either raises."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True
