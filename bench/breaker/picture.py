"""The sweep as one SVG picture: F1 and healthy runs halted over the threshold, a line for each max_repetitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 1_040, 560
PANEL_WIDTH, PANEL_TOP, PANEL_HEIGHT = 372, 112, 320
LEFTS = (72, 560)
LEGEND_TOP = PANEL_TOP + PANEL_HEIGHT + 58

_COLOURS = {2: "#b3392f", 3: "#2e7d5b", 4: "#3b6ea8", 5: "#7a5195", 6: "#8a6d1f"}
_STYLE = (
    "text{font-family:system-ui,sans-serif;font-size:13px;fill:#1f2328}.small{font-size:11px;fill:#59636e}"
    ".title{font-size:18px;font-weight:600}.frame{fill:#ffffff}.grid{stroke:#d8dee4;stroke-width:1}"
    ".line{fill:none;stroke-width:2.2}.inputs{stroke-dasharray:5 4;stroke-width:1.4;opacity:.75}"
    ".now{stroke:#1f2328;stroke-dasharray:2 3}"
)

Point = dict[str, Any]


def picture(report: dict[str, Any]) -> str:
    """Return the SVG text. Solid lines are the rule "outcome", dashed ones "inputs"."""
    sweep = report["sweep"]
    scored = report["all"]["scored"]
    now = report["policy"]["threshold"]
    body = [
        f'<rect class="frame" width="{WIDTH}" height="{HEIGHT}" rx="8"/>',
        _text(24, 36, "The threshold matters little, what came out matters most", kind="title"),
        _text(24, 58, f"{scored} labelled real runs; solid: inputs and outcomes, dashed: inputs alone", kind="small"),
        *_panel(sweep, LEFTS[0], "f1", "F1 of stuck runs", now),
        *_panel(sweep, LEFTS[1], "healthy_halted", "share of healthy runs halted", now),
        *_legend(sorted({one["max_repetitions"] for one in sweep})),
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    title = f"<title>F1 over threshold and repetitions</title><style>{_STYLE}</style>"
    return f'{head} role="img">\n{title}\n' + "\n".join(body) + "\n</svg>\n"


def place(left: float, lowest: float, threshold: float, value: float) -> tuple[float, float]:
    """Return where a value is drawn: thresholds from `lowest` to 1 across the panel, values from 0 to 1 upwards."""
    across = (threshold - lowest) / (1 - lowest)
    return left + PANEL_WIDTH * across, PANEL_TOP + PANEL_HEIGHT * (1 - value)


def _panel(sweep: Sequence[Point], left: int, figure: str, title: str, now: float) -> list[str]:
    lowest = min(one["threshold"] for one in sweep)
    body = [_text(left, PANEL_TOP - 16, title)]
    for tenth in range(0, 11, 2):
        _, y = place(left, lowest, 1, tenth / 10)
        body.append(f'<line class="grid" x1="{left}" x2="{left + PANEL_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        body.append(_text(left - 28, y + 4, f"{tenth / 10:.1f}", kind="small"))
    for tenth in range(round(lowest * 10), 11):
        x, bottom = place(left, lowest, tenth / 10, 0)
        body.append(_text(x - 8, bottom + 18, f"{tenth / 10:.1f}", kind="small"))
    body.append(_text(left + PANEL_WIDTH / 2 - 32, PANEL_TOP + PANEL_HEIGHT + 36, "threshold", kind="small"))
    x, bottom = place(left, lowest, now, 0)
    body.append(f'<line class="now" x1="{x:.1f}" x2="{x:.1f}" y1="{PANEL_TOP}" y2="{bottom:.1f}"/>')
    body.append(_text(x - 38, PANEL_TOP - 2, f"default {now:g}", kind="small"))
    lines: dict[tuple[str, int], list[Point]] = {}
    for one in sweep:
        if one[figure] is not None:
            lines.setdefault((one["rule"], one["max_repetitions"]), []).append(one)
    for (rule, repetitions), points in sorted(lines.items()):
        places = (place(left, lowest, one["threshold"], one[figure]) for one in points)
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        body.append(f'<polyline class="line {rule}" stroke="{_COLOURS[repetitions]}" points="{path}"/>')
    return body


def _legend(repetitions: Sequence[int]) -> list[str]:
    body = [_text(LEFTS[0], LEGEND_TOP + 14, "max_repetitions")]
    for at, count in enumerate(repetitions):
        x = LEFTS[0] + 130 + 90 * at
        for kind, y in (("outcome", LEGEND_TOP + 6), ("inputs", LEGEND_TOP + 14)):
            colour = _COLOURS[count]
            body.append(f'<line class="line {kind}" stroke="{colour}" x1="{x}" x2="{x + 36}" y1="{y}" y2="{y}"/>')
        body.append(_text(x + 44, LEGEND_TOP + 14, str(count)))
    return body


def _text(x: float, y: float, words: str, *, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'
