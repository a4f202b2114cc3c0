"""Workers: processes that begin the runs of a queue, and go on with those that others left behind."""

from agent_run_ledger.worker.worker import Tally, Told, Worker, WorkerSettings

__all__ = ["Tally", "Told", "Worker", "WorkerSettings"]
