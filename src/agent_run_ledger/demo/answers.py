"""Read a reviewer's answer: JSON where it kept to the form, its plain words where it did not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from agent_run_ledger.demo.audit.check import finding_order
from agent_run_ledger.demo.audit.rules import MAX_EVIDENCE, RULES
from agent_run_ledger.demo.audit.shapes import Finding, Origin, Severity

MAX_WORDS = 2_000
MAX_ITEMS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleAnswer:
    """A summary, findings that can be placed in the file, and how many could not."""

    summary: str
    findings: tuple[Finding, ...]
    dropped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeAnswer:
    """Paragraphs and actions over the whole tree."""

    paragraphs: tuple[str, ...]
    actions: tuple[str, ...]


def read_module_answer(text: str, lines: Sequence[str], known: Sequence[Finding]) -> ModuleAnswer:
    """Return summary and findings of an answer, joined with the `known` ones of the rules.

    The evidence of a finding is the file's own line, never what the answer claims it says. A finding that names no
    line of the file is dropped and counted; one that repeats a known rule at its line is left out.
    """
    answer = _object(text)
    if answer is None:
        return ModuleAnswer(summary=_words(text), findings=tuple(known), dropped=0)
    places = {(finding.rule, finding.line) for finding in known}
    findings = list(known)
    dropped = 0
    for item in _list(answer.get("findings")):
        finding = _finding(item, lines)
        if finding is None:
            dropped += 1
        elif (finding.rule, finding.line) not in places:
            findings.append(finding)
    summary = _words(answer.get("summary")) or "The reviewer gave no summary."
    return ModuleAnswer(summary=summary, findings=tuple(sorted(findings, key=finding_order)), dropped=dropped)


def read_tree_answer(text: str) -> TreeAnswer:
    """Return paragraphs and actions; an answer that is no JSON object becomes its own paragraphs."""
    answer = _object(text)
    if answer is None:
        parts = [_words(part) for part in text.split("\n\n")]
        return TreeAnswer(paragraphs=tuple(part for part in parts if part)[:MAX_ITEMS], actions=())
    return TreeAnswer(
        paragraphs=tuple(_words(part) for part in _list(answer.get("paragraphs")) if _words(part)),
        actions=tuple(_words(part) for part in _list(answer.get("actions")) if _words(part)),
    )


def _object(text: str) -> dict[str, Any] | None:
    text = text.strip()
    if text.startswith("```") and text.endswith("```"):
        text = text.removesuffix("```").partition("\n")[2]
    try:
        answer: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", answer) if isinstance(answer, dict) else None


def _finding(item: object, lines: Sequence[str]) -> Finding | None:
    if not isinstance(item, dict):
        return None
    parts = cast("dict[str, Any]", item)
    line = parts.get("line")
    if not isinstance(line, int) or isinstance(line, bool) or not 1 <= line <= len(lines):
        return None
    severity = parts.get("severity")
    rule = parts.get("rule")
    detail = ": ".join(part for part in (_words(parts.get("title")), _words(parts.get("detail"))) if part)
    return Finding(
        rule=rule if isinstance(rule, str) and rule in RULES else "model",
        severity=Severity(severity) if severity in [str(one) for one in Severity] else Severity.LOW,
        line=line,
        subject="",
        detail=detail or "no detail given",
        suggestion=_words(parts.get("suggestion")),
        evidence=lines[line - 1].strip()[:MAX_EVIDENCE],
        origin=Origin.MODEL,
    )


def _list(value: object) -> list[object]:
    return cast("list[object]", value)[:MAX_ITEMS] if isinstance(value, list) else []


def _words(value: object) -> str:
    """Return a string that can be stored and shown: no lone surrogates, bounded length; empty for other types."""
    if not isinstance(value, str):
        return ""
    return value.strip()[:MAX_WORDS].encode("utf-8", "backslashreplace").decode("utf-8")
