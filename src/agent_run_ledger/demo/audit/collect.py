"""Find the Python files of a tree, with their sizes and digests: plain files only, no links."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from agent_run_ledger.demo.audit.decode import Undecodable, decode_source
from agent_run_ledger.demo.audit.shapes import Skipped, SourceFile, SourceTree
from agent_run_ledger.errors import Misuse, Refused

MAX_FILE_BYTES = 2 * 1024 * 1024
MAX_FILES = 3_000
MAX_TREE_BYTES = 48 * 1024 * 1024
IGNORED_FOLDERS = frozenset({"__pycache__", "node_modules", "site-packages", "dist-packages"})


class TreeRefused(Refused):
    """There is nothing to audit at a path, or too much."""

    code = "tree_refused"


class SourceChanged(Refused):
    """A file is not what it was when this run collected it: going on would mix two trees in one audit."""

    code = "source_changed"


def collect_tree(roots: Sequence[str]) -> SourceTree:
    """Return the regular `*.py` files below `roots` (files or folders) in the order of their shown paths.

    Left out and listed: links, special files, files above MAX_FILE_BYTES, unreadable ones, names that are not
    UTF-8. Left out silently: hidden folders, virtual environments and IGNORED_FOLDERS. Raises Misuse where a root
    cannot be audited at all, TreeRefused where no Python file is left or the tree is above MAX_FILES or
    MAX_TREE_BYTES.
    """
    files: list[SourceFile] = []
    skipped: list[Skipped] = []
    total_bytes = 0
    for root in roots:
        top = _checked_root(root)
        for shown, path in _python_files(top, several=len(roots) > 1, skipped=skipped):
            found = _read_file(shown, path)
            if isinstance(found, Skipped):
                skipped.append(found)
                continue
            files.append(found)
            total_bytes += found.size_bytes
            if len(files) > MAX_FILES or total_bytes > MAX_TREE_BYTES:
                raise TreeRefused(
                    f"{root!r} holds more than {MAX_FILES} Python files or {MAX_TREE_BYTES >> 20} MiB of them",
                    hint="audit a part of it: arl demo PATH/TO/PACKAGE",
                )
    if not files:
        raise TreeRefused(_nothing_left(roots, skipped), hint="give a Python file or a folder that holds some")
    files.sort(key=lambda file: file.path)
    skipped.sort(key=lambda item: item.path)
    return SourceTree(files=tuple(files), skipped=tuple(skipped))


def read_source(file: SourceFile) -> bytes:
    """Return the file's bytes, exactly those that were collected; SourceChanged otherwise."""
    try:
        content = Path(file.location).read_bytes()
    except OSError as error:
        raise SourceChanged(f"{file.path} cannot be read any more: {error.strerror}", hint=_AGAIN) from error
    if hashlib.sha256(content).hexdigest() != file.sha256_hex:
        raise SourceChanged(f"{file.path} changed since this run collected it", hint=_AGAIN)
    return content


_AGAIN = "put the file back as it was, or start a new demo"


def _checked_root(root: str) -> Path:
    try:
        root.encode("utf-8")
    except UnicodeEncodeError:
        raise Misuse(f"the path {root!r} is not UTF-8 and cannot be recorded", code="bad_path") from None
    path = Path(root)
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise Misuse(f"cannot audit {root!r}: {reason}", code="bad_path") from error
    if stat.S_ISREG(mode):
        _refuse_unreadable_file(path)
    elif not stat.S_ISDIR(mode):
        raise Misuse(f"cannot audit {root!r}: it is neither a file nor a folder", code="bad_path")
    return path


def _refuse_unreadable_file(path: Path) -> None:
    """Refuse a file that a folder's audit would leave out or only mention: here it is the whole audit."""
    found = _read_file(path.name, path.resolve())
    if isinstance(found, Skipped):
        raise TreeRefused(f"cannot audit {str(path)!r}: {found.reason}")
    content = read_source(found)
    if not path.name.endswith(".py") and not (content.startswith(b"#!") and b"python" in content.split(b"\n", 1)[0]):
        raise TreeRefused(f"cannot audit {str(path)!r}: not a Python file", hint="give a .py file or a folder")
    try:
        decode_source(content)
    except Undecodable as error:
        raise TreeRefused(f"cannot audit {str(path)!r}: {error}") from error


def _python_files(top: Path, *, several: bool, skipped: list[Skipped]) -> Iterator[tuple[str, Path]]:
    """Yield (shown path, path) below `top`, sorted within each folder."""
    if top.is_file():
        yield top.name, top.resolve()
        return
    top = top.resolve()

    def refuse(error: OSError) -> None:
        where = Path(error.filename)
        if where == top:
            raise Misuse(f"cannot list {str(top)!r}: {error.strerror}", code="bad_path") from error
        skipped.append(Skipped(path=_shown(top, where, several=several), reason=f"{error.strerror}".lower()))

    for folder, folders, names in os.walk(top, onerror=refuse):
        folders[:] = sorted(name for name in folders if not _is_ignored(Path(folder, name)))
        for name in sorted(names):
            if name.endswith(".py"):
                path = Path(folder, name)
                yield _shown(top, path, several=several), path


def _is_ignored(folder: Path) -> bool:
    return folder.name.startswith(".") or folder.name in IGNORED_FOLDERS or (folder / "pyvenv.cfg").exists()


def _shown(top: Path, path: Path, *, several: bool) -> str:
    relative = path.relative_to(top).as_posix()
    return f"{top.name}/{relative}" if several else relative


def _read_file(shown: str, path: Path) -> SourceFile | Skipped:
    """Return the file with its digest, or why it is left out. The file is opened without following a link."""
    if any("\udc80" <= sign <= "\udcff" for sign in shown):
        visible = shown.encode("utf-8", "backslashreplace").decode("utf-8")
        return Skipped(path=visible, reason="its name is not UTF-8")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        link = path.is_symlink()
        return Skipped(path=shown, reason="a symbolic link" if link else f"{error.strerror}".lower())
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return Skipped(path=shown, reason="not a regular file")
        content = stream.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        return Skipped(path=shown, reason=f"larger than {MAX_FILE_BYTES >> 20} MiB")
    return SourceFile(
        path=shown,
        location=str(path),
        names=_module_names(shown, path),
        size_bytes=len(content),
        sha256_hex=hashlib.sha256(content).hexdigest(),
        blank=not content.strip(),
    )


def _module_names(shown: str, path: Path) -> tuple[str, ...]:
    """Return the dotted names by which other modules may import this file, the most likely first.

    The first counts from the outermost folder that is a package (has an __init__.py), also above the audited
    folder; the second is the shown path, for packages without __init__.py.
    """
    stem = [] if path.name == "__init__.py" else [path.stem]
    folder = path.parent
    packages: list[str] = []
    while (folder / "__init__.py").is_file() and folder.parent != folder:
        packages.insert(0, folder.name)
        folder = folder.parent
    by_package = ".".join([*packages, *stem])
    parts = shown.removesuffix(".py").split("/")
    by_path = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return tuple(dict.fromkeys(name for name in (by_package, by_path) if name))


def _nothing_left(roots: Sequence[str], skipped: Sequence[Skipped]) -> str:
    places = ", ".join(repr(root) for root in roots)
    if not skipped:
        return f"there is no Python file in {places}"
    first = skipped[0]
    return f"no Python file in {places} can be audited ({len(skipped)} left out, first {first.path}: {first.reason})"
