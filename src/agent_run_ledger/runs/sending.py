"""Whether an effect is being sent here: nothing that happens within a send may be an effect of its own."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from agent_run_ledger.errors import Misuse

log = logging.getLogger("agent_run_ledger")

_SENDING: Final[ContextVar[str]] = ContextVar("agent_run_ledger_sending", default="")


@contextmanager
def sending(name: str) -> Generator[None]:
    """Note, for what is called in here, that the effect of this name is being sent."""
    token = _SENDING.set(name)
    try:
        yield
    finally:
        _SENDING.reset(token)


def check_not_sending(name: str) -> None:
    """Misuse("nested_effect") for an effect that is called by what another one, or it itself, sends.

    It would wait for people, or end in doubt, in the middle of an effect of which nobody could say any more whether it
    happened. The log says so too: what a function raises while it is sent is a doubt, and its error may be lost.
    """
    outer = _SENDING.get()
    if not outer:
        return
    said = f"effect {name!r} was called while effect {outer!r} was being sent, by what that one calls"
    log.error("%s; nothing of %r was asked for or sent", said, name)
    raise Misuse(
        said,
        code="nested_effect",
        hint=f"call {name!r} in the run itself, before or after {outer!r}; what an effect sends acts by itself",
    )
