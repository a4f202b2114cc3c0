"""The breaker's verdicts on one run as people read them."""

from __future__ import annotations

from dataclasses import dataclass

from agent_run_ledger.kernel.loops import Level
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.ports import Reader, RunRow
from agent_run_ledger.runs.judged import judged_calls


@dataclass(frozen=True, slots=True, kw_only=True)
class CallVerdict:
    """One call of a tool and what the breaker said of it.

    `number`: its place among the run's judged calls, from 0 on; `record_id`: its record. `level`: "ok", "warn", "nudge"
    or "quarantine"; `rule`: the one that counts, "" for none; `count` of `limit` repetitions; `rests_on`: the earlier
    record ids; `similarity`: the lowest among their inputs, 0 to 1; `words`: all of it. `agrees`: whether the record
    says the same.
    """

    number: int
    record_id: int
    tool: str
    failed: bool
    level: str
    rule: str
    count: int
    limit: int
    rests_on: tuple[int, ...]
    similarity: float
    words: str
    agrees: bool


def verdicts_of(reader: Reader, row: RunRow) -> list[CallVerdict]:
    """Return the judged calls of a run in the order recorded; none where no breaker was on.

    Raises Misuse("bad_glimpse") for what another version recorded.
    """
    numbers: dict[int, int] = {}
    found: list[CallVerdict] = []
    for call in judged_calls(reader, row):
        numbers[call.stored.record_id] = call.number
        verdict = call.verdict
        found.append(
            CallVerdict(
                number=call.number,
                record_id=call.stored.record_id,
                tool=call.stored.record.name,
                failed=call.stored.record.kind is not RecordKind.RESULT,
                level=verdict.level.name.lower(),
                rule="" if verdict.level is Level.OK else verdict.rule,
                count=verdict.count,
                limit=verdict.limit,
                rests_on=call.record_ids,
                similarity=verdict.similarity,
                words=verdict.words() if verdict.level is Level.OK else verdict.explain(),
                agrees=call.agrees,
            )
        )
    return found
