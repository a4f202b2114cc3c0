"""`arl metrics`: the gauges of a store for Prometheus, for example through a textfile collector."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from agent_run_ledger.cli.options import Db, Json

if TYPE_CHECKING:
    from agent_run_ledger.kernel.gauges import EffectGauges


def metrics(db: Db = None, as_json: Json = False) -> None:
    """Print runs and actions by state, ages of doubts, silent claims and sizes, in Prometheus' text format."""
    from agent_run_ledger.cli.output import print_json
    from agent_run_ledger.cli.stores import reading
    from agent_run_ledger.ledger.store_gauges import read_gauges
    from agent_run_ledger.telemetry.exposition import exposition

    with reading(db) as store:
        gauges = read_gauges(store, time.time_ns() // 1_000_000)
    if not as_json:
        sys.stdout.write(exposition(gauges))
        return
    print_json(
        {
            "runs": {str(state): count for state, count in gauges.runs.items()},
            "quarantined": {str(why): count for why, count in gauges.quarantined.items()},
            "unresolved_age_seconds": gauges.unresolved_age_s,
            "leaves": gauges.leaves,
            "database_bytes": gauges.database_bytes,
            "wal_bytes": gauges.wal_bytes,
            "effects": None if gauges.effects is None else _effects_json(gauges.effects),
        }
    )


def _effects_json(effects: EffectGauges) -> dict[str, object]:
    return {
        "actions": {str(state): count for state, count in effects.actions.items()},
        "ledger_state": str(effects.state),
        "doubt_age_seconds": effects.doubt_age_s,
        "stranded_claims": effects.stranded,
        "waiting_approval_age_seconds": effects.waiting_age_s,
    }
