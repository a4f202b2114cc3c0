"""A dynamic run written by hand, below the session: calls in scopes, values, unknown outcomes, ends and restarts."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from agent_run_ledger import codecs
from agent_run_ledger.clock import SystemClock
from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.scopes import ROOT, branch_scope, call_scope, keyed_scope
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.runs.attempt import Attempt, Context, Definition, open_attempt
from agent_run_ledger.runs.batches import Batch, Started
from agent_run_ledger.runs.calls import CallIdentity
from agent_run_ledger.runs.endings import Ending
from agent_run_ledger.runs.inputs import Inputs
from agent_run_ledger.runs.journal import Journal
from agent_run_ledger.runs.resolve import Finding, Outcome, Resolved, resolve_call
from agent_run_ledger.runs.usage import noted_usage
from agent_run_ledger.store import open_sqlite

LIMIT = 1 << 20
KEY = bytes(range(16))


def open_context(db: Path) -> Context:
    return Context(
        store=open_sqlite(str(db), create=True), clock=SystemClock(), entropy=SystemEntropy(), limit_bytes=LIMIT
    )


class Dynamic:
    """One attempt of a dynamic run. Every method commits at once and returns the id of the record it wrote, if any."""

    def __init__(
        self,
        context: Context,
        run_id: str = "agent",
        *,
        key: bytes = KEY,
        parent: Dynamic | None = None,
        parent_scope: bytes = ROOT,
    ) -> None:
        self.context = context
        self.key = key
        definition = Definition(
            steps=[],
            policy=None,
            max_parallel=8,
            dynamic={"scope_key": key.hex()}
            if parent is None
            else {
                "scope_key": key.hex(),
                "parent_scope": parent_scope.hex(),
                "parent_after": parent.last_id,
            },
            parent_row_id=None if parent is None else parent.attempt.row.row_id,
        )
        inputs = Inputs({"ticket": 17}, limit_bytes=LIMIT)
        opened = open_attempt(context, run_id, inputs=inputs, definition=definition, takeover=False)
        assert isinstance(opened, Attempt)
        self.attempt = opened
        self.journal = Journal(context, opened)
        self.last_id = opened.row.last_start_record_id or 0
        self._lane = 0

    @property
    def run_id(self) -> str:
        return self.attempt.row.run_id

    def start(
        self,
        name: str,
        *,
        scope: bytes = ROOT,
        argument: object = "a",
        occurrence: int = 0,
        safe: bool = True,
        tries: int = 1,
    ) -> Started:
        fingerprint = hashlib.sha256(f"{name} {argument}".encode()).digest()
        identity = CallIdentity(
            name=name,
            fingerprint=fingerprint,
            arguments={"text": hashlib.sha256(repr(argument).encode()).digest()},
            environment={},
            version="1",
            scope=scope,
            occurrence=occurrence,
        )
        started = self.journal.started(self._lane, 0, identity, tries)
        started.repeatable, started.after = safe, self.last_id
        self._lane += 1
        self.journal.commit(Batch(starts=[started]))
        return started

    def inside(self, started: Started) -> bytes:
        """The scope within the body of a call."""
        call = started.identity
        return call_scope(self.key, call.scope, call.name, call.fingerprint, call.occurrence)

    def branch(self, scope: bytes, group: int, number: int) -> bytes:
        return branch_scope(scope, group, number)

    def keyed(self, scope: bytes, name: str, text: str) -> bytes:
        return keyed_scope(self.key, scope, name, text)

    def result(self, started: Started, value: object, *, tokens: int | None = None) -> int:
        usage = noted_usage(input_tokens=tokens, output_tokens=None if tokens is None else 7)
        return self._conclude(started, RecordKind.RESULT, value, usage)

    def error(self, started: Started, error: Exception) -> int:
        return self._conclude(started, RecordKind.ERROR, error, b"")

    def call(self, name: str, value: object = "done", *, tokens: int | None = None, **where: Any) -> int:
        return self.result(self.start(name, **where), value, tokens=tokens)

    def abandon(self, started: Started) -> int:
        """Leave a call within the attempt, as a cancelled branch does."""
        return self._wrote(self.journal.commit(Batch(abandoned=[started])).last_id)

    def value(self, name: str, value: object, *, scope: bytes = ROOT, occurrence: int = 0) -> int:
        packed = codecs.pack(value, limit_bytes=LIMIT)
        fingerprint = hashlib.sha256(name.encode()).digest()
        identity = CallIdentity(
            name=name,
            fingerprint=fingerprint,
            arguments={},
            environment={},
            version="1",
            scope=scope,
            occurrence=occurrence,
        )
        record = self.journal.value(identity, packed, after=self.last_id)
        return self._wrote(self.journal.commit(Batch(values=[record])).last_id)

    def end(self, state: RunState = RunState.COMPLETED, reason: str = "") -> None:
        content: dict[str, object] = {"results": {}, "used": [], "code_changed": [], "reason": reason, "dynamic": True}
        self.journal.commit(Batch(end_state=state, end_reason=reason, end=lambda _: content))
        self.die()

    def die(self) -> None:
        """Let go of the run and say nothing."""
        self.attempt.close()

    def again(self) -> Dynamic:
        """Die, and begin the next attempt."""
        self.die()
        return Dynamic(self.context, self.run_id, key=self.key)

    def _conclude(self, started: Started, kind: RecordKind, value: object, usage: bytes) -> int:
        packed = codecs.pack(value, limit_bytes=LIMIT)
        ending = Ending(kind=kind, packed=packed, payload=b"", failure=None, usage=usage)
        done = self.journal.conclude(started, ending, because=[], code=b"")
        return self._wrote(self.journal.commit(Batch(concluded=[done])).last_id)

    def _wrote(self, record_id: int) -> int:
        self.last_id = max(self.last_id, record_id)
        return record_id


def unknowns(context: Context, run_id: str = "agent") -> list[int]:
    """The ids of the records that say of a call that its outcome is unknown."""
    from agent_run_ledger.runs.abandoned import is_unknown

    reader = context.store.reader()
    row = reader.find_run(run_id)
    assert row is not None
    return [one.record_id for one in reader.records(row.row_id, kinds=[RecordKind.ABANDONED]) if is_unknown(one.record)]


def left_unknown(context: Context, name: str = "send_mail", run_id: str = "agent") -> tuple[Dynamic, int]:
    """A run whose first attempt died in a tool that must not be repeated; its second attempt lives."""
    first = Dynamic(context, run_id)
    first.call("look_up", {"found": True}, tokens=100)
    first.start(name, argument="to ann", safe=False)
    second = first.again()
    return second, unknowns(context, run_id)[-1]


def resolve(context: Context, call: int | str, outcome: str, value: object = None, **more: Any) -> Resolved:
    said = {"reason": "looked at the outbox", "actor": "ann", **more}
    run_id = said.pop("run_id", "agent")
    return resolve_call(context, run_id, call, Finding(outcome=Outcome(outcome), value=value, **said))
