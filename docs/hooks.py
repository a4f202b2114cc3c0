"""Prepares pages for the site: marks that only tests read are dropped, pictures of bench/results brought along."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_MARKED = re.compile(r"^```(\w+) (?:run|output)$", re.MULTILINE)
_RESULTS = Path(__file__).resolve().parent.parent / "bench" / "results"
_IN_GUIDE = {"breaker"}
_TO_RESULTS = re.compile(r"(!\[[^\]]*\]\()(?:\.\./)+bench/results/")


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Put the pictures of the results beside the pages that show them: only what is below docs/ is in the site."""
    from mkdocs.structure.files import File

    for picture in sorted(_RESULTS.glob("*.svg")):
        folder = "guide" if picture.stem in _IN_GUIDE else "reference"
        files.append(File.generated(config, f"{folder}/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page with plain fences, ```` ```python ```` for ```` ```python run ````, and with the site's pictures.

    A page that shows a result is in the folder where `on_files` puts the picture.
    """
    return _TO_RESULTS.sub(r"\1", _MARKED.sub(r"```\1", markdown))
