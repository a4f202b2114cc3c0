"""Reads recorded agent runs and labels for `arl breaker eval`: JSON Lines, a bad line named by file and number."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from agent_run_ledger.errors import Misuse
from agent_run_ledger.kernel.loops import Call

LABELS = ("stuck", "healthy", "ambiguous")

Key = tuple[str, str]
"""Source and trajectory id of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What a person said of a run. `stop`: the step, from 0, at which they would have stopped a stuck one."""

    key: Key
    label: str
    stop: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One recorded run; `resolved`: its task was solved; `label`: where the line itself has one."""

    key: Key
    calls: tuple[Call, ...]
    resolved: bool
    label: Label | None


def corpus_files(places: Iterable[Path]) -> list[Path]:
    """Return the files, and the `.jsonl` files of the folders, in order. Misuse("no_corpus") for what is not there."""
    files: list[Path] = []
    for place in places:
        found = sorted(place.glob("*.jsonl")) if place.is_dir() else [place] if place.is_file() else []
        if not found:
            raise Misuse(f"{place} is no file and no folder with .jsonl files", code="no_corpus")
        files += found
    return files


def read_trajectories(file: Path) -> Iterator[Trajectory]:
    """Return the runs of a file. Misuse("bad_corpus") with file and line for one that is none."""
    for where, line in _lines(file):
        key = _key(line, where)
        steps = line.get("steps")
        if not isinstance(steps, list):
            raise _bad(where, "`steps` must be a list")
        calls = tuple(_call(step, where, place) for place, step in enumerate(cast("list[object]", steps)))
        outcome = line.get("outcome")
        resolved = isinstance(outcome, dict) and cast("dict[str, object]", outcome).get("resolved") is True
        label = _label(line, where, key) if line.get("label") is not None else None
        yield Trajectory(key=key, calls=calls, resolved=resolved, label=label)


def read_labels(file: Path) -> dict[Key, Label]:
    """Return the labels of a file by run. Misuse("bad_corpus") with file and line; a run labelled twice is one too."""
    if not file.is_file():
        raise Misuse(f"{file} is no file", code="no_corpus")
    labels: dict[Key, Label] = {}
    for where, line in _lines(file):
        label = _label(line, where, _key(line, where))
        if labels.setdefault(label.key, label) != label:
            raise _bad(where, f"another label for {label.key[0]} {label.key[1]}")
    return labels


def _lines(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with file.open("rb") as lines:
        for number, raw in enumerate(lines, start=1):
            if not raw.strip():
                continue
            where = f"{file}:{number}"
            try:
                line: object = json.loads(raw)
            except (ValueError, RecursionError) as error:
                raise _bad(where, f"no JSON: {error}") from None
            if not isinstance(line, dict):
                raise _bad(where, "a line must be a JSON object")
            yield where, cast("dict[str, Any]", line)


def _key(line: dict[str, Any], where: str) -> Key:
    source, name = line.get("source"), line.get("trajectory_id")
    if not isinstance(source, str) or not isinstance(name, str):
        raise _bad(where, "`source` and `trajectory_id` must be text")
    return source, name


def _label(line: dict[str, Any], where: str, key: Key) -> Label:
    label, stop = line.get("label"), line.get("stop")
    if label not in LABELS:
        raise _bad(where, f"`label` must be one of {', '.join(LABELS)}, not {label!r}")
    if not (stop is None or (type(stop) is int and stop >= 0)) or (label == "stuck" and stop is None):
        raise _bad(where, "`stop` must be a step from 0 on where the label is stuck, else null")
    return Label(key=key, label=str(label), stop=stop)


def _call(step: object, where: str, place: int) -> Call:
    """Return a step as a call. A text that was clipped is followed by its digest: equality is that of the whole."""
    if not isinstance(step, dict):
        raise _bad(where, f"step {place} must be a JSON object")
    named = cast("dict[str, object]", step)
    tool, result = named.get("tool"), named.get("result")
    if not isinstance(tool, str) or "args" not in named:
        raise _bad(where, f"step {place} must have `tool`, a text, and `args`")
    if isinstance(result, str) and named.get("result_len") not in (None, len(result)) and "result_sha" in named:
        result = f"{result}\n[sha {named['result_sha']}]"
    error = None
    if named.get("error"):
        error = result if isinstance(result, str) else json.dumps(result)
    return Call(tool=tool, arguments=named["args"], outcome=None if named.get("error") else result, error=error)


def _bad(where: str, what: str) -> Misuse:
    return Misuse(f"{where}: {what}", code="bad_corpus")
