"""The budgets that one transaction touches: of a run, of the runs that it is within, and of the step called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agent_run_ledger.errors import Tampered
from agent_run_ledger.kernel.budget import Budget, Reserve
from agent_run_ledger.kernel.counters import NOTHING_USED, Counters, Exceeded, parse_counters
from agent_run_ledger.kernel.record import Record
from agent_run_ledger.ports import InFlight, Reader, RunRow, Tx
from agent_run_ledger.runs.abandoned import RESERVED, detail_of
from agent_run_ledger.runs.recount import mark_reserve, read_reserve, recounted, took_ms, used_by
from agent_run_ledger.runs.steps import Step

THE_RUN: Final = ""
"""Under which name, among those of its tools, a run's own budget is kept."""

BUDGET: Final = "budget"
"""The actor of a quarantine for a budget, how its reason begins, and where START and DECISION contents keep it."""

_MOST_KNOWN: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The budgets that a program gives: `own` to one run, `default` to each run that is within no other, and steps'."""

    own: Budget | None = None
    default: Budget | None = None
    steps: Sequence[Step[..., Any]] = ()

    def given(self, *, within: bool) -> dict[str, Budget]:
        """Return the budgets of a run by step, "" for its own. `within`: it is within another run, and counts there."""
        own = self.default if self.own is None and not within else self.own
        budgets = {} if own is None else {THE_RUN: own}
        return budgets | {step.name: step.budget for step in self.steps if step.budget is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """A call that may not start: whose budget it would exceed (run and tool), and why."""

    row_id: int
    tool: str
    exceeded: Exceeded

    @property
    def reason(self) -> str:
        """All of it in words, for the run's row."""
        whose = f"{BUDGET} of {self.tool!r}" if self.tool else BUDGET
        return f"{whose}: {self.exceeded.words}"

    def content(self, run_id: str) -> dict[str, object]:
        """Return what the DECISION keeps beside event, reason and actor; `run_id`: the run whose call was refused."""
        return {BUDGET: {"limit": self.exceeded.limit, "tool": self.tool, "call_of": run_id, **self.exceeded.numbers}}


_NO_PRICE: Final = " is unknown"
_A_MINUTE: Final = " calls within a minute"


def is_for_budget(reason: str) -> bool:
    """Return whether a run with this reason was stopped for a budget."""
    return reason.startswith((f"{BUDGET}: ", f"{BUDGET} of "))


def way_on(reason: str, release: str) -> str:
    """Return what to do about a run that was stopped for a budget; `release`: the command that releases it."""
    how = "raise the budget in the program"
    if _NO_PRICE in reason:
        how += ", with allow_unknown_cost=True since a cost is unknown"
    if _A_MINUTE in reason:
        how += ", or wait for a minute"
    return f"{how}, then `{release}`"


def ancestors(get_run: Callable[[int], RunRow], row: RunRow) -> tuple[int, ...]:
    """Return the row ids of the runs that a run is within, nearest first."""
    found: list[int] = []
    above = row.parent_row_id
    while above is not None and above not in found:
        found.append(above)
        above = get_run(above).parent_row_id
    return tuple(found)


class Accounts:
    """Guarantees: what a transaction reserves, settles or leaves in doubt is counted in each budget it belongs to.

    A call belongs to the budgets of its run and of every run that this is within, and in each of them to that of the
    run and that of the step. They are read when first touched; nothing lands before `write`, and nothing at all where
    only a refusal looked at them. Tampered for counters that are none.

    `known`: counters by their stored form, kept from one transaction to the next so that what is stored as it was
    written need not be read again.
    """

    def __init__(self, tx: Tx, row_ids: Sequence[int], known: dict[bytes, Counters] | None = None) -> None:
        self._tx = tx
        self._known = {} if known is None else known
        self._rows = [(row_id, stored) for row_id in row_ids if (stored := tx.budgets(row_id))]
        self._touched: dict[tuple[int, str], Counters] = {}
        self._changed = False

    def begin(self, name: str, reserve: Reserve | None) -> Excess | None:
        """Count and reserve a call that starts, in all of its budgets; or in none, and return which one refuses."""
        now_ms = self._tx.now_ms
        mine = list(self._of(name))
        for row_id, tool, counters in mine:
            exceeded = counters.refusal(reserve, now_ms)
            if exceeded is not None:
                return Excess(row_id=row_id, tool=tool, exceeded=exceeded)
        self._count(mine, reserve)
        return None

    def count(self, name: str, reserve: Reserve | None) -> None:
        """Count and reserve a call whose start was lost: it began, whatever the limits say now."""
        self._count(list(self._of(name)), reserve)

    def _count(self, mine: Iterable[tuple[int, str, Counters]], reserve: Reserve | None) -> None:
        for _, _, counters in mine:
            counters.begin(reserve, self._tx.now_ms)
        self._changed = True

    def settle(self, record: Record, reserve: Reserve | None) -> None:
        """Put what a call used in the place of what it had reserved."""
        if self._rows:
            self._changed = True
            used = used_by(record)
            for _, tool, counters in self._of(record.name):
                counters.settle(reserve, used)
                if tool:
                    counters.wall_ms += took_ms(record)

    def take_back(self, name: str, *, left: bool, reserve: Reserve | None) -> None:
        """Count a call that ended, or was `left`, as none: the run waits for it, and makes the same call again."""
        self._changed = True
        for _, _, counters in self._of(name):
            if left:
                counters.settle_doubt(reserve, NOTHING_USED)
            counters.take_back()

    def doubt(self, name: str, reserve: Reserve | None) -> None:
        """Nothing says how a call ended: what it had reserved stays counted."""
        self._changed = True
        for _, _, counters in self._of(name):
            counters.doubt(reserve)

    def settle_doubt(self, unknown: Record, usage: Record | None) -> None:
        """Put what a person found out that a call in doubt used, as `usage` says it, in place of its reserve."""
        self._changed = True
        reserve = read_reserve(detail_of(unknown).get(RESERVED), f"the record of {unknown.name!r}")
        used = NOTHING_USED if usage is None else used_by(usage)
        for _, _, counters in self._of(unknown.name):
            counters.settle_doubt(reserve, used)

    def pass_time(self) -> None:
        """Count the time until now in the budgets of the runs."""
        self._changed = True
        for row_id, stored in self._rows:
            if THE_RUN in stored:
                self._counters(row_id, THE_RUN, stored[THE_RUN])

    def write(self) -> None:
        """Write what was touched, if anything was counted: a transaction that changes no state may write no rows."""
        if not self._changed:
            return
        if len(self._known) > _MOST_KNOWN:  # others write these budgets too
            self._known.clear()
        for (row_id, tool), counters in self._touched.items():
            stored = counters.stored()
            self._tx.put_budget(row_id, tool, stored)
            self._known[stored] = counters

    def _of(self, name: str) -> Iterator[tuple[int, str, Counters]]:
        for row_id, stored in self._rows:
            for tool in (THE_RUN, name):
                if tool in stored:
                    yield row_id, tool, self._counters(row_id, tool, stored[tool])

    def _counters(self, row_id: int, tool: str, stored: bytes) -> Counters:
        counters = self._touched.get((row_id, tool))
        if counters is None:
            known = self._known.pop(stored, None)  # taken out: from now on it says something else
            counters = self._touched[(row_id, tool)] = known or read_counters(stored, tool)
            if tool == THE_RUN:
                counters.pass_time(self._tx.now_ms)
        return counters


def doubt_marks(tx: Tx, row: RunRow, marks: Sequence[InFlight]) -> None:
    """Count calls of a run as uncertain whose start marks give way to records that say so, in this transaction."""
    if not marks:
        return
    accounts = Accounts(tx, (row.row_id, *ancestors(tx.get_run, row)))
    for mark in marks:
        accounts.doubt(mark.name, mark_reserve(mark))
    accounts.write()


def settle_doubt(tx: Tx, row: RunRow, unknown: Record, usage: Record | None) -> None:
    """Settle a call of a run that was left in doubt, in all of its budgets. See `Accounts.settle_doubt`."""
    accounts = Accounts(tx, (row.row_id, *ancestors(tx.get_run, row)))
    accounts.settle_doubt(unknown, usage)
    accounts.write()


def open_budgets(
    tx: Tx, reader: Reader, row: RunRow, given: Mapping[str, Budget], stored: Mapping[str, bytes] | None
) -> None:
    """Write the limits of an attempt that starts. Time before it does not count.

    `stored`: the counters that the run has, None for one that is new. A budget that the run did not have before begins
    with what its records say; one that is not given any more has no limits and goes on counting. `reader` must see what
    the transaction began with.
    """
    known = stored or {}
    missing = [tool for tool in given if tool not in known]
    counted = {} if stored is None or not missing else recounted(reader, row, missing)
    for tool in (*known, *missing):
        counters = read_counters(known[tool], tool) if tool in known else counted.get(tool, Counters())
        counters.limits = given.get(tool)
        counters.window = [] if counters.limits is None else counters.window
        if tool == THE_RUN:
            counters.seen_ms = tx.now_ms
        tx.put_budget(row.row_id, tool, counters.stored())


def read_counters(stored: bytes, tool: str) -> Counters:
    """Return the counters of a budget. Tampered for what is none."""
    try:
        return parse_counters(stored)
    except ValueError as error:
        whose = f"the step {tool!r}" if tool else "a run"
        raise Tampered(f"the budget of {whose} cannot be read: {error}", code="corrupt") from error
