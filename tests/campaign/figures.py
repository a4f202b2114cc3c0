"""What a campaign says of itself: its result file, and the table that the documentation shows of it."""

from __future__ import annotations

import platform
from typing import Any

import agent_run_ledger
from agent_run_ledger.store import sqlite_version
from agent_run_ledger.testing import ALL
from tests.campaign.playing import Told

FORMAT = 1
INSTANT = "instant"
TABLE_BEGINS, TABLE_ENDS = "<!-- written by make campaign -->\n", "<!-- until here -->\n"


def figures_of(
    told: Told,
    *,
    seeds: tuple[int, int],
    failures: int,
    duration_s: float,
    agents: dict[str, Any],
    effects: dict[str, Any],
) -> dict[str, Any]:
    """Return the content of the result file; `agents`, `effects`: the figures of these parts.

    It names no machine, no path and no time of day.
    """
    counts = told.counts
    return {
        "campaign": FORMAT,
        "kills": sum(told.kills.values()),
        "kills_by_point": {point: told.kills[point] for point in (*ALL, INSTANT)},
        "not_reached": counts["not_reached"],
        "killed_while_a_reader_looked": counts["beside_a_reader"],
        "readers_killed_beside_a_worker": counts["readers_killed_beside_a_worker"],
        "seeds": list(seeds),
        "stories": counts["stories"],
        "lives": counts["lives"],
        "processes": counts["processes"],
        "runs": counts["runs"],
        "steps": counts["steps"],
        "attempts": counts["attempts"],
        "bodies": counts["bodies"],
        "recorded": counts["recorded"],
        "restored": counts["restored"],
        "abandoned": counts["abandoned"],
        "errors": counts["errors"],
        "ends": dict(sorted(told.ends.items())),
        "acts": dict(sorted(told.acts.items())),
        "looks": dict(sorted(told.looks.items())),
        "agents": agents,
        "effects": effects,
        "failures": failures,
        "duration_s": round(duration_s),
        "versions": {
            "agent_run_ledger": agent_run_ledger.__version__,
            "python": platform.python_version(),
            "sqlite": sqlite_version(),
            "system": f"{platform.system()} {platform.machine()}",
        },
    }


def table_of(figures: dict[str, Any]) -> str:
    """Return the figures as the table of the page."""
    points = "; ".join(f"`{point}` {kills}" for point, kills in figures["kills_by_point"].items() if kills)
    first, last = figures["seeds"]
    versions = figures["versions"]
    rows = (
        ("processes killed with SIGKILL", figures["kills"]),
        ("where", points),
        ("of them while another process looked at the store", figures["killed_while_a_reader_looked"]),
        ("failures", figures["failures"]),
        ("stories (seeds), each with a store of its own", f"{figures['stories']:,} ({first}–{last})"),
        ("lives, processes", f"{figures['lives']:,}, {figures['processes']:,}"),
        ("runs, steps, attempts", f"{figures['runs']:,}, {figures['steps']:,}, {figures['attempts']:,}"),
        ("bodies that began, by the meter", figures["bodies"]),
        ("results recorded, restored", f"{figures['recorded']:,}, {figures['restored']:,}"),
        ("calls recorded as abandoned, errors recorded", f"{figures['abandoned']:,}, {figures['errors']:,}"),
        ("acts of an operator, refused ones among them", _acts(figures["acts"])),
        ("looks of `arl` beside living processes", f"{sum(figures['looks'].values()):,}"),
        *_agent_rows(figures["agents"]),
        *_effect_rows(figures["effects"]),
        ("duration, of pipelines", f"{figures['duration_s']:,} s"),
        ("versions", f"Python {versions['python']}, SQLite {versions['sqlite']}, {versions['system']}"),
    )
    lines = [f"| {what} | {told:,} |" if isinstance(told, int) else f"| {what} | {told} |" for what, told in rows]
    return "\n".join(("| figure | |", "|---|---|", *lines)) + "\n"


def with_table(page: str, figures: dict[str, Any]) -> str:
    """Return the page with its table written anew."""
    before, _, rest = page.partition(TABLE_BEGINS)
    _, _, after = rest.partition(TABLE_ENDS)
    return f"{before}{TABLE_BEGINS}\n{table_of(figures)}\n{TABLE_ENDS}{after}"


def _agent_rows(agents: dict[str, Any]) -> list[tuple[str, object]]:
    if not agents:
        return []
    points = "; ".join(f"`{point}` {kills}" for point, kills in agents["kills_by_point"].items() if kills)
    first, last = agents["seeds"]
    ends = ", ".join(f"{end} {count}" for end, count in agents["ends"].items())
    return [
        ("agents: programs (seeds), each with a store of its own", f"{agents['programs']:,} ({first}–{last})"),
        ("agents: lives, killed with SIGKILL", f"{agents['lives']:,}, {agents['kills']:,}"),
        ("agents: where (`line`: at a line of the trace)", points),
        ("agents: failures", agents["failures"]),
        ("agents: bodies that began, calls answered from the record", f"{agents['bodies']:,}, {agents['restored']:,}"),
        ("agents: unknown outcomes handed out", agents["outcomes_unknown"]),
        (
            "agents: lives of changed programs, divergences",
            f"{agents['lives_of_changed_programs']:,}, {agents['divergences']:,}",
        ),
        ("agents: how programs ended", ends),
        ("agents: duration", f"{agents['duration_s']:,} s"),
    ]


def _effect_rows(effects: dict[str, Any]) -> list[tuple[str, object]]:
    if not effects:
        return []
    points = "; ".join(f"`{point}` {kills}" for point, kills in effects["kills_by_point"].items() if kills)
    first, last = effects["seeds"]
    ends = ", ".join(f"{end} {count}" for end, count in effects["ends"].items())
    return [
        ("effects: stories (seeds), each with a store of its own", f"{effects['stories']:,} ({first}–{last})"),
        ("effects: lives, processes, killed with SIGKILL", ", ".join(f"{effects[of]:,}" for of in _LIVED)),
        ("effects: where", points),
        ("effects: failures", effects["failures"]),
        ("effects: actions, transitions", f"{effects['actions']:,}, {effects['transitions']:,}"),
        ("effects: claims, permits, effects at the target", ", ".join(f"{effects[of]:,}" for of in _SPENT)),
        ("effects: doubts recorded, calls refused", f"{effects['doubts']:,}, {effects['refused']:,}"),
        ("effects: how actions ended", ends),
        ("effects: duration", f"{effects['duration_s']:,} s"),
    ]


_LIVED, _SPENT = ("lives", "processes", "kills"), ("claims", "permits", "effects")


def _acts(acts: dict[str, int]) -> str:
    return ", ".join(f"{event} {count}" for event, count in acts.items()) or "none"
