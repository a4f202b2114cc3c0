"""The list of mutants: one change each to a guard, and the test that must notice."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

FIELDS = {"file", "before", "after", "test", "why"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change: in `file`, `before` becomes `after`, and then `test` must fail. `why` says what would go wrong."""

    file: str
    before: str
    after: str
    test: str
    why: str

    def flaw(self, root: Path) -> str | None:
        """What is wrong with this entry, apart from its test; None when it can be applied."""
        path = root / self.file
        if not self.file.startswith("src/") or not path.is_file():
            return f"{self.file}: no such file below src/"
        count = path.read_text(encoding="utf-8").count(self.before)
        if count != 1:
            return f"{self.file}: {self.before!r} occurs {count} times, not once"
        return "before and after are the same" if self.before == self.after else None

    def apply(self, root: Path) -> None:
        """Change the file below `root`."""
        path = root / self.file
        path.write_text(path.read_text(encoding="utf-8").replace(self.before, self.after), encoding="utf-8")


def read_mutants(listed: Path) -> list[Mutant]:
    """Every mutant of a list; an entry with a missing or unknown field is a ValueError."""
    entries = tomllib.loads(listed.read_text(encoding="utf-8")).get("mutant", [])
    for entry in entries:
        if set(entry) != FIELDS:
            raise ValueError(f"a mutant has exactly the fields {sorted(FIELDS)}, not {sorted(entry)}")
    return [Mutant(**entry) for entry in entries]
