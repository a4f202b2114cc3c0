"""What the rules' refusals are as errors: each says what the caller may do next."""

from __future__ import annotations

from typing import Final

from agent_run_ledger.errors import LedgerError, Misuse, NotAdmitted, Pending, Refused, Unavailable
from agent_run_ledger.kernel.effects import LedgerState, Rejected
from agent_run_ledger.kernel.effects.commands import Command, Propose

_LEDGER: Final[dict[str, tuple[type[LedgerError], str]]] = {
    f"ledger_{LedgerState.HELD}": (Unavailable, "the witness does not answer; try again when it does"),
    f"ledger_{LedgerState.TIME_UNTRUSTED}": (
        Unavailable,
        "the clock went back or leapt; set it right and ask again, or let officers confirm it with `correct_clock`",
    ),
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

_LATER: Final = {
    "clock_untrusted": "the clock went back or leapt; when it is right again, ask again",
}
"""Refusals that say nothing about the action: trying later is safe."""

_HINTS: Final[dict[str, str]] = {
    "unresolved": "nobody knows how it ended: it is never claimable again, look for evidence and reconcile it",
    "claimed": "a worker has the claim",
    "prepared": "it may have been sent: only evidence says what became of it",
    "key_taken": "a new key is no way out; inspect the key, and make a successor where it is closed",
    "needs_fence_or_drain": "record the doubt, then a drain and an observation after it, or ask a receiver that fences",
    "handed_out": "if the reply was lost, record the doubt; if it was sent, record its outcome",
    "prepared_later": "record the doubt; nothing may be sent under it any more",
    "drain_before_correction": "record a drain by the corrected clock, then look again",
    "time_trusted": "nothing waits for the clock",
    "few_officers": "name those who decide together in `people`",
    "restarted": "record the doubt: the worker that prepared it is gone",
    "permit_expired": "record the doubt; nothing may be sent under it any more",
    "expired": "propose a successor once it is closed as expired",
    "few_approvals": "it needs approvals of the present epoch",
    "digest_mismatch": "send the bytes that `request` returns, or have the new ones approved",
    "no_drain": "record a drain first: evidence that nothing more can arrive",
    "no_observation": "somebody who is not the executor looks at the target, and that is recorded with `observe`",
    "observation_before_drain": "look again, now that the drain is on record",
    "not_asked": "ask the receiver to fence the key, and pass its answer as `fence`",
    "receiver_executed": "record it with `reconcile_success`",
    "few_people": "name those who decide together in `people`",
    "reconciler_is_executor": "another person or program decides",
    "approver_is_requester": "another person approves",
    "approver_is_executor": "another person approves",
    "same_principal": "another person approves",
    "seen_executed": "record it with `reconcile_success`",
    "evidence_used": "each piece of evidence has an id of its own and is recorded once",
    "other_drain": "record the drain first, then look, and name the drain that was on record",
    "wrong_executor": "the executor that people approved asks; a reconciler can record evidence",
    "other_worker": "after a restart a worker is another one: record the doubt",
}


def error_of(command: Command, action_key: str, rejected: Rejected) -> LedgerError:
    """Return the error of a refusal, which names the action by id and key. Nothing changed."""
    event, action_id = str(command.event), getattr(command, "action_id", b"")
    action = f"key {action_key!r}" if isinstance(command, Propose) else f"action {action_id.hex()} of {action_key!r}"
    said = f"{event} of {action} was refused: {rejected.words}"
    if rejected.code in _LEDGER:
        return _of_ledger(said, rejected)
    waits = _WAITING.get((event, rejected.code))
    if waits is not None:
        return Pending(said, code=rejected.code, hint=waits)
    if rejected.code in _LATER:
        return Unavailable(said, code=rejected.code, hint=_LATER[rejected.code])
    return _for_good(said, rejected)


def error_of_correction(rejected: Rejected) -> LedgerError:
    """Return the error of a clock correction that was refused. Nothing changed."""
    said = f"a correction of the clock was refused: {rejected.words}"
    return _of_ledger(said, rejected) if rejected.code in _LEDGER else _for_good(said, rejected)


def error_of_trust(state: LedgerState) -> LedgerError:
    """Return the error of a trust file that may not come into use in this state. Nothing changed."""
    words = f"a ledger that is {state} takes no trust file"
    return _of_ledger("a trust file was refused: " + words, Rejected(f"ledger_{state}", words))


def _of_ledger(said: str, rejected: Rejected) -> LedgerError:
    kind, hint = _LEDGER[rejected.code]
    return kind(said, code=rejected.code, hint=hint)


def _for_good(said: str, rejected: Rejected) -> LedgerError:
    if rejected.code == "wrong_role":
        return Misuse(said, code=rejected.code, hint="ask somebody who has the role")
    return Refused(said, code=rejected.code, hint=_HINTS.get(rejected.code, ""))


def unknown_action(action_id: bytes) -> Refused:
    """Return the refusal of an id that no action has."""
    return Refused(
        f"there is no action {action_id.hex()}", code="unknown_action", hint="`inspect` lists those of a key"
    )
