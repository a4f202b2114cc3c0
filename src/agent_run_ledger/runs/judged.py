"""What the breaker saw of a run, and said: read from the log, and judged once more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from agent_run_ledger import codecs
from agent_run_ledger.errors import Misuse, Tampered
from agent_run_ledger.kernel.loops import Verdict
from agent_run_ledger.kernel.policy import LoopDetectorPolicy
from agent_run_ledger.kernel.record import KEPT_INPUTS, Record, RecordKind
from agent_run_ledger.ports import Reader, RunRow, StoredRecord
from agent_run_ledger.runs.abandoned import after_of, detail_of
from agent_run_ledger.runs.breaker import JUDGED, VERDICT, Bench, kept_verdict, show, show_all
from agent_run_ledger.runs.later import key_of_call


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedCall:
    """A call on record, as the breaker saw it. `said`: the verdict that is kept with it; `verdict`: what comes out now.

    `number`: its place among the judged calls of the run, from 0 on. `record_ids`: the earlier records that `verdict`
    rests on.
    """

    stored: StoredRecord
    number: int
    verdict: Verdict
    record_ids: tuple[int, ...]
    said: Mapping[str, Any] | None

    @property
    def agrees(self) -> bool:
        """Whether the verdict that is kept is the one that comes out now."""
        return self.said == kept_verdict(self.verdict, self.record_ids)


def judged_calls(reader: Reader, row: RunRow) -> Iterator[JudgedCall]:
    """Yield the judged calls of a run in the order of their records, each under the policy of its attempt.

    Raises Misuse("bad_glimpse") for a glimpse of another version, Tampered for a policy that is none.
    """
    seen: list[StoredRecord] = []
    bench: Bench | None = None
    policy: LoopDetectorPolicy | None = None
    number = 0
    for stored in reader.records(row.row_id, kinds=(RecordKind.START, *JUDGED)):
        if stored.record.kind is RecordKind.START:
            now = None if stored.erased else _policy(row, stored.record)
            bench = bench if now == policy else _bench(now, seen)
            policy = now
            continue
        seen.append(stored)
        glimpse = None if bench is None else show(bench, stored)
        if bench is None or glimpse is None:
            continue
        verdict, record_ids = bench.judge(
            key_of_call(stored.record), glimpse, after=after_of(stored.record), attempt=stored.record.attempt
        )
        bench.landed(stored.record_id)
        said = cast("Mapping[str, Any] | None", detail_of(stored.record).get(VERDICT))
        yield JudgedCall(stored=stored, number=number, verdict=verdict, record_ids=record_ids, said=said)
        number += 1


def _bench(policy: LoopDetectorPolicy | None, seen: list[StoredRecord]) -> Bench | None:
    """Return a bench under this policy that was shown all that came before."""
    if policy is None:
        return None
    bench = Bench(policy)
    show_all(bench, seen)
    return bench


def _policy(row: RunRow, start: Record) -> LoopDetectorPolicy | None:
    content = codecs.unpack_without(start.encoding, start.payload, KEPT_INPUTS)[0]
    stored = cast("dict[str, Any]", content).get("policy") if isinstance(content, dict) else None
    try:
        return None if stored is None else LoopDetectorPolicy(**stored)
    except (Misuse, TypeError) as error:
        raise Tampered(f"run {row.run_id!r}: its policy is none: {error}", hint="run `arl verify`") from error
