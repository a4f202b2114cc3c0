"""A scope of a live run: it numbers equal calls, branches and what is open at once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from agent_run_ledger.errors import Misuse
from agent_run_ledger.kernel.scopes import WRAPPED, branch_scope

if TYPE_CHECKING:
    from agent_run_ledger.runs.calls import CallIdentity
    from agent_run_ledger.runs.dynamic import DynamicSession
    from agent_run_ledger.runs.steps import Step

Equal = tuple[str, bytes]
"""What equal calls of a scope have in common: the step's name, and the fingerprint with its key, if it has one."""


class Frame:
    """Guarantees: equal calls get numbers in the order in which they begin, each number once; one that nobody will
    ever conclude gives its number back; nothing begins in the body of a call that has ended. Thread-safe.
    """

    __slots__ = (
        "_call",
        "_free",
        "_groups",
        "_lock",
        "_next",
        "_open",
        "_outer",
        "_scope",
        "_shut",
        "_wraps",
        "asks",
        "broken",
        "effect",
        "seen",
        "session",
    )

    def __init__(
        self,
        session: DynamicSession,
        scope: bytes | None,
        *,
        call: CallIdentity | None = None,
        outer: Frame | None = None,
    ) -> None:
        """`scope` None: that of the body of `call`, made when it is first asked for. `outer`: what it lies in."""
        self.session = session
        self.broken = False
        self.effect = ""  # the action (32 hex digits) that the body of this scope is about
        self.seen = ""  # as what that body saw it at last
        self.asks = False  # whether it has a probe
        self._scope = scope
        self._call = call
        self._lock = threading.RLock()  # a stream that is cleaned up may come in anywhere
        self._next: dict[Equal, int] = {}
        self._free: dict[Equal, list[int]] = {}
        self._open: set[Equal] = set()
        self._groups = 0
        self._wraps = 0
        self._outer = outer
        self._shut = False

    @property
    def scope(self) -> bytes:
        """The path of this scope (kernel.scopes)."""
        if self._scope is None:
            self._scope = b"" if self._call is None else self.session.scope_within(self._call)
        return self._scope

    @property
    def used(self) -> bool:
        """Whether anything was called here."""
        return bool(self._next) or self._groups > 0 or self._wraps > 0

    def call(self, step: Step[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """See current.Caller."""
        return self.session.call(self, step, args, kwargs)

    def begin(self, equal: Equal, *, interchangeable: bool) -> int:
        """Return the number of a call among its equals, and note that it is open. Misuse for equal calls at once."""
        with self._lock:
            self.check_open()
            if not interchangeable:
                if equal in self._open:
                    raise Misuse(
                        f"step {equal[0]!r} was called twice at once with equal arguments",
                        code="equal_calls",
                        hint="give the step key=, call it in run.gather or run.map, or declare interchangeable=True",
                    )
                self._open.add(equal)
            free = self._free.get(equal)
            if free:
                return free.pop(0)
            number = self._next.get(equal, 0)
            self._next[equal] = number + 1
            return number

    def end(self, equal: Equal) -> None:
        """Note that a call is no longer open."""
        with self._lock:
            self._open.discard(equal)

    def give_back(self, equal: Equal, number: int) -> None:
        """Take back the number of a call that left nothing which a later equal call could be confused with."""
        with self._lock:
            free = self._free.setdefault(equal, [])
            free.append(number)
            free.sort()

    def group(self) -> int:
        """Return the number of the next gather or map of this scope."""
        with self._lock:
            self.check_open()
            self._groups += 1
            return self._groups - 1

    def wrap(self) -> Frame:
        """Return the scope of the next wrap."""
        with self._lock:
            self._wraps += 1
            number = self._wraps - 1
        return self.branch(WRAPPED, number)

    def branch(self, group: int, number: int) -> Frame:
        """Return the scope of one branch."""
        return Frame(self.session, branch_scope(self.scope, group, number), outer=self)

    def shut(self) -> None:
        """Note that the body of this scope was answered for: a thread of it that goes on calls nothing more."""
        self._shut = True

    def break_up(self) -> None:
        """Note, here and further out, that a call was told that the run may not go on: whatever a body makes of that is
        no result of it."""
        frame: Frame | None = self
        while frame is not None:
            frame.broken = True
            frame = frame._outer

    def within(self, other: Frame) -> bool:
        """Return whether this is the other scope, or further in."""
        frame: Frame | None = self
        while frame is not None and frame is not other:
            frame = frame._outer
        return frame is other

    def check_open(self) -> None:
        """Raise Misuse where the body of this scope, or of one around it, was answered for (it timed out, say)."""
        frame: Frame | None = self
        while frame is not None:
            if frame._shut:
                raise Misuse(
                    "a step was called, or ended, in the body of a step that had ended before", code="body_over"
                )
            frame = frame._outer
