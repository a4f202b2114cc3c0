"""Runs with effects: a store with authority and a trust file, a target that counts, people who sign, and an agent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agent_run_ledger import EffectLedger, EffectSettings, LedgerError, Request, RunLedger
from agent_run_ledger.effects import ActionView, Covers, Drain, DrainKind, Intent, Role, request_bytes
from agent_run_ledger.effects.signing import sign_approval, signing
from agent_run_ledger.effects.trusting import sign_trust
from agent_run_ledger.kernel.effects.commands import Actor
from agent_run_ledger.kernel.effects.display import display, display_sha256
from agent_run_ledger.kernel.effects.principals import PrincipalKind
from agent_run_ledger.kernel.effects.request import Call
from agent_run_ledger.kernel.effects.trust import TrustFile
from agent_run_ledger.ledger.authority import open_effects
from agent_run_ledger.store import open_store
from agent_run_ledger.targets import http
from agent_run_ledger.testing import check_ledger
from tests.contract.engine_kit import new_place
from tests.contract.target_servers import Behaviour, Server, answer, serving
from tests.unit.effects.trust_examples import key, policy, principal, public

FOREVER_MS = 1 << 52
NONCE = b"nonce of sixteen"
DAY_MS = 86_400_000
APPROVER = Actor("bob", frozenset({Role.APPROVER}))
REVOKER = Actor("rev", frozenset({Role.REVOKER}))
REQUESTER = Actor("agent", frozenset({Role.REQUESTER}))
PERSON = Actor("rita", frozenset({Role.RECONCILER}))


def _who(name: str, *roles: Role, **changes: Any) -> Any:
    return principal(name, *roles, **{"keys": (public(name, 0, FOREVER_MS),), **changes})


def make_store(folder: Path, name: str = "runs.db") -> tuple[Path, Path]:
    """A store with authority and its trust file: bob approves by policy `finance`, bob and dan by `two`."""
    path, trust = new_place(folder, name), folder / "trust.json"
    store = open_store(path, create=True, authority=True)
    program: dict[str, Any] = {"kind": PrincipalKind.AUTOMATIC, "keys": ()}
    made = TrustFile(
        ledger_id=store.log_id,
        serial=1,
        officers_needed=1,
        principals=(
            _who("bob", Role.APPROVER),
            _who("dan", Role.APPROVER, Role.OFFICER),
            _who("rev", Role.REVOKER),
            _who("rita", Role.RECONCILER),
            _who("ops", Role.OPERATOR),
            _who("agent", Role.REQUESTER, **program),
            _who("worker", Role.EXECUTOR, **program),
            _who("reconciler", Role.RECONCILER, **program),
        ),
        policies=(
            policy("finance", 1, "bob", "dan", people=1, window_ms=DAY_MS),
            policy("two", 2, "bob", "dan", people=2, window_ms=DAY_MS),
        ),
    )
    store.close()
    trust.write_bytes(sign_trust(made, [key("dan")]))
    return path, trust


def sign(effects: EffectLedger, action_key: str, approver: str = "bob") -> None:
    """Let somebody sign the newest member of a key."""
    view = effects.inspect(action_key)[-1]
    stored = effects.request(view.action_id)
    statement = effects.statement(view.action_id, approver=approver, nonce=NONCE)
    shown = display(stored).encode()
    effects.grant(sign_approval(statement, key(approver), request=stored, display=shown))


def drain(effects: EffectLedger, action_key: str) -> None:
    """Let a person put on record that nothing more of the newest member of a key can arrive."""
    view = effects.inspect(action_key)[-1]
    evidence = Drain(
        evidence_id=b"who looked at it" + view.action_id,
        action_key=action_key,
        epoch=view.epoch,
        observer=PERSON.principal,
        kind=DrainKind.PATH_DEAD,
        covers=Covers.EVERY_EXECUTOR,
    )
    effects.observe(PERSON, view.action_id, evidence, sign=signing(key(PERSON.principal)))


class Desk:
    """One store, one target and the people around them. Each `ledger` is a program that was started anew."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.server = server
        self.path, self.trust = make_store(folder)
        self.settings = EffectSettings(trust=self.trust)
        self.said: list[str] = []

    @property
    def sent(self) -> int:
        """How many requests came to the target."""
        return len(self.server.requests)

    @contextmanager
    def people(self) -> Iterator[EffectLedger]:
        """The effects as people open them, in a process that is not the agent's."""
        with open_effects(self.path, trust_path=self.trust) as effects:
            yield effects

    def last(self, action_key: str = "refund:17") -> ActionView:
        """The newest member of a key."""
        with self.people() as effects:
            return effects.inspect(action_key)[-1]

    def grant(self, action_key: str = "refund:17", approver: str = "bob") -> None:
        """Let somebody sign what is asked for."""
        with self.people() as effects:
            sign(effects, action_key, approver)

    def edit(self, request: Request | Call, action_key: str = "refund:17", **changes: Any) -> None:
        """Let an approver put another request in the place of what is asked for."""
        stored = request_bytes(request)
        with self.people() as effects:
            view = effects.inspect(action_key)[-1]
            terms = effects._action(view.action_id).terms
            same = {field.name: getattr(terms, field.name) for field in fields(terms) if field.name != "request_sha256"}
            intent = Intent(**{**same, "request": stored, "display_sha256": display_sha256(stored), **changes})
            effects.edit(APPROVER, view.action_id, intent)

    def reject(self) -> None:
        """Let an approver say no to what is asked for."""
        with self.people() as effects:
            effects.reject(APPROVER, effects.inspect("refund:17")[-1].action_id)

    def succeed(self) -> None:
        """Let somebody ask again for the same, after a no."""
        with self.people() as effects:
            view = effects.inspect("refund:17")[-1]
            terms = effects._action(view.action_id).terms
            same = {field.name: getattr(terms, field.name) for field in fields(terms) if field.name != "request_sha256"}
            effects.successor(REQUESTER, view.action_id, Intent(**same, request=effects.request(view.action_id)))

    def follow(self, **changes: Any) -> bytes:
        """Put a later trust file in use, which `changes` make out of the one before; return the one before."""
        before = self.trust.read_bytes()
        with self.people() as effects:
            assert effects.trust is not None
            old = effects.trust.trust
            signed = sign_trust(replace(old, serial=old.serial + 1, **changes), [key("dan")])
            effects.follow_trust(signed)
        self.trust.write_bytes(signed)
        return before

    def drain(self, action_key: str = "refund:17") -> None:
        """Let a person say that nothing more can arrive."""
        with self.people() as effects:
            drain(effects, action_key)

    def program(self, run_id: str = "ticket-17", **settings: Any) -> Program:
        """The agent's program, started once."""
        return Program(self, run_id, **settings)

    def check(self) -> None:
        """Everything on record agrees."""
        check_ledger(self.path)


class Program:
    """A small agent: it thinks, refunds, and thinks again. `settings` are those of its effect."""

    def __init__(self, desk: Desk, run_id: str, **settings: Any) -> None:
        self.ledger = RunLedger(run_id, desk.path, effects=desk.settings)
        self.desk = desk

        @self.ledger.step
        def think(about: str) -> str:
            desk.said.append(about)
            return f"thought about {about}"

        chosen = {"key": "refund:{order}", "target": http(desk.server.url), "approval": "finance", **settings}

        @self.ledger.effect(**chosen)
        def refund(order: int, cents: int) -> Request:
            return Request.json("POST", "/refunds", {"order": order, "cents": cents})

        self.think, self.refund = think, refund

    def run(self, order: int = 17, cents: int = 3_000) -> Any:
        """Run it once; what it raises passes through."""
        try:
            with self.ledger.run():
                self.think("before")
                result = self.refund(order, cents)
                self.think("after")
                return result
        finally:
            self.ledger.close()

    def state(self) -> str:
        """The state of its run."""
        store = open_store(self.desk.path, create=False)
        try:
            row = store.reader().find_run(self.ledger.run_id)
            return "" if row is None else str(row.state)
        finally:
            store.close()

    def outcome(self, *arguments: int) -> str:
        """The code with which a run of it ends."""
        try:
            self.run(*arguments)
        except LedgerError as error:
            return error.code
        return "done"


@contextmanager
def desk(behave: Behaviour | None = None, **settings: Any) -> Iterator[Desk]:
    """A desk whose target answers so; what is on record is checked at the end."""
    with TemporaryDirectory() as folder, serving(behave or answer(201, b'{"refund":"r-1"}')) as server:
        made = Desk(Path(folder), server)
        yield made
        made.check()


def holding(gate: threading.Event) -> Behaviour:
    """Answer once the gate is open."""
    good = answer(201, b'{"refund":"r-1"}')

    def behave(connection: Any) -> None:
        gate.wait(60)
        good(connection)

    return behave


def eventually(true: Callable[[], bool], *, within_s: float = 30.0) -> None:
    """Wait for something that another thread does."""
    until = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.01)
