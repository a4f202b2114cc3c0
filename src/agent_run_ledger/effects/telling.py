"""Tells observers what became of each question to an effect ledger; nothing that they do changes it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from agent_run_ledger.errors import LedgerError, Pending, Unavailable, Uncertain
from agent_run_ledger.kernel.effects import Event
from agent_run_ledger.ports.effects import EffectNotice, EffectObserver, Gave

log = logging.getLogger("agent_run_ledger")


class Telling:
    """The observers of one ledger. One that raises is logged and left out from then on."""

    def __init__(self, observers: Sequence[EffectObserver]) -> None:
        self._observers = tuple(observers)

    def answered(self, event: Event, *, accepted: bool) -> None:
        """Tell of a question that changed something, or found it on record."""
        if self._observers:
            self._tell(EffectNotice(event=event, gave=Gave.ACCEPTED if accepted else Gave.RECORDED))

    def failed(self, event: Event, error: LedgerError) -> None:
        """Tell of a question that ended in an error."""
        if self._observers:
            self._tell(EffectNotice(event=event, gave=_gave(error), code=error.code))

    def _tell(self, notice: EffectNotice) -> None:
        for observer in self._observers:
            try:
                observer.tell(notice)
            except Exception:
                log.exception("an observer of effects failed and is told no more: %r", type(observer).__name__)
                self._observers = tuple(one for one in self._observers if one is not observer)


def _gave(error: LedgerError) -> Gave:
    for kind, gave in ((Pending, Gave.PENDING), (Unavailable, Gave.UNAVAILABLE), (Uncertain, Gave.UNCERTAIN)):
        if isinstance(error, kind):
            return gave
    return Gave.REFUSED
