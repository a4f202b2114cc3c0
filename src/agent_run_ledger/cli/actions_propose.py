"""`arl actions propose|successor`: asks for an action whose exact bytes come from a file."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from agent_run_ledger.cli.options import ActionId, Db, Json, PassphraseFile, Trust
from agent_run_ledger.cli.who import As_program, As_role
from agent_run_ledger.errors import Misuse
from agent_run_ledger.kernel.effects.states import Role, TargetClass

if TYPE_CHECKING:
    from agent_run_ledger.cli.who import Asking
    from agent_run_ledger.effects import Intent
    from agent_run_ledger.kernel.effects.action import Terms

File = Annotated[str, typer.Argument(metavar="FILE", help="Request v1 bytes, or a JSON description; - for stdin.")]
OtherFile = Annotated[
    str | None, typer.Argument(metavar="FILE", help="Its request; left out, the bytes of the one it replaces.")
]
Key = Annotated[str, typer.Option("--key", metavar="KEY", help="The name of this one business effect.")]
Target = Annotated[str, typer.Option("--target", metavar="URL", help="To whom it is sent: the audience.")]
Class = Annotated[TargetClass, typer.Option("--class", help="What the target does about what comes late or again.")]
ChecksExpiry = Annotated[
    bool, typer.Option("--checks-expiry", help="The receiver refuses a permit that is over. Approvers sign it.")
]
Executor = Annotated[str, typer.Option("--executor", metavar="NAME", help="Who may carry it out.")]
Policy = Annotated[
    str,
    typer.Option(
        "--approval",
        metavar="POLICY",
        help="The policy that counts approvals: its name in the trust file, or its SHA-256 in hex.",
    ),
]
Approvals = Annotated[
    int | None,
    typer.Option(
        "--approvals", metavar="N", min=1, help="How many it asks for [default: as the trust file says, or 1]."
    ),
]
Window = Annotated[
    str | None,
    typer.Option(
        "--window",
        metavar="LENGTH",
        help="How long it may be claimed: 30m, 24h, 7d [default: 24h, or the policy's most].",
    ),
]
Needs = Annotated[
    list[str] | None,
    typer.Option("--needs", metavar="NAME=VALUE", help="What must hold at the target; may come again."),
]
OtherExecutor = Annotated[str | None, typer.Option("--executor", metavar="NAME", help="Another executor.")]
OtherTarget = Annotated[str | None, typer.Option("--target", metavar="URL", help="Another target, as to propose.")]
OtherClass = Annotated[TargetClass | None, typer.Option("--class", help="Another class of target, as to propose.")]
OtherPolicy = Annotated[str | None, typer.Option("--approval", metavar="POLICY", help="Another policy, as to propose.")]
OtherApprovals = Annotated[int | None, typer.Option("--approvals", metavar="N", min=1, help="Another number of them.")]
KeyFile = Annotated[
    str | None, typer.Option("--key-file", metavar="FILE", help="The key of who asks, where a key says who that is.")
]

_ALREADY: Final = "already on record, with the terms of its first proposal; nothing was added"
_LENGTH: Final = re.compile(r"([1-9]\d{0,4})([mhd])")
_UNITS_MS: Final = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The terms of an action beside its bytes."""

    executor: str
    audience: str
    target_class: TargetClass
    checks_expiry: bool
    policy_sha256: bytes
    approvals_needed: int
    window_ms: int
    preconditions: tuple[tuple[str, str], ...]


def propose(
    file: File,
    key: Key,
    target: Target,
    executor: Executor,
    policy: Policy,
    target_class: Class = TargetClass.N,
    checks_expiry: ChecksExpiry = False,
    approvals: Approvals = None,
    window: Window = None,
    needs: Needs = None,
    name: As_program = None,
    role: As_role = None,
    key_file: KeyFile = None,
    passphrase_file: PassphraseFile = None,
    trust: Trust = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Propose an action: these bytes, once, under this key. The same bytes again are the same action.

    Nothing is sent before others have approved it. Under a trust file a key says who asks. A program that has no keys
    there is named by --as, which nobody checks: who asks approves nothing. With a local one that is "agent".
    """
    from agent_run_ledger.cli.effects_done import print_done
    from agent_run_ledger.cli.policies import executor_of, policy_of
    from agent_run_ledger.cli.request_files import read_request
    from agent_run_ledger.cli.who import Said, asking

    given_ms, request = _length_ms(window), read_request(file)
    said = Said(name=name, role=role, key=key_file, passphrase_file=passphrase_file)
    with asking(db, trust, said, role=Role.REQUESTER, by_name=True) as asked:
        counted = policy_of(asked.found, policy)
        terms = _Asked(
            executor=executor_of(asked.found, executor),
            audience=target,
            target_class=target_class,
            checks_expiry=checks_expiry,
            policy_sha256=counted.sha256,
            approvals_needed=approvals or counted.approvals_needed or 1,
            window_ms=given_ms or counted.window_ms,
            preconditions=_pairs(needs),
        )
        there = {one.action.action_id for one in asked.store.reader().effects.members(key)}
        view = asked.ledger.propose(asked.actor, key, _intent(request, terms))
        did = _ALREADY if view.action_id in there else "on record as proposed"
        print_done(asked, view.action_id, did, as_json=as_json)


def successor(
    action: ActionId,
    file: OtherFile = None,
    target: OtherTarget = None,
    target_class: OtherClass = None,
    executor: OtherExecutor = None,
    policy: OtherPolicy = None,
    approvals: OtherApprovals = None,
    window: Window = None,
    name: As_program = None,
    role: As_role = None,
    key_file: KeyFile = None,
    passphrase_file: PassphraseFile = None,
    trust: Trust = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Propose a new member of a key in the place of one that did not happen, with approvals of its own.

    What is not said stays as it was, but that a receiver refuses what is over: of another one, or one of another class,
    nobody said so. The window begins now. Who asks is said as to propose.
    """
    from agent_run_ledger.cli.effects_done import hints_about, print_done
    from agent_run_ledger.cli.request_files import read_request
    from agent_run_ledger.cli.who import Said, asking
    from agent_run_ledger.ledger.effect_inbox import find_action

    given_ms = _length_ms(window)
    given = None if file is None else read_request(file)
    said = Said(name=name, role=role, key=key_file, passphrase_file=passphrase_file)
    with asking(db, trust, said, role=Role.REQUESTER, by_name=True) as asked:
        row = find_action(asked.store, action).action
        request = asked.ledger.request(row.action_id) if given is None else given
        terms = _as_before(asked, row.terms, executor, policy, approvals, given_ms)
        if target is not None or target_class is not None:
            audience, kind = target or terms.audience, target_class or terms.target_class
            terms = replace(terms, audience=audience, target_class=kind, checks_expiry=False)
        with hints_about(row):
            view = asked.ledger.successor(asked.actor, row.action_id, _intent(request, terms))
        print_done(asked, view.action_id, f"proposed as the successor of {row.action_id.hex()}", as_json=as_json)


def _as_before(
    asked: Asking, terms: Terms, executor: str | None, policy: str | None, approvals: int | None, given_ms: int | None
) -> _Asked:
    """Return the terms of a successor: as said; the numbers of another policy where one is named; else as before."""
    from agent_run_ledger.cli.policies import executor_of, policy_of

    counted = policy_of(asked.found, policy or terms.policy_sha256.hex())
    counts = None if policy is None else counted.approvals_needed
    return _Asked(
        executor=executor_of(asked.found, executor or terms.executor),
        audience=terms.audience,
        target_class=terms.target_class,
        checks_expiry=terms.checks_expiry,
        policy_sha256=counted.sha256,
        approvals_needed=approvals or counts or terms.approvals_needed,
        window_ms=given_ms or counted.window_ms,
        preconditions=terms.preconditions,
    )


def _intent(request: bytes, terms: _Asked) -> Intent:
    """Return what is asked for, its display made from the bytes; Misuse("bad_request") for bytes of another form."""
    from agent_run_ledger.effects import Intent
    from agent_run_ledger.kernel.effects.display import display_sha256
    from agent_run_ledger.kernel.effects.request import BadRequest

    now_ms = time.time_ns() // 1_000_000
    try:
        shown = display_sha256(request)
    except BadRequest as error:
        raise Misuse(f"its bytes cannot be shown: {error.message}", code="bad_request", hint="give a FILE") from error
    return Intent(
        request=request,
        executor=terms.executor,
        audience=terms.audience,
        target_class=terms.target_class,
        not_before_ms=now_ms,
        dispatch_before_ms=now_ms + terms.window_ms,
        policy_sha256=terms.policy_sha256,
        display_sha256=shown,
        approvals_needed=terms.approvals_needed,
        checks_expiry=terms.checks_expiry,
        preconditions=terms.preconditions,
    )


def _length_ms(window: str | None) -> int | None:
    if window is None:
        return None
    read = _LENGTH.fullmatch(window)
    if read is None:
        raise Misuse(f"{window!r} is no length of time", code="usage", hint="give minutes, hours or days: 30m, 24h, 7d")
    return int(read[1]) * _UNITS_MS[read[2]]


def _pairs(needs: list[str] | None) -> tuple[tuple[str, str], ...]:
    pairs = [one.partition("=") for one in needs or ()]
    if wrong := [one for one in pairs if not one[0] or not one[1]]:
        raise Misuse(f"{wrong[0][0]!r} is no precondition", code="usage", hint="give --needs NAME=VALUE")
    return tuple((name, value) for name, _, value in pairs)
