"""The error tree: every class answers the caller's question "what may I do next?"."""

from __future__ import annotations

from typing import ClassVar, cast


class LedgerError(Exception):
    """Base of everything this library raises.

    `code` is a stable machine word, `hint` says what to do next, and the message names the run, step or path
    concerned. `exit_code` is what the command line returns for it, `http_status` what a service answers.
    `unrecorded` holds, by step name, results that bodies returned and whose commit failed: they were paid for, and
    the next attempt runs these steps again; with Uncertain it may find them recorded after all.
    """

    code: str = "ledger_error"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, *, code: str | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        self.hint = hint
        self.unrecorded: dict[str, object] = {}

    def __reduce__(self) -> tuple[object, ...]:
        """Let the error travel between processes with all it says."""
        return _rebuilt, (type(self), self.args, dict(self.__dict__))

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


def _rebuilt(kind: type[LedgerError], args: tuple[object, ...], state: dict[str, object]) -> LedgerError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class Refused(LedgerError):
    """Nothing changed, and the same call will be refused again."""

    code = "refused"
    exit_code = 1
    http_status = 409


class Misuse(LedgerError):
    """The calling program broke the contract of this library."""

    code = "misuse"
    exit_code = 2
    http_status = 400


class Uncertain(LedgerError):
    """Something may have happened: reconcile, do not repeat."""

    code = "uncertain"
    exit_code = 3
    http_status = 409


class Pending(LedgerError):
    """Nothing is wrong: make the same call again after the decision."""

    code = "pending"
    exit_code = 4
    http_status = 202


def pending_of(error: BaseException | None) -> Pending | None:
    """Return what an error says that it waits for: itself, or the first of a group of nothing but such. Else None."""
    first: Pending | None = None
    left = [error]
    while left:
        one = left.pop()
        if isinstance(one, BaseExceptionGroup):
            left += reversed(cast("BaseExceptionGroup[BaseException]", one).exceptions)
        elif isinstance(one, Pending):
            first = first or one
        else:
            return None
    return first


class EffectPending(Pending):
    """An effect waits: for approvals, for evidence of what became of it, or for who is at it elsewhere.

    `action_id` (32 hex digits) and `action_key` name it. The same call again goes on with it. `display`: what approvers
    are shown of it, where it waits for them and is what this call asked for; else empty.
    """

    code = "effect_pending"

    def __init__(
        self,
        message: str,
        *,
        action_id: str = "",
        action_key: str = "",
        display: str = "",
        code: str | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.action_id = action_id
        self.action_key = action_key
        self.display = display


class ApprovalPending(EffectPending):
    """An effect waits for people to approve it: nothing was sent, and waiting costs nothing."""

    code = "approval_pending"


class EffectInDoubt(EffectPending):
    """Nobody knows whether an effect happened. It is not repeated: evidence, or people, decide what became of it."""

    code = "effect_in_doubt"


class Unavailable(LedgerError):
    """Nothing changed, and trying later is safe."""

    code = "unavailable"
    exit_code = 5
    http_status = 503


class Tampered(LedgerError):
    """Stored bytes contradict their hash, their checksum or the log."""

    code = "tampered"
    exit_code = 6
    http_status = 409


class NotAdmitted(LedgerError):
    """This copy may be old: it has no authority until people admit it."""

    code = "not_admitted"
    exit_code = 7
    http_status = 503


class InputsChanged(Refused):
    """The run was started with other inputs; the message names the first path that differs."""

    code = "inputs_changed"


class Diverged(Refused):
    """A step would be called with a fingerprint that the run has not recorded, and the policy is to refuse."""

    code = "diverged"


class RunQuarantined(Refused):
    """The run is in QUARANTINE: every start is refused until a recorded release."""

    code = "run_quarantined"


class BudgetExceeded(RunQuarantined):
    """A call would have exceeded a budget, so its run is in QUARANTINE; the message has the limit and the numbers."""

    code = "budget_exceeded"


class LoopDetected(RunQuarantined):
    """The breaker found the run going in circles and put it into QUARANTINE; the message says by which rule and why."""

    code = "loop_detected"


class Vetoed(Refused):
    """A call of a tool was not made, because a rule or a person forbade it; to be raised in the tool's body.

    It is recorded as the call's error, and one veto after another counts as going in circles.
    """

    code = "vetoed"


class RunCancelled(Refused):
    """The run was cancelled, which is for ever."""

    code = "run_cancelled"


class Superseded(Refused):
    """Another attempt took this run over: this attempt may write nothing more."""

    code = "attempt_superseded"


class RunBusy(Unavailable):
    """The run has a live attempt elsewhere; the message says whose and since when."""

    code = "run_busy"


class StepTimeout(Uncertain, TimeoutError):
    """A step did not return within its `timeout_s`; its body may still be running."""

    code = "step_timeout"


class Unstorable(Misuse, TypeError):
    """A value has no type-exact stored form; `path` says where inside the value, `type_name` which type."""

    code = "unstorable"

    def __init__(self, message: str, *, path: str, type_name: str, code: str | None = None, hint: str = "") -> None:
        super().__init__(message, code=code, hint=hint)
        self.path = path
        self.type_name = type_name


class ClassGone(Misuse):
    """A recorded value needs a class that this program no longer has; nothing is run again."""

    code = "class_gone"


class Forked(Misuse):
    """A store, lock or attempt was used in a forked child of the process that opened it."""

    code = "forked"
