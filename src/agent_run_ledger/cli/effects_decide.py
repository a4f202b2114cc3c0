"""`arl effects reconcile|doubt|expire`: what people decide about an action, each decision recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agent_run_ledger.cli.options import ActionId, Db, Json, Key, PassphraseFile, Trust, Yes
from agent_run_ledger.cli.who import As, As_role, With, WithKey, WithPassphraseFile
from agent_run_ledger.errors import Misuse, Refused
from agent_run_ledger.kernel.effects.advice import NOT_SEEN
from agent_run_ledger.kernel.effects.evidence import Found
from agent_run_ledger.kernel.effects.states import Role

if TYPE_CHECKING:
    from agent_run_ledger.cli.who import Asking
    from agent_run_ledger.kernel.effects.action import Action

Happened = Annotated[bool, typer.Option("--happened", help="It happened: somebody saw it, and that is on record.")]
DidNot = Annotated[bool, typer.Option("--did-not-happen", help="It did not happen, and cannot any more.")]
Never = Annotated[bool, typer.Option("--never-prepared", help="It was claimed, and never prepared.")]
WriteOff = Annotated[bool, typer.Option("--write-off", help="Give up finding out, for good.")]
NobodyCan = Annotated[bool, typer.Option("--nobody-can-look", help="Say so with --write-off: nobody can observe it.")]
Expired = Annotated[bool, typer.Option("--expired", help="By the clock: its permit or window is over.")]

_WRITE_OFF_ASKS = "Write {key} off? That is for ever: nothing may ever follow it under this key."


def reconcile(
    action: ActionId,
    happened: Happened = False,
    did_not_happen: DidNot = False,
    never_prepared: Never = False,
    write_off: WriteOff = False,
    nobody_can_look: NobodyCan = False,
    people: With = None,
    with_key: WithKey = None,
    with_passphrase_file: WithPassphraseFile = None,
    yes: Yes = False,
    name: As = None,
    role: As_role = None,
    key: Key = None,
    passphrase_file: PassphraseFile = None,
    trust: Trust = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Decide, by the evidence on record and not as its executor, what became of an action in doubt.

    What is missing is said, with the command that comes first. Nothing is ever guessed. Under a trust file a key says
    who decides, that of a reconciler and of each who decides together with them; all but that it happened they sign.
    """
    from agent_run_ledger.cli.confirm import confirm
    from agent_run_ledger.cli.effects_done import hints_about, print_done
    from agent_run_ledger.cli.who import Said, asking
    from agent_run_ledger.cli.words import clean
    from agent_run_ledger.ledger.effect_inbox import find_action

    if happened + did_not_happen + never_prepared + write_off != 1:
        raise Misuse(
            "what became of it has to be said once",
            code="usage",
            hint="give one of --happened, --did-not-happen, --never-prepared and --write-off",
        )
    if (people or with_key) and not (did_not_happen or write_off):
        raise Misuse("one decides this alone", code="usage", hint="--with goes with --did-not-happen and --write-off")
    said = Said(name=name, role=role, key=key, passphrase_file=passphrase_file)
    with asking(db, trust, said, role=Role.RECONCILER) as asked:
        row = find_action(asked.store, action).action
        with hints_about(row):
            if happened:
                _happened(asked, row)
                did = "decided that it happened"
            elif did_not_happen:
                together, sign = asked.people(people, with_key, with_passphrase_file)
                asked.ledger.reconcile_not_executed(asked.actor, row.action_id, people=together, sign=sign)
                did = "decided that it did not happen"
            elif never_prepared:
                asked.ledger.close_unprepared(asked.actor, row.action_id, sign=asked.sign)
                did = "closed: it was never prepared"
            else:
                confirm(_WRITE_OFF_ASKS.format(key=clean(row.action_key)), yes=yes)
                together, sign = asked.people(people, with_key, with_passphrase_file)
                asked.ledger.write_off(
                    asked.actor, row.action_id, nobody_can_observe=nobody_can_look, people=together, sign=sign
                )
                did = "written off"
        print_done(asked, row.action_id, did, as_json=as_json)


def _happened(asked: Asking, row: Action) -> None:
    """Decide a success by the observation on record; one that is told now is recorded first, by who looked."""
    seen = row.observation
    if seen is None or seen.found is not Found.EXECUTED:
        raise Refused(
            f"nobody on record saw that {row.action_key!r} was executed",
            code=NOT_SEEN,
            hint=f"who sees it at the target records it: `arl effects observe {row.action_id.hex()} --found WHAT`",
        )
    asked.ledger.reconcile_success(asked.actor, row.action_id, seen)


def doubt(
    action: ActionId,
    expired: Expired = False,
    name: As = None,
    role: As_role = None,
    key: Key = None,
    passphrase_file: PassphraseFile = None,
    trust: Trust = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Record that nobody knows how an action ended: it is never claimable again, and only evidence leads on.

    Under a trust file a key says who records it: an operator's, or with --expired also a reconciler's.
    """
    from agent_run_ledger.cli.effects_done import hints_about, print_done
    from agent_run_ledger.cli.who import Said, asking
    from agent_run_ledger.effects import DoubtBy
    from agent_run_ledger.ledger.effect_inbox import find_action

    said = Said(name=name, role=role, key=key, passphrase_file=passphrase_file)
    with asking(db, trust, said, role=Role.OPERATOR) as asked:
        row = find_action(asked.store, action).action
        with hints_about(row):
            asked.ledger.doubt(asked.actor, row.action_id, by=DoubtBy.EXPIRY if expired else DoubtBy.OPERATOR)
        print_done(asked, row.action_id, "doubt recorded", as_json=as_json)


def expire(
    action: ActionId,
    name: As = None,
    role: As_role = None,
    key: Key = None,
    passphrase_file: PassphraseFile = None,
    trust: Trust = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Close an action that nobody claimed in its window; a successor may follow it.

    Under a trust file a key says who closes it: an operator's or a reconciler's.
    """
    from agent_run_ledger.cli.effects_done import hints_about, print_done
    from agent_run_ledger.cli.who import Said, asking
    from agent_run_ledger.ledger.effect_inbox import find_action

    said = Said(name=name, role=role, key=key, passphrase_file=passphrase_file)
    with asking(db, trust, said, role=Role.OPERATOR) as asked:
        row = find_action(asked.store, action).action
        with hints_about(row):
            asked.ledger.expire(asked.actor, row.action_id)
        print_done(asked, row.action_id, "closed as expired", as_json=as_json)
