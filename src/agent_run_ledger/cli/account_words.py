"""Accounts in words and tables for people: what is unknown shows as "?", an estimate as "≈", nothing as a dash."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import ROUND_HALF_EVEN, Decimal
from typing import TYPE_CHECKING

from agent_run_ledger.cli.output import ascii_only, new_table, text
from agent_run_ledger.cli.words import counted
from agent_run_ledger.kernel.account import Entry, Total, Uncertain, read_lines

if TYPE_CHECKING:
    from rich.table import Table

    from agent_run_ledger.ledger.account import Account

MAX_ROWS = 50
UNKNOWN = "?"
NO_MODEL = "(not said)"


def money_words(cost: Decimal) -> str:
    """Return US dollars as "$12.34", "$0.1234", "$0.00021": below a dollar with four places or two digits."""
    if cost >= 1 or cost == 0:
        return f"${cost:,.2f}"
    places = max(4, 1 - cost.adjusted())
    return f"${cost.quantize(Decimal(1).scaleb(-places), ROUND_HALF_EVEN):f}"


def account_words(entry: Entry) -> list[str]:
    """Return an account in a few words, one part for each sum that is not empty."""
    parts: list[str] = []
    for name, total in (("spent", entry.spent), ("restored at least", entry.restored)):
        if total.calls:
            parts.append(f"{name} {_tokens(total)} tokens, {_cost(total)}")
    if entry.uncertain.calls:
        parts.append(f"{counted(entry.uncertain.calls, 'call')} uncertain")
    return parts


def record_tokens(stored: bytes) -> str:
    """Return the tokens that one record says it used, in words; empty where it says none."""
    total = Total()
    try:
        for line in read_lines(stored) if stored else ():
            total.add(line)
    except ValueError:
        return "an unreadable usage"
    return f"{_tokens(total)} tokens" if total.calls else ""


def spent_cells(total: Total) -> tuple[str, str]:
    """Return tokens and cost of a sum, for a column each."""
    return _tokens(total), _cost(total) if total.calls else _dash()


def totals_table(entry: Entry) -> Table:
    """Return the three sums, one below the other."""
    table = new_table("", "CALLS", "INPUT", "OUTPUT", "COST", right=("CALLS", "INPUT", "OUTPUT", "COST"))
    for name, total in (("spent", entry.spent), ("restored", entry.restored)):
        table.add_row(text(name), *map(text, (f"{total.calls:,}", *_numbers(total))))
    table.add_row(text("uncertain"), *map(text, (f"{entry.uncertain.calls:,}", *_estimated(entry.uncertain))))
    return table


def rows_table(name: str, rows: Sequence[tuple[str, Entry]]) -> Table:
    """Return one line per row; columns that say nothing are left out."""
    restored = any(entry.restored.calls for _, entry in rows)
    uncertain = any(entry.uncertain.calls for _, entry in rows)
    heads = ["CALLS", "INPUT", "OUTPUT", "COST", *(["RESTORED"] if restored else [])]
    table = new_table(name.upper(), *heads, *(["UNCERTAIN"] if uncertain else []), right=(*heads, "UNCERTAIN"))
    for key, entry in rows:
        cells = [f"{entry.spent.calls:,}" if entry.spent.calls else _dash(), *_numbers(entry.spent)]
        if restored:
            cells.append(_tokens(entry.restored))
        if uncertain:
            cells.append(counted(entry.uncertain.calls, "call") if entry.uncertain.calls else _dash())
        table.add_row(text(key or NO_MODEL), *map(text, cells))
    return table


def notes_on(account: Account, rows: Sequence[tuple[str, Entry]]) -> Iterator[str]:
    """Yield what has to be said below the tables, so that no number is taken for more than it is."""
    total = account.total
    if any(entry.restored.calls for _, entry in rows):
        yield "RESTORED is in tokens."
    if total.restored.calls:
        yield "restored: at least this. An attempt that was killed does not say what it restored."
    yield from _on_doubt(total.uncertain)
    yield from _on_unknown((total.spent, total.restored, total.uncertain.estimate))
    if account.running:
        yield f"{counted(account.running, 'call')} of living attempts: not counted before they end."
    if account.silent:
        say = "says" if account.silent == 1 else "say"
        yield f"{counted(account.silent, 'record')} {say} nothing of a usage: a step that asks no model does not."


def _on_doubt(uncertain: Uncertain) -> Iterator[str]:
    if not uncertain.calls:
        return
    began = "was started, and nothing says how it ended" if uncertain.calls == 1 else (
        "were started, and nothing says how they ended"
    )  # fmt: skip
    yield f"uncertain: {counted(uncertain.calls, 'call')} of steps {began}."
    if uncertain.unknown:
        have = "has" if uncertain.unknown == 1 else "have"
        yield (
            f"{counted(uncertain.unknown, 'call')} of them {have} an unknown outcome: `arl runs show RUN` names what "
            "may have happened, and `arl runs resolve RUN CALL` settles it."
        )
    if uncertain.repeated:
        yield f"{_about()}: what {counted(uncertain.repeated, 'repetition')} used; the calls themselves may differ."


def _on_unknown(totals: Sequence[Total]) -> Iterator[str]:
    named = (("input", "input_unknown"), ("output", "output_unknown"), ("cost", "cost_unknown"))
    counts = {words: max(getattr(total, name) for total in totals) for words, name in named}
    parts = [f"{words} of {counted(count, 'call')}" for words, count in counts.items() if count]
    if parts:
        yield f"{UNKNOWN}: nobody said the {', the '.join(parts)}; it is in no sum."


def _numbers(total: Total) -> tuple[str, str, str]:
    if not total.calls:
        return _dash(), _dash(), _dash()
    given = _number(total.input_tokens, total.input_unknown)
    return given, _number(total.output_tokens, total.output_unknown), _cost(total)


def _estimated(uncertain: Uncertain) -> tuple[str, str, str]:
    if not uncertain.calls:
        return _dash(), _dash(), _dash()
    if not uncertain.repeated:
        return UNKNOWN, UNKNOWN, UNKNOWN
    some = uncertain.repeated < uncertain.calls
    given, got, cost = (_about_words(words, some=some) for words in _numbers(uncertain.estimate))
    return given, got, cost


def _about_words(words: str, *, some: bool) -> str:
    if words == UNKNOWN:
        return UNKNOWN
    return f"{_about()} {words}" if words.endswith(UNKNOWN) or not some else f"{_about()} {words} +{UNKNOWN}"


def _tokens(total: Total) -> str:
    unknown = total.input_unknown + total.output_unknown
    return _number(total.tokens, unknown) if total.calls else _dash()


def _number(known: int | None, unknown: int) -> str:
    if known is None:
        return UNKNOWN
    return f"{known:,} +{UNKNOWN}" if unknown else f"{known:,}"


def _cost(total: Total) -> str:
    if total.cost_usd is None:
        return UNKNOWN
    return f"{money_words(total.cost_usd)} +{UNKNOWN}" if total.cost_unknown else money_words(total.cost_usd)


def _dash() -> str:
    return "-" if ascii_only() else "–"


def _about() -> str:
    return "~" if ascii_only() else "≈"
