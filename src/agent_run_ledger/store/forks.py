"""What fork() does to open stores: closed before it, usable again in the parent, refused in the child."""

from __future__ import annotations

import os
from typing import Protocol

from agent_run_ledger.errors import Forked


class Forkable(Protocol):
    """What holds connections, locks or descriptors of this process."""

    def before_fork(self) -> None:
        """Let go of what a child must not inherit."""
        ...

    def after_fork_in_parent(self) -> None:
        """Go on."""
        ...

    def after_fork_in_child(self) -> None:
        """Give up everything, without a word to the operating system about the parent's locks."""
        ...


def forked(location: str) -> Forked:
    """Return what every use of a parent's store in its forked child raises."""
    return Forked(
        f"{location} was opened by the parent of this process",
        hint="open the store again in the child: RunLedger(db_path=…) or open_sqlite(…)",
    )


def register(subject: Forkable) -> None:
    """Call the three methods of `subject` around every fork of this process, for ever."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=subject.before_fork,
            after_in_parent=subject.after_fork_in_parent,
            after_in_child=subject.after_fork_in_child,
        )


def keep_for_ever(subject: object) -> None:
    """Never let the destructor of `subject` run, not even at the end of the process."""
    import ctypes  # only a child of a fork inside a transaction comes here

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(subject))
