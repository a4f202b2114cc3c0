"""What the effect kit saw, scenario by scenario, and which guarantee follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final


class Guarantee(StrEnum):
    """What a tool is good for, the weaker first; the letters are the classes of targets.

    NONE: it can happen twice, or be on record and not happen, although everybody is honest. N: a plain target, once
    where nothing on the way repeats a request and no older history comes back. I: it remembers an idempotency key,
    and is once there too while it remembers. Receivers that check permits or fence are not judged here.
    """

    NONE = "none"
    N = "n"
    I = "i"  # noqa: E741 - the protocol's own letter

    @property
    def rank(self) -> int:
        """Its place, the weakest is 0."""
        return tuple(Guarantee).index(self)

    @property
    def words(self) -> str:
        """The letter, with what it means."""
        return _GUARANTEE_WORDS[self]


_GUARANTEE_WORDS: Final = {
    Guarantee.NONE: "none (less than a plain target)",
    Guarantee.N: "N (a plain target)",
    Guarantee.I: "I (remembers a key)",
}


class Promise(StrEnum):
    """From which class on a scenario must end with one effect. BEYOND: none of them promises that."""

    PLAIN = "plain"
    REMEMBERS = "remembers"
    BEYOND = "beyond"


PROMISED: Final[dict[Promise, frozenset[Guarantee]]] = {
    Promise.PLAIN: frozenset({Guarantee.N, Guarantee.I}),
    Promise.REMEMBERS: frozenset({Guarantee.I}),
    Promise.BEYOND: frozenset(),
}
"""Which classes promise one effect in a scenario of a kind."""

MUST_BE_SEEN: Final = frozenset({"twice", "old_copy"})
"""The scenarios without which nobody can say that a target remembers."""

AGAIN_BY_ITSELF: Final = frozenset({"reply_lost", "reply_late", "answered_502"})
REFUSAL_FOR_DONE: Final = frozenset({"answered_503"})
SILENCE_FOR_NOTHING: Final = frozenset({"probe_cut"})
"""Where a tool is seen to try again, where to take an error for done, and where a probe takes silence for NOTHING."""


class Probe(StrEnum):
    """What the probe was worth, by the count. DENIES is the worst: by its word the effect is done again."""

    NOT_ASKED = "not asked"
    TRUE = "true"
    SILENT = "silent"
    INVENTS = "invents"
    DENIES = "denies"


class Ran(StrEnum):
    """Whether a scenario was carried through. SKIPPED: it has no meaning for this tool. BROKEN: it could not be."""

    YES = "yes"
    SKIPPED = "skipped"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One scenario. `effects`: how many are at the target in the end, `seen`: how many there were when the probe gave
    its worst answer, None where it was not asked. `state`: on record in the end. `met`: whether the fault met the tool,
    or the probe where it was for that, and was not played behind it. `words`: what happened, or why not."""

    name: str
    title: str
    promise: Promise
    ran: Ran
    effects: int | None = None
    seen: int | None = None
    state: str = ""
    probe: Probe = Probe.NOT_ASKED
    met: bool = True
    words: str = ""

    @property
    def by_the_tool(self) -> int:
        """How many effects the tool is to answer for: what follows from a probe that denies is the probe's."""
        times = self.seen if self.probe is Probe.DENIES else self.effects
        return 0 if times is None else times

    @property
    def falsely_done(self) -> bool:
        """Whether it is on record as done by the target's own answer, not the probe's, and is not there."""
        return self.effects == 0 and self.state == "succeeded" and self.probe is not Probe.INVENTS

    @property
    def holds(self) -> bool:
        """Whether nothing happened twice and nothing is falsely on record."""
        return self.ran is Ran.YES and self.by_the_tool <= 1 and not self.falsely_done

    @property
    def shows(self) -> bool:
        """Whether it says anything of the tool: something happened, or went wrong. What never happens shows nothing.

        Nor does a fault that was played behind the tool, but against it.
        """
        seen = bool(self.effects) and self.met
        return self.ran is Ran.BROKEN or (self.ran is Ran.YES and (seen or not self.holds))

    @property
    def works(self) -> bool:
        """Whether it ended as it must where nothing goes wrong: done once, and on record as done."""
        return self.ran is Ran.YES and self.effects == 1 and self.state == "succeeded"

    @property
    def times(self) -> str:
        """How often it happened, in words."""
        if self.effects is None:
            return "–"
        return {0: "never", 1: "once", 2: "TWICE"}.get(self.effects, f"{self.effects} TIMES")


def row_from(told: dict[str, Any]) -> Row:
    """Return the row of its JSON."""
    words = {"promise": Promise(told["promise"]), "ran": Ran(told["ran"]), "probe": Probe(told["probe"])}
    rest: dict[str, Any] = {**told, **words}
    return Row(**rest)


def shown_by(rows: Sequence[Row]) -> Guarantee:
    """Return the strongest class that what was seen supports: what was not seen is not shown."""
    shows = [row for row in rows if row.shows]
    plain = [row.holds for row in shows if row.promise is Promise.PLAIN]
    if not plain or not all(plain):
        return Guarantee.NONE
    if any(not row.holds for row in shows if row.promise is Promise.REMEMBERS):
        return Guarantee.N
    return Guarantee.N if _not_played(shows) else Guarantee.I


def _not_played(rows: Sequence[Row]) -> list[str]:
    """Return which scenarios are missing for anybody to say that a target remembers: played is where it happened."""
    return sorted(MUST_BE_SEEN - {row.name for row in rows if row.ran is Ran.YES and row.effects})


@dataclass(frozen=True, slots=True, kw_only=True)
class KitReport:
    """What the kit saw of one tool. `claimed`: the class that its target says it has.

    `partial`: whether somebody chose the scenarios, so that what is shown is of these alone.
    """

    case: str
    claimed: Guarantee
    rows: tuple[Row, ...]
    partial: bool = False

    @property
    def shown(self) -> Guarantee:
        """See `shown_by`."""
        return shown_by(self.rows)

    @property
    def ok(self) -> bool:
        """Whether as much is shown as is claimed, everything was carried through, and no probe says what is not so."""
        broken = any(row.ran is Ran.BROKEN for row in self.rows)
        return self.shown.rank >= self.claimed.rank and not broken and not self.lies

    @property
    def lies(self) -> tuple[Row, ...]:
        """The scenarios in which the probe said what was not so."""
        return tuple(row for row in self.rows if row.probe in (Probe.DENIES, Probe.INVENTS))

    def of(self, name: str) -> Row:
        """Return the row of one scenario; KeyError where there is none."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    def judged(self, row: Row) -> str:
        """Return what is to be said of a row: in a word or two, against what is claimed."""
        if row.ran is Ran.SKIPPED:
            return "not run"
        if row.ran is Ran.BROKEN:
            return "NOT CARRIED OUT"
        if row.probe is Probe.DENIES:
            return "THE PROBE LIES"
        if not row.holds:
            return "BROKEN" if self.claimed in PROMISED[row.promise] else "UNSAFE, expected"
        if row.probe is Probe.INVENTS:
            return "THE PROBE LIES"
        if row.state == "unresolved":
            return "open"
        if not row.met:
            return "not met"
        return "holds" if row.shows else "shows nothing"

    @property
    def verdict(self) -> str:
        """The first line: what is claimed and what is shown."""
        return f"claimed: {self.claimed.words}; shown: {self.shown.words}"

    @property
    def findings(self) -> tuple[str, ...]:
        """What a person has to know, the worst first, each a sentence."""
        return tuple(_findings(self))

    def table(self) -> str:
        """Return everything as text for people, one scenario a line."""
        cells = [(row.title, row.times, row.state, self.judged(row), row.words) for row in self.rows]
        wide = [max(len(cell[at]) for cell in cells) for at in range(4)]
        lines = ["  ".join([*(f"{cell[at]:<{wide[at]}}" for at in range(4)), cell[4]]) for cell in cells]
        return "\n".join(line.rstrip() for line in (*lines, *self.findings, self.verdict))

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON."""
        return {
            "case": self.case,
            "claimed": self.claimed,
            "shown": self.shown,
            "ok": self.ok,
            "partial": self.partial,
            "findings": list(self.findings),
            "scenarios": [{**asdict(row), "verdict": self.judged(row)} for row in self.rows],
        }


class GuaranteeBroken(AssertionError):
    """A tool has not the guarantee that it should; the message has every scenario."""


def _findings(report: KitReport) -> list[str]:
    rows, claimed, shown = report.rows, report.claimed, report.shown
    denied = [row for row in rows if row.probe is Probe.DENIES]
    invented = [row for row in rows if row.probe is Probe.INVENTS]
    said: list[str] = []
    if denied:
        said.append(
            f"the probe lies: it said NOTHING although the effect was there ({_titles(denied)}); whoever believes it "
            "does it again"
        )
    if invented:
        said.append(
            f"the probe lies: it said EXECUTED although nothing had happened ({_titles(invented)}); whoever believes "
            "it never does it"
        )
    if false := [row for row in rows if row.falsely_done]:
        said.append(f"the tool says that it did it, and it did not: {_titles(false)}")
    for row in rows:
        if row.ran is Ran.YES and row.by_the_tool > 1 and claimed in PROMISED[row.promise]:
            said.append(f"it happened {row.by_the_tool} times: {row.title}")
    said += [f"not carried out: {row.title}: {row.words}" for row in rows if row.ran is Ran.BROKEN]
    if shown is Guarantee.N and claimed is Guarantee.I and (missing := _not_played(rows)):
        said.append(f"nobody can say that it remembers: not played: {', '.join(missing)}")
    if shown.rank > claimed.rank:
        said.append(f"more is shown than is claimed: {shown.words}")
    unsafe = [
        row for row in rows if row.ran is Ran.YES and row.by_the_tool > 1 and claimed not in PROMISED[row.promise]
    ]
    if unsafe:
        said.append(f"it can happen twice, as its class says: {_titles(unsafe)}")
    unseen = [row for row in rows if row.ran is Ran.SKIPPED and row.promise is Promise.REMEMBERS]
    if shown is Guarantee.I and unseen:
        said.append(f"not seen: {_titles(unseen)}")
    said += _not_met(rows)
    if idle := [row for row in rows if row.ran is Ran.YES and not row.shows and not row.effects]:
        said.append(f"it never happened, so nothing is shown by: {_titles(idle)}")
    if open_rows := [row for row in rows if row.ran is Ran.YES and row.state == "unresolved"]:
        said.append(f"nobody could say what became of it, so it waits for a person: {_titles(open_rows)}")
    if report.partial:
        said.append("only chosen scenarios were played: nothing is said of the others")
    return said


def _not_met(rows: Sequence[Row]) -> list[str]:
    """Return what nobody saw, as no fault met the tool or the probe."""
    missed = {row.name for row in rows if row.ran is Ran.SKIPPED or (row.ran is Ran.YES and not row.met)}
    said: list[str] = []
    questions = {"it tries again by itself": AGAIN_BY_ITSELF, "it takes an error for done": REFUSAL_FOR_DONE}
    if unseen := [f"whether {question}" for question, names in questions.items() if names & missed]:
        why = "the kit is not on its way: `start` gives no http://127.0.0.1 URL"
        said.append(f"not seen: {'; '.join(unseen)} ({why})")
    has_a_probe = any(row.probe not in (Probe.NOT_ASKED, Probe.SILENT) for row in rows)
    if has_a_probe and SILENCE_FOR_NOTHING & missed:
        said.append("not seen: whether the probe says NOTHING where nobody answers (it does not ask by place.url)")
    return said


def _titles(rows: Sequence[Row]) -> str:
    """Return at most three titles."""
    named = [row.title for row in rows[:3]]
    return "; ".join([*named, f"and {len(rows) - 3} more"] if len(rows) > 3 else named)
