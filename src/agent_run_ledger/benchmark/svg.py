"""The report as one SVG picture: how far each target is reached, with the floor in words beside it."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from agent_run_ledger.benchmark.figures import Figure, number
from agent_run_ledger.benchmark.report import verdict

WIDTH = 1_040
ROW = 34
TOP = 92
BAR_LEFT = 270
BAR_WIDTH = 300
SHOWN_REACH = 3.0
"""A bar ends here: what is reached three times over needs no longer one."""

_MET, _MISSED, _NEITHER = "#2e7d5b", "#b3392f", "#8a8f98"
_STYLE = (
    "text{font-family:system-ui,sans-serif;font-size:13px;fill:#1f2328}.small{font-size:11px;fill:#59636e}"
    ".title{font-size:18px;font-weight:600}.frame{fill:#ffffff}.line{stroke:#1f2328;stroke-dasharray:3 3}"
)


def picture(figures: Sequence[Figure], *, caption: str) -> str:
    """Return the SVG text. Figures without a target have no bar."""
    shown = [figure for figure in figures if figure.target is not None]
    height = TOP + ROW * len(shown) + 44
    limit_x = BAR_LEFT + BAR_WIDTH / SHOWN_REACH
    body = [
        f'<rect class="frame" width="{WIDTH}" height="{height}" rx="8"/>',
        _text(24, 36, "What a step costs", kind="title"),
        _text(24, 58, caption, kind="small"),
        _text(limit_x - 16, 82, "target", kind="small"),
        *(part for row, figure in enumerate(shown) for part in _row(figure, TOP + ROW * row)),
        f'<line class="line" x1="{limit_x:.0f}" x2="{limit_x:.0f}" y1="{TOP - 4}" y2="{height - 44}"/>',
        _text(24, height - 18, verdict(figures), kind="small"),
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    title = f"<title>{escape(verdict(figures))}</title><style>{_STYLE}</style>"
    return f'{head} role="img">\n{title}\n' + "\n".join(body) + "\n</svg>\n"


def _row(figure: Figure, y: int) -> list[str]:
    colour = {True: _MET, False: _MISSED, None: _NEITHER}[figure.met]
    width = bar_width(figure)
    floor, ratio = figure.floor, figure.ratio_to_floor
    value = f"{number(figure.value)} {figure.unit}"
    beside = "" if floor is None or ratio is None else f"floor {number(floor)}, {ratio:.2f} × it"
    return [
        _text(24, y + 18, figure.name),
        f'<rect x="{BAR_LEFT}" y="{y + 5}" width="{width:.0f}" height="18" rx="3" fill="{colour}"/>',
        _text(BAR_LEFT + BAR_WIDTH + 16, y + 14, f"{value}   (target {figure.target})"),
        _text(BAR_LEFT + BAR_WIDTH + 16, y + 28, beside, kind="small"),
    ]


def bar_width(figure: Figure) -> float:
    """Return the length of a figure's bar in pixels: up to the line for a target just met, full at three times."""
    if figure.reach is None:  # nothing of what should be nothing: a full bar
        return float(BAR_WIDTH) if figure.met else 0.0
    return BAR_WIDTH * min(figure.reach, SHOWN_REACH) / SHOWN_REACH


def _text(x: float, y: int, words: str, *, kind: str = "") -> str:
    styled = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.0f}" y="{y}"{styled}>{escape(words)}</text>'
