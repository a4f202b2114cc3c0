"""Measure modules and functions: lines, arguments, nesting, cyclomatic complexity, docstring coverage."""

from __future__ import annotations

import ast

from agent_run_ledger.demo.audit.shapes import FunctionMeasure, MeasuredTree, ModuleMeasure, SourceTree
from agent_run_ledger.demo.audit.syntax import (
    FunctionNode,
    Module,
    bodies_of,
    load_module,
    scopes_of,
    walk_scope,
)

COMPLEX_ABOVE = 10
MAX_NAME = 200
_BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)


def measure_tree(tree: SourceTree) -> MeasuredTree:
    """Return the numbers of every file that can be parsed."""
    loaded = [load_module(file) for file in tree.files]
    return MeasuredTree(modules=tuple(measure_module(module) for module in loaded if isinstance(module, Module)))


def measure_module(module: Module) -> ModuleMeasure:
    """Return the numbers of one module. Public means: no leading underscore in the name or in an enclosing one."""
    scopes = list(scopes_of(module.tree))
    functions = [measure_function(name, node) for name, node in scopes if not isinstance(node, ast.ClassDef)]
    public = [node for name, node in scopes if is_public(name)]
    documentable: list[ast.AST] = [module.tree, *public] if module.tree.body else []
    return ModuleMeasure(
        path=module.path,
        lines=len(module.text.splitlines()),
        code_lines=len(code_lines(module)),
        functions=len(functions),
        classes=len(scopes) - len(functions),
        complexity=sum(function.complexity for function in functions),
        complex_functions=sum(1 for function in functions if function.complexity > COMPLEX_ABOVE),
        nesting=max((function.nesting for function in functions), default=0),
        documented=sum(1 for node in documentable if _has_docstring(node)),
        documentable=len(documentable),
        worst=max(functions, key=lambda f: (f.complexity, f.lines, -f.line), default=None),
        longest=max(functions, key=lambda f: (f.lines, f.complexity, -f.line), default=None),
    )


def measure_function(name: str, node: FunctionNode) -> FunctionMeasure:
    """Return the numbers of one function; nested functions are measured on their own."""
    return FunctionMeasure(
        name=name[:MAX_NAME],
        line=node.lineno,
        lines=(node.end_lineno or node.lineno) - node.lineno + 1,
        arguments=_argument_count(node.args),
        nesting=nesting_of(node),
        complexity=complexity_of(node),
    )


def complexity_of(node: FunctionNode) -> int:
    """Return 1 + the branches of a function (McCabe): if, loops, handlers, and/or, conditional parts, match cases."""
    count = 1
    for inner in walk_scope(node):
        match inner:
            case ast.If() | ast.IfExp() | ast.For() | ast.AsyncFor() | ast.While() | ast.ExceptHandler():
                count += 1
            case ast.BoolOp(values=values):
                count += len(values) - 1
            case ast.comprehension(ifs=ifs):
                count += 1 + len(ifs)
            case ast.match_case(pattern=pattern, guard=guard):
                wildcard = isinstance(pattern, ast.MatchAs) and pattern.pattern is None
                count += (0 if wildcard else 1) + (1 if guard is not None else 0)
            case _:
                pass
    return count


def nesting_of(node: FunctionNode) -> int:
    """Return how deep blocks stand within blocks; `elif` counts as the `if` it belongs to."""
    deepest = 0
    pending: list[tuple[ast.AST, int]] = [(node, 0)]
    while pending:
        parent, depth = pending.pop()
        for block in bodies_of(parent):
            is_elif = isinstance(parent, ast.If) and block is parent.orelse and _is_lone_if(block)
            for statement in block:
                if isinstance(statement, _BLOCKS):
                    below = depth if is_elif else depth + 1
                    deepest = max(deepest, below)
                    pending.append((statement, below))
    return deepest


def is_public(qualified_name: str) -> bool:
    """Return whether the name is for callers: no leading underscore in any part (also no dunder), not in a function."""
    return not any(part.startswith(("_", "<")) for part in qualified_name.split("."))


def code_lines(module: Module) -> list[int]:
    """Return the numbers of the lines that hold code: no blank lines, no comments, no strings that are statements."""
    numbers: set[int] = set()
    for number, line in enumerate(module.lines, start=1):
        stripped = line.lstrip()
        if stripped and not stripped.startswith("#"):
            numbers.add(number)
    statements: set[int] = set()
    for node in ast.walk(module.tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                statements.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            case ast.Constant(value=str() | bytes()) | ast.JoinedStr():
                # What looks like a blank line or a comment is text here.
                numbers.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            case _:
                pass
    return sorted(numbers - statements)


def _is_lone_if(block: list[ast.stmt]) -> bool:
    return len(block) == 1 and isinstance(block[0], ast.If)


def _argument_count(arguments: ast.arguments) -> int:
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return sum(1 for argument in named if argument.arg not in ("self", "cls"))


def _has_docstring(node: ast.AST) -> bool:
    body: list[ast.stmt] = getattr(node, "body", [])
    first = body[0] if body else None
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
