"""Finds the one action that a person means: by its key, by its id, or by how the id begins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from agent_run_ledger.errors import Refused

if TYPE_CHECKING:
    from agent_run_ledger.ports.effects import EffectReader, StoredAction

SHORTEST = 4
PAGE = 1_000
_HEX = re.compile(rf"[0-9a-f]{{{SHORTEST},32}}")


def find_action(reader: EffectReader, name: str) -> StoredAction:
    """Return the newest member of a key of this name, or the one action whose id begins so.

    Refused: "unknown_action", and "ambiguous" where the name means several: a key may be spelled like an id.
    """
    found = {one.action.action_id: one for one in (*_of_key(reader, name), *_of_id(reader, name))}
    if not found:
        hint = f"give a key, or at least {SHORTEST} digits of an id; `arl approvals list` shows both"
        raise Refused(f"there is no action {name!r}", code="unknown_action", hint=hint)
    if len(found) > 1:
        ids = ", ".join(action_id.hex() for action_id in list(found)[:3])
        raise Refused(f"{name!r} may be any of {len(found)} actions: {ids}", code="ambiguous", hint="give the whole id")
    return next(iter(found.values()))


def _of_key(reader: EffectReader, name: str) -> list[StoredAction]:
    return reader.members(name)[-1:]


def _of_id(reader: EffectReader, name: str) -> Iterator[StoredAction]:
    digits = name.lower().replace("-", "")
    if not _HEX.fullmatch(digits):
        return
    if len(digits) == 32:
        exact = reader.action(bytes.fromhex(digits))
        yield from [] if exact is None else [exact]
        return
    yield from (one for one in every_action(reader) if one.action.action_id.hex().startswith(digits))


def every_action(reader: EffectReader) -> Iterator[StoredAction]:
    """Yield all actions in all states, oldest first, a page at a time."""
    from agent_run_ledger.kernel.effects import ActionState

    last = -1
    while page := reader.in_states(tuple(ActionState), after_row_id=last, limit=PAGE):
        yield from page
        last = page[-1].row_id
