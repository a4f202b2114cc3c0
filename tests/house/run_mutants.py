"""Applies each mutant in a copy of the sources and demands that its named test fails."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from tests.house.mutants import Mutant, read_mutants  # noqa: E402

TESTS_FAILED = 1  # pytest's exit code; anything else but 0 means that no test came to a verdict
LIMIT_S = 300


def run_test(sources: Path, test: str) -> int | None:
    """pytest's exit code for one test over the package in `sources`, or None when it did not end in time."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(sources),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_ADDOPTS": "",
    }
    command = [interpreter(test), "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "", test]
    try:
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, timeout=LIMIT_S, check=False
        ).returncode
    except subprocess.TimeoutExpired:
        return None


def interpreter(test: str) -> str:
    """The Python of the framework that a test needs, where its environment is made; else this one."""
    folder = Path(test).parts[:3]
    theirs = Path(sys.prefix) / "adapters" / folder[-1] / "bin" / "python"
    return str(theirs) if folder[:2] == ("tests", "adapters") and theirs.exists() else sys.executable


def copy_sources(place: Path) -> Path:
    """A copy of `src`, without compiled files, that PYTHONPATH can point to."""
    shutil.copytree(ROOT / "src", place / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    return place / "src"


def verdict(mutant: Mutant, run: int | None) -> str | None:
    """None when the mutant was noticed, else what happened instead."""
    if run == TESTS_FAILED:
        return None
    if run == 0:
        return f"SURVIVED: {mutant.test} passes"
    return f"NO VERDICT: {mutant.test} " + (
        "did not end in time" if run is None else f"ended with pytest's exit code {run}"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run every listed mutant, or those whose file or test contains one of the words; exit code 1 when one survives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only mutants whose file or test contains one of these")
    parser.add_argument("--list", type=Path, default=ROOT / "tests" / "house" / "mutants.toml")
    chosen = parser.parse_args(arguments)
    words: list[str] = chosen.words
    mutants = [
        m for m in read_mutants(chosen.list) if not words or any(word in m.file or word in m.test for word in words)
    ]
    failed = 0
    sound: dict[str, int | None] = {}
    for number, mutant in enumerate(mutants, 1):
        with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
            Path(folder).chmod(0o755)  # some tests run a child as another user, who must be able to read the copy
            sources = copy_sources(Path(folder))
            trouble = mutant.flaw(ROOT)
            if trouble is None and mutant.test not in sound:
                sound[mutant.test] = run_test(sources, mutant.test)
            if trouble is None and sound[mutant.test] != 0:
                trouble = f"NO VERDICT: {mutant.test} does not pass on the sources as they are"
            if trouble is None:
                mutant.apply(Path(folder))
                trouble = verdict(mutant, run_test(sources, mutant.test))
        failed += trouble is not None
        print(f"[{number}/{len(mutants)}] {mutant.file}: {mutant.why}: {trouble or 'noticed'}", flush=True)
    print(f"{len(mutants) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
