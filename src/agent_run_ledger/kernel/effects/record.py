"""Records of transitions: what is kept beside a leaf, and the bytes that its MAC is taken over (format: effect v1)."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Any, Final, cast

import orjson

from agent_run_ledger.kernel.effects.action import Action, Standing
from agent_run_ledger.kernel.effects.commands import BY_NAME, Command
from agent_run_ledger.kernel.effects.plain import from_plain, name_of, to_plain
from agent_run_ledger.kernel.envelope import Change

EFFECT_DOMAIN: Final = b"agent-run-ledger/effect/v1\n"
EFFECT_VERSION: Final = 1
_KEYS: Final = frozenset({"v", "command", "ledger", "old", "row"})
ACTION: Final = "action"
"""The type of a change of one action."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """What one transition did to one member: who asked for what, where the ledger stood, and the row afterwards."""

    command: Command
    ledger: Standing
    old: str
    row: Action


def transition_bytes(transition: Transition) -> bytes:
    """Return a transition as sorted JSON: {"v", "command", "ledger", "old", "row"} (docs/formats/effect.md)."""
    tree = {
        "v": EFFECT_VERSION,
        "command": to_plain(transition.command),
        "ledger": to_plain(transition.ledger),
        "old": transition.old,
        "row": to_plain(transition.row),
    }
    return _sorted_json(tree)


def transition_from(payload: bytes) -> Transition:
    """Return what `transition_bytes` wrote. ValueError for any other bytes."""
    tree = _tree_from(payload)
    return Transition(
        command=_command_from(tree["command"]),
        ledger=from_plain(Standing, tree["ledger"]),
        old=from_plain(str, tree["old"]),
        row=from_plain(Action, tree["row"]),
    )


def command_from(payload: bytes) -> Command:
    """Return the command of what `transition_bytes` wrote, the rest unread. ValueError for any other bytes."""
    return _command_from(_tree_from(payload)["command"])


def transition_mac(salt: bytes, payload: bytes) -> bytes:
    """Return HMAC-SHA256(salt, EFFECT_DOMAIN ‖ payload), 32 bytes: what the leaf holds of a transition."""
    return hmac.digest(salt, EFFECT_DOMAIN + payload, "sha256")


def change_of(transition: Transition, mac: bytes) -> Change:
    """Return the leaf's line of a transition. Before a claim there is no generation, which the line has as 0."""
    row = transition.row
    return Change(
        type=ACTION,
        id=row.action_id,
        old=transition.old,
        new=str(row.state),
        generation=row.generation or 0,
        mac=mac,
    )


def _tree_from(payload: bytes) -> dict[str, Any]:
    read = orjson.loads(payload)
    tree = cast("dict[str, Any]", read) if isinstance(read, dict) else {}
    if tree.get("v") != EFFECT_VERSION or tree.keys() != _KEYS or _sorted_json(tree) != payload:
        raise ValueError("this is no record of a transition, version 1")
    return tree


def _command_from(tree: Any) -> Command:
    kind = BY_NAME.get(name_of(tree))
    if kind is None:
        raise ValueError("this is no command")
    command: Command = from_plain(kind, tree)
    return command


def _sorted_json(tree: Any) -> bytes:
    return orjson.dumps(tree, option=orjson.OPT_SORT_KEYS)
