"""The programs in an adapter's guide, each run with what its text takes for granted, in its framework's environment."""

from __future__ import annotations

import ast
import asyncio
import inspect
from typing import Any

from tests.docs.pages import ROOT, blocks


def pieces(guide: str) -> list[str]:
    """The Python blocks of a guide that its own page does not run."""
    text = (ROOT / "docs" / "guide" / guide).read_text(encoding="utf-8")
    return [block.body for block in blocks(text) if block.language == "python" and block.mark is None]


def live(piece: str, names: dict[str, Any]) -> None:
    """Run a block; `names` are those that it finds, and those that it makes. It may await, as in a notebook."""
    code = compile(piece, "the guide", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    if not code.co_flags & inspect.CO_COROUTINE:
        exec(code, names)
        return

    async def awaited() -> None:
        await eval(code, names)

    asyncio.run(awaited())
