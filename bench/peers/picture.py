"""The report as one SVG picture: steps per second of each contender, beside what a kill cost it."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape

from agent_run_ledger.benchmark.figures import number
from bench.peers.report import Report

WIDTH = 1_040
ROW = 40
TOP = 104
BAR_LEFT = 296
BAR_WIDTH = 380
WORDS_LEFT = BAR_LEFT + BAR_WIDTH + 16
WORDS = 54
"""Small letters that fit between a bar and the edge."""

_COLOURS = {"floor": "#8a8f98", "ours": "#2e7d5b", "peer": "#3b6ea8"}
_STYLE = (
    "text{font-family:system-ui,sans-serif;font-size:13px;fill:#1f2328}.small{font-size:11px;fill:#59636e}"
    ".title{font-size:18px;font-weight:600}.frame{fill:#ffffff}.whisker{stroke:#1f2328;stroke-width:1.5}"
)


def picture(report: Report) -> str:
    """Return the SVG text. A bar is the median, the line across its end reaches from the slowest to the fastest."""
    rows = report["contenders"]
    plan, machine = report["plan"], report["machine"]
    height = TOP + ROW * len(rows) + 40
    longest = max((one["steps_per_s"]["high"] for one in rows if one["steps_per_s"]), default=1.0)
    said = f"{plan['rounds']} rounds of {plan['steps']:,} steps that return 1 KiB, one after the other"
    body = [
        f'<rect class="frame" width="{WIDTH}" height="{height}" rx="8"/>',
        _text(24, 36, "Recorded steps per second, in one run on one machine", kind="title"),
        _text(24, 58, said, kind="small"),
        _text(24, 74, ", ".join(f"{key} {value}" for key, value in machine.items()), kind="small"),
        *(part for at, one in enumerate(rows) for part in _row(one, TOP + ROW * at, longest)),
        _text(
            24,
            height - 16,
            "Bars: median; thin lines: slowest to fastest round. The kills hit bodies that take no time, the worst "
            "case for a background writer.",
            kind="small",
        ),
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    title = f"<title>Recorded steps per second</title><style>{_STYLE}</style>"
    return f'{head} role="img">\n{title}\n' + "\n".join(body) + "\n</svg>\n"


def beside(one: dict[str, Any]) -> tuple[str, str]:
    """Return the two lines of words beside a bar: the speed with its ratio, and what kills did."""
    speed, ratio, killed = one["steps_per_s"], one["floor_to_it"], one["kills"]
    if speed is None:
        return "not measured", (one["trouble"] or "")[:WORDS]
    first = f"{'' if one['quiet'] else 'noisy: '}{number(speed['median'])} steps/s"
    if ratio is not None:
        first += f" · floor ÷ it = {ratio['median']:.1f}"
    if killed is None:
        return first, ""
    if not killed["with_loss"]:
        return first, f"after {killed['count']} of {killed['count']} kills no finished step ran again"
    return (
        first,
        f"after {killed['with_loss']} of {killed['count']} kills finished steps ran again, up to "
        f"{killed['most_run_again']}",
    )


def _row(one: dict[str, Any], y: int, longest: float) -> list[str]:
    first, second = beside(one)
    words = [
        _text(24, y + 18, one["title"]),
        _text(WORDS_LEFT, y + 14, first),
        _text(WORDS_LEFT, y + 28, second, kind="small"),
    ]
    speed = one["steps_per_s"]
    if speed is None:
        return words
    width, low, high = (BAR_WIDTH * speed[key] / longest for key in ("median", "low", "high"))
    colour = _COLOURS[one["side"]]
    return [
        *words,
        f'<rect x="{BAR_LEFT}" y="{y + 5}" width="{width:.0f}" height="18" rx="3" fill="{colour}"/>',
        f'<line class="whisker" x1="{BAR_LEFT + low:.0f}" x2="{BAR_LEFT + high:.0f}" y1="{y + 14}" y2="{y + 14}"/>',
    ]


def _text(x: float, y: int, words: str, *, kind: str = "") -> str:
    styled = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.0f}" y="{y}"{styled}>{escape(words)}</text>'
