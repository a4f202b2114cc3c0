"""Prepares pages for the site: a fence keeps its language and loses the marks that only tests read."""

from __future__ import annotations

import re
from typing import Any

_MARKED = re.compile(r"^```(\w+) (?:run|output)$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page with ```` ```python run ```` as ```` ```python ````, which Markdown tools understand."""
    return _MARKED.sub(r"```\1", markdown)
