"""What the rules' refusals are as errors: each says what the caller may do next."""

from __future__ import annotations

from typing import Final

from agent_run_ledger.errors import LedgerError, Misuse, NotAdmitted, Pending, Refused, Unavailable
from agent_run_ledger.kernel.effects import LedgerState, Rejected

_LEDGER: Final[dict[str, tuple[type[LedgerError], str]]] = {
    f"ledger_{LedgerState.HELD}": (Unavailable, "the witness does not answer; try again when it does"),
    f"ledger_{LedgerState.TIME_UNTRUSTED}": (Unavailable, "the clock went back or leapt; set it right, or confirm it"),
    f"ledger_{LedgerState.RECOVERY}": (NotAdmitted, "this copy may be old: people must admit it first"),
    f"ledger_{LedgerState.FROZEN}": (NotAdmitted, "another ledger took its place; nothing more happens here"),
}

_WAITING: Final[dict[tuple[str, str], str]] = {
    ("claim", "proposed"): "it is not approved yet; claim it after that",
    ("claim", "not_yet_valid"): "its window has not begun",
    ("prepare", "not_yet_valid"): "its window has not begun",
    ("hand_out", "not_cosigned"): "the witness has not seen the preparation yet",
    ("successor", "close_not_cosigned"): "the witness has not seen yet that the older one was closed",
    ("expire", "window_open"): "its window is not over",
    ("doubt", "too_early"): "its permit may still live",
    ("observe", "permit_may_live"): "its permit may still live",
}
"""Refusals that only wait for a decision or a moment: the same call again may be accepted."""

_HINTS: Final[dict[str, str]] = {
    "unresolved": "nobody knows how it ended: it is never claimable again, look for evidence and reconcile it",
    "claimed": "a worker has the claim",
    "prepared": "it may have been sent: only evidence says what became of it",
    "key_taken": "a new key is no way out; inspect the key, and make a successor where it is closed",
    "needs_fence_or_drain": "record the doubt, then a drain and an observation after it, or ask a receiver that fences",
}


def error_of(event: str, action: str, rejected: Rejected) -> LedgerError:
    """Return the error of a refusal; `action` names what was asked about. Nothing changed."""
    said = f"{event} of {action} was refused: {rejected.words}"
    if rejected.code in _LEDGER:
        kind, hint = _LEDGER[rejected.code]
        return kind(said, code=rejected.code, hint=hint)
    waits = _WAITING.get((event, rejected.code))
    if waits is not None:
        return Pending(said, code=rejected.code, hint=waits)
    if rejected.code == "wrong_role":
        return Misuse(said, code=rejected.code, hint="ask somebody who has the role")
    return Refused(said, code=rejected.code, hint=_HINTS.get(rejected.code, ""))
