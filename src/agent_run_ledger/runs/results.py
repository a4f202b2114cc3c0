"""The results of one attempt: handed out as copies that nobody else holds, and let go when nobody needs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent_run_ledger import codecs
from agent_run_ledger.errors import LedgerError, Misuse
from agent_run_ledger.runs.journal import Journal
from agent_run_ledger.runs.resolver import Resolver


@dataclass(slots=True, kw_only=True)
class _Result:
    """`decoded` is for the first consumer of a live result, `packed` for others until the record is committed."""

    value_sha256: bytes
    finite: bool
    record_id: int | None = None
    packed: codecs.Packed | None = None
    decoded: list[Any] | None = None


class Results:
    """Guarantees: a consumer of a live result sees exactly what a consumer of the restored one would, and what it
    changes in place no other consumer sees."""

    def __init__(self, journal: Journal, resolver: Resolver) -> None:
        self._journal = journal
        self._steps = resolver.steps
        self._results: list[_Result | None] = [None] * len(resolver.steps)
        self._consumers = [0] * len(resolver.steps)
        self._dependencies = [binding.dependencies for binding in resolver.plan.bindings]
        for needed in self._dependencies:
            for index in needed:
                self._consumers[index] += 1

    def restored(self, index: int, record_id: int, value_sha256: bytes) -> None:
        """Note a result that is on disk; its value is read only when somebody takes it."""
        self._results[index] = _Result(value_sha256=value_sha256, finite=False, record_id=record_id)

    def live(self, index: int, packed: codecs.Packed) -> None:
        """Note a result that is about to be committed."""
        self._results[index] = _Result(
            value_sha256=packed.value_sha256, finite=packed.finite, packed=packed, decoded=[packed.decoded]
        )

    def landed(self, index: int, record_id: int) -> None:
        """Note that the result is committed under this record id."""
        result = self._known(index)
        result.record_id, result.packed = record_id, None

    def digest(self, index: int) -> bytes:
        """Return the digest of a result, 32 bytes."""
        return self._known(index).value_sha256

    def record_ids(self) -> dict[int, int]:
        """Return the record ids of all results on disk, by step index."""
        return {at: r.record_id for at, r in enumerate(self._results) if r is not None and r.record_id is not None}

    def peek(self, index: int) -> Any:
        """Return a copy of the value for looking at, without consuming anything."""
        result = self._known(index)
        if result.packed is not None:
            return codecs.unpack(result.packed.encoding, result.packed.payload)
        if result.record_id is None:
            raise Misuse(f"the result of step {self._steps[index].name!r} is not on disk", code="no_result")
        return self._journal.load(result.record_id)

    def take(self, index: int) -> Any:
        """Return a copy of the value: decoded once for the first consumer, then decoded anew."""
        result = self._known(index)
        if result.decoded:
            return result.decoded.pop()
        return self.peek(index)

    def take_as_argument(self, index: int, consumer: str) -> Any:
        """Return a copy for a step that takes it; NaN and infinity are refused, naming both steps and the path."""
        value = self.take(index)
        if not self._known(index).finite:
            try:
                codecs.value_digest(value)
            except LedgerError as error:
                producer = self._steps[index].name
                error.message = f"step {consumer!r} takes the result of {producer!r}: {error.message}"
                raise
        return value

    def consumed(self, consumer: int) -> None:
        """Note that a step was restored or has its arguments: what only it needed is let go."""
        for index in self._dependencies[consumer]:
            self._consumers[index] -= 1
            result = self._results[index]
            if self._consumers[index] == 0 and result is not None:
                result.decoded = None

    def _known(self, index: int) -> _Result:
        result = self._results[index]
        if result is None:
            raise Misuse(f"step {self._steps[index].name!r} has no result yet", code="no_result")
        return result
