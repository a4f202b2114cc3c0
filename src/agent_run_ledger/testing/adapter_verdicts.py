"""What the adapter kit found, scenario by scenario, for programs and for people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Found(StrEnum):
    """Whether an adapter does what a scenario asks; NOT_SUPPORTED where its framework cannot, as its author says."""

    HOLDS = "holds"
    BROKEN = "broken"
    NOT_SUPPORTED = "not supported"


class AdapterBroken(AssertionError):
    """An adapter does not do what the kit asks for; the message has every scenario's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioVerdict:
    """The verdict of one scenario. `words`: what was seen, each problem a sentence, or why it is not supported."""

    scenario: str
    found: Found
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """The verdicts of all scenarios that were run."""

    subject: str
    all: tuple[ScenarioVerdict, ...]

    @property
    def broken(self) -> tuple[ScenarioVerdict, ...]:
        """Those that do not hold."""
        return tuple(one for one in self.all if one.found is Found.BROKEN)

    def of(self, scenario: str) -> ScenarioVerdict:
        """Return the verdict of one scenario; KeyError where it was not run."""
        for one in self.all:
            if one.scenario == scenario:
                return one
        raise KeyError(scenario)

    def assert_all(self) -> None:
        """Raise AdapterBroken unless every scenario holds or is declared as not supported."""
        if self.broken or not self.all:
            raise AdapterBroken(f"{self.subject}:\n{self.table()}")

    def table(self) -> str:
        """Return a table for people, one scenario a line."""
        wide = max((len(one.scenario) for one in self.all), default=0)
        return "\n".join(f"{one.scenario:<{wide}}  {one.found:<13}  {one.words}" for one in self.all)
