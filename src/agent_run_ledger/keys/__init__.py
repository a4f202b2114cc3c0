"""Ed25519 keys: files that only their owner can read, and signatures in envelopes."""

from agent_run_ledger.keys.ed25519 import SigningKey, verify
from agent_run_ledger.keys.key_files import read_key, write_key
from agent_run_ledger.keys.passphrases import find_passphrase
from agent_run_ledger.keys.sealing import countersign, seal, signed_by
from agent_run_ledger.keys.secret import Secret

__all__ = [
    "Secret",
    "SigningKey",
    "countersign",
    "find_passphrase",
    "read_key",
    "seal",
    "signed_by",
    "verify",
    "write_key",
]
