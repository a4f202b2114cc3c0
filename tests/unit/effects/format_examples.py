"""One action's way from nothing to not executed, in values that never change: what the golden files are made of."""

from __future__ import annotations

from dataclasses import asdict
from hashlib import sha256
from typing import Any

from agent_run_ledger.kernel.effects import Accepted, Action, Now, Role, Standing, TargetClass, Terms
from agent_run_ledger.kernel.effects.approval import (
    Statement,
    VerifiedApproval,
    statement_bytes,
    statement_of,
    statement_sha256,
)
from agent_run_ledger.kernel.effects.commands import (
    Actor,
    Approve,
    Claim,
    Command,
    Doubt,
    DoubtBy,
    HandOut,
    NotExecuted,
    Observe,
    Prepare,
    Propose,
)
from agent_run_ledger.kernel.effects.evidence import Covers, Drain, DrainKind, Found, Observation
from agent_run_ledger.kernel.effects.permit import permit_of
from agent_run_ledger.kernel.effects.record import Transition, change_of, transition_bytes, transition_mac
from agent_run_ledger.kernel.effects.reducer import decide

START_MS = 1_767_225_600_000
KEY = "tenant-7/invoice-0042"
ID = bytes.fromhex("0198f3c0a1b27c3d8e4f506172839405")
LEDGER = Standing(ledger_id=bytes.fromhex("00112233445566778899aabbccddeeff"), opening=bytes(range(16)))
REQUEST = b'{"amount_cents":3000,"to":"DE02 1203 0000 0000 2020 51"}'
TERMS = Terms(
    request_sha256=sha256(REQUEST).digest(),
    executor="payments-executor",
    audience="https://bank.example",
    target_class=TargetClass.N,
    not_before_ms=START_MS,
    dispatch_before_ms=START_MS + 600_000,
    policy_sha256=sha256(b"policy").digest(),
    display_sha256=sha256(b"Pay 30.00 EUR to \xe2\x80\xa62051").digest(),
    preconditions=(("invoice state", "open"),),
)
CLAIM = {"action_id": ID, "claim_id": bytes.fromhex("0198f3c0a1b37000800000000000000a"), "worker": "host-1/4711"}


def _actor(principal: str, role: Role) -> Actor:
    return Actor(principal, frozenset({role}))


REQUESTER = _actor("agent", Role.REQUESTER)
EXECUTOR = _actor("payments-executor", Role.EXECUTOR)
RECONCILER = _actor("reconciler", Role.RECONCILER)


def _statement(action: Action) -> Statement:
    return statement_of(LEDGER, action, approver="approver", nonce=b"one authorising")


def _commands(members: tuple[Action, ...]) -> list[Command]:
    """The commands of the story, as far as they can be said once the members are there."""
    at = [Now(START_MS + 1_000 * step, START_MS + 1_000 * step + 5) for step in range(9)]
    told: list[Command] = [Propose(actor=REQUESTER, now=at[0], action_key=KEY, action_id=ID, terms=TERMS)]
    if members:
        statement = _statement(members[0])
        approval = VerifiedApproval(
            approval_id=b"approval 1",
            statement=statement,
            signed_sha256=statement_sha256(statement),
            principal="approver",
        )
        told.append(Approve(actor=_actor("approver", Role.APPROVER), now=at[1], action_id=ID, approval=approval))
    drain = Drain(
        evidence_id=b"drain 1",
        action_key=KEY,
        epoch=0,
        observer="reconciler",
        kind=DrainKind.PATH_DEAD,
        covers=Covers.EVERY_EXECUTOR,
    )
    look = Observation(
        evidence_id=b"look 1",
        action_key=KEY,
        epoch=0,
        observer="reconciler",
        found=Found.NOTHING,
        after=drain.evidence_id,
    )
    told += [
        Claim(actor=EXECUTOR, now=at[2], claim_key=b"key of the claim", request_sha256=TERMS.request_sha256, **CLAIM),
        Prepare(actor=EXECUTOR, now=at[3], permit_ms=60_000, **CLAIM),
        HandOut(actor=EXECUTOR, now=at[4], cosigned=False, **CLAIM),
        Doubt(actor=EXECUTOR, now=at[5], action_id=ID, by=DoubtBy.WORKER, worker="host-1/4711"),
        Observe(actor=RECONCILER, now=at[6], action_id=ID, evidence=drain),
        Observe(actor=RECONCILER, now=at[7], action_id=ID, evidence=look),
        NotExecuted(actor=RECONCILER, now=at[8], action_id=ID),
    ]
    return told


def story() -> list[Transition]:
    """The transitions, in order."""
    members: tuple[Action, ...] = ()
    made: list[Transition] = []
    for step in range(9):
        command = _commands(members)[step]
        decision = decide(LEDGER, members, command)
        assert isinstance(decision, Accepted), decision
        (row,) = decision.rows
        made.append(Transition(command=command, ledger=LEDGER, old=str(decision.old or ""), row=row))
        members = (row,)
    return made


def written() -> dict[str, list[dict[str, Any]]]:
    """What this version writes, for `effect.json`, `permit.json` and `approval.json`."""
    transitions = story()
    effects: list[dict[str, Any]] = []
    for number, transition in enumerate(transitions):
        salt, payload = sha256(b"salt %d" % number).digest(), transition_bytes(transition)
        mac = transition_mac(salt, payload)
        line = asdict(change_of(transition, mac))
        effects.append(
            {
                "salt_hex": salt.hex(),
                "payload": payload.decode(),
                "change": {name: value.hex() if isinstance(value, bytes) else value for name, value in line.items()},
            }
        )
    statement = _statement(transitions[0].row)
    approval = {"statement": statement_bytes(statement).decode(), "sha256": statement_sha256(statement).hex()}
    permit = asdict(permit_of(LEDGER, transitions[3].row))
    return {
        "effect": effects,
        "approval": [approval],
        "permit": [permit | {"pre": [list(pair) for pair in permit["pre"]]}],
    }
