"""Unsafe twins: the product's rules with one of them broken, which the search must refute, and by which receivers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from agent_run_ledger.kernel.effects import Accepted, ActionState, Event, TargetClass, before_claim, reducer
from agent_run_ledger.kernel.effects.decision import Case, Decision
from agent_run_ledger.kernel.effects.states import ARROWS, Arrow, Role

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, kw_only=True)
class Twin:
    """One change: by `patch` in the rules, by `setting` or `kind` in the world; `none`: without a witness.

    `refuted`: the receivers with which there must be a counterexample. `safe`: those that make up for it.
    """

    name: str
    refuted: tuple[str, ...]
    safe: tuple[str, ...] = ()
    patch: Patch = lambda monkeypatch: None
    setting: dict[str, Any] = field(default_factory=dict[str, Any])
    kind: dict[str, Any] = field(default_factory=dict[str, Any])
    none: bool = False


def without(event: Event, *codes: str) -> Patch:
    """The rules without these guards of an event, each of which must be there to be left out."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        guards = reducer.GUARDS[event]
        assert set(codes) <= {guard.code for guard in guards}
        monkeypatch.setitem(reducer.GUARDS, event, tuple(guard for guard in guards if guard.code not in codes))

    return patch


def both(*patches: Patch) -> Patch:
    """Several changes at once."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        for one in patches:
            one(monkeypatch)

    return patch


def with_arrow(
    old: ActionState, event: Event, new: ActionState, role: Role, beside: ActionState | None = None
) -> Patch:
    """The state table with one arrow more."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        arrow = Arrow(old, event, (new,), frozenset({role}), (), beside)
        monkeypatch.setitem(ARROWS, (old, event), arrow)  # type: ignore[arg-type]  # a dict behind its read-only type

    return patch


def not_demoted(*states: ActionState) -> Patch:
    """An admission that leaves members in these states as they are."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        for state in states:
            monkeypatch.delitem(ARROWS, (state, Event.ADMIT))  # type: ignore[arg-type]  # the same

    return patch


def lost_keys_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an admission that lost leaves every unknown key may be proposed, whatever its receiver is."""
    monkeypatch.setattr(before_claim, "FENCING", frozenset(TargetClass))


def doubt_gives_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim whose worker is gone falls back to available, as a lease would."""

    def given_back(case: Case[Any]) -> Decision:
        row = replace(
            case.row,
            state=ActionState.AVAILABLE,
            generation=None,
            floor=case.row.mark,
            claim_id=None,
            claim_key=None,
            worker=None,
            prepare_leaf=False,
            handed_out=False,
        )
        return Accepted(event=Event.DOUBT, old=case.row.state, new=row.state, rows=(row,))

    monkeypatch.setitem(reducer.MOVES, Event.DOUBT, given_back)
    for state in (ActionState.CLAIMED, ActionState.PREPARED):
        with_arrow(state, Event.DOUBT, ActionState.AVAILABLE, Role.OPERATOR)(monkeypatch)


EVIDENCE = ("no_drain", "no_observation", "observation_before_drain", "executors_word", "not_asked")
UNCLAIMED_ENDS = (ActionState.REJECTED, ActionState.EXPIRED, ActionState.REVOKED, ActionState.NOT_EXECUTED)
FREE_KEY = lost_keys_are_free
MAIN = ("N", "V", "F")

TWINS = (
    Twin(name="the executor's word makes not_executed", refuted=MAIN, patch=without(Event.NOT_EXECUTED, *EVIDENCE)),
    Twin(
        name="a timer drains a plain target whose worker is only paused",
        refuted=("N", "Ip"),
        patch=without(Event.OBSERVE, "no_timer"),
        setting={"timed": True},
    ),
    Twin(
        name="a successor before a fence",
        refuted=MAIN,
        patch=with_arrow(
            ActionState.UNRESOLVED, Event.SUCCESSOR, ActionState.SUPERSEDED, Role.REQUESTER, ActionState.PROPOSED
        ),
    ),
    Twin(name="a way back to available", refuted=MAIN, patch=doubt_gives_back),
    Twin(
        name="the epoch is not in the statement, and people do not approve twice",
        refuted=("N", "V"),
        patch=both(FREE_KEY, without(Event.APPROVE, "old_epoch"), without(Event.CLAIM, "few_approvals")),
        setting={"approve_once": True},
    ),
    Twin(
        name="... and with the epoch in the statement",
        refuted=(),
        safe=("N",),
        patch=FREE_KEY,
        setting={"approve_once": True},
    ),
    Twin(name="a key that the admission may have lost is free", refuted=("N",), patch=FREE_KEY),
    Twin(
        name="... and close unprepared needs no fence there",
        refuted=("F-", "F"),
        patch=both(FREE_KEY, without(Event.CLOSE_UNPREPARED, "needs_fence_or_drain")),
    ),
    Twin(
        name="close unprepared without a confirmation",
        refuted=("F-", "F"),
        patch=without(Event.CLOSE_UNPREPARED, "needs_fence_or_drain"),
        none=True,
    ),
    Twin(
        name="no drain",
        refuted=("N", "V", "I"),
        patch=without(Event.NOT_EXECUTED, "no_drain", "observation_before_drain"),
    ),
    Twin(
        name="an outcome that F-minus does not know is taken for none",
        refuted=("F-",),
        patch=without(Event.NOT_EXECUTED, "no_drain", "observation_before_drain"),
    ),
    Twin(
        name="the observation before the drain",
        refuted=("N", "V", "F-"),
        patch=without(Event.NOT_EXECUTED, "observation_before_drain"),
    ),
    Twin(
        name="the caller names a drain that is not on record",
        refuted=("N", "V", "F-"),
        patch=without(Event.OBSERVE, "other_drain"),
    ),
    Twin(
        name="F-minus is drained and not asked",
        refuted=("F-",),
        patch=without(Event.NOT_EXECUTED, "not_asked"),
        none=True,
    ),
    Twin(
        name="after a restore a drain covers only the worker that the row names",
        refuted=("N",),
        patch=without(Event.OBSERVE, "covers_too_little"),
    ),
    Twin(
        name="drain evidence that is not true",
        refuted=("N",),
        setting={"paused_drain": True},
    ),
    Twin(
        name="a permit is handed out again after a restart",
        refuted=("N", "V"),
        safe=("F",),
        patch=without(Event.HAND_OUT, "handed_out", "other_worker", "restarted"),
    ),
    Twin(
        name="something on the path delivers a request twice",
        refuted=("N", "V"),
        safe=("I", "F"),
        setting={"delivered_twice": True, "restores": 0},
    ),
    Twin(name="the witness after the permit", refuted=("N", "I", "F"), patch=without(Event.HAND_OUT, "not_cosigned")),
    Twin(
        name="an admission demotes only available, claimed and prepared",
        refuted=("N",),
        safe=("F",),
        patch=not_demoted(*UNCLAIMED_ENDS, ActionState.PROPOSED),
    ),
    Twin(
        name="an admission does not demote what expired before its claim",
        refuted=("N",),
        patch=not_demoted(*UNCLAIMED_ENDS),
        setting={"ends": ("expire",), "members": 3},
    ),
    Twin(
        name="an admission neither waits nor raises the epoch",
        refuted=(),
        safe=("F",),
        setting={"admission_waits": False, "admission_raises": False},
    ),
    Twin(name="a fence answers for one generation", refuted=("F-", "F"), kind={"fence_per_generation": True}),
    Twin(name="what F-minus accepted is called fenced", refuted=("F-",), kind={"accepted_is_fenced": True}),
    Twin(
        name="F-minus accepts over what it accepted without an outcome",
        refuted=(),
        safe=("F-",),
        kind={"accepts_over_accepted": True},
        none=True,
    ),
    Twin(name="the receiver is restored", refuted=("F-", "F"), setting={"receiver_restored": True}),
)
