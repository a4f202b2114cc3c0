"""An automatic approver: a principal with a key and rules of its own, from the key to the grant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import orjson
import pytest

from agent_run_ledger import Refused
from agent_run_ledger.effects import (
    ActionState,
    ActionView,
    Call,
    display,
    display_sha256,
    request_bytes,
    sign_approval,
)
from agent_run_ledger.kernel.canonical import canonical
from agent_run_ledger.kernel.effects import Now
from agent_run_ledger.kernel.effects.principals import ApprovalPolicy, Principal, PrincipalKind, PublicKey
from agent_run_ledger.kernel.effects.request import request_from
from agent_run_ledger.kernel.effects.states import Role
from agent_run_ledger.keys import SigningKey, read_key, write_key
from agent_run_ledger.ledger.authority import actor_with_key
from tests.contract.approval_kit import KEY_ENDS_MS, Approvals, approvals
from tests.contract.effect_kit import EXE, START_MS, WINDOW_MS
from tests.contract.engine_kit import each_engine
from tests.unit.effects.trust_examples import key

pytestmark = each_engine

A = ActionState
OFFICERS = (key("dan"), key("ola"))


def rules(most_cents: int) -> bytes:
    """Rules as their author wrote them down: what the digest in the trust file is of."""
    return b"approve refunds of at most %d cents" % most_cents


class Limits:
    """A program that approves refunds up to a limit, with a key file of its own; else it raises."""

    def __init__(self, key_file: Path, most_cents: int) -> None:
        self.key = read_key(key_file)
        self.most_cents = most_cents

    def look(self, kit: Approvals, view: ActionView) -> ActionView:
        """Decide about an action by its stored bytes, sign exactly these, and let the ledger count it."""
        assert kit.ledger.trust is not None
        body = kit.ledger.request(view.action_id)
        arguments = orjson.loads(request_from(body).body)
        if arguments["cents"] > self.most_cents:
            raise PermissionError(arguments["cents"])
        me = actor_with_key(kit.ledger.trust, self.key, now=Now(kit.now(), kit.now()))
        nonce = view.nonce or b"drawn for a test"
        statement = kit.ledger.statement(view.action_id, approver=me.principal, nonce=nonce)
        signed = sign_approval(statement, self.key, request=body, display=display(body).encode())
        return kit.ledger.grant(signed)


def with_limits(kit: Approvals, public: bytes, *, most_cents: int, serial: int) -> bytes:
    """Let officers put the program into the trust file; return the digest of its policy."""
    held = PublicKey(public=public, not_before_ms=0, not_after_ms=KEY_ENDS_MS)
    program = Principal(
        name="limits",
        kind=PrincipalKind.AUTOMATIC,
        roles=frozenset({Role.APPROVER}),
        keys=(held,),
        rules_sha256=sha256(rules(most_cents)).digest(),
    )
    small = ApprovalPolicy(
        name="small",
        approvals_needed=1,
        people_needed=0,
        approvers=frozenset({"limits", "bob"}),
        max_window_ms=WINDOW_MS,
    )
    kept = tuple(one for one in kit.trust.principals if one.name != "limits")
    policies = tuple(one for one in kit.trust.policies if one.name != "small")
    trust = replace(kit.trust, serial=serial, principals=(*kept, program), policies=(*policies, small))
    kit.follow(trust, *OFFICERS)
    return trust.policy_sha256(small)


def refund(kit: Approvals, cents: int, policy: bytes, key_: str) -> ActionView:
    stored = request_bytes(Call(name="refund", body=canonical({"cents": cents})))
    return kit.propose(key=key_, request=stored, display_sha256=display_sha256(stored), policy_sha256=policy)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    write_key(tmp_path / "limits.pem", SigningKey.draw())
    return tmp_path / "limits.pem"


def test_it_approves_what_its_rules_allow_by_a_key_of_its_own(key_file: Path) -> None:
    with approvals() as kit:
        policy = with_limits(kit, read_key(key_file).public, most_cents=1_000, serial=2)
        program = Limits(key_file, 1_000)
        small, large = refund(kit, 900, policy, "refund:1"), refund(kit, 1_001, policy, "refund:2")
        granted = program.look(kit, small)
        assert (granted.state, granted.approvals) == (A.AVAILABLE, ("limits",))
        with pytest.raises(PermissionError):
            program.look(kit, large)
        assert kit.look(large).state is A.PROPOSED


def test_other_rules_are_another_policy_and_what_waits_counts_no_more(key_file: Path) -> None:
    with approvals() as kit:
        public = read_key(key_file).public
        before = with_limits(kit, public, most_cents=1_000, serial=2)
        waits, ready = refund(kit, 900, before, "refund:1"), refund(kit, 800, before, "refund:2")
        Limits(key_file, 1_000).look(kit, ready)
        after = with_limits(kit, public, most_cents=2_000, serial=3)
        assert before != after
        asked: list[Callable[[], object]] = [
            lambda: Limits(key_file, 2_000).look(kit, waits),
            lambda: refund(kit, 900, before, "refund:3"),
            lambda: kit.ledger.claim(EXE, ready.action_id, worker="w1", request_sha256=ready.request_sha256),
        ]
        for one in asked:
            assert kit.code(one) == "unknown_policy"
        again = refund(kit, 1_500, after, "refund:4")
        assert Limits(key_file, 2_000).look(kit, again).state is A.AVAILABLE


def test_another_key_is_the_same_policy(key_file: Path, tmp_path: Path) -> None:
    with approvals() as kit:
        before = with_limits(kit, read_key(key_file).public, most_cents=1_000, serial=2)
        waits = refund(kit, 900, before, "refund:1")
        write_key(tmp_path / "new.pem", SigningKey.draw())
        after = with_limits(kit, read_key(tmp_path / "new.pem").public, most_cents=1_000, serial=3)
        assert before == after
        with pytest.raises(Refused) as refusal:
            Limits(key_file, 1_000).look(kit, waits)
        assert refusal.value.code == "other_key"
        assert Limits(tmp_path / "new.pem", 1_000).look(kit, waits).state is A.AVAILABLE


def test_a_program_without_rules_is_no_approver(key_file: Path) -> None:
    with approvals() as kit:
        held = PublicKey(public=read_key(key_file).public, not_before_ms=0, not_after_ms=START_MS)
        program = Principal(name="limits", kind=PrincipalKind.AUTOMATIC, roles=frozenset({Role.APPROVER}), keys=(held,))
        with pytest.raises(Refused) as refusal:
            replace(kit.trust, principals=(*kit.trust.principals, program))
        assert refusal.value.code == "no_rules"
