"""The officers' clock correction: who may, and what is on record of it (format: clock v1)."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import orjson

from agent_run_ledger.kernel.effects.action import Standing
from agent_run_ledger.kernel.effects.commands import Actor
from agent_run_ledger.kernel.effects.decision import Rejected
from agent_run_ledger.kernel.effects.plain import from_plain, to_plain
from agent_run_ledger.kernel.effects.reading import Sample, read_time
from agent_run_ledger.kernel.effects.states import LedgerState, Role
from agent_run_ledger.kernel.envelope import Change

CLOCK_DOMAIN: Final = b"agent-run-ledger/clock/v1\n"
CLOCK_VERSION: Final = 1
CORRECTED: Final = "time_corrected"
"""The new state in the change of a correction; the old one is the ledger's, `time_untrusted`."""

_KEYS: Final = frozenset({"v", "command", "ledger", "old", "new"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectClock:
    """Officers' word that the clock is right as it is now. `people` decide together with the actor."""

    actor: Actor
    people: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """One correction: who, where the ledger stood, the mark that is set aside and the one that takes its place."""

    command: CorrectClock
    ledger: Standing
    old: Sample
    new: Sample

    @property
    def later_ms(self) -> int:
        """The later one of both marks: no time that was believed before is after it, by the clocks of then or of now.

        Only within this history: what a lost one believed, nobody knows.
        """
        return max(self.old.wall_ms, self.new.wall_ms)


def correct(asked: Correction) -> Standing | Rejected:
    """Return the ledger after a correction, or why there is none.

    Codes: `wrong_role`, `ledger_…` where the ledger waits for more than its clock, `time_trusted`, `few_officers`. A
    correction never looks at an action: what it means for one, the guards say.
    """
    command, ledger = asked.command, asked.ledger
    if Role.OFFICER not in command.actor.roles:
        return Rejected("wrong_role", "only an officer may")
    if ledger.state not in (LedgerState.OPEN, LedgerState.TIME_UNTRUSTED):
        return Rejected(f"ledger_{ledger.state}", f"a ledger that is {ledger.state} waits for more than its clock")
    if ledger.state is LedgerState.OPEN or read_time(asked.old, asked.new).trusted:
        return Rejected("time_trusted", "the clock is trusted, so there is nothing to correct")
    if len(command.people | {command.actor.principal}) < ledger.officers_needed:
        return Rejected("few_officers", "the policy wants more officers for this")
    return replace(
        ledger,
        state=LedgerState.OPEN,
        corrections=ledger.corrections + 1,
        corrected_ms=max(ledger.corrected_ms, asked.later_ms),
        clock_doubted=False,
    )


def correction_bytes(correction: Correction) -> bytes:
    """Return a correction as sorted JSON: {"v", "command", "ledger", "old", "new"} (docs/formats/effect.md)."""
    tree = {name: to_plain(getattr(correction, name)) for name in ("command", "ledger", "old", "new")}
    return _sorted_json({**tree, "v": CLOCK_VERSION})


def correction_from(payload: bytes) -> Correction:
    """Return what `correction_bytes` wrote. ValueError for any other bytes."""
    read = orjson.loads(payload)
    tree = cast("dict[str, Any]", read) if isinstance(read, dict) else {}
    if tree.get("v") != CLOCK_VERSION or tree.keys() != _KEYS or _sorted_json(tree) != payload:
        raise ValueError("this is no record of a clock correction, version 1")
    return Correction(
        command=from_plain(CorrectClock, tree["command"]),
        ledger=from_plain(Standing, tree["ledger"]),
        old=from_plain(Sample, tree["old"]),
        new=from_plain(Sample, tree["new"]),
    )


def correction_mac(salt: bytes, payload: bytes) -> bytes:
    """Return HMAC-SHA256(salt, CLOCK_DOMAIN ‖ payload), 32 bytes: what the leaf holds of a correction."""
    return hmac.digest(salt, CLOCK_DOMAIN + payload, "sha256")


def change_of_correction(correction: Correction, mac: bytes) -> Change:
    """Return the leaf's line of a correction."""
    ledger = correction.ledger
    return Change(type="store", id=ledger.ledger_id, old=str(ledger.state), new=CORRECTED, generation=0, mac=mac)


def is_correction(change: Mapping[str, Any]) -> bool:
    """Return whether a line of a leaf says that the clock was corrected."""
    return (change["type"], change["new"]) == ("store", CORRECTED)


def _sorted_json(tree: Any) -> bytes:
    return orjson.dumps(tree, option=orjson.OPT_SORT_KEYS)
