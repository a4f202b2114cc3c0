"""The contracts between the layers: of the store and its rows here, those of the effect ledger in `ports.effects`."""

from agent_run_ledger.ports.questions import Question
from agent_run_ledger.ports.run_locks import RunLock, RunLocks
from agent_run_ledger.ports.store import (
    Event,
    Head,
    InFlight,
    KeptRecord,
    Observer,
    Reader,
    RecordKey,
    RunInFlight,
    RunRow,
    RunStanding,
    Store,
    StoredRecord,
    Tx,
    UsageRow,
)
from agent_run_ledger.ports.surroundings import Clock, Entropy

__all__ = [
    "Clock",
    "Entropy",
    "Event",
    "Head",
    "InFlight",
    "KeptRecord",
    "Observer",
    "Question",
    "Reader",
    "RecordKey",
    "RunInFlight",
    "RunLock",
    "RunLocks",
    "RunRow",
    "RunStanding",
    "Store",
    "StoredRecord",
    "Tx",
    "UsageRow",
]
