"""How a body ended, as its record will say it: a result, an error, or a result that can only be kept readable."""

from __future__ import annotations

from dataclasses import dataclass

from agent_run_ledger import codecs
from agent_run_ledger.errors import LedgerError, StepTimeout, Unavailable, Unstorable
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.runs.bodies import Outcome
from agent_run_ledger.runs.usage import stored_usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """`packed` is an exact value, `payload` what is readable of one that has none; `failure` is what the caller gets.

    `usage` is what the body used, in its stored form.
    """

    kind: RecordKind
    packed: codecs.Packed | None
    payload: bytes
    failure: Exception | None
    usage: bytes


def ending_of(outcome: Outcome, *, run_id: str, at_ms: int, limit_bytes: int) -> Ending:
    """Return what to record of an outcome that is none of an abort. Never raises: what was paid for is kept."""
    call = outcome.call
    usage = stored_usage(call.meter, outcome.value, args=call.args, kwargs=call.kwargs, at_ms=at_ms)
    if outcome.error is not None:
        packed, payload = _pack_error(outcome.error, limit_bytes)
        return Ending(kind=RecordKind.ERROR, packed=packed, payload=payload, failure=outcome.error, usage=usage)
    try:
        packed = codecs.pack(outcome.value, limit_bytes=limit_bytes)
    except Unstorable as error:
        error.message = f"step {call.step.name!r} of run {run_id!r}: {error.message}"
        payload = codecs.readable(outcome.value, limit_bytes=limit_bytes)
        return Ending(kind=RecordKind.RESCUED, packed=None, payload=payload, failure=error, usage=usage)
    return Ending(kind=RecordKind.RESULT, packed=packed, payload=b"", failure=None, usage=usage)


def may_try_again(error: Exception, tries: int, retries: int) -> bool:
    """Return whether a step is tried again. Our own errors are, only where they say that it is safe."""
    ours = isinstance(error, LedgerError) and not isinstance(error, Unavailable | StepTimeout)
    return not ours and tries <= retries


def _pack_error(error: Exception, limit_bytes: int) -> tuple[codecs.Packed | None, bytes]:
    try:
        return codecs.pack(error, limit_bytes=limit_bytes), b""
    except LedgerError:
        return None, codecs.readable(error, limit_bytes=limit_bytes)
