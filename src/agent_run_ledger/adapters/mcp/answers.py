"""What the proxy answers instead of the server: results that a model can read, marked as errors."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Any, Final, cast

from agent_run_ledger.adapters.effects import state_of
from agent_run_ledger.adapters.mcp.messages import members
from agent_run_ledger.errors import EffectPending, LedgerError, RunCancelled, Vetoed
from agent_run_ledger.kernel.store_urls import without_secrets

NAMESPACE: Final = "agent-run-ledger/"
"""What the keys begin with that the proxy reads and writes in `_meta`."""

_UNKNOWN: Final = frozenset({"outcome", "tool", "call", "message"})


class ToolFailed(Exception):
    """A tool's result says that it failed; only shown to the breaker, which then reads it as an error."""


def error_result(words: str, **facts: str) -> dict[str, Any]:
    """Return a result that says what happened; `facts` stand in its `_meta`."""
    return {
        "content": [{"type": "text", "text": words}],
        "isError": True,
        "_meta": {f"{NAMESPACE}{name.replace('_', '-')}": value for name, value in facts.items() if value},
    }


def stopped(error: LedgerError, *, run_id: str, db_path: str) -> dict[str, Any]:
    """Return what every call gets in a run that may not go on."""
    words = f"[agent-run-ledger] The run of this session is stopped: {error}."
    if not isinstance(error, RunCancelled) and error.code in ("loop_detected", "run_quarantined", "budget_exceeded"):
        words += (
            " No tool is called until a person lets it go on with "
            f"`arl runs release {quote(run_id)} --db {quote(without_secrets(db_path))} --reason TEXT`. "
            "Do not call tools again before: say what was done, what is missing, and that the run is stopped."
        )
    else:
        words += " No tool is called while that is so."
    return error_result(words, state="stopped", code=error.code, run=run_id)


def unknown(said: Mapping[str, Any], why: str, *, run_id: str) -> dict[str, Any]:
    """Return what a call gets of which nobody can say whether it happened. `said`: what the run says of it."""
    call = str(said["call"])
    words = f"[agent-run-ledger] The outcome of this call of {said['tool']} is unknown"
    words += f": it was sent, and then {why}. " if why else ". "
    words += (
        "It may have taken effect or not. It was not repeated, and calling it again in the same words gives this same "
        f"answer. Look at the present state first, or ask a person: this is call {call} of run {run_id}, and "
        "`arl runs resolve` records what became of it."
    )
    return error_result(words, outcome="unknown", call=call, run=run_id)


def waits(error: EffectPending, why: str, *, run_id: str) -> dict[str, Any]:
    """Return what a call of an effect gets that waits: for people, for evidence, for who is at it elsewhere, or for
    something to be put in order.
    """
    which, state = error.action_id, state_of(error)
    if state == "pending":
        words = f"This call was not made yet: {error.message}. People decide about it (`arl approvals show {which}`). "
        words += "Make the same call again after their decision; until then it gets this answer, whatever else you do."
    elif state == "in_doubt":
        words = f"Nobody knows whether this call took effect: {error.message}{f'; {why}' if why else ''}. It is not "
        words += f"repeated. Evidence, or people, decide what became of it (`arl effects show {which}`); the same call "
        words += "tells it then. Do not do it in another way meanwhile."
    elif state == "elsewhere":
        words = f"This call waits: {error}. Make the same call again later."
    else:
        words = f"This call is held up: {error}. No other call is a way around it, and nobody has to approve anything: "
        words += "tell a person. Once it is in order, make the same call again in a new session."
    facts = {"approval_id": error.action_id, "action_key": error.action_key, "code": error.code, "run": run_id}
    return error_result(f"[agent-run-ledger] {words}", state=state, **facts)


def refused(error: Vetoed, *, run_id: str) -> dict[str, Any]:
    """Return what a call of an effect gets that people decided against, or that asks for none."""
    words = f"[agent-run-ledger] {error.message}. It is not called. {error.hint}".rstrip()
    return error_result(words, state="denied", code=error.code, run=run_id)


def says_error(result: Mapping[str, Any]) -> bool:
    """Return whether a result says that the call failed: in whatever way a server writes that, 1 and "true" too."""
    return bool(result.get("isError"))


def is_unknown(value: object) -> bool:
    """Return whether a restored value is what a run says of a call with an unknown outcome."""
    said = members(value)
    return said.keys() == _UNKNOWN and said["outcome"] == "unknown"


def as_result(value: object) -> dict[str, Any]:
    """Return a recorded value as a result; what a person resolved a call with is its text."""
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else repr(value)}], "isError": False}


def with_text(result: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Return the result with one more text at the end of its content."""
    content = result.get("content")
    before = cast("list[object]", content) if isinstance(content, list) else []
    return {**result, "content": [*before, {"type": "text", "text": text}]}


def outcome_of(result: object) -> object:
    """Return what of a result says how the call went, for the breaker: its text where it is one, without envelope."""
    whole = members(result)
    content = whole.get("content")
    if not isinstance(content, list):
        return {key: value for key, value in whole.items() if key != "_meta"} if whole else result
    parts = [_part(part) for part in cast("list[object]", content)]
    seen: object = parts
    if not parts:
        seen = whole.get("structuredContent")
    elif all(isinstance(part, str) for part in parts):
        seen = "\n".join(cast("list[str]", parts))
    if says_error(whole):
        return ToolFailed(seen if isinstance(seen, str) else repr(seen))
    return seen


def _part(part: object) -> object:
    said = members(part)
    if said.get("type") == "text" and isinstance(said.get("text"), str):
        return said["text"]
    return part
