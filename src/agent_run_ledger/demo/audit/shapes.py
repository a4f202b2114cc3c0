"""The values that pass from step to step of the audit: plain, immutable, with integers where a float could round."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How much a finding matters: a likely fault, a trap, or a burden for readers."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Origin(StrEnum):
    """Who found it: a fixed rule, or a model."""

    RULES = "rules"
    MODEL = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One Python file as it was when it was collected. `path` is for people, `location` opens it again."""

    path: str
    location: str
    names: tuple[str, ...]
    size_bytes: int
    sha256_hex: str
    blank: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A file or folder that is not part of the audit, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTree:
    """Every file of the audit in the order of their paths, and what was left out."""

    files: tuple[SourceFile, ...]
    skipped: tuple[Skipped, ...]

    @property
    def reviewable(self) -> int:
        """Return how many files hold anything to review."""
        return sum(1 for file in self.files if not file.blank)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing worth changing, with its place, its evidence and a suggestion. Lines count from 1."""

    rule: str
    severity: Severity
    line: int
    subject: str
    detail: str
    suggestion: str
    evidence: str = ""
    origin: Origin = Origin.RULES


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportStatement:
    """One import as written. `deferred` imports run later or never: in a function, or for type checkers only."""

    line: int
    level: int
    module: str
    names: tuple[str, ...]
    deferred: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedModule:
    """What parsing one file gave: its import statements, or the finding that says why it cannot be parsed."""

    path: str
    imports: tuple[ImportStatement, ...]
    problem: Finding | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedTree:
    """One ParsedModule for every collected file, in the same order."""

    modules: tuple[ParsedModule, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionMeasure:
    """One function: its lines, arguments, deepest block and cyclomatic complexity."""

    name: str
    line: int
    lines: int
    arguments: int
    nesting: int
    complexity: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleMeasure:
    """The numbers of one module: `worst` is its most complex function and `longest` its longest, if any."""

    path: str
    lines: int
    code_lines: int
    functions: int
    classes: int
    complexity: int
    complex_functions: int
    nesting: int
    documented: int
    documentable: int
    worst: FunctionMeasure | None
    longest: FunctionMeasure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTree:
    """One ModuleMeasure for every file that could be parsed, in the order of the files."""

    modules: tuple[ModuleMeasure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportEdge:
    """`importer` imports `imported` (both paths of the audit) first at `line`."""

    importer: str
    imported: str
    line: int
    deferred: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportGraph:
    """Who imports whom inside the audit. A cycle is a shortest closed walk, first and last path equal."""

    edges: tuple[ImportEdge, ...]
    cycles: tuple[tuple[str, ...], ...]
    deferred_cycles: tuple[tuple[str, ...], ...]
    outside: tuple[tuple[str, int], ...]

    def fan_in(self, path: str) -> int:
        """Return how many modules of the audit import this one."""
        return sum(1 for edge in self.edges if edge.imported == path)

    def fan_out(self, path: str) -> int:
        """Return how many modules of the audit this one imports."""
        return sum(1 for edge in self.edges if edge.importer == path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """Why a module is reviewed: its points, and how they came together (label, points), largest first."""

    path: str
    points: int
    parts: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """The answer about one module. `path` is empty when the tree no longer had a module of this rank.

    `dropped` counts findings of the answer that named no line of the file, `omitted` those of the rules beyond the
    most severe.
    """

    path: str
    rank: int
    points: int
    parts: tuple[tuple[str, int], ...]
    summary: str
    findings: tuple[Finding, ...]
    dropped: int
    omitted: int
    reviewer: str
    tokens_in: int
    tokens_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthesis:
    """The answer over all reviews: paragraphs, and what to do first."""

    paragraphs: tuple[str, ...]
    actions: tuple[str, ...]
    reviewer: str
    tokens_in: int
    tokens_out: int
