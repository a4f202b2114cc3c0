"""How much of what a caller names is kept for good: records are never erased, so each has a limit."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import is_dataclass
from functools import cache
from typing import Any, Final, cast, get_type_hints

from agent_run_ledger.effects.intents import check_text
from agent_run_ledger.errors import Misuse
from agent_run_ledger.kernel.effects import ActionState

CLAIM_KEY_BYTES: Final = 16
NONCE_BYTES: Final = range(16, 65)
APPROVAL_ID_BYTES: Final = range(1, 65)
SIGNATURE: Final = (64, 64)
"""The lengths of a key's id and of a signature, where there is one."""
MOST_PEOPLE: Final = 100
MOST_SIGNATURES: Final = 64


def check_sizes(command: Any) -> None:
    """Misuse for texts, keys, nonces or sets that are longer than a record keeps them, or empty."""
    for part in (command, getattr(command, "evidence", None), getattr(command, "fence", None)):
        _check_texts(part)
    if len(getattr(command, "claim_key", bytes(CLAIM_KEY_BYTES))) != CLAIM_KEY_BYTES:
        raise _bad(f"a claim_key has {CLAIM_KEY_BYTES} bytes")
    if len(getattr(command, "people", ())) > MOST_PEOPLE:
        raise _bad(f"at most {MOST_PEOPLE} people decide together")
    signatures: Any = getattr(command, "signatures", ())
    if len(signatures) > MOST_SIGNATURES:
        raise _bad(f"a decision has at most {MOST_SIGNATURES} signatures")
    for one in signatures:
        _check_signature(one.key_id, one.value)
    approval: Any = getattr(command, "approval", None)
    if approval is not None:
        check_nonce(approval.statement.nonce)
        if len(approval.approval_id) not in APPROVAL_ID_BYTES:
            raise _bad(f"an approval_id has {APPROVAL_ID_BYTES[0]} to {APPROVAL_ID_BYTES[-1]} bytes")
        if approval.key_id or approval.signature:
            _check_signature(approval.key_id, approval.signature)


def _check_signature(key_id: str, value: bytes) -> None:
    if (len(key_id), len(value)) != SIGNATURE:
        raise _bad("a signature has 64 bytes and a key_id of 64 hex digits, or there is neither")


def check_nonce(nonce: object) -> None:
    """Misuse("bad_argument") unless these are bytes of a nonce's length."""
    if not isinstance(nonce, bytes) or len(nonce) not in NONCE_BYTES:
        raise _bad(f"a nonce has {NONCE_BYTES[0]} to {NONCE_BYTES[-1]} bytes")


def check_id(action_id: object) -> None:
    """Misuse("bad_argument") unless this is what an action's id can be: bytes."""
    if not isinstance(action_id, bytes):
        raise _bad(f"an action_id is bytes, not {type(action_id).__name__}")


def check_states(states: tuple[str, ...]) -> tuple[ActionState, ...]:
    """Return states, or words for them, as states. Misuse("bad_argument") for others."""
    try:
        return tuple([ActionState(str(state)) for state in states])
    except ValueError as error:
        raise _bad(f"states of actions are {', '.join(ActionState)}: {error}") from error


def check_limit(limit: object) -> None:
    """Misuse("bad_argument") unless this is how many actions there may be on a page."""
    if type(limit) is not int or not 0 < limit < 1 << 31:
        raise _bad("a limit is an integer of at least 1")


def _check_texts(part: object) -> None:
    for name in _texts_of(cast("Hashable", type(part))):
        held = getattr(part, name)
        if held is not None:
            check_text(name, held)


@cache
def _texts_of(kind: Any) -> tuple[str, ...]:
    """Return the names of a dataclass's fields that are text, or may be; none for another class."""
    hints = get_type_hints(kind) if is_dataclass(kind) else {}
    return tuple([name for name, hint in hints.items() if hint in (str, str | None)])


def _bad(said: str) -> Misuse:
    return Misuse(said, code="bad_argument")
