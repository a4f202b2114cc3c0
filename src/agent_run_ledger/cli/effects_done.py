"""What every command that changes an action says at its end, and how its refusals become next commands."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from agent_run_ledger.errors import LedgerError
from agent_run_ledger.kernel.effects.states import ActionState

if TYPE_CHECKING:
    from agent_run_ledger.cli.who import Asking
    from agent_run_ledger.kernel.effects.action import Action

_LOOK: Final = "`arl effects observe {id} --found WHAT --after DRAIN`"
_DEAD: Final = "`arl effects observe {id} --drain path-dead --covers WHOSE`"
FIRST: Final = {
    "seen_executed": "`arl effects reconcile {id} --happened` records it",
    "receiver_executed": "`arl effects reconcile {id} --happened` records it",
    "no_drain": "record first that nothing more can arrive: `arl effects observe {id} --drain expiry` where the "
    f"receiver refuses a permit that is over, else {_DEAD}",
    "drain_before_correction": "record a drain by the corrected clock: `arl effects observe {id} --drain expiry`",
    "no_observation": f"somebody who is not the executor looks first: {_LOOK}",
    "observation_before_drain": f"look again, now that the drain is on record: {_LOOK}",
    "executors_word": f"somebody who is not the executor looks: {_LOOK}",
    "few_people": "say who decides together with you: --with NAME, or --with-key FILE under a trust file",
    "reconciler_is_executor": "somebody else decides: --as NAME, or --key FILE under a trust file",
    "drain_by_executor": "somebody else stands for the drain: --as NAME, or --key FILE under a trust file",
    "not_asked": "this receiver fences: a program asks it and passes its signed answer as `fence` to "
    "`EffectLedger.reconcile_not_executed`",
    "fence_instead": "this receiver fences: a program asks it and passes its signed answer as `fence` to "
    "`EffectLedger.reconcile_not_executed`",
    "needs_fence_or_drain": "`arl effects doubt {id}`, then a drain and a look after it",
    "prepared_before": "it was prepared: `arl effects show {id}` says what leads on",
    "observable": "somebody has looked, or can: `arl effects show {id}` says what leads on",
    "not_operator": "an operator records it (--role operator, or their --key), or with --expired the clock",
    "no_timer": f"this receiver checks no expiry, so no time is enough: {_DEAD}, once that is so",
    "nothing_to_drain": "`arl effects doubt {id}` first",
    "covers_too_little": f"it takes the way of every executor: {_DEAD}, once that is so",
    "other_drain": "`arl effects show {id}` names the drain that is on record",
    "other_instance": "somebody else approved at the same moment: type it again",
    "contradicted": "`arl effects reconcile {id} --happened` records what was seen",
}
"""What is done first where a decision is refused, by the code of the refusal. What only a person knows stands there in
capitals, which are refused as they are."""


_STATES: Final = frozenset(map(str, ActionState))
"""The codes of refusals for the state in which an action is by then."""


@contextmanager
def hints_about(action: Action) -> Generator[None, None, None]:
    """Say of a refusal which command comes first."""
    try:
        yield
    except LedgerError as error:
        first = FIRST.get(error.code)
        if first is not None:
            error.hint = first.format(id=action.action_id.hex())
        elif error.code in _STATES or error.code == "wrong_role":
            error.hint = f"{error.hint}; " if error.hint else ""
            error.hint += f"`arl effects show {action.action_id.hex()}` says what may be done next, and by whom"
        raise


def print_done(asked: Asking, action_id: bytes, did: str, *, as_json: bool, **more: object) -> None:
    """Print what was done, where the action stands now, and what leads on. `more`: what JSON says besides."""
    from agent_run_ledger.cli.effect_stores import warn
    from agent_run_ledger.cli.effects_json import action_json
    from agent_run_ledger.cli.effects_words import next_words, state_words
    from agent_run_ledger.cli.folding import note_folded, say_folded
    from agent_run_ledger.cli.output import print_json
    from agent_run_ledger.cli.settings import Setting
    from agent_run_ledger.cli.words import clean
    from agent_run_ledger.ledger.effect_inbox import waiting
    from agent_run_ledger.ledger.effect_standing import on_record

    reader = asked.store.reader().effects
    stored = reader.action(action_id)
    if stored is None:
        raise LookupError(action_id.hex())
    one, unprotected = waiting(reader, on_record(asked.store), stored), asked.ledger.status().not_protected
    if as_json:
        setting = Setting(value=asked.db, source="--db")
        said = {"did": did, "asked_by": asked.json, **more, "not_protected": unprotected}
        print_json({**said, "action": action_json(one, setting)})
        return
    note_folded(f"asked by {clean(asked.words)}")
    say_folded(f"{clean(one.action.action_key)} ({action_id.hex()}): {did}")
    say_folded(f"it is {clean(state_words(one))}")
    say_folded(f"next: {clean(next_words(one))}")
    warn(unprotected)
