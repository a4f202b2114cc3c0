"""The named statements of a .sql file, read once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

_MARKER = re.compile(r"^-- name: ([a-z_0-9]+)$", re.MULTILINE)


@cache
def statements(*file_names: str) -> Mapping[str, str]:
    """Return the statements of `sql/<file_name>`, of one file or several, by the names in their `-- name: x` lines.

    Text before the first marker is a comment. ValueError for a name that is given twice.
    """
    found: dict[str, str] = {}
    for file_name in file_names:
        pieces = _MARKER.split(sql_text(file_name))
        for name, text in zip(pieces[1::2], pieces[2::2], strict=True):
            if name in found:
                raise ValueError(f"{file_name}: two statements are named {name}")
            found[name] = text.strip().removesuffix(";")
    return MappingProxyType(found)


@cache
def sql_text(file_name: str) -> str:
    """Return the text of a packaged .sql file."""
    from importlib.resources import files  # 14 ms: only who opens a store pays for it

    return files("agent_run_ledger.store").joinpath("sql", file_name).read_text(encoding="utf-8")
