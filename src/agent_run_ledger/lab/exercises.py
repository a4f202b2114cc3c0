"""The lab's four exercises: each begins with a new database and one approval, and ends with what was seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agent_run_ledger.kernel.effects import ActionState
from agent_run_ledger.lab.order import Order, Report, Role
from agent_run_ledger.lab.processes import race, run
from agent_run_ledger.store.ledger_place import LEDGER_FILE, LedgerPlace, ledger_place

RACERS: Final = 8
_OLDER: Final = "before_the_claim.db"

_PROPOSED_AT, _FIRST, _SECOND = 5, 12, 13
"""Ticks: before the window, and two within it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one exercise showed: in words, as facts for the summary, and whether it is what the lab expects to see.

    `unsafe`: what was seen is a danger, expected or not. `reports` are those of all its processes.
    """

    exercise: str
    words: str
    facts: dict[str, Any]
    expected: bool
    reports: tuple[Report, ...]
    unsafe: bool = False


@dataclass(frozen=True, slots=True)
class Desk:
    """One exercise's folder: its log, the reports so far, and its database, there or at a server."""

    folder: Path
    reports: list[Report] = field(default_factory=list[Report])
    place: LedgerPlace | None = None

    @property
    def ledger(self) -> LedgerPlace:
        """Where the database is."""
        return self.place or LedgerPlace(folder=self.folder)

    @property
    def log(self) -> Path:
        """One line for each process."""
        return self.folder / "log.jsonl"

    def order(self, role: Role, worker: str, tick: int, **more: Any) -> Order:
        """Return an order about this exercise's database."""
        return Order(role=role, database=self.ledger.shown, worker=worker, tick=tick, **more)

    def run(self, role: Role, worker: str, tick: int, **more: Any) -> Report:
        """Run one process and return its report."""
        report = run(self.order(role, worker, tick, **more), self.log, self.ledger.env())
        self.reports.append(report)
        return report

    def copy(self, source: Path, destination: Path) -> None:
        """Copy a database file that nobody has open, in a process of its own: none here ever opens the file."""
        order = Order(role=Role.COPY, database=str(source), worker="copier", tick=_FIRST, copy_to=str(destination))
        run(order, self.log)

    def keep_a_copy(self) -> None:
        """Copy the database as it is now."""
        if self.ledger.url:
            self.ledger.keep_a_copy()
        else:
            self.copy(self.folder / LEDGER_FILE, self.folder / _OLDER)

    def put_the_copy_back(self) -> None:
        """Put the copy in the place of the database. Of two files both are kept."""
        if self.ledger.url:
            self.ledger.put_the_copy_back()
        else:
            (self.folder / LEDGER_FILE).rename(self.folder / "claimed.db")
            self.copy(self.folder / _OLDER, self.folder / LEDGER_FILE)


def race_for_one_claim(desk: Desk) -> Seen:
    """All are let go together; one transition is conditional on the state that it leaves, so one of them commits it."""
    orders = [desk.order(Role.CLAIM, f"worker-{number}", _FIRST, wait=True) for number in range(1, RACERS + 1)]
    reports = race(orders, desk.log, desk.ledger.env())
    desk.reports.extend(reports)
    accepted = sum(report.accepted is True for report in reports)
    rejected = sum(report.accepted is False for report in reports)
    return Seen(
        exercise="race",
        words=f"of {len(reports)} processes {accepted} got the claim, {rejected} were refused",
        facts={"race_accepted_claims": accepted, "race_rejected_claims": rejected},
        expected=sorted(report.code for report in reports) == ["", *["claimed"] * (RACERS - 1)],
        reports=tuple(desk.reports),
    )


def exit_before_the_commit(desk: Desk) -> Seen:
    """What was never committed never was: the approval is free, since nothing may be sent before a commit."""
    desk.run(Role.CLAIM, "worker-1", _FIRST, die_at="commit.before")
    found = desk.run(Role.LOOK, "observer", _FIRST)
    second = desk.run(Role.CLAIM, "worker-2", _SECOND)
    claimed = "and got it" if second.accepted else f"and was refused ({second.code})"
    return Seen(
        exercise="exit_before_commit",
        words=f"the action was {found.state} afterwards; another process claimed it {claimed}",
        facts={},
        expected=found.state == ActionState.AVAILABLE and second.accepted is True,
        reports=tuple(desk.reports),
    )


def exit_after_preparation(desk: Desk) -> Seen:
    """Nobody can say whether it was sent: the window is open, the worker is gone, and its claim stays a claim."""
    desk.run(Role.PREPARE, "worker-1", _FIRST, die_at="effect.after")
    found = desk.run(Role.LOOK, "observer", _FIRST)
    second = desk.run(Role.CLAIM, "worker-2", _SECOND)
    refused = "got the claim" if second.accepted else f"was refused ({second.code})"
    return Seen(
        exercise="exit_after_preparation",
        words=f"the action is {found.state}; the replacement {refused}",
        facts={"crash_recovered_state": found.state, "replacement_claim_accepted": second.accepted is True},
        expected=found.state == ActionState.PREPARED and second.code == "prepared",
        reports=tuple(desk.reports),
    )


def old_copy_put_back(desk: Desk) -> Seen:
    """The copy has no record of the claim, and nothing inside it can say so. What is seen here is a danger."""
    desk.keep_a_copy()
    first = desk.run(Role.CLAIM, "worker-1", _FIRST)
    desk.put_the_copy_back()
    second = desk.run(Role.CLAIM, "worker-2", _SECOND)
    again = first.accepted is True and second.accepted is True
    refused = first.code or second.code
    return Seen(
        exercise="old_copy",
        words="two processes hold the claim of one approval" if again else f"a claim was refused ({refused})",
        facts={"old_database_copy_reaccepted_claim": again},
        expected=again,
        reports=tuple(desk.reports),
        unsafe=again,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """One exercise: `name` is that of its folder, `words` say what happens in it."""

    name: str
    words: str
    run: Callable[[Desk], Seen]


EXERCISES: Final = (
    Exercise(name="race", words="eight processes claim one approval at once", run=race_for_one_claim),
    Exercise(
        name="exit_before_commit",
        words="a process dies before its claim is committed; another one claims",
        run=exit_before_the_commit,
    ),
    Exercise(
        name="exit_after_preparation",
        words="a process dies after it prepared; a replacement claims",
        run=exit_after_preparation,
    ),
    Exercise(name="old_copy", words="an old copy of the database is put back after a claim", run=old_copy_put_back),
)
"""In the order in which they are done."""


def carry_out(folder: Path, exercise: Exercise, server: str | None = None) -> Seen:
    """Make the exercise's folder, its database and its one approval, and do it. Incomplete where it cannot be done.

    With `server`, the URL of a database there, its own is made beside that one, and dropped at the end.
    """
    (folder / exercise.name).mkdir()
    with ledger_place(folder / exercise.name, server) as place:
        desk = Desk(place.folder, place=place)
        desk.run(Role.SEED, "lab", _PROPOSED_AT)
        return exercise.run(desk)
