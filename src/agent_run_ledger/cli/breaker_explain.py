"""`arl breaker explain`: one run with the breaker's verdict at each call of a tool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from agent_run_ledger.cli.options import Db, Json, RunId
from agent_run_ledger.cli.output import new_table, note, print_json, show, text
from agent_run_ledger.cli.runs_list import state_words

if TYPE_CHECKING:
    from agent_run_ledger.ledger.verdicts import CallVerdict

_STYLES = {"ok": "", "warn": "yellow", "nudge": "bold yellow", "quarantine": "bold red"}


def breaker_explain(run: RunId, db: Db = None, as_json: Json = False) -> None:
    """Show each call of a tool in a run with the breaker's verdict: how far a loop had come, by which rule, and on
    which earlier calls that rests. Everything is judged once more from the log; where a record says something else,
    that is shown."""
    from agent_run_ledger.cli.stores import reading
    from agent_run_ledger.ledger.verdicts import verdicts_of
    from agent_run_ledger.ledger.views import require_run

    with reading(db) as store:
        row = require_run(store.reader(), run)
        verdicts = verdicts_of(store.reader(), row)
        if as_json:
            calls = [{**asdict(verdict), "rests_on": list(verdict.rests_on)} for verdict in verdicts]
            print_json({"run_id": row.run_id, "state": str(row.state), "reason": row.reason, "calls": calls})
            return
        show(text(f"run {row.run_id}  ").append(state_words(row.state, None)))
    if not verdicts:
        note("no call of a tool was judged: the run made none, they were erased, or its ledger had policy=None")
        return
    _print(verdicts)


def _print(verdicts: Sequence[CallVerdict]) -> None:
    table = new_table(
        "call", "tool", "ended", "verdict", "count", "rests on", "alike", right=("call", "count", "alike")
    )
    numbers = {verdict.record_id: verdict.number for verdict in verdicts}
    for one in verdicts:
        counted = "" if one.level == "ok" else f"{one.count} of {one.limit}"
        table.add_row(
            text(one.number),
            text(one.tool),
            text("failed" if one.failed else "returned"),
            text(f"{one.level}{f' ({one.rule})' if one.rule else ''}", _STYLES[one.level]),
            text(counted),
            text(", ".join(str(numbers[record_id]) for record_id in one.rests_on if record_id in numbers)),
            text(f"{one.similarity:.2f}" if one.rule and one.similarity else ""),
        )
    show(table)
    worst = max(verdicts, key=lambda one: (list(_STYLES).index(one.level), one.number))
    if worst.level != "ok":
        show(text(f"call {worst.number}: {worst.words}"))
    for one in verdicts:
        if not one.agrees:
            note(f"call {one.number}: its record has another verdict; `arl verify` tells whether the log is intact")
