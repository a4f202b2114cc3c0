"""The budgets of a run in words and as the documented JSON (docs/reference/cli.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from agent_run_ledger.cli.words import counted
from agent_run_ledger.kernel.counters import usd_words

if TYPE_CHECKING:
    from agent_run_ledger.ledger.budget_use import BudgetUse


def budgets_words(budgets: Mapping[str, BudgetUse]) -> list[list[str]]:
    """Return the parts of one line for each budget: of how much what is taken, and what of it is not settled."""
    return [
        [f"budget of {step}" if step else "budget", *_limits_words(use), *([] if use.limits else _counted_words(use))]
        for step, use in budgets.items()
    ]


def budgets_json(budgets: Mapping[str, BudgetUse]) -> list[dict[str, object]]:
    """Return each budget; `step` is null for the run's own, dollars are decimal numbers as text."""
    return [_budget_json(step, use) for step, use in budgets.items()]


def _limits_words(use: BudgetUse) -> list[str]:
    limits = use.limits
    if limits is None:
        return ["no limits in the last attempt"]
    parts: list[str] = []
    if limits.max_calls is not None:
        doubts = _doubts((use.calls_in_flight, "running"), (use.calls_uncertain, "uncertain"))
        parts.append(f"{use.calls:,} of {counted(limits.max_calls, 'call')}{doubts}")
    if limits.max_tokens is not None:
        doubts = _doubts((use.tokens_reserved, "reserved"), (use.tokens_uncertain, "uncertain"))
        taken = use.tokens + use.tokens_reserved + use.tokens_uncertain
        parts.append(f"{taken:,} of {counted(limits.max_tokens, 'token')}{doubts}")
    if limits.cost_limit is not None:
        taken_usd = use.cost_usd + use.cost_usd_reserved + use.cost_usd_uncertain
        named = [(use.cost_usd_reserved, "reserved"), (use.cost_usd_uncertain, "uncertain")]
        said = [f"{usd_words(cost)} {word}" for cost, word in named if cost]
        said += [f"unknown of {counted(use.cost_unknown, 'call')}"] if use.cost_unknown else []
        parts.append(f"{usd_words(taken_usd)} of {usd_words(limits.cost_limit)}{_in_brackets(said)}")
    if limits.max_wall_s is not None:
        parts.append(f"{use.wall_s:,.1f} of {limits.max_wall_s:,} s")
    if limits.calls_per_minute is not None:
        parts.append(f"at most {counted(limits.calls_per_minute, 'call')} a minute")
    return parts


def _counted_words(use: BudgetUse) -> list[str]:
    return [counted(use.calls, "call"), counted(use.tokens, "token"), usd_words(use.cost_usd)]


def _doubts(*named: tuple[int, str]) -> str:
    return _in_brackets([f"{number:,} {word}" for number, word in named if number])


def _in_brackets(said: Sequence[str]) -> str:
    return f" ({', '.join(said)})" if said else ""


def _budget_json(step: str, use: BudgetUse) -> dict[str, object]:
    return {
        "step": step or None,
        "limits": None if use.limits is None else use.limits.as_stored(),
        "calls": use.calls,
        "calls_in_flight": use.calls_in_flight,
        "calls_uncertain": use.calls_uncertain,
        "tokens": use.tokens,
        "tokens_reserved": use.tokens_reserved,
        "tokens_uncertain": use.tokens_uncertain,
        "cost_usd": _money(use.cost_usd),
        "cost_usd_reserved": _money(use.cost_usd_reserved),
        "cost_usd_uncertain": _money(use.cost_usd_uncertain),
        "cost_unknown": use.cost_unknown,
        "wall_s": use.wall_s,
        "left": {
            "calls": use.calls_left,
            "tokens": use.tokens_left,
            "cost_usd": None if use.cost_usd_left is None else _money(use.cost_usd_left),
            "wall_s": use.wall_s_left,
        },
    }


def _money(cost: Decimal) -> str:
    return format(cost, "f")
