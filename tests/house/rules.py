"""The rules of the house as functions from one file to its violations."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60

Rule = Callable[[str, ast.Module], Iterator[str]]

_FORBIDDEN_IMPORTS = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
_FORBIDDEN_CALLS = {"eval", "exec"}
_EMPTY_NAMES = {"data", "info", "manager", "utils", "util", "helpers", "helper", "misc", "common"}
_SENTENCE_END = re.compile(r"[.!?][\"')]*\s+[\"'(]*[A-Z]")
_STATEMENT = re.compile(
    r"\s*(?:--[^\n]*\n\s*)*(?:"
    # A lone word is no statement, except where SQL has one-word statements.
    r"(?:SELECT|INSERT|UPDATE|DELETE|REPLACE|WITH|CREATE|DROP|ALTER|PRAGMA|SAVEPOINT|RELEASE|ATTACH|DETACH|EXPLAIN)\s+\S"
    r"|(?:BEGIN|COMMIT|ROLLBACK|VACUUM|REINDEX|ANALYZE)"
    r"(?:\s*;|\s*$|\s+(?:IMMEDIATE|EXCLUSIVE|DEFERRED|TRANSACTION|TO|INTO)\b)"
    r"|(?i:select\s.+\sfrom\s|insert\s+(?:or\s+\w+\s+)?into\s|update\s+\w+\s+set\s|delete\s+from\s|create\s+table\s"
    r"|pragma\s+\w|begin\s+(?:immediate|exclusive|deferred))"
    r")",
    re.DOTALL,
)


def file_size(text: str, tree: ast.Module) -> Iterator[str]:
    """A file has at most 500 lines."""
    lines = text.count("\n")
    if lines > MAX_FILE_LINES:
        yield f"{lines} lines; at most {MAX_FILE_LINES}"


def function_size(text: str, tree: ast.Module) -> Iterator[str]:
    """A function has at most 60 lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield f"line {node.lineno}: {node.name} has {lines} lines; at most {MAX_FUNCTION_LINES}"


def job_sentence(text: str, tree: ast.Module) -> Iterator[str]:
    """A module's docstring is one sentence: its one job."""
    docstring = ast.get_docstring(tree)
    if docstring is None:
        yield "no module docstring"
    elif not docstring.rstrip("\"')").endswith(".") or _SENTENCE_END.search(docstring) or "\n\n" in docstring:
        yield f"the module docstring is not one sentence: {docstring!r}"


def no_assert(text: str, tree: ast.Module) -> Iterator[str]:
    """No assert statement: `python -O` removes it, and then nothing stands in its place."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            yield f"line {node.lineno}: assert"


def no_code_from_bytes(text: str, tree: ast.Module) -> Iterator[str]:
    """Nothing turns stored bytes into code: no pickle and its kin, no eval, no exec. `marshal.dumps` reads no bytes."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name.split(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [(node.module or "").split(".")[0]]
            if [names[0], *(alias.name for alias in node.names)] == ["marshal", "dumps"]:
                continue
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FORBIDDEN_CALLS:
            yield f"line {node.lineno}: {node.func.id}()"
        for name in _FORBIDDEN_IMPORTS.intersection(names):
            yield f"line {node.lineno}: imports {name}"


def no_sql(text: str, tree: ast.Module) -> Iterator[str]:
    """SQL lives in .sql files: no string of a module begins like a statement."""
    docstrings = set(_docstrings(tree))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or node in docstrings:
            continue
        value = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
        if isinstance(value, str) and _STATEMENT.match(value):
            yield f"line {node.lineno}: SQL in a Python string: {value.strip()[:40]!r}"


def one_opener(text: str, tree: ast.Module) -> Iterator[str]:
    """No import of apsw. (Where it is allowed is the caller's business.)"""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        if any(name.split(".")[0] == "apsw" for name in names):
            yield f"line {node.lineno}: imports apsw"


def empty_name(stem: str) -> bool:
    """Whether a module's name says nothing about its job."""
    return bool(_EMPTY_NAMES.intersection(stem.strip("_").split("_")))


def _docstrings(tree: ast.Module) -> Iterator[ast.expr]:
    # Every bare string statement counts: attribute docstrings stand below what they describe.
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value
