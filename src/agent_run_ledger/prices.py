"""What model calls cost by the price table that genai-prices ships, where it is installed; never from the network."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal, localcontext
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from agent_run_ledger.kernel.usage import MONEY, Usage, exact_cost

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot

log = logging.getLogger("agent_run_ledger")
PACKAGE: Final = "genai_prices"
_MOST_NAMED: Final = 1_000

_named: set[tuple[str, str]] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A price table and its name with version, as it is stored beside a cost."""

    name: str
    snapshot: DataSnapshot


def price(line: Usage, at_ms: int) -> Usage:
    """Return the line with its cost at the list prices of `at_ms`, and the table's name and version in `prices`.

    The line comes back as it was where it has a cost, names no model, or does not say both input and output tokens;
    where genai-prices is not installed; and where its table does not know the model, which is logged once. Raises
    nothing. The table is the one in the installed package, also where the program lets genai-prices update itself.
    """
    if line.cost_usd is not None or not line.model or line.input_tokens is None or line.output_tokens is None:
        return line
    table = _table()
    if table is None:
        return line
    try:
        cost = exact_cost(_calculated(table.snapshot, line, at_ms))
    except Exception as error:  # a foreign table: a call that was paid must not fail for its price
        _say_once(line, table.name, error)
        return line
    return line if cost is None else replace(line, cost_usd=cost, prices=table.name)


@cache
def _table() -> Table | None:
    """Return the installed table, loaded once (some 0.3 s), or None."""
    if find_spec(PACKAGE) is None:
        return None
    try:
        import genai_prices
        from genai_prices.data import providers
        from genai_prices.data_snapshot import DataSnapshot

        snapshot = DataSnapshot(providers=providers, from_auto_update=False)
        return Table(name=f"genai-prices {genai_prices.__version__}", snapshot=snapshot)
    except Exception as error:  # another version of the package, or a broken one
        log.warning("genai-prices cannot be used, so costs stay unknown: %s: %s", type(error).__name__, error)
        return None


def _calculated(snapshot: DataSnapshot, line: Usage, at_ms: int) -> Decimal:
    from genai_prices import Usage as Amounts

    names = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    amounts = Amounts(**{name: value for name in names if (value := getattr(line, name)) is not None})
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    with localcontext(MONEY):
        return snapshot.calc(amounts, line.model, line.provider or None, None, moment).total_price


def _say_once(line: Usage, table: str, error: Exception) -> None:
    key = (line.model, line.provider)
    if key in _named or len(_named) >= _MOST_NAMED:
        return
    _named.add(key)
    log.warning("%s has no price for model %r, so its cost stays unknown: %s", table, line.model, error)
