"""What an image of a power cut holds, and whether a ledger goes on from it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_run_ledger.errors import LedgerError
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.ledger.run_ledger import RunLedger
from agent_run_ledger.store.ledger_place import LEDGER_FILE
from agent_run_ledger.testing.body_counter import FILE_NAME, BodyCounter
from agent_run_ledger.testing.ledger_check import check_ledger
from agent_run_ledger.testing.power_life import RecordedLife, live, opened
from agent_run_ledger.testing.recorded_calls import RecordedCall, recorded_calls
from agent_run_ledger.testing.scenarios import Scenario

_FORMAT_AT = 18
_ROLLBACK_JOURNAL = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """How many leaves of the recorded log an image holds, and in words what does not hold; "" when everything does."""

    leaves: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterCut:
    """One case for a check of your own: what the image had recorded, and the life that went on from it in `workdir`."""

    workdir: Path
    recorded: frozenset[RecordedCall]
    result: Any

    @property
    def ledger(self) -> Path:
        """The path of the ledger after the second life."""
        return self.workdir / LEDGER_FILE

    @property
    def bodies(self) -> BodyCounter:
        """The bodies that ran in the second life, if the scenario counts them in `bodies.log` in its directory."""
        return BodyCounter(self.workdir / FILE_NAME)


class _DoesNotHold(AssertionError):
    """One of the conditions of `cut_power_everywhere` is broken."""


@dataclass(slots=True, kw_only=True)
class SecondLives:
    """Goes on from images of one recorded life. The scenario itself runs again from the first `most` images that hold
    as many leaves, as it would in all of them: for the others one more run has to do."""

    first: RecordedLife
    scenario: Scenario
    check: Callable[[AfterCut], None] | None
    look: Callable[[Path], None] | None = None
    most: int
    begun: Counter[int] = field(default_factory=Counter[int])

    def go_on(self, directory: Path) -> Found:
        """Check the image in `directory`/image. It stays as it is: one copy is looked at, another goes on."""
        leaves = 0
        try:
            leaves, recorded = _look(self.first, looked_at := _copied(directory, "look"))
            if leaves and self.look is not None:
                self.look(looked_at / LEDGER_FILE)
            self._live(_copied(directory, "life"), leaves, recorded)
        except (AssertionError, LedgerError) as error:
            return Found(leaves=leaves, problem=f"{type(error).__name__}: {error}")
        except Exception as error:  # of the scenario: whatever it raises, it did not without a cut
            return Found(leaves=leaves, problem=f"the second life raised {type(error).__name__}: {error}")
        return Found(leaves=leaves, problem="")

    def _live(self, workdir: Path, leaves: int, recorded: frozenset[RecordedCall]) -> None:
        ledger, second = workdir / LEDGER_FILE, None
        self.begun[leaves] += 1
        if not leaves or self.begun[leaves] <= self.most:
            second = self._again(workdir, recorded)
        _one_more_run(ledger)
        with opened(ledger) as log:
            check_ledger(ledger)
        if log[:leaves] != self.first.log[:leaves]:
            raise _DoesNotHold("what the image held was gone after the second life")
        if second is not None and self.check is not None:
            self.check(second)

    def _again(self, workdir: Path, recorded: frozenset[RecordedCall]) -> AfterCut:
        result = live(self.scenario, workdir)
        if result != self.first.result:
            raise _DoesNotHold(f"the second life returned {result!r}, without a cut {self.first.result!r}")
        second = AfterCut(workdir=workdir, recorded=recorded, result=result)
        results = Counter(call.name for call in recorded if call.kind is RecordKind.RESULT)
        if again := results & second.bodies.count():
            raise _DoesNotHold(f"recorded before the cut and run again: {', '.join(sorted(again))}")
        return second


def _copied(directory: Path, name: str) -> Path:
    return Path(shutil.copytree(directory / "image", directory / name))


def _look(first: RecordedLife, workdir: Path) -> tuple[int, frozenset[RecordedCall]]:
    """Return how many leaves there are and the calls they record."""
    ledger = workdir / LEDGER_FILE
    with opened(ledger) as log:
        if not log:
            return 0, frozenset()
        if log != first.log[: len(log)]:
            raise _DoesNotHold("the log is not the beginning of the one that was written")
        check_ledger(ledger)
        return len(log), frozenset(recorded_calls(ledger))


def _one_more_run(ledger: Path) -> None:
    with RunLedger(None, ledger, create=False, durability=_durability(ledger)) as more:
        more.step(_add_one)
        if more.execute(number=1) != 2:
            raise _DoesNotHold("one more run did not return what its step returned")


def _add_one(number: int) -> int:
    return number + 1


def _durability(ledger: Path) -> str:
    """Return the setting a closed store was written with: the database header says which journal it has."""
    with ledger.open("rb") as file:
        return "extra" if file.read(_FORMAT_AT + 1)[_FORMAT_AT:] == bytes([_ROLLBACK_JOURNAL]) else "full"
