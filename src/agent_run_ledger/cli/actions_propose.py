"""`arl actions propose|successor`: asks for an action whose exact bytes come from a file."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from agent_run_ledger.cli.effects_show import Named
from agent_run_ledger.cli.options import Db, Json
from agent_run_ledger.cli.who import As, As_role
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
ChecksExpiry = Annotated[bool, typer.Option("--checks-expiry", help="The receiver refuses a permit that is over.")]
Executor = Annotated[str, typer.Option("--executor", metavar="NAME", help="Who may carry it out.")]
Policy = Annotated[
    str, typer.Option("--policy", metavar="POLICY", help="The policy that counts approvals: its SHA-256 in hex.")
]
Approvals = Annotated[int, typer.Option("--approvals", metavar="N", min=1, help="How many that policy asks for.")]
Window = Annotated[str, typer.Option("--window", metavar="LENGTH", help="How long it may be claimed: 30m, 24h, 7d.")]
Needs = Annotated[
    list[str] | None,
    typer.Option("--needs", metavar="NAME=VALUE", help="What must hold at the target; may come again."),
]
OtherExecutor = Annotated[str | None, typer.Option("--executor", metavar="NAME", help="Another executor.")]
OtherPolicy = Annotated[str | None, typer.Option("--policy", metavar="POLICY", help="Another policy, as to propose.")]
OtherApprovals = Annotated[int | None, typer.Option("--approvals", metavar="N", min=1, help="Another number of them.")]

_LENGTH: Final = re.compile(r"([1-9]\d{0,4})([mhd])")
_UNITS_MS: Final = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The terms of an action beside its bytes and its window."""

    executor: str
    audience: str
    target_class: TargetClass
    checks_expiry: bool
    policy_sha256: bytes
    approvals_needed: int
    preconditions: tuple[tuple[str, str], ...]


def propose(
    file: File,
    key: Key,
    target: Target,
    executor: Executor,
    policy: Policy,
    target_class: Class = TargetClass.N,
    checks_expiry: ChecksExpiry = False,
    approvals: Approvals = 1,
    window: Window = "24h",
    needs: Needs = None,
    name: As = None,
    role: As_role = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Propose an action: these bytes, once, under this key. The same bytes again are the same action.

    Nothing is sent before others have approved it.
    """
    from agent_run_ledger.cli.effects_done import print_done
    from agent_run_ledger.cli.request_files import read_request
    from agent_run_ledger.cli.who import asking

    length_ms, request = _length_ms(window), read_request(file)
    with asking(db, name, role, default=Role.REQUESTER) as asked:
        terms = _Asked(
            executor=executor,
            audience=target,
            target_class=target_class,
            checks_expiry=checks_expiry,
            policy_sha256=asked.policy(policy),
            approvals_needed=approvals,
            preconditions=_pairs(needs),
        )
        view = asked.ledger.propose(asked.actor, key, _intent(request, terms, length_ms))
        print_done(asked, view.action_id, "on record as proposed", as_json=as_json)


def successor(
    action: Named,
    file: OtherFile = None,
    executor: OtherExecutor = None,
    policy: OtherPolicy = None,
    approvals: OtherApprovals = None,
    window: Window = "24h",
    name: As = None,
    role: As_role = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Propose a new member of a key in the place of one that did not happen, with approvals of its own.

    What is not said stays as it was; the window begins now.
    """
    from agent_run_ledger.cli.effects_done import hints_about, print_done
    from agent_run_ledger.cli.request_files import read_request
    from agent_run_ledger.cli.who import asking
    from agent_run_ledger.ledger.effect_inbox import find_action

    length_ms = _length_ms(window)
    given = None if file is None else read_request(file)
    with asking(db, name, role, default=Role.REQUESTER) as asked:
        row = find_action(asked.store, action).action
        request = asked.ledger.request(row.action_id) if given is None else given
        terms = _as_before(asked, row.terms, executor, policy, approvals)
        with hints_about(row):
            view = asked.ledger.successor(asked.actor, row.action_id, _intent(request, terms, length_ms))
        print_done(asked, view.action_id, f"proposed as the successor of {row.action_id.hex()}", as_json=as_json)


def _as_before(asked: Asking, terms: Terms, executor: str | None, policy: str | None, approvals: int | None) -> _Asked:
    return _Asked(
        executor=terms.executor if executor is None else executor,
        audience=terms.audience,
        target_class=terms.target_class,
        checks_expiry=terms.checks_expiry,
        policy_sha256=terms.policy_sha256 if policy is None else asked.policy(policy),
        approvals_needed=terms.approvals_needed if approvals is None else approvals,
        preconditions=terms.preconditions,
    )


def _intent(request: bytes, terms: _Asked, length_ms: int) -> Intent:
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
        dispatch_before_ms=now_ms + length_ms,
        policy_sha256=terms.policy_sha256,
        display_sha256=shown,
        approvals_needed=terms.approvals_needed,
        checks_expiry=terms.checks_expiry,
        preconditions=terms.preconditions,
    )


def _length_ms(window: str) -> int:
    read = _LENGTH.fullmatch(window)
    if read is None:
        raise Misuse(f"{window!r} is no length of time", code="usage", hint="give minutes, hours or days: 30m, 24h, 7d")
    return int(read[1]) * _UNITS_MS[read[2]]


def _pairs(needs: list[str] | None) -> tuple[tuple[str, str], ...]:
    pairs = [one.partition("=") for one in needs or ()]
    if wrong := [one for one in pairs if not one[0] or not one[1]]:
        raise Misuse(f"{wrong[0][0]!r} is no precondition", code="usage", hint="give --needs NAME=VALUE")
    return tuple((name, value) for name, _, value in pairs)
