"""Runs the lab: makes its folder, does each exercise, compares what was seen with what is expected, writes it down."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent_run_ledger.errors import Misuse
from agent_run_ledger.lab.exercises import EXERCISES, Seen, carry_out
from agent_run_ledger.lab.order import Incomplete
from agent_run_ledger.lab.request import request_bytes

Journals = frozenset[tuple[str, int | str]]

JOURNAL: Final[Journals] = frozenset({("delete", 3)})
"""A rollback journal that is deleted at each commit, and synchronous EXTRA, as SQLite names them."""

AT_SERVER: Final[Journals] = frozenset({("server", "on"), ("server", "remote_apply")})
"""That a commit at a server is on its disk when it returns, as its synchronous_commit names it."""

_NOT_OURS = 0o077


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a complete run of the lab saw. `summary` is what summary.json says, and nothing of it is about production.

    `journals` are the journal modes and synchronous levels that SQLite named, with the number of connections;
    `not_protected` is what the ledger's own status warns of.
    """

    summary: dict[str, Any]
    seen: tuple[Seen, ...]
    journals: Mapping[tuple[str, int | str], int]
    not_protected: tuple[str, ...]

    @property
    def as_expected(self) -> bool:
        """Whether all was as the lab expects, the unsafe observation among it."""
        return bool(self.summary["expected_lab_observations"])


def run_lab(output: Path, *, tell: Callable[[str], None], server: str | None = None) -> Outcome:
    """Do the exercises in a new folder `output`, which only this user can read, and return what was seen.

    `server`: the URL of a database at a server whose user may make databases. Each exercise then has one of its own
    there, which is dropped at its end, and only the logs stay in the folder.

    `tell` is given a line before each exercise. Misuse("output_exists", "no_parent", "bad_output") before anything
    is done. Incomplete where an exercise could not be carried through, or was interrupted: what is written by
    then stays, and there is no summary.json.
    """
    with _private_files():
        _make(output)
        try:
            return _run(output, tell, server)
        except Incomplete as error:
            raise _stopped(output, error.message) from error
        except OSError as error:
            raise _stopped(output, f"{error.filename or 'a file'}: {error.strerror}") from error
        except KeyboardInterrupt as error:
            raise _stopped(output, "it was interrupted") from error


def compare(seen: tuple[Seen, ...], durable: Journals = JOURNAL) -> Outcome:
    """Return what all exercises showed together. Each process must have written through a connection that is so."""
    reports = [report for one in seen for report in one.reports]
    journals = Counter((report.journal_mode, report.synchronous) for report in reports)
    facts = {name: fact for one in seen for name, fact in one.facts.items()}
    facts["expected_lab_observations"] = (
        bool(journals) and set(journals) <= durable and all(one.expected for one in seen)
    )
    facts["production_authorization"] = "not_assessed"
    return Outcome(
        summary=dict(sorted(facts.items())),
        seen=seen,
        journals=journals,
        not_protected=tuple(sorted({words for report in reports for words in report.not_protected})),
    )


def _run(output: Path, tell: Callable[[str], None], server: str | None) -> Outcome:
    (output / "request.json").write_bytes(request_bytes())
    seen: list[Seen] = []
    for number, exercise in enumerate(EXERCISES, 1):
        tell(f"{number}/{len(EXERCISES)} {exercise.words} ...")
        seen.append(carry_out(output, exercise, server))
    outcome = compare(tuple(seen), JOURNAL if server is None else AT_SERVER)
    partial = output / "summary.json.partial"
    with partial.open("w", encoding="ascii") as file:
        file.write(json.dumps(outcome.summary, indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    partial.rename(output / "summary.json")
    return outcome


def _make(output: Path) -> None:
    try:
        str(output).encode()
    except UnicodeEncodeError as error:
        words = f"{str(output)!r} is no text: a database there cannot be named"
        raise Misuse(words, code="bad_output", hint="name the folder in UTF-8") from error
    try:
        output.mkdir(mode=0o700)
    except FileExistsError as error:
        hint = "every run has a folder of its own; what an earlier one left is evidence"
        raise Misuse(f"{str(output)!r} exists", code="output_exists", hint=hint) from error
    except (FileNotFoundError, NotADirectoryError) as error:
        words = f"there is no folder {str(output.parent)!r} to make {output.name!r} in"
        raise Misuse(words, code="no_parent", hint="the lab makes one folder, and none above it") from error
    except OSError as error:
        raise Incomplete(f"{str(output)!r} cannot be made: {error.strerror}") from error


def _stopped(output: Path, words: str) -> Incomplete:
    hint = f"what it wrote stays in {str(output)!r}; run it again in another folder"
    return Incomplete(f"the lab is incomplete: {words}", hint=hint)


@contextmanager
def _private_files() -> Generator[None, None, None]:
    before = os.umask(_NOT_OURS)
    try:
        yield
    finally:
        os.umask(before)
