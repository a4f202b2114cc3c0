"""The pages of the project and what can be checked in them: programs that run, and links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

_FENCE = re.compile(r"^```(?P<language>\w*)(?: (?P<mark>[^\n`]+))?\n(?P<body>.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\((?P<to>[^)\s]+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block: its line in the page, its language, its mark (`run`, `output` or None) and its text."""

    line: int
    language: str
    mark: str | None
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A block that is run, and what it must print (None: anything)."""

    line: int
    body: str
    output: str | None


def pages() -> list[Path]:
    """README, the other pages of the root, and everything below docs/ and examples/."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return [
        Block(
            line=text.count("\n", 0, found.start()) + 1,
            language=found["language"],
            mark=found["mark"],
            body=found["body"],
        )
        for found in _FENCE.finditer(text)
    ]


def programs(text: str) -> list[Program]:
    """The programs of a page; an unknown or misplaced mark is a ValueError."""
    found: list[Program] = []
    listed = blocks(text)
    for at, block in enumerate(listed):
        after = listed[at + 1] if at + 1 < len(listed) else None
        before = listed[at - 1] if at else None
        if block.mark not in (None, "run", "output"):
            raise ValueError(f"line {block.line}: a block is marked `run` or `output`, not {block.mark!r}")
        if block.mark == "run" and block.language != "python":
            raise ValueError(f"line {block.line}: only a python block can be run")
        if block.mark == "output" and (before is None or before.mark != "run"):
            raise ValueError(f"line {block.line}: an output without a program before it")
        if block.mark == "run":
            output = after.body if after is not None and after.mark == "output" else None
            found.append(Program(line=block.line, body=block.body, output=output))
    return found


def links(text: str) -> list[str]:
    """Where the links of a page lead, code blocks and code spans left out."""
    prose = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", text))
    return [found["to"] for found in _LINK.finditer(prose)]


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as Markdown tools make them."""
    headings = re.findall(r"^#+ +(.*)$", _FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[\s_-]+", "-", re.sub(r"[^\w\s-]", "", heading.lower())).strip("-") for heading in headings}
