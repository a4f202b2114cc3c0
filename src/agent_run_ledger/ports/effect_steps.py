"""How a run reaches effects, in prose with "must": by the key of each, so that a restart only has to ask again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from agent_run_ledger.kernel.effects.evidence import Found
from agent_run_ledger.kernel.effects.request import Call, Request
from agent_run_ledger.kernel.effects.result import EffectResult
from agent_run_ledger.kernel.effects.step_moves import Member, WantedTerms
from agent_run_ledger.ports.targets import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """What a probe is asked about: one dispatch of an effect that nobody knows the end of.

    `generation` is None where nothing was claimed; `idempotency_key` is the one that the target was sent, "" then.
    `drained`: whether it is on record that nothing more of it can arrive.
    """

    action_key: str
    request: Request | Call
    generation: int | None
    idempotency_key: str
    drained: bool


Probe = Callable[[Lookup], Found]
"""Looks at the target and says what it saw: EXECUTED, NOTHING, or UNKNOWN where it cannot tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """An effect that a step of a run wants: its exact bytes, where they go, and the policy that counts approvals."""

    action_key: str
    request: bytes
    target: Target
    approval: str


class EffectMember(Member, Protocol):
    """One member of a key: see `effects.views.ActionView`."""

    @property
    def action_key(self) -> str: ...  # noqa: D102
    @property
    def action_id(self) -> bytes: ...  # noqa: D102
    @property
    def status(self) -> str: ...  # noqa: D102
    @property
    def approvals(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def approvals_needed(self) -> int: ...  # noqa: D102
    @property
    def drain(self) -> bytes | None: ...  # noqa: D102


class Effects(Protocol):
    """The effects of a run's store.

    - Each method must be one question about recorded state: a run that asks again after a crash, from another process,
      must find what was done, and nothing that was begun may be begun again.
    - `dispatch` must send at most once for each generation, and must leave a success, a doubt or a claim behind.
    - An error must say what it says everywhere: see `errors`. Thread-safe.
    """

    def check_policies(self, names: Iterable[str]) -> None:
        """Refused("no_policy") where one of these policies is unknown: asked before anything is begun with them."""
        ...

    def members(self, action_key: str) -> Sequence[EffectMember]:
        """Return the members of a key, in the order in which they were made.

        What time alone decides is recorded first: a window that is over, a claim whose worker is late by every clock.
        """
        ...

    def terms(self, wanted: Wanted) -> WantedTerms:
        """Return the terms of an effect. Refused("no_policy") where its policy is unknown."""
        ...

    def propose(self, wanted: Wanted) -> EffectMember:
        """Ask for an effect. Refused("no_policy") where the policy is unknown, ("key_taken") for other bytes."""
        ...

    def succeed(self, action_id: bytes, wanted: Wanted) -> EffectMember:
        """Propose the same effect again in the place of one that is proved not to have happened.

        With the bytes and the preconditions of that one: where an approver edited them, with theirs.
        """
        ...

    def dispatch(self, action_id: bytes, wanted: Wanted, *, worker: str) -> EffectMember:
        """Claim, prepare, send and record. Two calls for one key in one process must come one after the other.

        Refused("other_policy", "unknown_policy", "other_terms") before the claim of what was proposed under other terms
        than the wanted ones, ("other_request", "other_arguments") of what its target cannot send, as people edited it.
        """
        ...

    def doubt(self, action_id: bytes, *, worker: str) -> EffectMember:
        """Record that nobody knows how what this worker began has ended."""
        ...

    def look(self, action_id: bytes, wanted: Wanted, probe: Probe | None) -> EffectMember:
        """Ask the target what became of a doubt, and record what was seen and what the rules let follow from it.

        `probe` None: nothing can be asked; only what time proves is recorded.
        """
        ...

    def result(self, member: EffectMember) -> EffectResult:
        """Return what is on record of a success."""
        ...
