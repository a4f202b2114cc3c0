"""Write the audit as Markdown: what was found, how bad it is, where, and what was not looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent_run_ledger.demo.audit.check_shape import (
    MAX_ARGUMENTS,
    MAX_COMPLEXITY,
    MAX_LINES,
    MAX_NESTING,
)
from agent_run_ledger.demo.audit.neutral import code, inline, prose
from agent_run_ledger.demo.audit.ranking import FORMULA
from agent_run_ledger.demo.audit.rules import RULES
from agent_run_ledger.demo.audit.shapes import (
    Finding,
    ImportGraph,
    MeasuredTree,
    ModuleMeasure,
    Origin,
    ParsedTree,
    Rank,
    Review,
    Severity,
    SourceTree,
    Synthesis,
)

MAX_LISTED = {Severity.HIGH: 40, Severity.MEDIUM: 40, Severity.LOW: 0}
MAX_RANKED = 20
MAX_CYCLES = 10
MAX_PER_MODULE = 25
MAX_SKIPPED = 50
EXAMPLES = 3
_COLUMNS = (
    "#",
    "module",
    "points",
    "lines of code",
    "worst function",
    "nesting",
    "imported by",
    "docstrings",
    "findings",
    "mostly for",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportCase:
    """Everything the report is written from."""

    label: str
    tree: SourceTree
    parsed: ParsedTree
    measured: MeasuredTree
    graph: ImportGraph
    ranks: tuple[Rank, ...]
    reviews: tuple[Review, ...]
    synthesis: Synthesis

    @property
    def placed(self) -> list[tuple[str, Finding]]:
        """Return every finding with its file: those of the reviews, and files that cannot be parsed."""
        reviewed = {review.path for review in self.reviews}
        placed = [(review.path, finding) for review in self.reviews for finding in review.findings]
        placed += [(m.path, m.problem) for m in self.parsed.modules if m.problem is not None and m.path not in reviewed]
        return sorted(placed, key=lambda item: (item[0], item[1].line, item[1].rule, item[1].detail))


def report_markdown(case: ReportCase) -> str:
    """Return the report: the same tree and answers give the same bytes. All foreign text in it is neutralised."""
    sections = [
        _title(case),
        _summary(case),
        _riskiest(case),
        _findings(case),
        _structure(case),
        _reviews(case),
        _left_out(case),
        _method(case),
    ]
    return "\n\n".join("\n".join(section) for section in map(list, sections) if section) + "\n"


def _title(case: ReportCase) -> Iterator[str]:
    yield f"# Audit of {inline(case.label)}"
    yield ""
    code_lines = sum(module.code_lines for module in case.measured.modules)
    yield (
        f"{_counted(len(case.tree.files), 'file')}, {code_lines:,} lines of code, "
        f"{_counted(len(case.reviews), 'module')} reviewed. Reviewer: {inline(case.synthesis.reviewer)}."
    )


def _summary(case: ReportCase) -> Iterator[str]:
    yield "## Summary"
    for paragraph in case.synthesis.paragraphs or ("The reviewer gave no summary.",):
        yield ""
        yield prose(paragraph)
    if case.synthesis.actions:
        yield ""
        yield "**What to do first**"
        yield ""
        for number, action in enumerate(case.synthesis.actions, start=1):
            yield f"{number}. {prose(action)}"


def _riskiest(case: ReportCase) -> Iterator[str]:
    measures = {module.path: module for module in case.measured.modules}
    counts = {review.path: Counter(finding.severity for finding in review.findings) for review in case.reviews}
    yield "## Riskiest modules"
    yield ""
    yield f"| {' | '.join(_COLUMNS)} |"
    yield "|--:|---|--:|--:|---|--:|--:|--:|---|---|"
    for number, rank in enumerate(case.ranks[:MAX_RANKED], start=1):
        cells = _rank_cells(rank, measures.get(rank.path), case.graph.fan_in(rank.path), counts.get(rank.path))
        yield f"| {number} | {' | '.join(cells)} |"
    yield ""
    if len(case.ranks) > MAX_RANKED:
        yield f"{_counted(len(case.ranks) - MAX_RANKED, 'more module')} with fewer points."
    yield "Findings are counted as high / medium / low; “–” means: not reviewed."


def _rank_cells(
    rank: Rank, module: ModuleMeasure | None, importers: int, counts: Counter[Severity] | None
) -> list[str]:
    found = "–" if counts is None else " / ".join(str(counts[severity]) for severity in Severity)
    if module is None:
        return [code(rank.path, cell=True), "–", "–", "cannot be parsed", "–", "–", "–", found, "–"]
    worst = "–" if module.worst is None else f"{code(module.worst.name, cell=True)} ({module.worst.complexity})"
    documented = f"{100 * module.documented // module.documentable} %" if module.documentable else "–"
    return [
        code(rank.path, cell=True),
        str(rank.points),
        str(module.code_lines),
        worst,
        str(module.nesting),
        str(importers),
        documented,
        found,
        ", ".join(label for label, _ in rank.parts[:2]) or "–",
    ]


def _findings(case: ReportCase) -> Iterator[str]:
    yield "## Findings"
    placed = case.placed
    if not placed:
        yield ""
        yield "None in the reviewed modules."
    for severity in (Severity.HIGH, Severity.MEDIUM):
        chosen = [item for item in placed if item[1].severity is severity]
        if chosen:
            yield from _listed(severity, chosen)
    low = [item for item in placed if item[1].severity is Severity.LOW]
    if low:
        yield from _tallied(low)


def _listed(severity: Severity, placed: Sequence[tuple[str, Finding]]) -> Iterator[str]:
    yield ""
    yield f"### {severity.capitalize()} ({len(placed)})"
    yield ""
    for path, finding in placed[: MAX_LISTED[severity]]:
        yield from _finding_lines(finding, f"{path}:{finding.line}")
    if len(placed) > MAX_LISTED[severity]:
        yield f"- and {len(placed) - MAX_LISTED[severity]} more, in the reviews below"


def _finding_lines(finding: Finding, place: str) -> Iterator[str]:
    title = RULES[finding.rule].title if finding.rule in RULES else "the model says"
    mark = " (by the model)" if finding.origin is Origin.MODEL else ""
    advice = f" → {prose(finding.suggestion)}" if finding.suggestion else ""
    yield f"- {code(place)} **{title}**{mark}: {prose(finding.detail)}{advice}"
    if finding.evidence:
        yield f"  <br>{code(finding.evidence)}"


def _tallied(placed: Sequence[tuple[str, Finding]]) -> Iterator[str]:
    """Low findings as a table by kind: they matter as habits, not one by one."""
    yield ""
    yield f"### Low ({len(placed)})"
    yield ""
    yield "| kind | count | modules | for example | what to do |"
    yield "|---|--:|--:|---|---|"
    by_rule: dict[str, list[tuple[str, Finding]]] = {}
    for path, finding in placed:
        by_rule.setdefault(finding.rule, []).append((path, finding))
    for rule, items in sorted(by_rule.items(), key=lambda item: (-len(item[1]), item[0])):
        title = RULES[rule].title if rule in RULES else "the model says"
        examples = ", ".join(code(f"{path}:{finding.line}", cell=True) for path, finding in items[:EXAMPLES])
        advice = RULES[rule].suggestion if rule in RULES else "see the reviews below"
        modules = len({path for path, _ in items})
        yield f"| {title} | {len(items)} | {modules} | {examples} | {prose(advice, cell=True)} |"


def _structure(case: ReportCase) -> Iterator[str]:
    graph = case.graph
    yield "## Import structure"
    yield ""
    yield (
        f"{_counted(len(graph.edges), 'import')} between modules of this tree, "
        f"{sum(1 for edge in graph.edges if edge.deferred)} of them inside functions or for type checkers only."
    )
    yield ""
    yield from _cycle_lines("Cycles at load time", graph.cycles, "none")
    yield from _cycle_lines("Cycles that wait for a call", graph.deferred_cycles, "none")
    most_imported = Counter(edge.imported for edge in graph.edges).most_common(5)
    most_importing = Counter(edge.importer for edge in graph.edges).most_common(5)
    if graph.edges:
        yield f"- Most depended upon: {_counts(most_imported)}"
        yield f"- Depending on most: {_counts(most_importing)}"
    if graph.outside:
        yield f"- From outside, by importing modules: {_counts(graph.outside[:10])}"


def _cycle_lines(title: str, cycles: Sequence[tuple[str, ...]], none: str) -> Iterator[str]:
    if not cycles:
        yield f"- {title}: {none}"
        return
    yield f"- {title}: {len(cycles)}"
    for cycle in cycles[:MAX_CYCLES]:
        yield f"  - {' → '.join(code(path) for path in cycle)}"


def _counts(items: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{code(path)} ({count})" for path, count in items)


def _reviews(case: ReportCase) -> Iterator[str]:
    if case.reviews:
        yield "## Reviews"
    for review in case.reviews:
        yield ""
        yield f"### {review.rank}. {inline(review.path)}"
        yield ""
        yield prose(review.summary)
        if review.findings:
            yield ""
        for finding in review.findings[:MAX_PER_MODULE]:
            yield f"- line {finding.line}, {finding.severity}: {prose(finding.detail)}"
        if len(review.findings) > MAX_PER_MODULE:
            yield f"- and {len(review.findings) - MAX_PER_MODULE} more of low severity or later lines"
        if review.omitted:
            yield f"- and {_counted(review.omitted, 'finding')} of the rules that are not kept: the file has too many"
        if review.dropped:
            yield f"- {_counted(review.dropped, 'finding')} of the answer named no line of this file and were dropped"


def _left_out(case: ReportCase) -> Iterator[str]:
    unread = [module for module in case.parsed.modules if module.problem is not None]
    if not case.tree.skipped and not unread:
        return
    yield "## Not audited"
    yield ""
    for module in unread:
        yield f"- {code(module.path)}: {inline(module.problem.detail) if module.problem else ''}"
    for item in case.tree.skipped[:MAX_SKIPPED]:
        yield f"- {code(item.path)}: {inline(item.reason)}"
    if len(case.tree.skipped) > MAX_SKIPPED:
        yield f"- and {len(case.tree.skipped) - MAX_SKIPPED} more"


def _method(case: ReportCase) -> Iterator[str]:
    yield "## Method and limits"
    yield ""
    yield f"- **Which modules are reviewed.** The {len(case.reviews)} with the most points: {FORMULA}."
    yield (
        f"- **Limits of the rules.** Complexity above {MAX_COMPLEXITY} (McCabe: branches, handlers, and/or, "
        f"comprehensions), more than {MAX_LINES} lines, blocks nested deeper than {MAX_NESTING}, more than "
        f"{MAX_ARGUMENTS} parameters. They are conventions, not laws: a long table of cases can be the clearest form."
    )
    yield (
        "- **What this audit does not see.** It reads each file's syntax and runs nothing: no types, no data flow, no "
        "tests, no performance, nothing about whether the program does what its users need. Only reviewed modules have "
        "findings; duplicates are looked for within one file; names used through `getattr` or strings look unused; "
        "imports made at run time are missing from the graph, and so is the parent package that an import loads first."
    )
    yield (
        "- **Who reviewed.** The rules are fixed and give the same answer every time. Where a model reviewed, its "
        "findings are marked, their evidence is the file's own line, and their judgement is the model's."
    )


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
