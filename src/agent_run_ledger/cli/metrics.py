"""`arl metrics`: the gauges of a store for Prometheus, for example through a textfile collector."""

from __future__ import annotations

import sys
import time

from agent_run_ledger.cli.options import Db, Json


def metrics(db: Db = None, as_json: Json = False) -> None:
    """Print runs and actions by state, ages of doubts, silent claims and sizes, in Prometheus' text format."""
    from agent_run_ledger.cli.output import print_json
    from agent_run_ledger.cli.stores import reading
    from agent_run_ledger.ledger.store_gauges import read_gauges
    from agent_run_ledger.telemetry.exposition import exposition, gauges_json

    with reading(db) as store:
        gauges = read_gauges(store, time.time_ns() // 1_000_000)
    if not as_json:
        sys.stdout.write(exposition(gauges))
        return
    print_json(gauges_json(gauges))
