"""Runs driven by hand through the journal, one call at a time, as programs of several runs and processes are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from agent_run_ledger import Budget, Reserve, RunLedger, codecs
from agent_run_ledger.clock import SystemClock
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.kernel.usage import Usage, usage_bytes
from agent_run_ledger.ports import RunRow
from agent_run_ledger.runs.attempt import Attempt, Definition, open_attempt
from agent_run_ledger.runs.batches import Batch, Started, Written
from agent_run_ledger.runs.calls import CallIdentity
from agent_run_ledger.runs.endings import Ending
from agent_run_ledger.runs.inputs import Inputs
from agent_run_ledger.runs.journal import Journal
from agent_run_ledger.runs.stopped import stopped
from agent_run_ledger.store import postgres_writer

LIMIT_BYTES = 1 << 20


@dataclass
class SetClock:
    """A clock that stands still until a test moves it."""

    now_ms: int = 1_700_000_000_000

    @classmethod
    def install(cls, monkeypatch: pytest.MonkeyPatch) -> SetClock:
        clock = cls()
        monkeypatch.setattr(SystemClock, "now_ms", lambda _: clock.now_ms)
        monkeypatch.setattr(postgres_writer, "server_ms", lambda _: clock.now_ms)
        return clock

    def pass_s(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)


class Hand:
    """One attempt of a run. Refused starts raise what the run would raise."""

    def __init__(
        self,
        ledger: RunLedger,
        run_id: str,
        *,
        within: Hand | RunRow | None = None,
        budgets: Mapping[str, Budget] | None = None,
        takeover: bool = False,
        dynamic: Mapping[str, object] | None = None,
    ) -> None:
        context = ledger._opened.context()
        parent = within.attempt.row if isinstance(within, Hand) else within
        definition = Definition(
            steps=[],
            policy=None,
            max_parallel=1,
            parent_row_id=None if parent is None else parent.row_id,
            budgets=budgets or {},
            dynamic=dynamic,
        )
        inputs = Inputs({}, limit_bytes=LIMIT_BYTES)
        opened = open_attempt(context, run_id, inputs=inputs, definition=definition, takeover=takeover)
        assert isinstance(opened, Attempt)
        self.attempt = opened
        self.journal = Journal(context, opened)
        self.ledger = ledger
        self.run_id = run_id
        self._calls = 0

    def begin(self, name: str = "ask", reserve: Reserve | None = None) -> Started:
        """Start one call; raise what stops it."""
        started, written = self.begin_all([(name, reserve)])
        failure = stopped(self.run_id, written)
        assert (failure is None) == (len(started) == 1)
        if failure is not None:
            raise failure
        return started[0]

    def begin_all(self, calls: Sequence[tuple[str, Reserve | None]]) -> tuple[list[Started], Written]:
        """Start calls in one commit, and return those that were recorded."""
        starts: list[Started] = []
        for name, reserve in calls:
            self._calls += 1
            print_of = self._calls.to_bytes(32, "big")
            identity = CallIdentity(
                name=name,
                fingerprint=print_of,
                arguments={},
                environment={},
                version="1",
                scope=self.attempt.row.attempt.to_bytes(12, "big"),
            )
            starts.append(self.journal.started(self._calls, 0, identity, 1, reserve))
        written = self.journal.commit(Batch(starts=starts))
        return starts[: written.started], written

    def end(self, started: Started, *lines: Usage, kind: RecordKind = RecordKind.RESULT) -> Written:
        """Conclude a call."""
        value: Any = "done" if kind is RecordKind.RESULT else ValueError("no")
        packed = codecs.pack(value, limit_bytes=LIMIT_BYTES)
        ending = Ending(kind=kind, packed=packed, payload=b"", failure=None, usage=usage_bytes(lines))
        item = self.journal.conclude(started, ending, because=[], code=b"")
        return self.journal.commit(Batch(concluded=[item]))

    def leave(self, started: Started) -> None:
        """Give a call up, as a cancelled one."""
        self.journal.commit(Batch(abandoned=[started]))

    def fail(self) -> None:
        """End the attempt as failed."""
        self.journal.commit(Batch(end_state=RunState.FAILED, end_reason="because"))
        self.attempt.close()

    def die(self) -> None:
        """End the attempt as a killed process does: without a word."""
        self.attempt.close()
