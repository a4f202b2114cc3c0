"""Tools that are effects: what a program says of them, and what a call of one asks the ledger for."""

from __future__ import annotations

import string
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast
from weakref import WeakSet

from agent_run_ledger.adapters.tool_target import Act, CalledTool
from agent_run_ledger.effects.intents import check_text
from agent_run_ledger.errors import ApprovalPending, EffectInDoubt, EffectPending, LedgerError, Misuse, Refused, Vetoed
from agent_run_ledger.kernel.effects.request import Call, request_bytes
from agent_run_ledger.kernel.effects.result import EffectResult
from agent_run_ledger.ports.effect_steps import Probe, Wanted
from agent_run_ledger.runs.current import Caller
from agent_run_ledger.runs.dynamic import DynamicSession
from agent_run_ledger.runs.effect_calls import EffectCall
from agent_run_ledger.runs.effect_steps import MAX_SUCCESSORS, MOST_WAIT_S, Effect, effect_call
from agent_run_ledger.runs.frames import Frame
from agent_run_ledger.runs.steps import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEffect:
    """A tool whose call is an action of the ledger: people approve its exact arguments, and it is called once.

    The call itself is the target, a plain one (class N): what it returns is evidence that it happened, and what it
    raises says nothing about what it did before. Then nobody calls it again: evidence, or people, decide what became
    of it.

    `key`: the business effect that a call is, as a template over its arguments ("refund:{order}"), each of them a text
    or a whole number, or as a function of them; one key is one effect, in all runs of the store. `approval`: the name
    of the policy of the trust file that says who approves. `observe`, `successors`, `wait_s`: see `Effect`.
    `audience`: what approvers are told is called, "tool:" and its name by default; a name of your own where two
    servers have tools of one name. Misuse("bad_effect") for what is none of these.
    """

    key: str | Callable[..., str]
    approval: str
    observe: Probe | None = None
    successors: int = 0
    wait_s: float = 0
    audience: str = ""

    def __post_init__(self) -> None:
        """Check every field."""
        if not callable(self.key):
            _fields(self.key)
        for name in ("approval", "audience"):
            text: object = getattr(self, name)
            if not isinstance(text, str) or not text.isprintable() or (name == "approval" and not text.strip()):
                raise _bad(f"its {name} is a printable text, not {text!r:.80}")
        count: object = self.successors
        if type(count) is not int or not 0 <= count <= MAX_SUCCESSORS:
            raise _bad(f"successors is a whole number from 0 to {MAX_SUCCESSORS}")
        seconds = cast("object", self.wait_s)
        if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds <= MOST_WAIT_S:
            raise _bad(f"wait_s is a number of seconds, at most {MOST_WAIT_S:,}")

    def key_of(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Return the key of a call. Vetoed("bad_key") where its arguments make none: the agent may mend them.

        Whatever a function of yours raises is that, but for what the ledger itself says to it.
        """
        try:
            made = self.key(**arguments) if callable(self.key) else _filled(self.key, arguments)
            check_text("the key of an effect", made)
        except Exception as error:
            raise _vetoed(error, f"this call of {tool!r} names no effect", code="bad_key") from error
        return made


AnyEffect = ToolEffect | Effect[Any]
GivenEffects = Mapping[str, AnyEffect]


class EffectsByTool:
    """Effects by the names of tools. Misuse("bad_effect") for what is none, and for a name that no call can have."""

    def __init__(self, given: GivenEffects | None = None) -> None:
        self._effects = dict(given or {})
        self._checked: WeakSet[DynamicSession] = WeakSet()
        self._lock = threading.Lock()
        for name, effect in self._effects.items():
            _check(name, effect)

    def __eq__(self, other: object) -> bool:
        """Whether the same was given for every tool."""
        return isinstance(other, EffectsByTool) and self._effects == other._effects

    __hash__ = None  # type: ignore[assignment]  # they are compared, not looked up

    def __bool__(self) -> bool:
        """Whether any tool is an effect."""
        return bool(self._effects)

    def __contains__(self, tool: object) -> bool:
        """Whether a tool is an effect."""
        return tool in self._effects

    def check(self, place: Caller | None) -> None:
        """Stop an attempt, before anything is made in it, where an effect names a policy that its trust file has not.

        Looked up once in each attempt. That effects cannot be opened now is for their calls to say, which wait then.
        """
        if not self._effects or not isinstance(place, Frame):
            return
        session = place.session
        with self._lock:
            if session in self._checked or session.over:
                return
        try:
            effects = session.effects()
        except Refused:
            return
        try:
            effects.check_policies(sorted({effect.approval for effect in self._effects.values()}))
        except Refused as error:
            raise session.halt(error, place) from None
        with self._lock:
            self._checked.add(session)

    def waits(self, tool: str) -> bool:
        """Return whether a call waits for its decision before it says so."""
        return self._effects[tool].wait_s > 0

    def call(self, tool: str, arguments: Mapping[str, Any], act: Act, *, fixed: bool = False) -> EffectCall:
        """Return what a call of a tool asks for, in the run of this context. Vetoed for arguments that ask for nothing.

        `act`: makes the call with the arguments that were approved; not used where the effect has a target of its own.
        `fixed`: it can make the call with these very arguments alone.
        """
        effect = self._effects[tool]
        try:
            if isinstance(effect, Effect):
                return effect.asked((), dict(arguments))
            asked = Call.of(tool, arguments)
            request = request_bytes(asked)
        except Exception as error:  # the function that builds may raise anything, and nothing was asked for yet
            raise _vetoed(error, f"this call of {tool!r} cannot be asked for", code="bad_call") from error
        wanted = Wanted(
            action_key=effect.key_of(tool, arguments),
            request=request,
            target=CalledTool(tool, act, audience=effect.audience, only=asked.body if fixed else None),
            approval=effect.approval,
        )
        return effect_call(
            tool, wanted, probe=effect.observe, successors=effect.successors, wait_s=float(effect.wait_s)
        )

    def told(self, tool: str, result: EffectResult) -> Any:
        """Return what the agent gets of an effect that happened: what the tool returned, or a text."""
        if not isinstance(self._effects[tool], Effect):
            return result.json() if result.answer else _evidence(tool, result)
        return (result.answer or b"").decode("utf-8", "replace") or _evidence(tool, result)


def state_of(waits: EffectPending) -> str:
    """Return what a call of an effect waits for, as frameworks are told it.

    "pending": people decide. "in_doubt": evidence decides. "elsewhere": another run or process is at it. "held_up":
    the store, the trust file or the program does not allow it now, which is to be put in order, and nobody decided so.
    """
    if isinstance(waits, ApprovalPending):
        return "pending"
    if isinstance(waits, EffectInDoubt):
        return "in_doubt"
    return "elsewhere" if waits.code in _AT_IT else "held_up"


_AT_IT: Final = frozenset({"effect_elsewhere", "effect_left", "effect_pending"})
"""The codes of what somebody is at: the same call later finds out how that ended."""

_MOST_SAID: Final = 500


_OF_THE_PROGRAM: Final = ("outside_run", "nested_effect")
"""Misuse that no other arguments mend."""


def _vetoed(error: Exception, said: str, *, code: str) -> LedgerError:
    """Return what a call is told that asks for nothing; what the ledger says of the run or the store is no such thing.

    What a program raised may hold the whole of its arguments: a veto is kept, and shown, so it is cut.
    """
    if isinstance(error, LedgerError) and (not isinstance(error, Misuse) or error.code in _OF_THE_PROGRAM):
        return error
    words = error.message if isinstance(error, Misuse) else f"{type(error).__name__}: {error}"
    if len(words) > _MOST_SAID:
        words = f"{words[:_MOST_SAID]} ..."
    return Vetoed(f"{said}: {words}", code=code, hint=error.hint if isinstance(error, Misuse) else "")


def _evidence(tool: str, result: EffectResult) -> str:
    return (
        f"{tool} was carried out: there is evidence on record (action {result.action_id} of {result.action_key!r}). "
        "What it answered is not on record. Do not call it again for the same purpose."
    )


def _check(name: object, effect: object) -> None:
    if isinstance(effect, Effect):
        if effect.shape is not Shape.SYNC:
            raise _bad(f"effect {name!r} is built by an async function, which no framework's tool can wait for")
        return
    if not isinstance(effect, ToolEffect):
        raise _bad(f"effect {name!r} is a {type(effect).__name__}, neither a ToolEffect nor an Effect")
    try:
        Call.of(cast("str", name), {})
    except Misuse as error:
        raise _bad(error.message) from error


def _fields(template: object) -> list[str]:
    """Return what a template names. Misuse for what is none, and for parts of arguments: keys are what people read."""
    if not isinstance(template, str) or not template:
        raise _bad("its key is a template over the arguments, or a function of them")
    try:
        parts = [*string.Formatter().parse(template)]
    except ValueError as error:
        raise _bad(f"its key {template!r} is no template: {error}") from error
    named = [(field, specification, conversion) for _, field, specification, conversion in parts if field is not None]
    for field, specification, conversion in named:
        if not field.isidentifier() or specification or conversion:
            raise _bad(f"its key {template!r} may name whole arguments alone, such as {{order}}")
    return [field for field, _, _ in named]


def _filled(template: str, arguments: Mapping[str, Any]) -> str:
    values: dict[str, str] = {}
    for field in _fields(template):
        if field not in arguments:
            raise LookupError(f"there is no argument {field!r}")
        value: object = arguments[field]
        if type(value) not in (str, int) or value == "":
            raise TypeError(f"argument {field!r} is neither a text nor a whole number")
        values[field] = str(value)
    return template.format_map(values)


def _bad(said: str) -> Misuse:
    return Misuse(f"this is no effect of a tool: {said}", code="bad_effect")
