"""Actions in words: their state, their evidence, what happened to them, and what may be done next by whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_run_ledger.cli.words import counted, duration_words, iso
from agent_run_ledger.kernel.effects.advice import Step
from agent_run_ledger.kernel.effects.ages import HELD
from agent_run_ledger.kernel.effects.evidence import Covers, Drain, DrainKind, FenceAnswer, Found, Observation, Receipt
from agent_run_ledger.kernel.effects.states import FENCING, ActionState

if TYPE_CHECKING:
    from agent_run_ledger.cli.settings import Setting
    from agent_run_ledger.effects.views import ActionView
    from agent_run_ledger.kernel.effects.action import Action
    from agent_run_ledger.kernel.effects.advice import Way
    from agent_run_ledger.ledger.effect_inbox import Waiting

STEP_WORDS: Final = {
    Step.APPROVE: "approve it, or reject it",
    Step.EDIT: "put other bytes in its place",
    Step.REJECT: "reject it",
    Step.CLAIM: "claim it and carry it out",
    Step.REVOKE: "revoke it: that cancels nothing that was sent",
    Step.EXPIRE: "close it as expired",
    Step.DOUBT: "record the doubt, as an operator",
    Step.DOUBT_BY_EXPIRY: "record the doubt: its worker is silent",
    Step.LOOK: "look at the target, and record what is there",
    Step.DRAIN_BY_EXPIRY: "record the drain: every permit is over, and the receiver checks that",
    Step.DRAIN_PATH_DEAD: "record the drain: every way to the target is dead",
    Step.HAPPENED: "decide that it happened",
    Step.DID_NOT_HAPPEN: "decide that it did not happen",
    Step.NEVER_PREPARED: "close it: it was never prepared",
    Step.WRITE_OFF: "write it off, where nobody can look; takes two people, and nothing ever follows",
    Step.SUCCESSOR: "propose a successor, which needs approvals of its own",
}

_COMMANDS: Final[dict[Step, tuple[str, ...]]] = {
    Step.APPROVE: ("approvals", "grant"),
    Step.REJECT: ("approvals", "reject"),
    Step.REVOKE: ("approvals", "revoke"),
    Step.EXPIRE: ("effects", "expire"),
    Step.DOUBT: ("effects", "doubt"),
    Step.DOUBT_BY_EXPIRY: ("effects", "doubt", "--expired"),
    Step.LOOK: ("effects", "observe", "--found", "WHAT"),
    Step.DRAIN_BY_EXPIRY: ("effects", "observe", "--drain", "expiry"),
    Step.DRAIN_PATH_DEAD: ("effects", "observe", "--drain", "path-dead", "--covers", "WHOSE"),
    Step.HAPPENED: ("effects", "reconcile", "--happened"),
    Step.DID_NOT_HAPPEN: ("effects", "reconcile", "--did-not-happen"),
    Step.NEVER_PREPARED: ("effects", "reconcile", "--never-prepared"),
    Step.WRITE_OFF: ("effects", "reconcile", "--write-off", "--nobody-can-look"),
    Step.SUCCESSOR: ("actions", "successor"),
}
"""What is typed for a step. Words in capitals stand for what only a person knows, and are refused as they are."""

_BY_KEYS: Final = frozenset({Step.APPROVE, Step.REJECT, Step.REVOKE})
"""Steps whose commands are there only under a trust file."""
SHORT_DIGITS: Final = 13
"""How much of an id a table shows: the time of it, and a little more."""


def state_words(one: Waiting) -> str:
    """Return an action's state as an operator should read it."""
    action = one.action
    words = str(action.state)
    if action.state is ActionState.PROPOSED:
        words = f"proposed, {len(action.approvals)} of {action.terms.approvals_needed} approvals"
    elif action.state is ActionState.UNRESOLVED:
        words = f"in doubt since {iso(one.since_ms)}"
    elif one.silent_ms is not None:
        words = f"{action.state}, its worker is silent since {iso(one.silent_ms)}"
    elif action.state is ActionState.PREPARED:
        words = f"prepared, {'handed out' if action.handed_out else 'not handed out'}"
    return f"{words}, revoked" if action.revoked and action.state is not ActionState.REVOKED else words


def age_words(one: Waiting) -> str:
    """Return of what an action's age is, and how much."""
    what = "proposed"
    if one.action.state is ActionState.UNRESOLVED:
        what = "in doubt"
    elif one.action.state in HELD:
        what = "claimed"
    return f"{what} {duration_words(one.age_ms)}"


def evidence_words(action: Action) -> list[str]:
    """Return the evidence on record that decides something, in words; empty where there is none."""
    drain, seen = action.drain, action.observation
    words = [] if drain is None else [drain_words(drain)]
    if seen is not None:
        words.append(look_words(seen, action))
    return words


def drain_words(drain: Drain) -> str:
    """Return a drain in words."""
    if drain.kind is DrainKind.EXPIRY:
        return f"drain {short_evidence(drain.evidence_id)}: every permit is over, says {drain.observer}"
    whose = "of its worker" if drain.covers is Covers.WORKER else "of every executor"
    return f"drain {short_evidence(drain.evidence_id)}: the way {whose} is dead, says {drain.observer}"


_FOUND: Final = {
    Found.EXECUTED: "saw that it was executed",
    Found.NOTHING: "looked and saw nothing",
    Found.UNKNOWN: "looked and cannot tell",
}


def look_words(seen: Observation, action: Action) -> str:
    """Return an observation in words: by whom, what, whether a drain was on record, and what it can decide."""
    words = f"{seen.observer} {_FOUND[seen.found]}"
    if seen.found is Found.NOTHING:
        words += ", with no drain on record before" if seen.after is None else ", after the drain"
    if seen.observer == action.terms.executor:
        words += " (its own executor's look or probe: a success may rest on it, never that nothing happened)"
    return words


def proof_words(evidence: Receipt | FenceAnswer | Observation, action: Action) -> str:
    """Return what a success rests on."""
    if isinstance(evidence, Observation):
        return look_words(evidence, action)
    kind = "receipt" if isinstance(evidence, Receipt) else "fence answer"
    return f"the {kind} of {evidence.receiver}, generation {evidence.generation}"


def short_evidence(evidence_id: bytes) -> str:
    """Return the digits by which a person names a piece of evidence."""
    return evidence_id.hex()[:SHORT_DIGITS]


def way_words(way: Way) -> str:
    """Return one way on in words: what, who may, and who may not."""
    roles = " or ".join(sorted(map(str, way.roles)))
    others = f", not {' nor '.join(sorted(way.not_by))}" if way.not_by else ""
    return f"{STEP_WORDS[way.step]} ({roles}{others})"


def worker_goes_on(one: Waiting) -> bool:
    """Return whether a worker has the action and nothing says that anybody else should act."""
    first = next(iter(one.ways), None)
    decided = first is not None and first.open and first.step in (Step.HAPPENED, Step.DID_NOT_HAPPEN)
    return one.action.state in HELD and not one.stranded and not decided


def next_words(one: Waiting) -> str:
    """Return what leads on from where an action stands, in one line."""
    if worker_goes_on(one):
        return "its worker is at it (executor)"
    way = next((way for way in one.ways if way.open), None)
    if way is None:
        return "nothing: it is over" if not one.ways else f"nothing now: {one.ways[0].words}"
    return way_words(way)


def left_open_words(view: ActionView) -> str:
    """Return what a revocation has left open, and what ends it; nothing where it closed the action."""
    named = view.action_id.hex()
    if view.closed:
        return ""
    if view.state not in HELD:
        return f"it is in doubt, and a revocation ends no doubt: `arl effects show {named}` says what leads on"
    if view.handed_out:
        return (
            "a worker has its permit: it may have been sent, and a revocation cancels nothing that was; "
            f"`arl effects show {named}` says what leads on"
        )
    drain = "expiry" if view.by_time else "path-dead, signed"
    ends = "the receiver's fence" if view.target_class in FENCING else f"a drain ({drain}) and a look after it"
    return (
        "a worker had claimed it: it gets no permit any more, and yet the action stays open, since this database alone "
        "proves nothing. Once its window or permit is over it counts as stranded. "
        f"`arl effects doubt {named}` records the doubt, and {ends} closes it; `arl effects show {named}` says by whom"
    )


def way_command(store: Setting, way: Way, one: Waiting) -> str:
    """Return the command line of a way, empty where no command does it. Whose key it takes, it leaves to who types.

    What was seen, whose way is dead and which drain was there before a look are left to them too.
    """
    from agent_run_ledger.cli.next_steps import next_command

    words = _COMMANDS.get(way.step)
    if words is None or (way.step in _BY_KEYS and not one.trusted):
        return ""
    action, (group, name, *options) = one.action, words
    if way.step is Step.LOOK and action.drain is not None:
        options += ["--after", "DRAIN"]
    if way.step is Step.WRITE_OFF:
        options += ["--with-key", "FILE"] if one.trusted else ["--with", "NAME"]
    return next_command(store, group, name, action.action_id.hex(), *options)


def approvals_words(action: Action) -> str:
    """Return who approved, and how many are needed."""
    names = ", ".join(one.principal for one in action.approvals) or "nobody"
    return f"{names} ({len(action.approvals)} of {counted(action.terms.approvals_needed, 'approval')})"
