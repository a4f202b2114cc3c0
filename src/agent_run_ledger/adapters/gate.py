"""Asking whether a tool may be called: the place where approvals stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from agent_run_ledger.errors import Pending


class Permission(StrEnum):
    """What a gate says of a call: it may be made, it waits for a decision, or it may not be made."""

    ALLOWED = "allowed"
    PENDING = "pending"
    DENIED = "denied"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRequest:
    """A call of a tool that an agent asks for. `call_id`: the framework's id of the call, "" where it has none."""

    run_id: str
    tool: str
    arguments: Mapping[str, Any]
    call_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a gate says. `approval_id` names what is waited for; `reason` is for people and the agent.

    `state`: what a pending call waits for, a decision by default; of effects see `adapters.effects.state_of`.
    """

    permission: Permission
    approval_id: str = ""
    reason: str = ""
    state: str = "pending"


class CallWaits(Pending):
    """A call of a tool waits for a decision. `approval_id` names what is waited for.

    `elsewhere`: the framework itself waits for it, so that it keeps no model from being asked.
    """

    elsewhere = False

    def __init__(self, message: str, *, approval_id: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.approval_id = approval_id


class Gate(Protocol):
    """Whoever decides. It must answer from what it has on record, each time anew: a framework's word is none."""

    def __call__(self, request: ToolRequest) -> Answer:
        """Return whether this call may be made now. Nothing is called before it is allowed."""
        ...


def allow_all(request: ToolRequest) -> Answer:
    """Allow everything: where no gate is given."""
    return Answer(permission=Permission.ALLOWED)
