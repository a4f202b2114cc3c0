"""Where each parameter of each step gets its value in a pipeline, and in which order the steps can run."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, NoReturn, TypeAlias, cast

from agent_run_ledger.errors import Misuse

ParameterKind: TypeAlias = Literal["positional_only", "positional", "keyword_only", "var_positional", "var_keyword"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of a step. `required`: it has no default. `source`: the step named by `From("step")`, or None."""

    name: str
    kind: ParameterKind = "positional"
    required: bool = True
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpec:
    """What binding has to know of a step. `depends_on` has step names or function names."""

    name: str
    function_name: str
    depends_on: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSource:
    """The run input of this name."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultSource:
    """The result of the step at this place in the sequence given to `bind_graph`."""

    step_index: int


Source: TypeAlias = InputSource | ResultSource | tuple[ResultSource, ...]
"""A tuple is what a `*values` parameter takes, in the order of the dependencies; it may be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBinding:
    """The sources of one step's parameters, in the order of its signature; parameters left to a default are absent.

    `dependencies` are all steps that must have ended before (listed ones first, then those only `From` names);
    `ordering_only` are those of them whose result the step does not take, which do not enter its fingerprint.
    """

    step_index: int
    arguments: tuple[tuple[Parameter, Source], ...]
    dependencies: tuple[int, ...]
    ordering_only: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A bound pipeline. All numbers are places in the sequence given to `bind_graph`.

    `order`: every step after its dependencies, and among steps that could come next the one registered first.
    `bindings`: one per step, by place. `terminals`: steps nothing depends on. `unused_inputs`: in the order given.
    """

    order: tuple[int, ...]
    bindings: tuple[StepBinding, ...]
    terminals: tuple[int, ...]
    unused_inputs: tuple[str, ...]


def bind_graph(steps: Sequence[StepSpec], input_names: Collection[str]) -> Plan:
    """Return the one way to call these steps with these run inputs, or raise Misuse before anything runs.

    A parameter takes, in this order: the step `From` names; the input or the dependency (by step or function name)
    of its own name; by position, what is left of the dependencies, for required positional parameters only and only
    if the numbers are equal. `*values` takes the dependencies left after that, `**kwargs` nothing. With no required
    parameter left the remaining dependencies are ordering only. Misuse codes: duplicate_step, unknown_step,
    ambiguous_step, duplicate_dependency, cycle, missing_argument, ambiguous_argument, argument_count.
    """
    names = _Names(steps)
    inputs = dict.fromkeys(input_names)
    dependencies = [_dependencies(names, step) for step in steps]
    order = _order(steps, dependencies)
    bindings = tuple(_StepBinder(names, inputs, index, dependencies[index]).bind() for index in range(len(steps)))
    needed = {index for listed in dependencies for index in listed}
    used = {source.name for b in bindings for _, source in b.arguments if isinstance(source, InputSource)}
    return Plan(
        order=order,
        bindings=bindings,
        terminals=tuple(index for index in range(len(steps)) if index not in needed),
        unused_inputs=tuple(name for name in inputs if name not in used),
    )


def arrange(
    parameters: Sequence[Parameter], values: Mapping[str, object], defaults: Mapping[str, object]
) -> tuple[list[object], dict[str, object]]:
    """Return (args, kwargs) that give each bound parameter its value and no other parameter anything but its default.

    `values` maps bound parameters to values, for `*values` to a tuple. A default is passed by hand where Python has
    no other way to reach a parameter behind it (`def f(a, b=1, *rest)`, positional-only ones): else `rest` fills `b`.
    """
    by_position = [p for p in parameters if p.kind in ("positional_only", "positional")]
    rest = [p for p in parameters if p.kind == "var_positional" and values.get(p.name)]
    reach = 0
    for place, parameter in enumerate(by_position, start=1):
        if rest or (parameter.kind == "positional_only" and parameter.name in values):
            reach = place
    args = [values[p.name] if p.name in values else defaults[p.name] for p in by_position[:reach]]
    for parameter in rest:
        args.extend(cast("tuple[object, ...]", values[parameter.name]))
    later = (*by_position[reach:], *(p for p in parameters if p.kind == "keyword_only"))
    return args, {p.name: values[p.name] for p in later if p.name in values}


class _Names:
    """Steps by step name and by function name."""

    def __init__(self, steps: Sequence[StepSpec]) -> None:
        self.steps = steps
        self._by_step: dict[str, int] = {}
        self._by_function: dict[str, list[int]] = {}
        for index, step in enumerate(steps):
            if step.name in self._by_step:
                _refuse(
                    "duplicate_step",
                    f"two steps are named {step.name!r}",
                    'give one of them another name: step(name="…")',
                )
            self._by_step[step.name] = index
            self._by_function.setdefault(step.function_name, []).append(index)

    def find(self, reference: str) -> list[int]:
        """Return the steps that `reference` may mean, by step name or by function name, each once."""
        found = list(self._by_function.get(reference, ()))
        named = self._by_step.get(reference)
        if named is not None and named not in found:
            found.insert(0, named)
        return found

    def may_mean(self, index: int, reference: str) -> bool:
        """Return whether `reference` is the step name or the function name of this step."""
        step = self.steps[index]
        return reference in (step.name, step.function_name)

    def resolve(self, reference: str, wanted_by: str) -> int:
        """Return the one step that `reference` means; `wanted_by` begins the message of a refusal."""
        found = self.find(reference)
        if not found:
            known = [*self._by_step, *self._by_function]
            hint = _suggestion(reference, known) or f"the steps are: {_listed(list(self._by_step))}"
            _refuse("unknown_step", f"{wanted_by} {reference!r}, and no step has that name", hint)
        if len(found) > 1:
            meant = _listed([self.steps[index].name for index in found])
            _refuse(
                "ambiguous_step",
                f"{wanted_by} {reference!r}, which can mean the steps {meant}",
                "use a step name that no other step has as its name or function name",
            )
        return found[0]


def _dependencies(names: _Names, step: StepSpec) -> tuple[int, ...]:
    """Return the step's dependencies: as listed, then those that only `From` names."""
    listed: dict[int, str] = {}
    for reference in step.depends_on:
        index = names.resolve(reference, f"step {step.name!r} depends on")
        if index in listed:
            _refuse(
                "duplicate_dependency",
                f"step {step.name!r} lists {names.steps[index].name!r} twice: "
                f"as {listed[index]!r} and as {reference!r}",
                "leave one out of depends_on",
            )
        listed[index] = reference
    for parameter in step.parameters:
        if parameter.source is not None:
            wanted_by = f"parameter {parameter.name!r} of step {step.name!r} is From"
            listed.setdefault(names.resolve(parameter.source, wanted_by), parameter.source)
    return tuple(listed)


def _order(steps: Sequence[StepSpec], dependencies: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return a topological order that keeps the order of registration wherever the graph allows it."""
    dependants: list[list[int]] = [[] for _ in steps]
    waiting = [len(listed) for listed in dependencies]
    for index, listed in enumerate(dependencies):
        for needed in listed:
            dependants[needed].append(index)
    ready = [index for index, count in enumerate(waiting) if count == 0]
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for dependant in dependants[index]:
            waiting[dependant] -= 1
            if waiting[dependant] == 0:
                heapq.heappush(ready, dependant)
    if len(order) < len(steps):
        _refuse_cycle(steps, dependencies, waiting)
    return tuple(order)


def _refuse_cycle(steps: Sequence[StepSpec], dependencies: Sequence[tuple[int, ...]], waiting: list[int]) -> NoReturn:
    """Name one cycle: a step still waiting waits for another that is still waiting, so walking on must meet itself."""
    index = next(place for place, count in enumerate(waiting) if count)
    walked: dict[int, None] = {}
    while index not in walked:
        walked[index] = None
        index = next(needed for needed in dependencies[index] if waiting[needed])
    path = list(walked)
    cycle = [*path[path.index(index) :], index]
    arrows = " → ".join(repr(steps[place].name) for place in cycle)
    _refuse("cycle", f"the steps depend on each other: {arrows}", "take one of these dependencies away")


class _StepBinder:
    """Binds one step: explicit sources, then names, then positions."""

    def __init__(
        self, names: _Names, inputs: Mapping[str, None], step_index: int, dependencies: tuple[int, ...]
    ) -> None:
        self._names = names
        self._inputs = inputs
        self._index = step_index
        self._step = names.steps[step_index]
        self._dependencies = dependencies
        self._sources: dict[str, Source] = {}
        self._taken: set[int] = set()

    def bind(self) -> StepBinding:
        """Return the step's binding, or raise Misuse."""
        for parameter in self._step.parameters:
            self._bind_by_name(parameter)
        self._bind_by_position()
        for parameter in self._step.parameters:
            if parameter.kind == "keyword_only" and parameter.required and parameter.name not in self._sources:
                self._refuse_missing([parameter])
        return StepBinding(
            step_index=self._index,
            arguments=tuple((p, self._sources[p.name]) for p in self._step.parameters if p.name in self._sources),
            dependencies=self._dependencies,
            ordering_only=tuple(index for index in self._dependencies if index not in self._taken),
        )

    def _bind_by_name(self, parameter: Parameter) -> None:
        name = parameter.name
        variadic = parameter.kind in ("var_positional", "var_keyword")
        if parameter.source is not None:
            if variadic:
                _refuse(
                    "ambiguous_argument",
                    f"parameter {name!r} of step {self._step.name!r} takes many values and From names one step",
                    f"give the result of {parameter.source!r} a parameter of its own",
                )
            self._take(parameter, self._names.resolve(parameter.source, f"parameter {name!r} is From"))
            return
        if variadic:
            return
        meant = [index for index in self._dependencies if self._names.may_mean(index, name)]
        if len(meant) + (name in self._inputs) > 1:
            sources = [f"the result of step {self._names.steps[index].name!r}" for index in meant]
            sources += [f"the run input {name!r}"] if name in self._inputs else []
            _refuse(
                "ambiguous_argument",
                f"parameter {name!r} of step {self._step.name!r} has {len(sources)} sources: {' and '.join(sources)}",
                f'rename one of them, or say which step is meant: {name}: Annotated[…, From("…")]',
            )
        if meant:
            self._take(parameter, meant[0])
        elif name in self._inputs:
            self._sources[name] = InputSource(name=name)

    def _bind_by_position(self) -> None:
        left = [index for index in self._dependencies if index not in self._taken]
        open_parameters = [
            p
            for p in self._step.parameters
            if p.required and p.kind in ("positional_only", "positional") and p.name not in self._sources
        ]
        rest = next((p for p in self._step.parameters if p.kind == "var_positional"), None)
        if open_parameters and not left:
            self._refuse_missing(open_parameters)
        if len(open_parameters) > len(left) or (open_parameters and len(open_parameters) < len(left) and not rest):
            self._refuse_count(open_parameters, left)
        for parameter, index in zip(open_parameters, left, strict=False):
            self._take(parameter, index)
        if rest is not None:
            remaining = left[len(open_parameters) :]
            self._sources[rest.name] = tuple(ResultSource(step_index=index) for index in remaining)
            self._taken.update(remaining)

    def _take(self, parameter: Parameter, index: int) -> None:
        self._sources[parameter.name] = ResultSource(step_index=index)
        self._taken.add(index)

    def _refuse_missing(self, parameters: Sequence[Parameter]) -> NoReturn:
        name = parameters[0].name
        hints = [f'give it as a run input ({name}=…), a default, or a step: Annotated[…, From("step")]']
        if self._names.find(name):
            hints.append(f"there is a step {name!r}: add it to depends_on")
        close = _suggestion(name, list(self._inputs))
        if close:
            hints.append(f"of the run inputs: {close}")
        words = "parameter" if len(parameters) == 1 else "parameters"
        _refuse(
            "missing_argument",
            f"{words} {_listed([p.name for p in parameters])} of step {self._step.name!r} has no source: "
            "no run input and no dependency left",
            "; ".join(hints),
        )

    def _refuse_count(self, parameters: Sequence[Parameter], left: Sequence[int]) -> NoReturn:
        steps = _listed([self._names.steps[index].name for index in left])
        _refuse(
            "argument_count",
            f"step {self._step.name!r} has {len(parameters)} parameters without a source "
            f"({_listed([p.name for p in parameters])}) and {len(left)} dependencies that no parameter names ({steps})",
            "name a parameter like the step whose result it takes, give a run input of its name, "
            'or use Annotated[…, From("step")]',
        )


def _suggestion(word: str, known: Sequence[str]) -> str:
    close = get_close_matches(word, known, n=3)
    return f"did you mean {' or '.join(repr(name) for name in dict.fromkeys(close))}?" if close else ""


def _listed(names: Sequence[str], limit: int = 10) -> str:
    shown = ", ".join(repr(name) for name in names[:limit])
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown or "none"


def _refuse(code: str, message: str, hint: str) -> NoReturn:
    raise Misuse(message, code=code, hint=hint)
