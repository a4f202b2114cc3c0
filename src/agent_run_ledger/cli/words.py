"""Numbers, times and foreign text as words that are safe and short enough for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

MAX_LISTED = 20
MAX_ERROR = 300
MAX_REASON = 120
_KIB = 1024


def clean(text: object) -> str:
    """Return the text on one line: what is not printable (escapes, newlines, bidi marks) is written as its code.

    What a run, a step or an error is called was chosen by other programs, perhaps by a model: on a terminal it must
    not move the cursor, set a title, hide or reorder what stands beside it.
    """
    string = str(text)
    return string if string.isprintable() else "".join(ch if ch.isprintable() else _code_of(ch) for ch in string)


def clean_lines(text: str) -> list[str]:
    """Return the text as lines, each made safe as `clean` does; tabs become four spaces."""
    return [clean(line.replace("\t", "    ")) for line in text.split("\n")]


def size_words(count: int) -> str:
    """Return a number of bytes as "512 B", "1.5 KiB", "12.0 MiB"."""
    if count < _KIB:
        return f"{count} B"
    size = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        size /= _KIB
        if size < _KIB:
            return f"{size:.1f} {unit}"
    return f"{size / _KIB:.1f} TiB"


def duration_words(duration_ms: int) -> str:
    """Return a duration as "7 ms", "1.25 s", "2 min 05 s", "3 h 10 min"; a negative one as "clock changed"."""
    if duration_ms < 0:
        return "clock changed"
    if duration_ms < 1000:
        return f"{duration_ms} ms"
    seconds = duration_ms / 1000
    if seconds < 60:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} days"


def ago_words(then_ms: int, now_ms: int) -> str:
    """Return how long ago a moment was, as "just now", "12 s ago", "3 h ago"; "in the future" after now."""
    seconds = (now_ms - then_ms) // 1000
    if seconds < -1:
        return "in the future"
    for limit, width, unit in ((60, 1, "s"), (3600, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return "just now" if seconds < 1 else f"{seconds // width} {unit} ago"
    return f"{seconds // 86_400} days ago"


def iso(time_ms: int) -> str:
    """Return Unix milliseconds as RFC 3339 in UTC with milliseconds; out of range, the number itself."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return str(time_ms)


def counted(count: int, noun: str) -> str:
    """Return "1 step", "20 steps", "1,000 steps"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def leaves_words(count: int) -> str:
    """Return "1 leaf", "20 leaves"."""
    return "1 leaf" if count == 1 else f"{count:,} leaves"


def listed(names: Sequence[str], *, limit: int = MAX_LISTED, rest: str = " (all with --json)") -> str:
    """Return the names with commas, at most `limit`, then how many more there are and where to find them."""
    if len(names) <= limit:
        return ", ".join(names)
    return f"{', '.join(names[:limit])}, and {len(names) - limit:,} more{rest}"


def first_line(text: str, *, limit: int = MAX_ERROR) -> str:
    """Return the first line that says something, at most `limit` characters; "…" ends what was cut."""
    whole = text.strip()
    line = whole.splitlines()[0].rstrip() if whole else ""
    kept = line if len(line) <= limit else line[:limit].rstrip()
    return kept if kept == whole else f"{kept} …"


def _code_of(character: str) -> str:
    number = ord(character)
    names = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 13: "\\r"}
    if number in names:
        return names[number]
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}" if number < 65_536 else f"\\U{number:08x}"
