"""Rules for traps: habits that work today and hide a fault tomorrow."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator

from agent_run_ledger.demo.audit.check_faults import dotted_name
from agent_run_ledger.demo.audit.rules import found
from agent_run_ledger.demo.audit.shapes import Finding
from agent_run_ledger.demo.audit.syntax import Module, functions_of, walk_scope

_QUIET_BUILTINS = frozenset({"copyright", "credits", "exit", "help", "license", "quit"})
_BUILTINS = frozenset(
    name for name in dir(builtins) if name.islower() and not name.startswith("_") and name not in _QUIET_BUILTINS
)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_ANNOTATION = 120


def careless_excepts(module: Module) -> Iterator[Finding]:
    """Handlers that catch everything and neither raise again nor look at what they caught."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        broad = _broad_type(node.type)
        raises = any(isinstance(inner, ast.Raise) for inner in walk_scope(node))
        if raises or not broad:
            continue
        if node.type is None:
            detail = "`except:` also catches KeyboardInterrupt and SystemExit, and does not raise again"
            yield found(module, "bare-except", node.lineno, subject="except", detail=detail)
        elif all(isinstance(statement, ast.Pass | ast.Continue) for statement in node.body):
            detail = f"`{broad}` is caught and nothing says that it happened"
            yield found(module, "swallowed-exception", node.lineno, subject="except", detail=detail)
        elif not _is_used(node.name, node.body):
            detail = f"`{broad}` is caught; the handler neither raises again nor looks at what it caught"
            yield found(module, "broad-except", node.lineno, subject="except", detail=detail)


def equality_with_singletons(module: Module) -> Iterator[Finding]:
    """`== None`, `== True` and `== False` ask __eq__ where identity or truth is meant."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        for index, operator in enumerate(node.ops):
            if not isinstance(operator, ast.Eq | ast.NotEq):
                continue
            values = [side.value for side in sides[index : index + 2] if isinstance(side, ast.Constant)]
            if any(value is None for value in values):
                detail = "an object may compare equal to None by its own __eq__"
                yield found(module, "none-comparison", node.lineno, subject="comparison", detail=detail)
            elif any(isinstance(value, bool) for value in values):
                detail = "true values other than True compare unequal"
                yield found(module, "bool-comparison", node.lineno, subject="comparison", detail=detail)


def star_imports(module: Module) -> Iterator[Finding]:
    """`from x import *` hides where names come from; in an __init__.py it is the usual way to re-export."""
    if module.path.endswith("__init__.py"):
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            source = "." * node.level + (node.module or "")
            detail = f"every public name of `{source}` lands here"
            yield found(module, "star-import", node.lineno, subject=source, detail=detail)


def global_state(module: Module) -> Iterator[Finding]:
    """A function with a `global` statement rebinds a module's variable: its callers share hidden state."""
    for name, node in functions_of(module.tree):
        for inner in walk_scope(node):
            if isinstance(inner, ast.Global):
                names = ", ".join(f"`{rebound}`" for rebound in inner.names)
                yield found(
                    module, "global-state", inner.lineno, subject=name, detail=f"`{name}` rebinds the global {names}"
                )


def string_building(module: Module) -> Iterator[Finding]:
    """`text += part` in a loop, where text began as a string: the work may grow with the square of the parts."""
    for name, node in functions_of(module.tree):
        strings = {
            target.id
            for inner in walk_scope(node)
            if isinstance(inner, ast.Assign) and _is_text(inner.value)
            for target in inner.targets
            if isinstance(target, ast.Name)
        }
        reported: set[str] = set()
        for loop in sorted((n for n in walk_scope(node) if isinstance(n, _LOOPS)), key=lambda n: n.lineno):
            for inner in walk_scope(loop):
                if not (isinstance(inner, ast.AugAssign) and isinstance(inner.op, ast.Add)):
                    continue
                target = inner.target.id if isinstance(inner.target, ast.Name) else ""
                if target in strings - reported:
                    reported.add(target)
                    detail = f"`{target}` grows by += in a loop of `{name}`"
                    yield found(module, "string-building", inner.lineno, subject=name, detail=detail)


def unclosed_files(module: Module) -> Iterator[Finding]:
    """`open(...).read()` leaves closing the file to the garbage collector."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call):
            called = dotted_name(node.value.func)
            if called in ("open", "io.open") and node.attr in ("read", "readlines", "readline", "write"):
                detail = f"the file behind `{called}(...).{node.attr}` is closed only when it is collected"
                yield found(module, "unclosed-file", node.lineno, subject=called, detail=detail)


def shadowed_builtins(module: Module) -> Iterator[Finding]:
    """A parameter, variable or module-level function with the name of a builtin (once per function and name)."""
    for name, node in functions_of(module.tree):
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        bound = [(argument.arg, argument.lineno) for argument in arguments]
        bound += [
            (inner.id, inner.lineno)
            for inner in walk_scope(node)
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
        ]
        yield from _shadowing(module, name, bound)
    top: list[tuple[str, int]] = []
    for statement in module.tree.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            top.append((statement.name, statement.lineno))
        elif isinstance(statement, ast.Assign):
            top += [(target.id, target.lineno) for target in statement.targets if isinstance(target, ast.Name)]
    yield from _shadowing(module, "module", top)


def unused_imports(module: Module) -> Iterator[Finding]:
    """A module-level import whose name occurs nowhere else: not as a name, in __all__, nor in a quoted annotation."""
    if module.path.endswith("__init__.py"):
        return  # there an import usually is the interface
    used = _used_words(module)
    for statement in module.tree.body:
        if not isinstance(statement, ast.Import | ast.ImportFrom) or _is_marked(module, statement):
            continue
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            continue
        for alias in statement.names:
            bound = alias.asname or alias.name.partition(".")[0]
            if bound not in used and bound != "*" and alias.asname != alias.name:
                detail = f"`{bound}` is imported and never used in this file"
                yield found(module, "unused-import", alias.lineno, subject=bound, detail=detail)


def empty_fstrings(module: Module) -> Iterator[Finding]:
    """An f-string without a placeholder: either the f or the braces are a mistake."""
    nodes = list(ast.walk(module.tree))
    specs = {id(node.format_spec) for node in nodes if isinstance(node, ast.FormattedValue) and node.format_spec}
    for node in nodes:
        if not isinstance(node, ast.JoinedStr) or id(node) in specs:
            continue
        if not any(isinstance(part, ast.FormattedValue) for part in node.values):
            detail = "nothing is filled in here"
            yield found(module, "empty-fstring", node.lineno, subject="f-string", detail=detail)


def _broad_type(node: ast.expr | None) -> str:
    """Return how a handler names a type that catches (nearly) everything, empty when it is narrow."""
    if node is None:
        return "except:"
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return next((p.id for p in parts if isinstance(p, ast.Name) and p.id in ("Exception", "BaseException")), "")


def _is_used(name: str | None, body: list[ast.stmt]) -> bool:
    return name is not None and any(
        isinstance(node, ast.Name) and node.id == name for statement in body for node in ast.walk(statement)
    )


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _shadowing(module: Module, scope: str, bound: list[tuple[str, int]]) -> Iterator[Finding]:
    reported: set[str] = set()
    for name, line in sorted(bound, key=lambda item: item[1]):
        if name in _BUILTINS and name not in reported:
            reported.add(name)
            where = "the module" if scope == "module" else f"`{scope}`"
            yield found(
                module, "shadowed-builtin", line, subject=scope, detail=f"`{name}` in {where} hides the builtin"
            )


def _used_words(module: Module) -> set[str]:
    words: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name):
            words.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) <= _MAX_ANNOTATION:
            words.update(_WORD.findall(node.value))
    return words


def _is_marked(module: Module, statement: ast.stmt) -> bool:
    """Return whether the author said that the import is on purpose."""
    return any("noqa" in module.line(number) for number in range(statement.lineno, (statement.end_lineno or 0) + 1))
