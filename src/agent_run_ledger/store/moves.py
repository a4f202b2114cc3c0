"""What a store says of itself while its ledger moves to another store, and for ever after."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from agent_run_ledger.errors import LedgerError, Refused, Tampered
from agent_run_ledger.kernel.envelope import Change

STANDING: Final = "move"
MOVE_ID: Final = "move_id"
PEER: Final = "move_peer"
"""Lines of meta, which a store that never took part in a move does not have."""

MOVER: Final = "mover"
"""The line of a target that says which process fills it: the one that took it over last."""

MOVE_ID_BYTES: Final = 16

MOVING_STATE: Final = "moving"
RETIRED_STATE: Final = "retired"
"""What the log calls a store that nobody writes any more, for now and for ever."""


class Standing(IntEnum):
    """What a store may be used for: everything, or, in these three, for no write but those of the move itself."""

    LIVE = 0
    MOVING = 1
    """Its ledger is being copied elsewhere. It goes on from here, or there."""
    RETIRED = 2
    """Its ledger goes on elsewhere. Nothing leads out of this."""
    ARRIVING = 3
    """It is being filled, and may not even be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What a store says of its last move: where it stands, the move's id (16 bytes), and where the other store is.

    `peer` has no password in it. Both are empty for a store that never took part in a move.
    """

    standing: Standing
    move_id: bytes
    peer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mover:
    """One process at one move. `token` (16 random bytes) is its own: a target is filled by whose token it has."""

    move_id: bytes
    token: bytes


Meta = Mapping[str, Any]


def move_of(meta: Meta, location: str) -> Move:
    """Return what a store's lines of meta say of a move. Tampered("corrupt") for what was never written."""
    try:
        return Move(
            standing=Standing(meta.get(STANDING, Standing.LIVE)),
            move_id=bytes(meta.get(MOVE_ID, b"")),
            peer=bytes(meta.get(PEER, b"")).decode(),
        )
    except (ValueError, TypeError) as error:
        raise Tampered(f"{location}: meta is not as it was written: {error}", code="corrupt") from error


def lines_of(move: Move) -> tuple[tuple[str, bytes | int], ...]:
    """Return the lines of meta that say this."""
    return (STANDING, int(move.standing)), (MOVE_ID, move.move_id), (PEER, move.peer.encode())


def is_arriving(move: Move, move_id: bytes) -> bool:
    """Return whether a store is being filled by this move."""
    return (move.standing, move.move_id) == (Standing.ARRIVING, move_id)


def is_filled_by(meta: Meta, mover: Mover, location: str) -> bool:
    """Return whether what these lines of meta are of is being filled by this process, and by none since."""
    return is_arriving(move_of(meta, location), mover.move_id) and meta.get(MOVER) == mover.token


def move_over(location: str) -> LedgerError:
    """Return what to raise where another process went on with a move, or ended it."""
    return Refused(
        f"{location} is no longer where this move left it",
        code="move_over",
        hint="another process went on with the move or ended it; look at both stores with `arl doctor`",
    )


def check_open(move: Move, fresh: Callable[[], Move], location: str, *, readonly: bool) -> None:
    """Refuse to open a store for what it may not be used for. `fresh` reads again what may have changed since.

    Refused: "retired" and "moving" for writing, "arriving" for reading too.
    """
    if _forbids(move, readonly) and _forbids(now := fresh(), readonly):
        raise refusal(now, location)


def refusal(move: Move, location: str) -> LedgerError:
    """Return what to raise where a store is not to be used because of a move."""
    if move.standing is Standing.RETIRED:
        return Refused(
            f"{location} is retired: its ledger lives at {move.peer}",
            code="retired",
            hint="name that store; this one can be read, verified and exported, and is never written again",
        )
    if move.standing is Standing.MOVING:
        return Refused(
            f"{location} is being moved to {move.peer}",
            code="moving",
            hint="`arl migrate` with both names goes on, and gives up with --abandon",
        )
    return Refused(
        f"{location} is not whole: a ledger is being moved there from {move.peer}",
        code="arriving",
        hint="`arl migrate` with both names goes on, and gives up with --abandon",
    )


def change(log_id: bytes, old: str, new: str) -> Change:
    """Return what a leaf says of a step of a move."""
    return Change(type="store", id=log_id, old=old, new=new, generation=0)


def live_state(meta: Meta) -> str:
    """Return what the log calls a store that is in use: whether it may hold effects."""
    return "authority" if meta["authority"] else "runs_only"


def _forbids(move: Move, readonly: bool) -> bool:
    return move.standing is Standing.ARRIVING or (move.standing is not Standing.LIVE and not readonly)
