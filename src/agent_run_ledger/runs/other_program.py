"""Which failures say that a run was begun by another program than this one, or by another version of it."""

from __future__ import annotations

from agent_run_ledger.errors import ClassGone, Diverged, LedgerError


def is_others(queue: str | None, *failures: BaseException | None) -> bool:
    """Return whether an attempt that ended so leaves its run as it stood, for the program that it is of.

    Only a run in a queue is: whoever has that program takes it from there. A run of its caller's own fails, since
    nobody else comes for it.
    """
    return queue is not None and any(of_other_program(one) is not None for one in failures)


def of_other_program(failure: BaseException | None) -> LedgerError | None:
    """Return the Diverged or ClassGone that a failure is, holds as a group does, or was raised because of; else None.

    Frameworks wrap what a call raises, and groups of tasks hold it.
    """
    left = [failure]
    seen: set[int] = set()
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        if isinstance(one, Diverged | ClassGone):
            return one
        seen.add(id(one))
        if isinstance(one, BaseExceptionGroup):
            left += one.exceptions  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        left.append(one.__cause__ or (None if one.__suppress_context__ else one.__context__))
    return None
