"""What one demonstration is about and where its files are: the same for each of its lives."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agent_run_ledger.errors import Misuse

RUN_ID = "demo-audit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The inputs of the run and its folder. `roots` are absolute paths; no secret is in here."""

    folder: Path
    label: str
    roots: tuple[str, ...]
    reviews: int
    run_id: str = RUN_ID

    @property
    def database(self) -> Path:
        """The ledger's file."""
        return self.folder / "runs.db"

    @property
    def meter(self) -> Path:
        """What was really paid, line by line."""
        return self.folder / "meter.jsonl"

    @property
    def lives(self) -> Path:
        """How each life ended, line by line."""
        return self.folder / "lives.jsonl"

    @property
    def report(self) -> Path:
        """The audit."""
        return self.folder / "audit.md"


def job_file(folder: Path) -> Path:
    """Return where the job of a folder is kept."""
    return folder / "job.json"


def write_job(job: Job) -> None:
    """Keep the job in its folder, for its later lives."""
    kept = {name: value for name, value in asdict(job).items() if name != "folder"}
    job_file(job.folder).write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def read_job(folder: Path) -> Job:
    """Return the job of a folder; Misuse where there is none that can be read."""
    try:
        parts: dict[str, Any] = json.loads(job_file(folder).read_text("utf-8"))
        return Job(
            folder=folder,
            label=str(parts["label"]),
            roots=tuple(map(str, parts["roots"])),
            reviews=int(parts["reviews"]),
            run_id=str(parts["run_id"]),
        )
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise Misuse(f"{job_file(folder)} is not the job of a demo", code="bad_job") from error
