"""Makes each peer's own environment from its lock file, or says why it cannot be made."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

STEERING = ("PYTHON", "VIRTUAL_ENV", "AGENT_RUN_LEDGER_", "DBOS", "LANG", "OTEL_", "UNHINGED_")
"""Variables that begin so would steer a contender: none is handed on."""

_LISTING = """
import importlib.metadata, json
print(json.dumps({d.name.lower().replace("_", "-"): [d.version, [
    d.metadata["License-Expression"] or "", d.metadata["License"] or "",
    *(c for c in d.metadata.get_all("Classifier", []) if c.startswith("License")),
]] for d in importlib.metadata.distributions()}))
"""


class NotInstalled(Exception):
    """An environment could not be made; the message says why in one line."""


def environment_python(name: str, lock: Path, parent: Path) -> Path:
    """Return the interpreter of the environment `name` below `parent`, made anew where the lock file has changed.

    Only what the lock file pins is installed, each file checked against its hash, and only as wheels: nothing is built.
    Raises NotInstalled.
    """
    place = parent / name
    python = place / "bin" / "python"
    stamp = place / f".made-{_fingerprint(lock, place)}"
    if stamp.exists() and python.exists():
        return python
    shutil.rmtree(place, ignore_errors=True)
    _run([sys.executable, "-m", "venv", "--without-pip", str(place)], f"no environment could be made in {place}")
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-input", "--retries=1"]
    _run(
        [*install, "--require-hashes", "--only-binary=:all:", "-r", str(lock)],
        f"the packages of {lock.name} could not be installed",
    )
    stamp.touch()
    return python


def packages(python: Path | str) -> dict[str, tuple[str, str]]:
    """Return version and licence of every installed distribution by its name; an unknown licence is "unknown"."""
    listed = _run([str(python), "-c", _LISTING], "the installed packages cannot be listed")
    return {
        name: (version, licence_of(said))
        for name, (version, said) in sorted(json.loads(listed).items())
        if name not in ("pip", "setuptools")
    }


def licence_of(said: list[str]) -> str:
    """Return the licence in a few words from what a package's metadata says of it, best source first."""
    for words in said:
        last = words.rsplit(" :: ", 1)[-1].strip()
        if last and "\n" not in last and len(last) <= 60:
            return last
    return "unknown"


def clean_environ(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that a contender gets: those of this process without what steers it."""
    kept = {k: v for k, v in (os.environ if given is None else given).items() if not k.startswith(STEERING)}
    return {**kept, "PYTHONNOUSERSITE": "1", "LC_ALL": "C.UTF-8"}


def _fingerprint(lock: Path, place: Path) -> str:
    content = lock.read_bytes() + f"{sys.version} {sys.base_prefix} {place.resolve()}".encode()
    return hashlib.sha256(content).hexdigest()[:16]


def _run(command: list[str], trouble: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environ(), check=False)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise NotInstalled(f"{trouble}: {errors[-1].removeprefix('ERROR: ') if errors else 'no reason was given'}")
    return done.stdout
