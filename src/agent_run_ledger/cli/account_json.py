"""The documented JSON of an account and of one usage (docs/reference/cli.md): what is unknown is null and never 0."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from agent_run_ledger.kernel.account import Entry, Total
from agent_run_ledger.kernel.usage import Usage, parse_usage

if TYPE_CHECKING:
    from agent_run_ledger.ledger.account import Account


def account_json(account: Account) -> dict[str, object]:
    """Return the three sums of an account, and what stands in none of them."""
    return {
        **entry_json(account.total),
        "runs": account.runs,
        "running_calls": account.running,
        "silent_records": account.silent,
    }


def rows_json(rows: Sequence[tuple[str, Entry]]) -> list[dict[str, object]]:
    """Return the rows of an account, each with its key."""
    return [{"key": key, **entry_json(entry)} for key, entry in rows]


def entry_json(entry: Entry) -> dict[str, object]:
    """Return spent, restored and uncertain of one row."""
    uncertain = entry.uncertain
    return {
        "spent": total_json(entry.spent),
        "restored": total_json(entry.restored),
        "uncertain": {
            "calls": uncertain.calls,
            "repeated": uncertain.repeated,
            "unknown": uncertain.unknown,
            "estimate": total_json(uncertain.estimate),
        },
    }


def total_json(total: Total) -> dict[str, object]:
    """Return one sum; costs are decimal numbers as text."""
    return {
        "calls": total.calls,
        "input_tokens": total.input_tokens,
        "output_tokens": total.output_tokens,
        "cache_read_tokens": total.cache_read_tokens,
        "cache_write_tokens": total.cache_write_tokens,
        "cost_usd": _money(total.cost_usd),
        "input_unknown": total.input_unknown,
        "output_unknown": total.output_unknown,
        "cost_unknown": total.cost_unknown,
    }


def usage_json(stored: bytes) -> list[dict[str, object]]:
    """Return what one record says it used, a line per model; [] where it says nothing, or nothing that can be read."""
    try:
        return [_line_json(line) for line in parse_usage(stored)]
    except ValueError:
        return []


def _line_json(line: Usage) -> dict[str, object]:
    return {
        "model": line.model,
        "provider": line.provider,
        "calls": line.calls,
        "input_tokens": line.input_tokens,
        "output_tokens": line.output_tokens,
        "cache_read_tokens": line.cache_read_tokens,
        "cache_write_tokens": line.cache_write_tokens,
        "cost_usd": _money(line.cost_usd),
        "prices": line.prices,
    }


def _money(cost: Decimal | None) -> str | None:
    return None if cost is None else format(cost, "f")
