"""What TLC is asked about the protocol: each case with its configuration and the verdict of the exhaustive search."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from tests.house.tree import ROOT

PAGE = ROOT / "docs" / "internals" / "protocol.md"
FOLDER = ROOT / "docs" / "internals" / "protocol"

CLASSES = {"N": "N", "V": "V", "I": "I", "Ip": "Ip", "F⁻": "F_minus", "F": "F"}
"""The words of the page for receivers, and those of the module."""

FIRST = "Once"
HOLDS = "Once HandedOutOnlyGrows Truthful OneOpenMember"
STEPWISE = "MarksOnlyGrow NoWayBack ClosedStays"


@dataclass(frozen=True, kw_only=True)
class Twin:
    """The rules that a row of the page's second table breaks. `none`: without a witness."""

    name: str
    broken: tuple[str, ...]
    none: bool = False
    restores: int = 1
    members: int = 2
    ends: tuple[str, ...] = ()


TWINS = {
    "the executor's word makes not_executed": Twin(name="word", broken=("word",)),
    "a timer drains a plain target whose worker is only paused": Twin(name="timer", broken=("timer",)),
    "a successor before a fence": Twin(name="successor", broken=("successor",)),
    "a way back to available": Twin(name="back", broken=("back",)),
    "the epoch is not in the statement, and people do not approve twice": Twin(
        name="epoch", broken=("approve_once", "epoch", "lost_key")
    ),
    "... and with the epoch in the statement": Twin(name="epoch_signed", broken=("approve_once", "lost_key")),
    "a key that the admission may have lost is free": Twin(name="lost_key", broken=("lost_key",)),
    "... and close unprepared needs no fence there": Twin(name="lost_close", broken=("lost_key", "unconfirmed_close")),
    "close unprepared without a confirmation (no witness)": Twin(
        name="unconfirmed_close", broken=("unconfirmed_close",), none=True
    ),
    "no drain": Twin(name="no_drain", broken=("no_drain",)),
    "an outcome that F-minus does not know is taken for none": Twin(name="unknown_is_none", broken=("no_drain",)),
    "the observation before the drain": Twin(name="early_look", broken=("early_look",)),
    "the caller names a drain that is not on record": Twin(name="named_drain", broken=("early_look",)),
    "F-minus is drained and not asked (no witness)": Twin(name="not_asked", broken=("not_asked",), none=True),
    "after a restore a drain covers only the worker that the row names": Twin(name="covers", broken=("covers",)),
    "drain evidence that is not true": Twin(name="untrue_drain", broken=("untrue_drain",)),
    "a permit is handed out again after a restart": Twin(name="again", broken=("again",)),
    "something on the path delivers a request twice": Twin(name="twice", broken=("twice",), restores=0),
    "the witness after the permit": Twin(name="late_witness", broken=("late_witness",)),
    "an admission demotes only available, claimed and prepared": Twin(name="demote_few", broken=("demote_few",)),
    "an admission does not demote what expired before its claim": Twin(
        name="demote_open", broken=("demote_open",), members=3, ends=("expire",)
    ),
    "an admission neither waits nor raises the epoch": Twin(name="no_wait", broken=("no_raise", "no_wait")),
    "a fence answers for one generation": Twin(name="per_generation", broken=("per_generation",)),
    "what F-minus accepted is called fenced": Twin(name="accepted_fenced", broken=("accepted_fenced",)),
    "F-minus accepts over what it accepted without an outcome (no witness)": Twin(
        name="accepts_over", broken=("accepts_over",), none=True
    ),
    "the receiver is restored": Twin(name="receiver_restored", broken=("receiver_restored",)),
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run of TLC. `steps`: of the shortest way to a second effect, None where there must be none.

    `ways`: that from every state there is a way on is checked too; `trap`: what some state must have no way to.
    """

    name: str
    row: str
    kind: str
    steps: int | None
    witness: bool = True
    restores: int = 1
    members: int = 2
    silences: bool = False
    ends: tuple[str, ...] = ()
    observer: bool = True
    broken: tuple[str, ...] = ()
    ways: bool = False
    trap: str = ""

    @property
    def expected(self) -> str:
        """The verdict that the search gives."""
        if self.trap:
            return self.trap
        return "safe" if self.steps is None else f"refuted after {self.steps}"

    @property
    def module(self) -> str:
        """The root module."""
        return "Ways" if self.ways else "Effects"

    def configuration(self) -> str:
        """What stands in the file `NAME.cfg`."""
        whole = not self.broken
        return "\n".join(
            [
                f"\\* {self.row}: {self.kind}, {self.expected}. Made by `python -m tests.model.tla --write`.",
                f"SPECIFICATION {'WaysSpec' if self.ways else 'Spec'}",
                f"INVARIANTS {HOLDS if whole else FIRST}",
                *([f"PROPERTIES {STEPWISE}"] if whole else []),
                "CONSTANTS",
                f'    Class = "{self.kind}"',
                f"    Witness = {_bool(self.witness)}",
                f"    Restores = {self.restores}",
                "    Generations = 2",
                f"    Members = {self.members}",
                f"    Silences = {_bool(self.silences)}",
                f"    Ends = {_set(self.ends)}",
                f"    Observer = {_bool(self.observer)}",
                f"    Broken = {_set(self.broken)}",
                "",
            ]
        )


def _bool(value: bool) -> str:
    return str(value).upper()


def _set(words: tuple[str, ...]) -> str:
    return "{" + ", ".join(f'"{word}"' for word in words) + "}"


def cases() -> list[Case]:
    """Everything that TLC is asked: the verdicts of the page's tables, and the gate's other searches."""
    text = PAGE.read_text(encoding="utf-8")
    return [*_main(text), *_without_restore(), *_more(), *_twins(text)]


def _rows(text: str, head: str) -> list[list[str]]:
    """The cells of the table whose first heading is `head`."""
    lines = text[text.index(f"| {head} |") :].splitlines()[2:]
    table = lines[: next(n for n, line in enumerate([*lines, ""]) if not line.startswith("|"))]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def _main(text: str) -> list[Case]:
    found: list[Case] = []
    for kinds, *verdicts in _rows(text, "class"):
        for witness, verdict in zip((False, True), verdicts, strict=True):
            refuted = re.fullmatch(r"two effects after (\d+) steps", verdict)
            if refuted is None and verdict != "safe":
                raise ValueError(f"no verdict: {verdict}")
            steps = int(refuted[1]) if refuted else None
            policy = "witness" if witness else "none"
            found += [
                Case(
                    name=f"{CLASSES[kind]}.{policy}",
                    row=f"one restore, {'witness before the permit' if witness else 'no witness'}",
                    kind=CLASSES[kind],
                    witness=witness,
                    steps=steps,
                    ways=steps is None,
                )
                for kind in kinds.split(", ")
            ]
    return found


def _without_restore() -> list[Case]:
    return [
        Case(
            name=f"{kind}.{'witness' if witness else 'none'}.unrestored",
            row=f"no restore, {'witness that falls silent' if witness else 'no witness'}",
            kind=kind,
            witness=witness,
            restores=0,
            silences=witness,
            steps=None,
            ways=True,
        )
        for kind in CLASSES.values()
        for witness in (False, True)
    ]


def _more() -> list[Case]:
    ends = ("reject", "revoke", "expire")
    ended = Case(
        name="N.ends", row="no restore, all ends", kind="N", restores=0, members=3, ends=ends, steps=None, ways=True
    )
    unseen = Case(
        name="N.unseen",
        row="nobody can look: written off",
        kind="N",
        observer=False,
        steps=None,
        ways=True,
        trap="never done",
    )
    stuck = Case(
        name="N.stuck",
        row="nobody can look, and nothing is written off",
        kind="N",
        observer=False,
        broken=("no_write_off",),
        steps=None,
        ways=True,
        trap="never closed",
    )
    return [ended, replace(ended, name="F.ends", kind="F"), unseen, stuck]


def _twins(text: str) -> list[Case]:
    found: list[Case] = []
    for row, refuted, safe in _rows(text, "twin"):
        twin = TWINS[row]
        verdicts = [(m[1], int(m[2])) for m in re.finditer(r"(\S+) (\d+)", refuted)]
        for kind, steps in [*verdicts, *((word, None) for word in safe.split(", ") if word)]:
            found.append(
                Case(
                    name=f"twin.{twin.name}.{CLASSES[kind]}",
                    row=row,
                    kind=CLASSES[kind],
                    steps=steps,
                    witness=not twin.none,
                    restores=twin.restores,
                    members=twin.members,
                    ends=twin.ends,
                    broken=twin.broken,
                )
            )
    return found


def differing(folder: Path = FOLDER) -> list[str]:
    """The configurations that are not what they would be if they were written anew, or that nobody asked for."""
    wanted = {f"{case.name}.cfg": case.configuration() for case in cases()}
    there = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.cfg")}
    return sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))


def write(folder: Path = FOLDER) -> None:
    """Write every configuration anew."""
    for path in folder.glob("*.cfg"):
        path.unlink()
    for case in cases():
        (folder / f"{case.name}.cfg").write_text(case.configuration(), encoding="utf-8")
