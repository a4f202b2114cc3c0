"""Build the import graph inside the audited tree: who imports whom, in which cycles, and what comes from outside."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping

from agent_run_ledger.demo.audit.shapes import ImportEdge, ImportGraph, ImportStatement, ParsedTree, SourceTree

MAX_CYCLE_STARTS = 200
"""In a knot of thousands of modules the shortest cycle is looked for from this many of them only."""


def import_graph(tree: SourceTree, parsed: ParsedTree) -> ImportGraph:
    """Return the graph. An import is inside when it names exactly one file of the tree; self-imports do not count.

    `cycles` hold with the imports that run when a module is loaded; `deferred_cycles` close only through imports in
    functions or for type checkers. `outside` counts importing modules by top-level name, most used first.
    """
    known = _files_by_name(tree)
    names = {file.path: file.names for file in tree.files}
    first: dict[tuple[str, str], ImportEdge] = {}
    outside: Counter[str] = Counter()
    for module in parsed.modules:
        beyond: set[str] = set()
        for statement in module.imports:
            targets = list(_targets(statement, module.path, names[module.path], known))
            if not targets and statement.level == 0:
                beyond.add(statement.module.partition(".")[0])
            for target in targets:
                _keep_first(first, module.path, target, statement)
        outside.update(beyond)
    edges = tuple(sorted(first.values(), key=lambda edge: (edge.importer, edge.line, edge.imported)))
    loaded = _cycles(_adjacency(edge for edge in edges if not edge.deferred))
    everything = _cycles(_adjacency(edges))
    return ImportGraph(
        edges=edges,
        cycles=loaded,
        deferred_cycles=tuple(cycle for cycle in everything if not _is_covered(cycle, loaded)),
        outside=tuple(sorted(outside.items(), key=lambda item: (-item[1], item[0]))),
    )


def _files_by_name(tree: SourceTree) -> dict[str, str]:
    """Map every importable name to its file; a name that two files claim is nobody's."""
    known: dict[str, str] = {}
    claimed_twice: set[str] = set()
    for place in range(2):  # names by package win over names by path
        for file in tree.files:
            if len(file.names) > place:
                name = file.names[place]
                if name in known and place == 0:
                    claimed_twice.add(name)
                known.setdefault(name, file.path)
    return {name: path for name, path in known.items() if name not in claimed_twice}


def _targets(
    statement: ImportStatement, importer: str, own_names: tuple[str, ...], known: Mapping[str, str]
) -> Iterator[str]:
    """Yield the files that one statement imports: each named submodule, else the module itself."""
    bases = {base for name in own_names for base in _absolute(statement, name, importer.endswith("__init__.py"))}
    found: dict[str, None] = {}
    for base in sorted(bases):
        submodules = [known[f"{base}.{name}"] for name in statement.names if f"{base}.{name}" in known]
        found.update(dict.fromkeys(submodules))
        if base in known and len(submodules) < max(len(statement.names), 1):
            found[known[base]] = None
    yield from (path for path in found if path != importer)


def _absolute(statement: ImportStatement, own_name: str, is_package: bool) -> Iterator[str]:
    if statement.level == 0:
        yield statement.module
        return
    package = own_name.split(".") if is_package else own_name.split(".")[:-1]
    up = statement.level - 1
    if up <= len(package):
        parts = package[: len(package) - up] + ([statement.module] if statement.module else [])
        if parts:
            yield ".".join(parts)


def _keep_first(first: dict[tuple[str, str], ImportEdge], importer: str, imported: str, by: ImportStatement) -> None:
    """Keep one edge per pair: one that runs at load time if there is any, else the first in the file."""
    before = first.get((importer, imported))
    if before is None or (before.deferred and not by.deferred):
        first[importer, imported] = ImportEdge(importer=importer, imported=imported, line=by.line, deferred=by.deferred)


def _adjacency(edges: Iterable[ImportEdge]) -> dict[str, list[str]]:
    following: dict[str, list[str]] = {}
    for edge in edges:
        following.setdefault(edge.importer, []).append(edge.imported)
    return {path: sorted(targets) for path, targets in following.items()}


def _cycles(following: Mapping[str, list[str]]) -> tuple[tuple[str, ...], ...]:
    """Return a shortest cycle of each strongly connected component with more than one module."""
    cycles = [_shortest_cycle(following, component) for component in _components(following) if len(component) > 1]
    return tuple(sorted(cycles, key=lambda cycle: (len(cycle), cycle)))


def _components(following: Mapping[str, list[str]]) -> Iterator[set[str]]:
    """Yield strongly connected components (Tarjan 1972), without recursion: a chain may be thousands long."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for start in sorted(following):
        if start in order:
            continue
        work: list[tuple[str, Iterator[str]]] = [(start, iter(following.get(start, [])))]
        while work:
            node, targets = work[-1]
            if node not in order:
                order[node] = low[node] = len(order)
                stack.append(node)
                on_stack.add(node)
            advanced = False
            for target in targets:
                if target not in order:
                    work.append((target, iter(following.get(target, []))))
                    advanced = True
                    break
                if target in on_stack:
                    low[node] = min(low[node], order[target])
            if advanced:
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[node])
            if low[node] == order[node]:
                yield _pop_component(node, stack, on_stack)


def _pop_component(root: str, stack: list[str], on_stack: set[str]) -> set[str]:
    component: set[str] = set()
    while True:
        node = stack.pop()
        on_stack.discard(node)
        component.add(node)
        if node == root:
            return component


def _shortest_cycle(following: Mapping[str, list[str]], component: set[str]) -> tuple[str, ...]:
    best: tuple[str, ...] = ()
    for start in sorted(component)[:MAX_CYCLE_STARTS]:
        cycle = _walk_back(following, component, start)
        if cycle and (not best or len(cycle) < len(best)):
            best = cycle
    return best


def _walk_back(following: Mapping[str, list[str]], component: set[str], start: str) -> tuple[str, ...]:
    """Return the shortest walk from `start` to itself inside the component, breadth first."""
    came_from: dict[str, str] = {}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        for target in following.get(node, []):
            if target == start:
                walk = [start, node] if node != start else [start]
                while walk[-1] != start:
                    walk.append(came_from[walk[-1]])
                return tuple(reversed(walk)) if node != start else (start, start)
            if target in component and target not in came_from:
                came_from[target] = node
                waiting.append(target)
    return ()


def _is_covered(cycle: tuple[str, ...], loaded: Iterable[tuple[str, ...]]) -> bool:
    return any(set(cycle) <= set(other) or set(other) <= set(cycle) for other in loaded)
