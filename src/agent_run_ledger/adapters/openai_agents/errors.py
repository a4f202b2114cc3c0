"""Lets errors of the ledger pass through the SDK, which wraps whatever a tool raises that is no error of its own."""

from __future__ import annotations

from typing import Any, Final, cast

from agents import AgentsException

from agent_run_ledger.errors import LedgerError

_KINDS: Final[dict[type[LedgerError], type[LedgerError]]] = {}


def carried(error: LedgerError) -> LedgerError:
    """Return the error as one that the SDK raises as it is: of its own class and an AgentsException, saying the same.

    `except LoopDetected` and `except Pending` around `Runner.run` work, and a run that is left by it ends as it should.
    """
    if isinstance(error, AgentsException):
        return error
    kind = _kind(type(error))
    carrier = kind.__new__(kind, *error.args)
    carrier.__dict__.update({**error.__dict__, "run_data": None, "_carries": error})
    return carrier


def bare(error: LedgerError) -> LedgerError:
    """Return the error as the ledger raised it."""
    return cast("LedgerError", error.__dict__.get("_carries", error))


def _kind(kind: type[LedgerError]) -> type[LedgerError]:
    if kind not in _KINDS:
        said = {"__module__": __name__, "__doc__": kind.__doc__, "__reduce__": _reduced}
        _KINDS[kind] = type(kind.__name__, (kind, AgentsException), said)
    return _KINDS[kind]


def _reduced(error: LedgerError) -> tuple[Any, ...]:
    """Let it travel as the error that it carries."""
    return cast("tuple[Any, ...]", bare(error).__reduce__())
