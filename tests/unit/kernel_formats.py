"""The golden files of the kernel's formats and the worked examples of their pages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent


def golden(name: str) -> Any:
    """What an earlier version wrote; these files only ever grow."""
    return json.loads((ROOT / "tests" / "golden" / "kernel" / f"{name}.json").read_text(encoding="utf-8"))


def worked_example(page: str) -> Any:
    """The JSON block under the page's heading "Worked example"."""
    text = (ROOT / "docs" / "formats" / f"{page}.md").read_text(encoding="utf-8")
    _, example = text.split("\n## Worked example\n")
    (block,) = re.findall(r"^```json\n(.*?)^```$", example, re.MULTILINE | re.DOTALL)
    return json.loads(block)
