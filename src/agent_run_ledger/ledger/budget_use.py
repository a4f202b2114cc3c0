"""The read model of a budget: its limits, and what is used, reserved, uncertain and left of it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from agent_run_ledger.kernel.budget import Budget
from agent_run_ledger.ports import Reader, RunRow
from agent_run_ledger.runs.budgets import read_counters


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetUse:
    """What is used of one budget. `limits` is None where the latest start gave none: it still counts.

    `calls` are all that were started, each try: `calls_in_flight` are not concluded, of `calls_uncertain` nothing says
    how they ended. Tokens and dollars: spent by calls that ended, reserved by those in flight, uncertain for those in
    doubt. `cost_unknown`: calls whose price nobody knows. `wall_s`: seconds counted so far. `…_left`: None without such
    a limit; never below 0.
    """

    limits: Budget | None
    calls: int
    calls_in_flight: int
    calls_uncertain: int
    tokens: int
    tokens_reserved: int
    tokens_uncertain: int
    cost_usd: Decimal
    cost_usd_reserved: Decimal
    cost_usd_uncertain: Decimal
    cost_unknown: int
    wall_s: float
    calls_left: int | None
    tokens_left: int | None
    cost_usd_left: Decimal | None
    wall_s_left: float | None


def budget_uses(reader: Reader, row: RunRow) -> dict[str, BudgetUse]:
    """Return the budgets of a run by step, "" for its own. Tampered for counters that are none."""
    return {tool: _use(stored, tool) for tool, stored in reader.budgets(row.row_id).items()}


def _use(stored: bytes, tool: str) -> BudgetUse:
    counters = read_counters(stored, tool)
    limits = counters.limits
    calls = tokens = cost = wall = None
    if limits is not None:
        calls = None if limits.max_calls is None else max(0, limits.max_calls - counters.calls)
        tokens = None if limits.max_tokens is None else max(0, limits.max_tokens - counters.tokens_taken)
        cost = None if limits.cost_limit is None else max(Decimal(0), limits.cost_limit - counters.cost_taken)
        wall = None if limits.max_wall_s is None else max(0.0, limits.max_wall_s - counters.wall_ms / 1000)
    return BudgetUse(
        limits=limits,
        calls=counters.calls,
        calls_in_flight=counters.calls_in_flight,
        calls_uncertain=counters.calls_uncertain,
        tokens=counters.tokens,
        tokens_reserved=counters.reserved_tokens,
        tokens_uncertain=counters.uncertain_tokens,
        cost_usd=counters.cost_usd,
        cost_usd_reserved=counters.reserved_cost_usd,
        cost_usd_uncertain=counters.uncertain_cost_usd,
        cost_unknown=counters.cost_unknown,
        wall_s=counters.wall_ms / 1000,
        calls_left=calls,
        tokens_left=tokens,
        cost_usd_left=cost,
        wall_s_left=wall,
    )
