"""Which call is which in a session: the client's id, or the call's place among equal ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

CALL_ID: Final = "agent-run-ledger/call-id"
"""The key of a request's `_meta` by which a client says which call this is."""

_CONTINUED: Final = ("inputResponses", "requestState", "task")
"""What makes a call another one beside its tool and arguments: an answer to a server's question, a task."""


def call_digest(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return what equal calls have in common: 32 hex digits of SHA-256."""
    return _digest([tool, arguments])


def part_of(params: Mapping[str, Any]) -> str:
    """Return which part of a call in several parts this is, "" for the first one of a plain call."""
    said = {key: params[key] for key in _CONTINUED if params.get(key) is not None}
    return _digest(said)[:16] if said else ""


class CallNumbers:
    """Numbers equal calls of one session that have no id of their own.

    Guarantees: equal calls get the numbers from 0 on, in the order in which they come, as in every session with this
    run; one that is still to be decided keeps its number for the next equal call, which is the same call made again.
    """

    def __init__(self) -> None:
        self._next: dict[str, int] = {}
        self._again: dict[str, set[int]] = {}

    def take(self, equal: str) -> int:
        """Return the number of a call that comes now."""
        again = self._again.get(equal)
        if again:
            number = min(again)
            again.discard(number)
            return number
        number = self._next.get(equal, 0)
        self._next[equal] = number + 1
        return number

    def keep(self, equal: str, number: int) -> None:
        """Let the next equal call have this number: nothing became of the one that had it."""
        self._again.setdefault(equal, set()).add(number)


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode("ascii")).hexdigest()[:32]
