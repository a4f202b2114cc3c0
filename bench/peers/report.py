"""The report of one run as JSON content: who was measured, with what, on what machine, and what came out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bench.peers import summary
from bench.peers.measure import SLOW_BODY_MS, Plan, Raw
from bench.peers.roster import Contender, Side

FORMAT_VERSION = 1

Report = dict[str, Any]
Packages = Mapping[str, tuple[str, str]]


def assemble(
    contenders: Sequence[Contender],
    raws: dict[str, Raw],
    installed: Mapping[str | None, Packages],
    *,
    plan: Plan,
    machine: Mapping[str, object],
    took_s: float,
) -> Report:
    """Return the report. `installed` holds version and licence of each package, by environment.

    A contender without an environment has no entry in `installed` and its reason in `raws`.
    """
    raws = {name: Raw(**rounded(asdict(raw))) for name, raw in raws.items()}  # so the kept raw numbers give the figures
    figures = summary.figures(raws)
    return {
        "peers": FORMAT_VERSION,
        "plan": {**asdict(plan), "slow_body_ms": SLOW_BODY_MS},
        "machine": dict(machine),
        "took_s": round(took_s, 1),
        "contenders": [
            {
                "name": one.name,
                "title": one.title,
                "side": one.side.value,
                "versions": _versions(one, installed),
                "settings": raws[one.name].settings,
                "trouble": raws[one.name].trouble,
                **rounded(figures[one.name]),
            }
            for one in contenders
        ],
        "licences": {
            name: {package: f"{version}, {licence}" for package, (version, licence) in packages.items()}
            for name, packages in sorted((key or "ours", value) for key, value in installed.items() if key)
        },
        "raw": {name: asdict(raw) for name, raw in raws.items()},
    }


def as_text(report: Report) -> str:
    """Return the report as indented JSON with a final newline."""
    return json.dumps(report, indent=2, ensure_ascii=False) + "\n"


def troubles(report: Report) -> list[str]:
    """Return one line for each contender that was not measured, or not to the end."""
    return [f"{one['title']}: {one['trouble']}" for one in report["contenders"] if one["trouble"]]


def floor_of(report: Report) -> Report:
    """Return the contender that every ratio is a ratio to."""
    return next(one for one in report["contenders"] if one["side"] == Side.FLOOR.value)


def rounded(value: Any) -> Any:
    """Return JSON content with every float at four significant digits: more is noise, and noise is no difference."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(inner) for inner in value]
    return value


def _versions(one: Contender, installed: Mapping[str | None, Packages]) -> dict[str, str]:
    there = installed.get(one.environment, {})
    return {name: f"{there[name][0]}, {there[name][1]}" for name in one.packages if name in there}
