"""Parse collected files: what cannot be parsed becomes a finding, never a crash."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from agent_run_ledger.demo.audit.collect import read_source
from agent_run_ledger.demo.audit.decode import Undecodable, decode_source
from agent_run_ledger.demo.audit.shapes import (
    Finding,
    ImportStatement,
    ParsedModule,
    ParsedTree,
    Severity,
    SourceFile,
    SourceTree,
)

MAX_PROBLEM_EVIDENCE = 160

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
ScopeNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One parsed file: its shown path, text, lines and syntax tree."""

    path: str
    text: str
    lines: tuple[str, ...]
    tree: ast.Module

    def line(self, number: int) -> str:
        """Return line `number` (from 1) without its indentation, empty outside the file."""
        return self.lines[number - 1].strip() if 1 <= number <= len(self.lines) else ""


def parse_module(path: str, content: bytes) -> Module | Finding:
    """Return the module, or the finding that says why these bytes cannot be parsed."""
    try:
        text = decode_source(content)
    except Undecodable as error:
        return _problem("undecodable", 1, f"the file cannot be decoded: {error}", "save it as UTF-8")
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        line = error.lineno or 1
        evidence = (error.text or "").strip()
        return _problem("syntax-error", line, f"syntax error: {error.msg}", "make the file parse", evidence)
    except (ValueError, RecursionError, MemoryError) as error:
        detail = str(error) or type(error).__name__
        return _problem("syntax-error", 1, f"the parser gave up: {detail}", "simplify the expression it stopped at")
    return Module(path=path, text=text, lines=tuple(text.split("\n")), tree=tree)


def load_module(file: SourceFile) -> Module | Finding:
    """Return `parse_module` of a collected file; SourceChanged when the file is not the collected one any more."""
    return parse_module(file.path, read_source(file))


def parse_tree(tree: SourceTree) -> ParsedTree:
    """Return the import statements of every file, and a finding for each that cannot be parsed."""
    modules: list[ParsedModule] = []
    for file in tree.files:
        parsed = load_module(file)
        if isinstance(parsed, Finding):
            modules.append(ParsedModule(path=file.path, imports=(), problem=parsed))
        else:
            modules.append(ParsedModule(path=file.path, imports=tuple(_imports(parsed.tree)), problem=None))
    return ParsedTree(modules=tuple(modules))


def functions_of(tree: ast.Module) -> Iterator[tuple[str, FunctionNode]]:
    """Yield (qualified name, node) of every function and method, in the order of their lines."""
    for name, node in scopes_of(tree):
        if not isinstance(node, ast.ClassDef):
            yield name, node


def scopes_of(tree: ast.Module) -> Iterator[tuple[str, ScopeNode]]:
    """Yield (qualified name, node) of every function, method and class, in the order of their lines.

    Names are Python's own: what stands inside a function has `<locals>` in its name.
    """
    found: list[tuple[str, ScopeNode]] = []
    pending: list[tuple[str, ast.AST]] = [("", tree)]
    while pending:
        prefix, parent = pending.pop()
        for child in ast.iter_child_nodes(parent):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}{child.name}"
                found.append((name, child))
                inner = "." if isinstance(child, ast.ClassDef) else ".<locals>."
                pending.append((f"{name}{inner}", child))
            else:
                pending.append((prefix, child))
    found.sort(key=lambda item: (item[1].lineno, item[0]))
    yield from found


def walk_scope(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes inside `scope`, not entering nested functions and classes (which are yielded themselves)."""
    pending = list(ast.iter_child_nodes(scope))
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            pending.extend(ast.iter_child_nodes(node))


def bodies_of(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the lists of statements that `node` holds directly: body, else, handlers' bodies, finally, cases."""
    for field in ("body", "orelse", "finalbody"):
        block = getattr(node, field, None)
        if isinstance(block, list) and block:
            yield block  # pyright: ignore[reportUnknownVariableType]
    for part in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
        yield part.body


def _imports(tree: ast.Module) -> Iterator[ImportStatement]:
    pending: list[tuple[ast.AST, bool]] = [(tree, False)]
    found: list[ImportStatement] = []
    while pending:
        node, deferred = pending.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                found.append(ImportStatement(line=node.lineno, level=0, module=alias.name, names=(), deferred=deferred))
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            found.append(
                ImportStatement(
                    line=node.lineno, level=node.level, module=node.module or "", names=names, deferred=deferred
                )
            )
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            pending.extend((child, True) for child in ast.iter_child_nodes(node))
        elif isinstance(node, ast.If) and _is_type_checking(node.test):
            pending.extend((child, True) for child in node.body)
            pending.extend((child, deferred) for child in node.orelse)
        else:
            pending.extend((child, deferred) for child in ast.iter_child_nodes(node))
    found.sort(key=lambda statement: (statement.line, statement.module))
    yield from found


def _is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def _problem(rule: str, line: int, detail: str, suggestion: str, evidence: str = "") -> Finding:
    return Finding(
        rule=rule,
        severity=Severity.HIGH,
        line=line,
        subject="module",
        detail=detail,
        suggestion=suggestion,
        evidence=evidence[:MAX_PROBLEM_EVIDENCE],
    )
