"""The reviewer without a model: fixed rules, put into words; the same code always gets the same answer."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent_run_ledger.demo.audit.rules import RULES
from agent_run_ledger.demo.audit.shapes import Finding, ModuleMeasure, Review, Severity
from agent_run_ledger.demo.questions import ModuleCase, Question, TreeCase
from agent_run_ledger.demo.reviewers import Answer, estimate

MAX_ACTIONS = 6
CONCENTRATED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleReviewer:
    """Answers from the rules' findings and the numbers alone: it understands nothing, and says so in its label."""

    @property
    def label(self) -> str:
        """What it is."""
        return f"built-in reviewer: {len(RULES)} fixed rules, no model, tokens estimated"

    @property
    def environment(self) -> Mapping[str, object]:
        """That the rules review."""
        return {"reviewer": "rules"}

    def answer(self, question: Question) -> Answer:
        """Return the findings as JSON with a summary in words, metered like a model's answer by an estimate."""
        case = question.case
        document = _module_answer(case) if isinstance(case, ModuleCase) else _tree_answer(case)
        return estimate(question, json.dumps(document, ensure_ascii=False))


def _module_answer(case: ModuleCase) -> dict[str, object]:
    sentences = [_weight(case), *_shape(case), _place(case), _verdict(case.findings)]
    return {
        "summary": " ".join(sentence for sentence in sentences if sentence),
        "findings": [
            {
                "rule": finding.rule,
                "line": finding.line,
                "severity": str(finding.severity),
                "title": RULES[finding.rule].title,
                "detail": finding.detail,
                "suggestion": finding.suggestion,
            }
            for finding in case.findings
        ],
    }


def _weight(case: ModuleCase) -> str:
    if case.measure is None:
        return "This file cannot be parsed, so there are no numbers for it."
    reasons = " and ".join(f"{label} ({points})" for label, points in case.rank.parts[:2])
    return f"It has {case.rank.points} points, most of them for {reasons}." if reasons else ""


def _shape(case: ModuleCase) -> list[str]:
    measure = case.measure
    if measure is None:
        return []
    said = [f"{counted(measure.code_lines, 'line')} of code in {counted(measure.functions, 'function')}"]
    if measure.classes:
        said.append(f"and {counted(measure.classes, 'class', 'classes')}")
    sentences = [" ".join(said) + "."]
    if measure.worst is not None and measure.worst.complexity > 1:
        sentences.append(_heaviest(measure))
    if measure.documentable > 1:
        sentences.append(f"{measure.documented} of its {measure.documentable} public names have a docstring.")
    return sentences


def _heaviest(measure: ModuleMeasure) -> str:
    worst = measure.worst
    if worst is None:
        return ""
    share = 100 * worst.complexity // max(measure.complexity, 1)
    deep = f", nested {worst.nesting} deep" if worst.nesting > 1 else ""
    return (
        f"The heaviest function is `{worst.name}` on line {worst.line}: complexity {worst.complexity} in "
        f"{counted(worst.lines, 'line')}{deep}, {share} % of the module's total."
    )


def _place(case: ModuleCase) -> str:
    cycle = " It is part of an import cycle that runs at load time." if case.in_cycle else ""
    if not case.importers:
        return "No other module of the tree imports it." + cycle
    verb = "imports" if len(case.importers) == 1 else "import"
    return f"{counted(len(case.importers), 'other module')} {verb} it, so a change here travels.{cycle}"


def _verdict(findings: Sequence[Finding]) -> str:
    if not findings:
        return "The rules found nothing to change."
    counts = Counter(finding.severity for finding in findings)
    tally = ", ".join(f"{counts[severity]} {severity}" for severity in Severity if counts[severity])
    first = findings[0]
    return f"The rules found {tally}. Start with line {first.line}: {first.detail}; {first.suggestion}."


def _tree_answer(case: TreeCase) -> dict[str, object]:
    paragraphs = [_totals(case), _concentration(case), _patterns(case.reviews), _structure(case)]
    return {"paragraphs": [part for part in paragraphs if part], "actions": _actions(case.reviews)}


def _totals(case: TreeCase) -> str:
    modules = case.measured.modules
    documented = sum(module.documented for module in modules)
    documentable = sum(module.documentable for module in modules)
    text = (
        f"The tree has {counted(len(modules), 'module')} that can be read, with "
        f"{counted(sum(m.code_lines for m in modules), 'line')} of code in "
        f"{counted(sum(m.functions for m in modules), 'function')}."
    )
    if documentable:
        text += f" {100 * documented // documentable} % of its modules and public names have a docstring."
    if case.unparsed:
        text += f" {counted(len(case.unparsed), 'file')} cannot be parsed at all; that comes before everything else."
    return text


def _concentration(case: TreeCase) -> str:
    modules = sorted(case.measured.modules, key=lambda module: (-module.complexity, module.path))
    total = sum(module.complexity for module in modules)
    if len(modules) <= CONCENTRATED or not total:
        return ""
    share = 100 * sum(module.complexity for module in modules[:CONCENTRATED]) // total
    worst = max((m for m in modules if m.worst), key=lambda m: (m.worst.complexity if m.worst else 0, m.path))
    text = (
        f"{share} % of the total complexity is in {CONCENTRATED} of {len(modules)} modules: "
        f"{', '.join(f'`{module.path}`' for module in modules[:CONCENTRATED])}."
    )
    if worst.worst is not None:
        text += (
            f" The most complex function of all is `{worst.worst.name}` in `{worst.path}` with "
            f"{worst.worst.complexity}; above 10 a function is hard to test branch by branch."
        )
    return text


def _patterns(reviews: Sequence[Review]) -> str:
    findings = [(review.path, finding) for review in reviews for finding in review.findings]
    if not findings:
        return "The rules found nothing to change in the reviewed modules." if reviews else ""
    counts = Counter(finding.severity for _, finding in findings)
    by_rule = Counter(finding.rule for _, finding in findings)
    common = [
        f"{RULES[rule].title} ({count} in {counted(len({p for p, f in findings if f.rule == rule}), 'module')})"
        for rule, count in sorted(by_rule.items(), key=lambda item: (-item[1], item[0]))
        if rule in RULES
    ][:4]
    tally = ", ".join(f"{counts[severity]} {severity}" for severity in Severity)
    return (
        f"In {counted(len(reviews), 'reviewed module')} there are {counted(len(findings), 'finding')}: {tally}. "
        f"Most frequent: {', '.join(common)}."
    )


def _structure(case: TreeCase) -> str:
    edges = case.graph.edges
    if not edges:
        return ""
    most, importers = Counter(edge.imported for edge in edges).most_common(1)[0]
    cycles = len(case.graph.cycles)
    if cycles:
        knots = f"{counted(cycles, 'import cycle')} run at load time, where the order of imports decides what works"
    elif case.graph.deferred_cycles:
        knots = "no cycle runs at load time; the ones there are wait for a call"
    else:
        knots = "there is no import cycle"
    return (
        f"Inside the tree there are {counted(len(edges), 'import')}; {knots}. Most modules depend on `{most}` "
        f"({importers} import it)."
    )


def _actions(reviews: Sequence[Review]) -> list[str]:
    """Return what to do first: the worst findings of each module in turn, modules in the order of their rank."""
    chosen: list[tuple[Review, Finding]] = []
    for severity in Severity:
        for review in reviews:
            candidates = [finding for finding in review.findings if finding.severity is severity]
            if candidates and all(review.path != taken.path for taken, _ in chosen):
                chosen.append((review, candidates[0]))
    return [
        f"`{review.path}` line {finding.line}: {finding.detail}; {finding.suggestion}."
        for review, finding in chosen[:MAX_ACTIONS]
    ]


def counted(count: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 file`, `2,000 files`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
