"""The gauges of a store as Prometheus names them, and as its text format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent_run_ledger.kernel.gauges import StoreGauges


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One gauge with its samples: the value of the one label, and the number. Without a label: one sample for ""."""

    name: str
    text: str
    label: str = ""
    samples: Mapping[str, float] = field(default_factory=dict[str, float])


def families(gauges: StoreGauges) -> list[Family]:
    """Return the gauges under their names; every label value is one of a fixed few."""
    return [
        Family(
            name="agent_run_ledger_stored_runs",
            text="Runs in the store, by recorded state.",
            label="state",
            samples={str(state): count for state, count in gauges.runs.items()},
        ),
        Family(
            name="agent_run_ledger_unresolved_age_seconds",
            text="Age of the oldest call begun and not concluded in a run that nobody works on; 0 without one.",
            samples={"": gauges.unresolved_age_s},
        ),
        Family(name="agent_run_ledger_log_leaves", text="Leaves of the store's log.", samples={"": gauges.leaves}),
        Family(
            name="agent_run_ledger_store_bytes",
            text="Size of the store's files.",
            label="file",
            samples={"database": gauges.database_bytes, "wal": gauges.wal_bytes},
        ),
    ]


def exposition(gauges: StoreGauges) -> str:
    """Return the gauges in the Prometheus text exposition format, version 0.0.4."""
    lines: list[str] = []
    for family in families(gauges):
        lines += [f"# HELP {family.name} {family.text}", f"# TYPE {family.name} gauge"]
        for value, number in family.samples.items():
            label = f'{{{family.label}="{value}"}}' if family.label else ""
            lines.append(f"{family.name}{label} {number!r}")
    return "\n".join(lines) + "\n"
