"""Rank modules by how worthwhile a review is, with a score that anybody can recompute from the numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from agent_run_ledger.demo.audit.shapes import ImportGraph, MeasuredTree, ModuleMeasure, Rank, SourceTree

FORMULA = (
    "points = 2 × complexity of the worst function + 4 × functions above complexity 10 + 3 × deepest nesting"
    " + code lines ÷ 40 + 3 × modules that import it (10 at most) + public names without a docstring ÷ 2 (rounded down)"
)
MAX_IMPORTERS = 10


def rank_modules(tree: SourceTree, measured: MeasuredTree, graph: ImportGraph) -> tuple[Rank, ...]:
    """Return a rank for every file that is not blank: most points first, equal ones by path.

    Files that cannot be parsed have no numbers: they come last, with no points.
    """
    importers = Counter(edge.imported for edge in graph.edges)
    measures = {module.path: module for module in measured.modules}
    ranks = [_rank(file.path, measures.get(file.path), importers) for file in tree.files if not file.blank]
    return tuple(sorted(ranks, key=lambda rank: (rank.path not in measures, -rank.points, rank.path)))


def _rank(path: str, module: ModuleMeasure | None, importers: Mapping[str, int]) -> Rank:
    if module is None:
        return Rank(path=path, points=0, parts=())
    worst = module.worst.complexity if module.worst is not None else 0
    parts = {
        "complexity of its worst function": 2 * worst,
        "number of complex functions": 4 * module.complex_functions,
        "nesting": 3 * module.nesting,
        "size": module.code_lines // 40,
        "modules that depend on it": 3 * min(importers.get(path, 0), MAX_IMPORTERS),
        "missing docstrings": (module.documentable - module.documented) // 2,
    }
    ordered = sorted(parts.items(), key=lambda part: (-part[1], part[0]))
    return Rank(path=path, points=sum(parts.values()), parts=tuple(part for part in ordered if part[1]))
