"""Which failures leave a run of a queue as it stood, since they are none of its own."""

from __future__ import annotations

from agent_run_ledger.errors import ClassGone, Diverged, LedgerError, StepTimeout, Unavailable, Uncertain

Kinds = tuple[type[LedgerError], ...]

_OTHERS: Kinds = (Diverged, ClassGone)
_STORES: Kinds = (Unavailable, Uncertain)


def is_left(queue: str | None, *failures: BaseException | None) -> bool:
    """Return whether an attempt that ended so leaves its run as it stood: whoever can goes on with it.

    Only a run in a queue is left. A run of its caller's own fails, since nobody else comes for it.
    """
    return queue is not None and any(of_other_program(one) or of_store(one) for one in failures)


def of_other_program(failure: BaseException | None) -> bool:
    """Return whether a failure says that the run is another program's, or another version's.

    Whatever was made of it: frameworks wrap what a call raises, and groups of tasks hold it.
    """
    return _holds(failure, _OTHERS, whatever=True)


def of_store(failure: BaseException | None) -> bool:
    """Return whether a failure says that nothing is wrong but that somebody could not be asked, for now.

    Also one that was raised from such a one, or is a group that holds one. What raises something else while it handles
    it has decided. A step that took too long has failed.
    """
    return _holds(failure, _STORES, whatever=False)


def _holds(failure: BaseException | None, kinds: Kinds, *, whatever: bool) -> bool:
    left = [failure]
    seen: set[int] = set()
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        if isinstance(one, kinds) and not isinstance(one, StepTimeout):
            return True
        seen.add(id(one))
        if isinstance(one, BaseExceptionGroup):
            left += one.exceptions  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        left.append(one.__cause__)
        if whatever and not one.__suppress_context__:
            left.append(one.__context__)
    return False
