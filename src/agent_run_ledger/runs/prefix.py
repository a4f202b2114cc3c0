"""What a fork refers to: the recorded results of other runs that stand for its own, and whose they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from agent_run_ledger.errors import Tampered
from agent_run_ledger.ports import Reader, RunRow

FORK_KEY = "fork"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """What the first START of a fork says: from which run and step, and by step which record stands for it.

    Of a dynamic run: `calls` are its results from before the call at which it was forked, `others` what else was
    recorded by then of its calls (errors, calls that were left, and what people found out about them); `scope` is where
    that call was made, and `after` the latest record of that moment.
    """

    run_id: str
    run_uid_hex: str
    from_step: str
    records: Mapping[str, int]
    calls: tuple[int, ...] = ()
    others: tuple[int, ...] = ()
    scope: bytes = b""
    after: int = 0

    def stored(self) -> dict[str, object]:
        """Return the value of the key `fork` (format: docs/formats/run_records.md)."""
        return {
            "run_id": self.run_id,
            "run_uid": self.run_uid_hex,
            "from_step": self.from_step,
            "records": dict(self.records),
            **({} if not self.after else self._place()),
        }

    def _place(self) -> dict[str, object]:
        calls, others = list(self.calls), list(self.others)
        return {"calls": calls, "others": others, "scope": self.scope.hex(), "after": self.after}

    @property
    def record_ids(self) -> frozenset[int]:
        """The ids of all referenced results."""
        return frozenset((*self.records.values(), *self.calls))


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Which run recorded a referenced result, and which forks handed the reference on, oldest first."""

    recorded_in: str
    referenced_by: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return "recorded in 'a'", or "recorded in 'a', referenced by 'b', 'c'"."""
        through = f", referenced by {', '.join(map(repr, self.referenced_by))}" if self.referenced_by else ""
        return f"recorded in {self.recorded_in!r}{through}"


def prefix_in(content: Mapping[str, Any]) -> Prefix | None:
    """Return what a START's content says of a fork, None for a run that is none; Tampered for anything else."""
    if FORK_KEY not in content:
        return None
    try:
        fork = cast("dict[str, Any]", content[FORK_KEY])
        records = {str(name): int(record_id) for name, record_id in fork["records"].items()}
        return Prefix(
            run_id=str(fork["run_id"]),
            run_uid_hex=str(fork["run_uid"]),
            from_step=str(fork["from_step"]),
            records=records,
            calls=tuple(map(int, fork.get("calls", ()))),
            others=tuple(map(int, fork.get("others", ()))),
            scope=bytes.fromhex(str(fork.get("scope", ""))),
            after=int(fork.get("after", 0)),
        )
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise Tampered("what a START says of its fork is not readable", hint="run `arl verify`") from error


def lineage(reader: Reader, row: RunRow) -> list[RunRow]:
    """Return the runs that this one was forked from, the nearest first; empty where it is no fork."""
    ancestors: list[RunRow] = []
    seen = {row.row_id}
    while row.forked_from_row_id is not None and row.forked_from_row_id not in seen:
        row = reader.get_run(row.forked_from_row_id)
        seen.add(row.row_id)
        ancestors.append(row)
    return ancestors


def origin_of(reader: Reader, ancestors: list[RunRow], run_row_id: int) -> Origin:
    """Return where a record of the run in `run_row_id` comes from, for a fork with these ancestors (see `lineage`)."""
    between: list[str] = []
    for ancestor in ancestors:
        if ancestor.row_id == run_row_id:
            return Origin(recorded_in=ancestor.run_id, referenced_by=tuple(reversed(between)))
        between.append(ancestor.run_id)
    return Origin(recorded_in=reader.get_run(run_row_id).run_id)
