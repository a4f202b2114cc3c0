"""The files that house tests look at."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SRC = ROOT / "src" / "agent_run_ledger"
LIMITS = ROOT / "docs" / "concepts" / "limits.md"

_LEFT_OUT = {".git", ".cache", "arl-demo", "build", "dist", "node_modules", "__pycache__"}


@cache
def tree_files() -> tuple[Path, ...]:
    """Every text file of the project: git's list, or a walk where there is no git (an unpacked archive)."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0 and (ROOT / ".git").exists():
        found = [ROOT / name.decode() for name in listed.stdout.split(b"\0") if name]
    else:
        found = [path for path in ROOT.rglob("*") if not _is_made(path.relative_to(ROOT))]
    return tuple(sorted(path for path in found if path.is_file() and not _is_binary(path)))


def python_files(*folders: Path) -> list[Path]:
    """The Python files of the project below these folders."""
    return [path for path in tree_files() if path.suffix == ".py" and any(path.is_relative_to(f) for f in folders)]


def python_sources() -> list[Path]:
    """The modules that are shipped."""
    return python_files(SRC)


def parse(path: Path) -> ast.Module:
    """The syntax tree of one file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def name_of(path: Path) -> str:
    """The path as a person would say it."""
    return path.relative_to(ROOT).as_posix()


def missing_test(node_id: str) -> str | None:
    """What is wrong with `tests/….py::name` or `tests/….py::Class::name`; None when that test exists."""
    path, *names = re.sub(r"\[.*\]$", "", node_id).split("::")
    if not (ROOT / path).is_file():
        return f"{node_id}: there is no file {path}"
    scope: list[ast.stmt] = parse(ROOT / path).body
    if not names or not names[-1].startswith("test_"):
        return f"{node_id}: names no test"
    for name in names:
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        inner = [node for node in scope if isinstance(node, kinds) and node.name == name]
        if not inner:
            return f"{node_id}: there is no {name} in {path}"
        scope = inner[0].body
    return None


def _is_made(path: Path) -> bool:
    made = any(part in _LEFT_OUT or part.startswith(".venv") or part.endswith("_cache") for part in path.parts)
    return made or ".hypothesis" in path.parts


def _is_binary(path: Path) -> bool:
    with path.open("rb") as file:
        return b"\0" in file.read(8_192)
