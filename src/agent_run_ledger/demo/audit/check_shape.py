"""Rules for burdens: code that works and costs every reader too much."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

from agent_run_ledger.demo.audit.measure import code_lines, is_public, measure_function
from agent_run_ledger.demo.audit.rules import found
from agent_run_ledger.demo.audit.shapes import Finding, FunctionMeasure, Severity
from agent_run_ledger.demo.audit.syntax import Module, functions_of, scopes_of

MAX_LINES = 60
MAX_COMPLEXITY = 10
MAX_NESTING = 4
MAX_ARGUMENTS = 7
MAX_METHODS = 30
DUPLICATE_LINES = 7
DUPLICATE_CHARACTERS = 200
SHORT_FUNCTION = 4
_TODO = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
MAX_NAMED = 4


def oversized_functions(module: Module) -> Iterator[Finding]:
    """Functions that are long, complex, deeply nested, or take many parameters."""
    for name, node in functions_of(module.tree):
        yield from _oversized(module, measure_function(name, node))


def large_classes(module: Module) -> Iterator[Finding]:
    """Classes with more than MAX_METHODS methods."""
    for name, node in scopes_of(module.tree):
        if isinstance(node, ast.ClassDef):
            methods = sum(1 for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef))
            if methods > MAX_METHODS:
                detail = f"`{name}` has {methods} methods"
                yield found(module, "large-class", node.lineno, subject=name, detail=detail)


def missing_docstrings(module: Module) -> Iterator[Finding]:
    """Public functions above SHORT_FUNCTION lines and public classes without a docstring: one finding per module."""
    bare = [
        (name, node)
        for name, node in scopes_of(module.tree)
        if is_public(name) and ast.get_docstring(node, clean=False) is None and _is_worth_a_docstring(node)
    ]
    if bare:
        named = ", ".join(f"`{name}`" for name, _ in bare[:MAX_NAMED])
        more = f" and {len(bare) - MAX_NAMED} more" if len(bare) > MAX_NAMED else ""
        yield found(
            module,
            "missing-docstring",
            bare[0][1].lineno,
            subject=bare[0][0],
            detail=f"{len(bare)} without a docstring: {named}{more}",
        )


def todo_comments(module: Module) -> Iterator[Finding]:
    """Comments that say TODO, FIXME, XXX or HACK."""
    if _TODO.search(module.text) is None:
        return  # the tokenizer is slow, and most modules need none
    try:
        for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
            marker = _TODO.search(token.string) if token.type == tokenize.COMMENT else None
            if marker is not None:
                detail = f"a comment says {marker.group(1)}"
                yield found(module, "todo-comment", token.start[0], subject=marker.group(1), detail=detail)
    except (tokenize.TokenError, SyntaxError):
        return  # the compiler was more lenient than the tokenizer: what was read counts


def duplicated_blocks(module: Module) -> Iterator[Finding]:
    """Runs of at least DUPLICATE_LINES equal code lines (indentation aside) that occur twice without overlap."""
    lines = [(number, module.line(number)) for number in code_lines(module)]
    first_at: dict[tuple[str, ...], int] = {}
    index = 0
    while index + DUPLICATE_LINES <= len(lines):
        window = tuple(text for _, text in lines[index : index + DUPLICATE_LINES])
        earlier = first_at.setdefault(window, index)
        if earlier + DUPLICATE_LINES > index or not _is_substantial(window):
            index += 1
            continue
        length = _common_length(lines, earlier, index)
        start, end = lines[earlier][0], lines[earlier + length - 1][0]
        detail = f"{length} lines of code repeat lines {start}–{end}"
        yield found(module, "duplicated-block", lines[index][0], subject="block", detail=detail)
        index += length


def _oversized(module: Module, function: FunctionMeasure) -> Iterator[Finding]:
    name, line = function.name, function.line
    if function.complexity > MAX_COMPLEXITY:
        detail = f"`{name}` has a cyclomatic complexity of {function.complexity} (limit {MAX_COMPLEXITY})"
        yield found(
            module,
            "complex-function",
            line,
            subject=name,
            detail=detail,
            severity=_graded(function.complexity, MAX_COMPLEXITY * 2, MAX_COMPLEXITY * 4),
        )
    if function.lines > MAX_LINES:
        detail = f"`{name}` is {function.lines} lines long (limit {MAX_LINES})"
        severity = _graded(function.lines, MAX_LINES * 2, MAX_LINES * 6)
        yield found(module, "long-function", line, subject=name, detail=detail, severity=severity)
    if function.nesting > MAX_NESTING:
        detail = f"`{name}` nests blocks {function.nesting} deep (limit {MAX_NESTING})"
        severity = Severity.MEDIUM if function.nesting > MAX_NESTING + 1 else Severity.LOW
        yield found(module, "deep-nesting", line, subject=name, detail=detail, severity=severity)
    if function.arguments > MAX_ARGUMENTS:
        detail = f"`{name}` takes {function.arguments} parameters (limit {MAX_ARGUMENTS})"
        yield found(module, "many-parameters", line, subject=name, detail=detail)


def _graded(value: int, medium_above: int, high_above: int) -> Severity:
    if value > high_above:
        return Severity.HIGH
    return Severity.MEDIUM if value > medium_above else Severity.LOW


def _is_worth_a_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    return isinstance(node, ast.ClassDef) or (node.end_lineno or 0) - node.lineno + 1 > SHORT_FUNCTION


def _is_substantial(window: tuple[str, ...]) -> bool:
    """Return whether a repeat is worth a word: enough text, and not just imports, names or closing brackets."""
    telling = [text for text in window if len(text) > 3 and not text.startswith(("import ", "from ", "'", '"'))]
    return len(telling) >= DUPLICATE_LINES - 2 and sum(map(len, window)) >= DUPLICATE_CHARACTERS


def _common_length(lines: list[tuple[int, str]], earlier: int, later: int) -> int:
    length = DUPLICATE_LINES
    longest = min(len(lines) - later, later - earlier)
    while length < longest and lines[earlier + length][1] == lines[later + length][1]:
        length += 1
    return length
