"""Prepares pages for the site: marks that only tests read are dropped, pictures of bench/results brought along."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_MARKED = re.compile(r"^```(\w+) (?:run|output)$", re.MULTILINE)
_RESULTS = Path(__file__).resolve().parent.parent / "bench" / "results"
_TO_RESULTS = re.compile(r"(!\[[^\]]*\]\()(?:\.\./)+bench/results/")


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Put the pictures of the results beside the pages of the reference: only what is below docs/ is in the site."""
    from mkdocs.structure.files import File

    for picture in sorted(_RESULTS.glob("*.svg")):
        files.append(File.generated(config, f"reference/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page with plain fences, ```` ```python ```` for ```` ```python run ````, and with the site's pictures.

    The pages that show results are all in the reference, where `on_files` puts the pictures.
    """
    return _TO_RESULTS.sub(r"\1", _MARKED.sub(r"```\1", markdown))
