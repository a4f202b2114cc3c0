"""A recorded value as lines for a terminal: the value where this program can build it, else its stored words."""

from __future__ import annotations

import json
import pprint
from typing import cast

from agent_run_ledger.cli.words import clean, clean_lines, counted
from agent_run_ledger.ledger.stored_words import in_words
from agent_run_ledger.ledger.values import ReadValue

MAX_LINES = 40
MAX_LINE = 2_000
_WIDTH = 100


def value_lines(value: ReadValue, *, full: bool) -> list[str]:
    """Return a value as safe lines, shortened unless `full`; the last line then says how much is missing."""
    lines = clean_lines(_text(value))
    if full:
        return lines
    shown = [line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}…" for line in lines[:MAX_LINES]]
    if len(lines) > MAX_LINES or shown != lines[:MAX_LINES]:
        shown.append(f"(shortened: {counted(len(lines), 'line')} in all; --payloads shows everything)")
    return shown


def value_note(value: ReadValue) -> str:
    """Return why what is shown is not the value itself, empty where it is."""
    if value.decoded:
        return ""
    return clean(value.why) if value.stored is None else f"stored form, because: {clean(value.why)}"


def _text(value: ReadValue) -> str:
    if not value.decoded:
        return "" if value.stored is None else _stored(value.stored)
    if isinstance(value.value, str):
        return value.value
    if _is_json(value.value):
        return _json(value.value)
    try:
        return pprint.pformat(value.value, width=_WIDTH, sort_dicts=False)
    except Exception:  # a repr of the user's classes may do anything
        return _stored(value.stored)


def _stored(node: object) -> str:
    words = in_words(node)
    return words if isinstance(words, str) else _json(words)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def _is_json(value: object) -> bool:
    """Return whether the value is exactly of JSON's types, so that nothing is hidden by writing it as JSON."""
    if type(value) is dict:
        items = cast("dict[object, object]", value)
        return all(type(key) is str for key in items) and all(map(_is_json, items.values()))
    if type(value) is list:
        return all(map(_is_json, cast("list[object]", value)))
    return value is None or type(value) in (str, int, float, bool)
