"""Reads Python files without running them: what the agent's tools know."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

MOST_HITS = 20
MOST_LINES = 120


def files(folder: str) -> list[dict[str, Any]]:
    """Return path and number of lines of each Python file of a folder, by name."""
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    found = sorted(Path(folder).rglob("*.py"))
    return [{"path": str(path), "lines": len(path.read_text("utf-8").splitlines())} for path in found]


def outline(path: str) -> dict[str, Any]:
    """Return a file's purpose, what it imports, its classes, and its functions with their lengths in lines."""
    tree = _parsed(path)
    imports = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imports |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    return {
        "path": path,
        "purpose": (ast.get_docstring(tree) or "").split("\n")[0],
        "imports": sorted(imports),
        "classes": [node.name for node in tree.body if isinstance(node, ast.ClassDef)],
        "functions": {node.name: _length(node) for node in _functions(tree)},
    }


def search(folder: str, text: str) -> list[str]:
    """Return up to 20 lines that contain a text, each with its file and number."""
    hits = [
        f"{path.name}:{number}: {line.strip()}"
        for path in sorted(Path(folder).rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if text in line
    ]
    return hits[:MOST_HITS]


def function(path: str, name: str) -> str:
    """Return the first lines of a function's source; LookupError where there is none of that name."""
    for node in _functions(_parsed(path)):
        if node.name == name:
            lines = Path(path).read_text("utf-8").splitlines()
            return "\n".join(lines[node.lineno - 1 : node.end_lineno][:MOST_LINES])
    raise LookupError(f"{path} has no function {name}")


def _parsed(path: str) -> ast.Module:
    return ast.parse(Path(path).read_text("utf-8"), filename=path)


def _functions(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1
