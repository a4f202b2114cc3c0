"""The glossary defines each word once, and the table of limits names tests that exist."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.house.tree import LIMITS, missing_test

TERMS = {
    "action", "admission", "approval", "attempt", "auditor", "checkpoint", "claim", "dispatch", "effect", "epoch",
    "evidence", "executor", "fence", "fingerprint", "generation", "issuer", "observation", "prepared", "receiver",
    "reconciliation", "record", "request", "revocation", "run", "step", "successor", "target", "unresolved",
    "witness", "worker",
}  # fmt: skip


def _sections(text: str) -> dict[str, list[str]]:
    """The defined words of the glossary, by section, in order."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return {
        title: re.findall(r"^- \*\*(.+?)\*\*: \S", body, re.MULTILINE)
        for title, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def test_the_glossary_defines_every_term_once_in_order(root: Path) -> None:
    sections = _sections((root / "docs" / "glossary.md").read_text(encoding="utf-8"))
    defined = [word for words in sections.values() for word in words]
    assert TERMS - set(defined) == set()
    assert [word for word, count in Counter(defined).items() if count > 1] == []
    assert all(words == sorted(words) for words in sections.values())


def test_the_glossary_knows_every_word_of_the_style_guide(root: Path, shared: Path) -> None:
    style = (shared / "design" / "STYLE.md").read_text(encoding="utf-8")
    words = re.search(r"^## Words[^\n]*\n(.+?)$", style, re.MULTILINE)
    assert words is not None
    heads = [re.split(r"[:(]", part)[0] for part in words[1].split(" · ")]
    listed = {word for head in heads for word in re.split(r"[,/\s]+", head) if word}
    defined = _sections((root / "docs" / "glossary.md").read_text(encoding="utf-8"))
    assert len(listed) > 20
    assert listed - {word for words in defined.values() for word in words} == set()


def test_every_claim_names_tests_that_exist_and_says_what_they_leave_open() -> None:
    rows = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in LIMITS.read_text(encoding="utf-8").splitlines()
        if line.startswith("|")
    ]
    assert rows[0] == ["Claim", "Shown by", "Not shown"]
    claims = rows[2:]
    assert claims
    wrong: list[str] = []
    for row in claims:
        if len(row) != 3 or not all(row):
            wrong.append(f"not three filled cells: {row}")
            continue
        named = re.findall(r"`(tests/[^`]+)`", row[1])
        wrong += [f"no test named: {row[0]}"] if not named else []
        named += re.findall(r"`(tests/[^`]+)`", row[2])  # a limit may have a test of its own
        wrong += [flaw for test in named if (flaw := missing_test(test))]
    assert wrong == []
