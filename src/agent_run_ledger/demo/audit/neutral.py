"""Make foreign text harmless: for Markdown, for HTML inside it, and for a terminal."""

from __future__ import annotations

import re
import unicodedata

MAX_COMBINING = 4
MAX_FOLDING = 20
"""How many characters of white space and marks per shown one are looked at: a line may be megabytes long."""
_MARKDOWN = re.compile(r"([\\`*_\[\]#|~!{}$])")
_LINE_START = re.compile(r"^(\d*)([-+=.)])")
_LINK = re.compile(r"(?i)(://|www\.|@)")
_LINK_FORMS = {"://": "&#58;//", "@": "&#64;"}
_BACKTICKS = re.compile(r"`+")
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def visible(text: str) -> str:
    """Return the text with every control, format, bidi, surrogate and unassigned character as a visible escape.

    Escape sequences of terminals lose their introducer, so they are inert. Tabs become four spaces. More than
    MAX_COMBINING marks on one character are cut.
    """
    parts: list[str] = []
    combining = 0
    for sign in text:
        category = unicodedata.category(sign)
        combining = combining + 1 if category in ("Mn", "Me") else 0
        if sign == "\t":
            parts.append("    ")
        elif category in _INVISIBLE:
            parts.append(_escape(sign))
        elif combining <= MAX_COMBINING:
            parts.append(sign)
    return "".join(parts)


def one_line(text: str, limit: int = 400) -> str:
    """Return `visible` text on one line, white space folded, cut at `limit` characters.

    What stands beyond MAX_FOLDING × `limit` characters is not looked at.
    """
    looked_at = text[: limit * MAX_FOLDING]
    folded = visible(" ".join(looked_at.split()))
    is_whole = len(looked_at) == len(text) and len(folded) <= limit
    return folded if is_whole else folded[: limit - 1] + "…"


def inline(text: str, limit: int = 2_000) -> str:
    """Return text for a Markdown paragraph, list or table cell: no markup, HTML, link or mention survives."""
    return _LINE_START.sub(r"\1\\\2", _without_markup(one_line(text, limit)))


def code(text: str, limit: int = 200, *, cell: bool = False) -> str:
    """Return text as a Markdown code span that nothing in it can end; with `cell` it cannot end a table cell either."""
    shown = one_line(text, limit) or " "
    longest = max((len(run) for run in _BACKTICKS.findall(shown)), default=0)
    fence = "`" * (longest + 1)
    padding = " " if shown.startswith("`") or shown.endswith("`") else ""
    span = f"{fence}{padding}{shown}{padding}{fence}"
    return span.replace("|", "\\|") if cell else span


def prose(text: str, limit: int = 2_000, *, cell: bool = False) -> str:
    """Return `inline` text in which what stands between single backticks becomes a `code` span."""
    pieces = one_line(text, limit).split("`")
    if len(pieces) % 2 == 0:
        return inline(text, limit)
    parts = [(code(piece, cell=cell) if index % 2 else _without_markup(piece)) for index, piece in enumerate(pieces)]
    parts[0] = _LINE_START.sub(r"\1\\\2", parts[0])
    return "".join(parts)


def _without_markup(text: str) -> str:
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    safe = _MARKDOWN.sub(r"\\\1", safe)
    return _LINK.sub(lambda match: _LINK_FORMS.get(match.group(0), match.group(0)[:3] + "&#46;"), safe)


def _escape(sign: str) -> str:
    number = ord(sign)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
