"""One run of a ledger's steps: execute it, and ask what would happen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final

from agent_run_ledger.errors import Misuse, Refused
from agent_run_ledger.kernel.policy import LoopDetectorPolicy
from agent_run_ledger.kernel.states import RunEvent, RunState
from agent_run_ledger.ledger.account import Account, account_of_family, account_of_run, parse_by
from agent_run_ledger.ledger.budget_use import BudgetUse, budget_uses
from agent_run_ledger.ledger.entering import Entering, RunSettings
from agent_run_ledger.ledger.opened import OpenedStore
from agent_run_ledger.ports import RunRow
from agent_run_ledger.runs.attempt import Context, Definition, Submitted
from agent_run_ledger.runs.budgets import Limits
from agent_run_ledger.runs.execute import Request, aexecute, execute
from agent_run_ledger.runs.explain import StepExplanation, explain_new, explain_steps
from agent_run_ledger.runs.inputs import Inputs
from agent_run_ledger.runs.opened_run import dynamic_detail, refuse_dynamic
from agent_run_ledger.runs.operate import decide, no_run
from agent_run_ledger.runs.picked import picked_here
from agent_run_ledger.runs.resolve import Finding, Outcome, resolve_call
from agent_run_ledger.runs.resolver import Resolver
from agent_run_ledger.runs.steps import OnChange, Shape, Step
from agent_run_ledger.runs.submit import submit_run
from agent_run_ledger.runs.usage import noted_usage

NOTHING: Final = object()
"""Stands for a result that was not given: None is one."""


class BoundRun:
    """A handle on one run. Nothing is held open: an attempt lives in `execute`, `aexecute` or the `with` of `run`."""

    def __init__(
        self,
        run_id: str,
        *,
        opened: OpenedStore,
        steps: Callable[[], Sequence[Step[..., Any]]],
        policy: LoopDetectorPolicy | None,
        max_parallel: int,
        on_change: OnChange | None,
        wait_s: float,
        takeover: bool,
        keep_inputs: bool = False,
        limits: Callable[[], Limits] = Limits,
        policies: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        self.run_id = run_id
        self._opened = opened
        self._steps = steps
        self._policy = policy
        self._max_parallel = max_parallel
        self._on_change = on_change
        self._wait_s = wait_s
        self._takeover = takeover
        self._keep_inputs = keep_inputs
        self._limits = limits
        self._policies = policies

    def run(self, /, **inputs: Any) -> Entering:
        """Return this run as a dynamic one, to be entered by `with` or `async with`; every keyword is an input."""
        return Entering(self._opened, self.settings(self.run_id), inputs)

    def settings(self, run_id: str | None) -> RunSettings:
        """Return what a dynamic run of this handle is opened with; `run_id` None for one named by its place."""
        return RunSettings(
            run_id=run_id,
            default_run_id=self.run_id,
            on_change=OnChange.REFUSE if self._on_change is None else self._on_change,
            wait_s=self._wait_s,
            takeover=self._takeover,
            max_parallel=self._max_parallel,
            policy=self._policy,
            keep_inputs=self._keep_inputs,
            limits=self._limits(),
            policies=self._policies(),
            picked=None if run_id is None else picked_here(run_id),
        )

    def submit(self, entry: str, queue: str, inputs: dict[str, Any]) -> None:
        """Put this run on record for the workers of a queue; `entry` "" for the pipeline. See `RunLedger.submit`."""
        given, limits = Inputs(inputs, limit_bytes=self._opened.limit_bytes), self._limits()
        context = self._opened.context()
        resolver = None if entry else Resolver(self._request(inputs).steps, given)
        definition = Definition(
            steps=[] if resolver is None else resolver.described(),
            policy=None if self._policy is None else self._policy.as_stored(),
            max_parallel=self._max_parallel,
            order_only={} if resolver is None else resolver.order_only(),
            keep_inputs=True,  # who begins it has nothing else to begin it with
            dynamic=None if resolver is not None else dynamic_detail(context, None),
            budgets=limits.given(within=False),
            submitted=Submitted(queue=queue, entry=entry),
        )
        submit_run(context, self.run_id, inputs=given, definition=definition)

    def execute(self, /, **inputs: Any) -> Any:
        """Run the pipeline, or go on where it was, and return its result.

        Guarantees: a step with a recorded result is restored and not run; a result is durable before anything that
        depends on it starts. Returns the terminal step's result, or a dict by step name where there are several.
        On a completed run: the recorded result. Raises the failing step's own exception; InputsChanged,
        RunQuarantined, RunCancelled, Diverged (Refused); RunBusy (Unavailable); Pending; Misuse for what is wrong
        with the program, before any step runs.
        """
        request = self._request(inputs)
        self._check_effects()
        if any(step.shape in (Shape.ASYNC, Shape.ASYNC_GENERATOR) for step in request.steps):
            return self._execute_on_own_loop(request)
        return execute(self._opened.context(), request)

    async def aexecute(self, /, **inputs: Any) -> Any:
        """Do what `execute` does, on the running event loop; sync steps run in threads.

        Cancelled, it waits for a commit under way, cancels async bodies and records nothing of what they did.
        """
        request = self._request(inputs)
        await self._opened.off_loop(self._check_effects)
        context = await self._opened.off_loop(self._opened.context)
        return await aexecute(context, request, self._opened.off_loop)

    def explain(self, /, **inputs: Any) -> list[StepExplanation]:
        """Say for each step whether it would be restored or run, and which paths are why. Runs and writes nothing.

        Of a pipeline's run; Misuse("run_kind") for a dynamic one, whose calls `arl runs explain` tells.
        """
        context = self._opened.existing()
        row = self._row(context)
        if context is not None and row is not None:
            with suppress(Refused):  # of an erased start nobody knows its kind
                refuse_dynamic(context, row)
        resolver = Resolver(self._request(inputs).steps, Inputs(inputs, limit_bytes=self._opened.limit_bytes))
        return explain_new(resolver) if context is None or row is None else explain_steps(context.store, row, resolver)

    def cancel(self, reason: str, *, actor: str | None = None) -> None:
        """Cancel the run for ever, from any thread or process; recorded at once, with who decided and why.

        A body that runs is left to finish and its result is kept as evidence; nothing new starts, and the live attempt
        ends with RunCancelled. `actor`: who decides, by default the user of the operating system. Refused("no_run")
        for a run that is not there, Refused("bad_transition") for one that is completed or cancelled.
        """
        context = self._with_run()
        decide(context, self.run_id, RunEvent.CANCEL, reason=reason, actor=_user() if actor is None else actor)

    def resolve(
        self,
        call: int | str,
        *,
        result: Any = NOTHING,
        error: Exception | str | None = None,
        not_done: bool = False,
        reason: str,
        actor: str | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cost_usd: Decimal | float | str | None = None,
    ) -> None:
        """Say what became of a call whose outcome is unknown: it returned `result`, raised `error`, or was not done.

        `call`: the record id that the agent was given as "call" and that `arl runs show` shows, or "mark-N" of a call
        that a dead attempt left in flight. A text as `error` is
        raised as RuntimeError. The numbers say what the call used. Recorded at once, with who found it out and why, and
        nothing runs by it. Exactly one of the three, else Misuse; errors of `runs.resolve.resolve_call`.
        """
        given = [result is not NOTHING, error is not None, bool(not_done)]
        if sum(given) != 1:
            raise Misuse("say one of result=, error= and not_done=True", code="bad_outcome")
        context = self._with_run()
        finding = Finding(
            outcome=tuple(Outcome)[given.index(True)],
            value=(RuntimeError(error) if isinstance(error, str) else error) if given[1] else result,
            reason=reason,
            actor=_user() if actor is None else actor,
            usage=noted_usage(input_tokens=input_tokens, output_tokens=output_tokens, cost_usd=cost_usd),
        )
        resolve_call(context, self.run_id, call, finding)

    @property
    def state(self) -> RunState | None:
        """The run's recorded state, or None before its first start."""
        row = self._row(self._opened.existing())
        return None if row is None else row.state

    def usage(self, *, by: str | None = "step", children: bool = False) -> Account | None:
        """Return what the run spent, restored and cannot account for (see `Account`); None before its first start.

        `by`: what the rows stand for, "step", "model", "run" or "day"; None for none. `children`: with all runs that
        were started within it, whose usage is their own.
        """
        context = self._opened.existing()
        row = self._row(context)
        account = account_of_family if children else account_of_run
        return None if context is None or row is None else account(context.store, row, by=parse_by(by))

    def _with_run(self) -> Context:
        """Return the opened store; where there is none, there is no run either."""
        context = self._opened.existing()
        if context is None:
            raise no_run(self.run_id)
        return context

    def budget(self, step: str = "") -> BudgetUse | None:
        """Return what is used, reserved, uncertain and left of the run's budget, or of that of a step in it.

        Of the run's, with the runs within it. None where it never had one, and before its first start. Reads one row.
        """
        context = self._opened.existing()
        row = self._row(context)
        return None if context is None or row is None else budget_uses(context.store.reader(), row).get(step)

    def _row(self, context: Context | None) -> RunRow | None:
        return None if context is None else context.store.reader().find_run(self.run_id)

    def _check_effects(self) -> None:
        """Refuse what effects could not be in: a step may enter a run that acts on the world, and late in the work."""
        policies = self._policies()
        if policies:
            self._opened.check_effects(policies)

    def _execute_on_own_loop(self, request: Request) -> Any:
        import asyncio

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(aexecute(self._opened.context(), request, self._opened.off_loop))
        raise Misuse(
            f"execute of run {self.run_id!r} was called on a running event loop and has async steps",
            code="running_loop",
            hint="use `await ledger.aexecute(...)`",
        )

    def _request(self, inputs: dict[str, Any]) -> Request:
        steps = self._steps()
        if not steps:
            raise Misuse("this ledger has no steps", code="no_steps", hint="register one with @ledger.step")
        return Request(
            run_id=self.run_id,
            steps=steps,
            inputs=inputs,
            on_change=OnChange.RERUN if self._on_change is None else self._on_change,
            max_parallel=self._max_parallel,
            policy=None if self._policy is None else self._policy.as_stored(),
            wait_s=self._wait_s,
            takeover=self._takeover,
            keep_inputs=self._keep_inputs,
            limits=self._limits(),
            picked=picked_here(self.run_id),
        )


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user without a name
        return "unknown"
