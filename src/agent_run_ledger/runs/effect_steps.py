"""Effects: steps whose function builds a request, which people approve and which is sent once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

from agent_run_ledger.errors import Misuse, Refused
from agent_run_ledger.kernel.effects.request import Call, Request, request_bytes
from agent_run_ledger.kernel.effects.result import EffectResult
from agent_run_ledger.ports.effect_steps import Effects, Probe, Wanted
from agent_run_ledger.ports.targets import Target
from agent_run_ledger.runs.arguments import bind_arguments, check_key, made_key
from agent_run_ledger.runs.current import CURRENT
from agent_run_ledger.runs.effect_calls import Carrying, EffectCall, advance, carry_out, held_up, perform
from agent_run_ledger.runs.frames import Frame
from agent_run_ledger.runs.own_thread import in_own_thread
from agent_run_ledger.runs.sending import check_not_sending
from agent_run_ledger.runs.steps import P, Shape, Step

MOST_WAIT_S = 86_400
MAX_SUCCESSORS = 100


class FunctionTarget(Target, Protocol):
    """A target that calls a function: see `targets.Opaque`."""

    def calling(self, name: str, function: Callable[..., Any]) -> FunctionTarget:
        """Return the target that calls this function under this name."""
        ...


class Effect(Step[P, EffectResult]):
    """A step that acts on the world once.

    Its function *builds* a `Request`, whose exact bytes are stored, approved and sent by `target`; with `Opaque()` the
    function itself is the effect, and its canonical arguments are what is approved. A call returns an `EffectResult`
    once there is evidence that it happened. Until then it raises `ApprovalPending` or `EffectInDoubt`: left with it,
    the run is suspended, and the same program goes on where it was, after any number of restarts, once people have
    decided. Refused("rejected", "revoked", "expired", "not_executed", "written_off") where they decided otherwise:
    a recorded error like any other, and the agent goes on. What the store or the trust file does not allow now is
    nobody's decision: EffectPending with the code of what is to be put in order.

    `key`: a template over the arguments, or a function of them, for the business effect ("refund:{order_id}"): one key
    is one effect, in all runs of the store. The same key with other bytes is Refused("argument_drift").
    `approval`: the name of the policy that says who approves; Refused("other_policy") where the action of this key was
    proposed under another one, by whomever. `observe`: looks at the target for evidence, where
    nobody knows how a dispatch ended; see `Lookup`. `successors`: how often the run itself proposes it again once it is
    proved that it did not happen; each wants approvals of its own. `wait_s`: how long a call waits for a decision
    before it raises.

    `plain` is the function that builds. It must be pure: it may run again.
    """

    watched = True
    kept_elsewhere = True

    def __init__(
        self,
        fn: Callable[P, Any],
        /,
        *,
        key: str | Callable[..., str],
        target: Target,
        approval: str,
        observe: Probe | None = None,
        successors: int = 0,
        wait_s: float = 0,
        **settings: Any,
    ) -> None:
        settings["interchangeable"] = True  # equal calls are one effect, whose result is the same for all
        super().__init__(cast("Callable[P, EffectResult]", fn), **settings)
        self.builds: Callable[..., Any] = fn
        if self.shape not in (Shape.SYNC, Shape.ASYNC):
            raise self._bad("builds one request: it is no generator")
        check_key(key, self.parameter_names, self.name)
        if key is None:  # pyright: ignore[reportUnnecessaryComparison]
            raise self._bad("needs a key: what makes two calls one effect is for the program to say")
        self.action_key = key
        self.approval = _named(approval, self)
        self.observe = observe
        self.successors = _count(successors, self)
        self.wait_s = _seconds(wait_s, self)
        calling = getattr(target, "calling", None)
        self.opaque = calling is not None
        if self.opaque and self.shape is Shape.ASYNC:
            raise self._bad("is async, and what an async function returns at once has done nothing yet")
        self.target: Target = target if calling is None else cast("FunctionTarget", target).calling(self.name, fn)
        self.body = self._perform if self.shape is Shape.SYNC else self._aperform

    def __repr__(self) -> str:
        """Return a short form for messages."""
        return f"<Effect {self.name!r} of {self.function_name}>"

    def wanted(self, args: tuple[Any, ...], kwargs: dict[str, Any], request: Request | Call) -> Wanted:
        """Return what a call asks for. Misuse for a key that cannot be made, and for a request that cannot be sent."""
        bound = bind_arguments(self, args, kwargs)
        key = made_key(self, self.action_key, bound, args, kwargs)
        self.target.check(request)
        return Wanted(action_key=key, request=request_bytes(request), target=self.target, approval=self.approval)

    def asked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> EffectCall:
        """Return the call of an effect whose function is no async one, in the run of this context. See `wanted`."""
        if self.shape is not Shape.SYNC:
            raise self._bad("is async: await it")
        request = self._call_of(args, kwargs) if self.opaque else self._checked(self.builds(*args, **kwargs))
        return self._asked(args, kwargs, request)

    def _perform(self, *args: Any, **kwargs: Any) -> EffectResult:
        return perform(self.asked(args, kwargs))

    async def _aperform(self, *args: Any, **kwargs: Any) -> EffectResult:
        import asyncio

        request = self._checked(await self.builds(*args, **kwargs))
        call = self._asked(args, kwargs, request)
        try:
            return await self._carried_out(carry_out(call))
        except asyncio.CancelledError:
            call.left.set()
            raise

    async def _carried_out(self, going: Carrying) -> EffectResult:
        """Carry a call out beside the loop. While it waits it holds no thread.

        Cancelled while it acts, its thread goes on to the record of what it sent, and the next call finds it there.
        """
        import asyncio

        while True:
            wait_s, result = await in_own_thread(lambda: advance(going), name=f"arl-effect-{self.name}")
            if result is not None:
                return result
            await asyncio.sleep(wait_s)

    def _asked(self, args: tuple[Any, ...], kwargs: dict[str, Any], request: Request | Call) -> EffectCall:
        return effect_call(
            self.name,
            self.wanted(args, kwargs, request),
            probe=self.observe,
            successors=self.successors,
            wait_s=self.wait_s,
        )

    def _call_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Return the call of the function itself, whose arguments are what people approve."""
        bound = bind_arguments(self, args, kwargs)
        if any(name.startswith("*") for name in bound):
            raise Misuse(f"effect {self.name!r} takes *args or **kwargs, which have no names", code="bad_step")
        return Call.of(self.name, cast("dict[str, Any]", bound))

    def _checked(self, built: object) -> Request:
        if not isinstance(built, Request):
            raise Misuse(
                f"effect {self.name!r} returned a {type(built).__name__}, not a Request",
                code="no_request",
                hint="return Request.json(method, path, body); a function that acts by itself takes target=Opaque()",
            )
        return built

    def _bad(self, said: str) -> Misuse:
        return Misuse(f"effect {self.name!r} {said}", code="bad_step")


def effect_call(
    name: str, wanted: Wanted, *, probe: Probe | None = None, successors: int = 0, wait_s: float = 0
) -> EffectCall:
    """Return the call of an effect in the run of this context.

    Misuse("outside_run") where there is none, ("nested_effect") within what another effect sends.
    """
    check_not_sending(name)
    place = CURRENT.get()
    if not isinstance(place, Frame):
        raise Misuse(f"effect {name!r} was called outside a run", code="outside_run")
    return EffectCall(
        name=name,
        wanted=wanted,
        effects=_opened(name, place),
        place=place,
        run_uid=place.session.opened.row.run_uid,
        generation=place.session.opened.row.generation,
        probe=probe,
        successors=successors,
        wait_s=wait_s,
    )


def _opened(name: str, place: Frame) -> Effects:
    """Return the effects of a run's store. That they cannot be opened now is nobody's decision about an effect."""
    try:
        return place.session.effects()
    except Refused as error:
        raise held_up(name, error) from error


def _named(approval: object, effect: Effect[...]) -> str:
    if not isinstance(approval, str) or not approval.strip() or not approval.isprintable():
        raise Misuse(f"effect {effect.name!r} needs the name of its approval policy", code="bad_step")
    return approval


def _count(number: object, effect: Effect[...]) -> int:
    if type(number) is not int or not 0 <= number <= MAX_SUCCESSORS:
        raise Misuse(
            f"effect {effect.name!r}: successors is a whole number from 0 to {MAX_SUCCESSORS}", code="bad_step"
        )
    return number


def _seconds(seconds: object, effect: Effect[...]) -> float:
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds <= MOST_WAIT_S:
        raise Misuse(f"effect {effect.name!r}: wait_s is a number of seconds, at most {MOST_WAIT_S:,}", code="bad_step")
    return float(seconds)
