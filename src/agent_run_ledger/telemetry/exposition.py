"""The gauges of a store under the names that Prometheus and JSON have for them, and as Prometheus' text format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent_run_ledger.kernel.gauges import EffectGauges, StoreGauges


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One gauge with its samples: the value of the one label, and the number. Without a label: one sample for "".

    `key` is its name in JSON, where "{}" stands for the label's value, each of which then has a name of its own.
    `is_state`: one sample is 1 and all others 0, and JSON has the value of that one.
    """

    name: str
    key: str
    text: str
    label: str = ""
    samples: Mapping[str, float] = field(default_factory=dict[str, float])
    is_state: bool = False


def families(gauges: StoreGauges) -> list[Family]:
    """Return the gauges under their names; every label value is one of a fixed few."""
    found = _of_runs(gauges)
    return found if gauges.effects is None else [*found, *_of_effects(gauges.effects)]


def gauges_json(gauges: StoreGauges) -> dict[str, object]:
    """Return the gauges as JSON has them; `effects` None for a store that has none."""
    effects = None if gauges.effects is None else _json(_of_effects(gauges.effects))
    return {**_json(_of_runs(gauges)), "effects": effects}


def _json(found: list[Family]) -> dict[str, object]:
    said: dict[str, object] = {}
    for family in found:
        if not family.label:
            said[family.key] = family.samples[""]
        elif family.is_state:
            said[family.key] = next(value for value, number in family.samples.items() if number)
        elif "{}" in family.key:
            said |= {family.key.format(value): number for value, number in family.samples.items()}
        else:
            said[family.key] = dict(family.samples)
    return said


def _of_runs(gauges: StoreGauges) -> list[Family]:
    return [
        Family(
            name="agent_run_ledger_stored_runs",
            key="runs",
            text="Runs in the store, by recorded state.",
            label="state",
            samples={str(state): count for state, count in gauges.runs.items()},
        ),
        Family(
            name="agent_run_ledger_unresolved_age_seconds",
            key="unresolved_age_seconds",
            text="Age of the oldest call or action of which nobody knows how it ended; 0 without one.",
            samples={"": gauges.unresolved_age_s},
        ),
        Family(
            name="agent_run_ledger_quarantined_runs",
            key="quarantined",
            text="Runs in QUARANTINE, by why: loop, budget, other.",
            label="why",
            samples={str(why): count for why, count in gauges.quarantined.items()},
        ),
        Family(
            name="agent_run_ledger_log_leaves",
            key="leaves",
            text="Leaves of the store's log.",
            samples={"": gauges.leaves},
        ),
        Family(
            name="agent_run_ledger_store_bytes",
            key="{}_bytes",
            text="Size of the store's files.",
            label="file",
            samples={"database": gauges.database_bytes, "wal": gauges.wal_bytes},
        ),
    ]


def _of_effects(gauges: EffectGauges) -> list[Family]:
    from agent_run_ledger.kernel.effects.states import LedgerState

    return [
        Family(
            name="agent_run_ledger_stored_actions",
            key="actions",
            text="Actions in the store, by state.",
            label="state",
            samples={str(state): count for state, count in gauges.actions.items()},
        ),
        Family(
            name="agent_run_ledger_doubt_age_seconds",
            key="doubt_age_seconds",
            text="Age of the oldest doubt about an action that nothing has ended; 0 without one.",
            samples={"": gauges.doubt_age_s},
        ),
        Family(
            name="agent_run_ledger_stranded_claims",
            key="stranded_claims",
            text="Claims whose permit or window is over by every clock, and whose worker recorded nothing.",
            samples={"": gauges.stranded},
        ),
        Family(
            name="agent_run_ledger_waiting_approval_age_seconds",
            key="waiting_approval_age_seconds",
            text="Age of the oldest proposal that waits for approvals in its window; 0 without one.",
            samples={"": gauges.waiting_age_s},
        ),
        Family(
            name="agent_run_ledger_unclaimed_age_seconds",
            key="unclaimed_age_seconds",
            text="Since when the oldest approved action in its window is claimed by nobody; 0 without one.",
            samples={"": gauges.unclaimed_age_s},
        ),
        Family(
            name="agent_run_ledger_ledger_state",
            key="ledger_state",
            text="1 for the state of the ledger's authority as the store and this clock say, 0 for the others.",
            label="state",
            samples={str(state): float(state is gauges.state) for state in LedgerState},
            is_state=True,
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
