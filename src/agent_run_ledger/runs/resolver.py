"""From a bound plan and the digests of results to the identity of each call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent_run_ledger import codecs
from agent_run_ledger.errors import LedgerError, Unavailable
from agent_run_ledger.kernel.binding import InputSource, Plan, ResultSource, arrange, bind_graph
from agent_run_ledger.kernel.digests import list_sha256
from agent_run_ledger.runs.calls import CallIdentity, identify
from agent_run_ledger.runs.inputs import Inputs
from agent_run_ledger.runs.steps import Step


class Resolver:
    """Binds the steps to the inputs and reads every environment, once, before anything runs.

    Raises Misuse for everything that is wrong with the graph, the arguments or an environment.
    """

    def __init__(self, steps: Sequence[Step[..., Any]], inputs: Inputs) -> None:
        self.steps = tuple(steps)
        self.inputs = inputs
        self.plan: Plan = bind_graph([step.spec for step in self.steps], inputs.names)
        self._environments = [environment_digests(step) for step in self.steps]

    def identity(self, index: int, result_digest: Callable[[int], bytes]) -> CallIdentity:
        """Return the identity of a step's call; `result_digest` is asked for every result it takes."""
        arguments: dict[str, bytes] = {}
        ignored = self.steps[index].ignore
        for parameter, source in self.plan.bindings[index].arguments:
            if parameter.name in ignored:
                continue
            if isinstance(source, InputSource):
                arguments[parameter.name] = self.inputs.digests[source.name]
            elif isinstance(source, ResultSource):
                arguments[parameter.name] = result_digest(source.step_index)
            else:
                # `*xs` of two results is another call than `xs` of one list of two
                arguments[f"*{parameter.name}"] = list_sha256(result_digest(one.step_index) for one in source)
        return identify(self.steps[index], arguments, self._environments[index])

    def arguments(self, index: int, result: Callable[[int], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return (args, kwargs) with fresh values; `result` is asked for every result the step takes."""
        step = self.steps[index]
        values: dict[str, Any] = {}
        for parameter, source in self.plan.bindings[index].arguments:
            if isinstance(source, InputSource):
                values[parameter.name] = self.inputs.take(source.name)
            elif isinstance(source, ResultSource):
                values[parameter.name] = result(source.step_index)
            else:
                values[parameter.name] = tuple(result(one.step_index) for one in source)
        if step.plainly_positional and len(values) == len(step.parameters):
            return tuple(values.values()), {}
        args, kwargs = arrange(step.parameters, values, step.defaults)
        return tuple(args), kwargs

    def result_arguments(self, index: int) -> list[tuple[str, int]]:
        """Return (parameter, producing step's place) for each argument that is one step's result."""
        arguments = self.plan.bindings[index].arguments
        return [(p.name, source.step_index) for p, source in arguments if isinstance(source, ResultSource)]

    def described(self) -> list[list[object]]:
        """Return the graph as kept in a START record: name, version, dependencies, code digest."""
        return [
            [step.name, step.version, [self.steps[i].name for i in binding.dependencies], step.code.hex()]
            for step, binding in zip(self.steps, self.plan.bindings, strict=True)
        ]

    def order_only(self) -> dict[str, list[str]]:
        """Return, for each step that has such, the dependencies whose results it does not take."""
        found: dict[str, list[str]] = {}
        for step, binding in zip(self.steps, self.plan.bindings, strict=True):
            taken = set(self.results_taken(binding.step_index))
            if waits := [self.steps[i].name for i in binding.dependencies if i not in taken]:
                found[step.name] = waits
        return found

    def results_taken(self, index: int) -> list[int]:
        """Return the places of the steps whose results a step takes."""
        taken: list[int] = []
        for _, source in self.plan.bindings[index].arguments:
            if isinstance(source, ResultSource):
                taken.append(source.step_index)
            elif isinstance(source, tuple):
                taken.extend(one.step_index for one in source)
        return taken


def environment_digests(step: Step[..., Any]) -> Mapping[str, bytes]:
    """Return one digest per key of a step's environment as it is now; Unavailable where reading it raises."""
    digests: dict[str, bytes] = {}
    try:
        declared = step.read_environment()
    except LedgerError:
        raise
    except Exception as error:
        raise Unavailable(
            f"the environment of step {step.name!r} raised {type(error).__name__}: {error}",
            code="environment_failed",
            hint="nothing has run; mend the function and start again",
        ) from error
    for key, value in declared.items():
        try:
            digests[key] = codecs.value_digest(value)
        except LedgerError as error:
            error.message = f"step {step.name!r}, environment {key!r}: {error.message}"
            raise
    return digests
