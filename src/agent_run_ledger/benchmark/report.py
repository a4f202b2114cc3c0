"""The report of one benchmark run: as JSON for machines, as a table for people."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from agent_run_ledger.benchmark.figures import Figure, number

FORMAT_VERSION = 1
_HEADINGS = ("figure", "value", "floor", "× floor", "target", "met")
_GAP = 2
_INDENT = "    "
_UNBOUNDED = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one run measured. `raw` holds every pair and life by measurement, `machine` what it ran on."""

    plan: str
    machine: Mapping[str, object]
    figures: Sequence[Figure]
    raw: Mapping[str, object]

    @property
    def missed(self) -> list[Figure]:
        """The figures that miss their target."""
        return [figure for figure in self.figures if figure.met is False]

    def as_json(self) -> bytes:
        """Return the report as indented JSON in UTF-8, with a final newline."""
        content = {
            "benchmark": FORMAT_VERSION,
            "plan": self.plan,
            "machine": dict(self.machine),
            "figures": [figure.as_json() for figure in self.figures],
            "missed": [figure.name for figure in self.missed],
            "raw": dict(self.raw),
        }
        return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)

    def as_table(self, width: int | None = None) -> str:
        """Return the report as a table with the floor beside each figure, then the notes, then what is missed.

        `width` in columns; by default COLUMNS or the terminal's, and no limit into a pipe. Where the table is wider,
        each figure's name has a line of its own, and longer texts are wrapped.
        """
        width = _room() if width is None else width
        rows = [_HEADINGS, *(_row(figure) for figure in self.figures)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
        wide = sum(widths) + _GAP * (len(widths) - 1) <= width
        lines = [line for row in rows for line in (_line(row, widths) if wide else _two_lines(row, widths))]
        lines.insert(1 if wide else 2, "─" * min(width, max(map(len, lines))))
        notes = [f"  {figure.name}: {figure.note}" for figure in self.figures if figure.note]
        machine = ", ".join(f"{key} {value}" for key, value in self.machine.items())
        said = (*notes, "", f"Measured on: {machine}", verdict(self.figures))
        return "\n".join((*lines, "", "Notes", *(_wrapped(line, width) for line in said)))


def verdict(figures: Sequence[Figure]) -> str:
    """Return one line that says what is met, what is missed and what was measured too little."""
    judged = [figure for figure in figures if figure.met is not None]
    missed = [figure.name for figure in judged if not figure.met]
    unsure = [figure.name for figure in figures if not figure.enough]
    said = f"{len(judged) - len(missed)} of {len(judged)} targets met."
    if missed:
        said += f" MISSED: {'; '.join(missed)}."
    if unsure:
        said += f" Too noisy to judge: {'; '.join(unsure)}."
    return said


def machine(filesystem: str) -> dict[str, object]:
    """Return what shapes the absolute numbers, the load of the last minute among it; nothing that names a host."""
    import apsw

    return {
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "apsw": apsw.apsw_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count() or 0,
        "filesystem": filesystem,
        "load": round(os.getloadavg()[0], 1),
    }


def _row(figure: Figure) -> tuple[str, ...]:
    met = {True: "yes", False: "NO", None: "–"}[figure.met]
    floor, ratio = figure.floor, figure.ratio_to_floor
    return (
        figure.name,
        f"{number(figure.value)} {figure.unit}",
        "–" if floor is None else number(floor),
        "–" if ratio is None else f"{ratio:.2f}",
        "–" if figure.target is None else str(figure.target),
        met,
    )


def _line(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [f"{row[0].ljust(widths[0])}{' ' * _GAP}{_cells(row, widths)}".rstrip()]


def _two_lines(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [row[0], f"{_INDENT}{_cells(row, widths)}".rstrip()]


def _cells(row: Sequence[str], widths: Sequence[int]) -> str:
    _, value, floor, ratio, target, met = row
    cells = (
        value.rjust(widths[1]),
        floor.rjust(widths[2]),
        ratio.rjust(widths[3]),
        target.ljust(widths[4]),
        met.ljust(widths[5]),
    )
    return (" " * _GAP).join(cells)


def _room() -> int:
    """Return how many columns a line may have: what reads from a pipe wants whole lines."""
    bounded = sys.stdout.isatty() or bool(os.environ.get("COLUMNS"))
    return shutil.get_terminal_size().columns if bounded else _UNBOUNDED


def _wrapped(line: str, width: int) -> str:
    return line if len(line) <= width else textwrap.fill(line, width, subsequent_indent="    ", break_on_hyphens=False)
