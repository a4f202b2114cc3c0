"""Steps: a named function with what makes its record its own."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, ParamSpec, TypeVar, cast

from agent_run_ledger import codecs
from agent_run_ledger.errors import Misuse
from agent_run_ledger.kernel.binding import Parameter, ParameterKind, StepSpec
from agent_run_ledger.kernel.budget import Budget, Reserve, check_budget, check_reserve
from agent_run_ledger.kernel.code_digest import digest_of
from agent_run_ledger.runs.arguments import check_ignored, check_key
from agent_run_ledger.runs.current import CURRENT
from agent_run_ledger.runs.differences import is_text

P = ParamSpec("P")
R = TypeVar("R")

MAX_SECONDS = 1_000_000_000
"""The longest wait a setting may ask for: some thirty years, which every platform's clock can hold."""

Environment = Mapping[str, object] | Callable[[], Mapping[str, object]] | None
Key = str | Callable[..., str] | None

_KINDS: dict[object, ParameterKind] = {
    inspect.Parameter.POSITIONAL_ONLY: "positional_only",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "positional",
    inspect.Parameter.KEYWORD_ONLY: "keyword_only",
    inspect.Parameter.VAR_POSITIONAL: "var_positional",
    inspect.Parameter.VAR_KEYWORD: "var_keyword",
}


class Shape(StrEnum):
    """How a step's function is called. Generators are exhausted: their result is the list of their items."""

    SYNC = "sync"
    ASYNC = "async"
    GENERATOR = "generator"
    ASYNC_GENERATOR = "async_generator"


class OnChange(StrEnum):
    """What a step does when its fingerprint differs from the one its run has recorded."""

    RERUN = "rerun"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class From:
    """The explicit source of a parameter: `data: Annotated[dict, From("fetch")]`, or `From(fetch)` with a Step."""

    step: str | Step[..., Any]

    def __post_init__(self) -> None:
        """Refuse what names no step."""
        _step_name(self.step)


class Step(Generic[P, R]):
    """One named function of a pipeline or a dynamic run.

    Guarantees: the name, version, environment and every bound input enter the fingerprint; nothing else does. A
    result is recorded once per fingerprint and run. Calling a step in a dynamic run records the call; outside of one
    it raises Misuse. `plain` is the bare function.

    `name`: unique in its ledger, the function's name by default. `depends_on`: step names, function names or Step
    objects. `environment`: what shapes the result beside the inputs (model, prompt, settings), a mapping or a
    function returning one, read once per attempt. `version`: change it to make the step run again. `retries`: how
    often an exception is tried again within one attempt, with exponential backoff and full jitter from
    `retry_base_s` up to `retry_cap_s` seconds.
    `timeout_s`: seconds until StepTimeout. A sync body's thread goes on and its late result is discarded; an async
    body is cancelled, and one that ignores that is waited for. `on_change`: "rerun" or "refuse", the run's own
    setting by default. `ignore`: names of parameters that say nothing about the result (a client, a logger): they do
    not enter the fingerprint. `budget`: what all calls of the step may use in one run;
    `reserves`: what one of them may use.

    In a dynamic run: `key`: a template over the arguments ("user-{user_id}") or a function of them; calls of one key
    are one call, whatever their order. `interchangeable`: equal calls may be open at once, and may swap results.
    """

    repeatable = True
    """Whether the step may run again where nothing says how it ended."""

    watched = False
    """Whether the breaker judges its calls."""

    kept_elsewhere = False
    """Whether how a call ended is on record elsewhere, and synced: then a power cut may take this record of it."""

    beside = False
    """Whether calls of it with keys are made side by side: none of them comes after the error of another one."""

    went_on_from: Callable[[Mapping[str, Any], Any], bool] | None = None
    """Says of the keyword arguments of a new call and a recorded result of the step whether the caller went on from
    that result without asking for it, as a framework with checkpoints of its own does. Then the result counts as used.
    """

    poll = False
    volatile: tuple[str, ...] = ()
    outcome: Callable[[Any], object] | None = None

    def __init__(
        self,
        fn: Callable[P, R],
        /,
        *,
        name: str | None = None,
        depends_on: Iterable[str | Step[..., Any]] = (),
        environment: Environment = None,
        version: str = "1",
        retries: int = 0,
        retry_base_s: float = 0.5,
        retry_cap_s: float = 30.0,
        timeout_s: float | None = None,
        on_change: str | None = None,
        key: Key = None,
        interchangeable: bool = False,
        ignore: Iterable[str] = (),
        budget: Budget | None = None,
        reserves: Reserve | None = None,
    ) -> None:
        self.plain: Callable[P, R] = fn
        self.body: Callable[..., Any] = fn
        self.function_name: str = getattr(fn, "__name__", type(fn).__name__)
        self.name: str = self.function_name if name is None else name
        self.depends_on: tuple[str, ...] = _step_names(depends_on, self.name)
        self.environment: Environment = environment
        self.version: str = version
        self.retries: int = retries
        self.retry_base_s: float = retry_base_s
        self.retry_cap_s: float = retry_cap_s
        self.timeout_s: float | None = timeout_s
        self.on_change: OnChange | None = None if on_change is None else parse_on_change(on_change)
        self.key: Key = key
        self.interchangeable: bool = interchangeable
        self.budget: Budget | None = check_budget(budget)
        self.reserves: Reserve | None = check_reserve(reserves)
        self._check_settings()
        self.shape: Shape = _shape(fn)
        self.parameters, self.defaults = _parameters(fn, self.name)
        self.plainly_positional: bool = all(p.kind in ("positional", "positional_only") for p in self.parameters)
        self.parameter_names: tuple[str, ...] = tuple(p.name for p in self.parameters)
        self.required_count: int = sum(p.required for p in self.parameters)
        self.ignore: frozenset[str] = check_ignored(ignore, self.parameters, self.name)
        check_key(key, self.parameter_names, self.name)
        self.code: bytes = digest_of(fn)
        self.__doc__ = getattr(fn, "__doc__", None)
        self.__name__ = self.function_name

    def __repr__(self) -> str:
        """Return a short form for messages."""
        return f"<Step {self.name!r} of {self.function_name}>"

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the step within the run of this context: answered from its record, or run and recorded.

        Misuse("outside_run") where there is none: a pipeline's steps are called by `execute`, never by hand.
        """
        place = CURRENT.get()
        if place is None:
            raise Misuse(
                f"step {self.name!r} was called outside a run",
                code="outside_run",
                hint="call it within `with ledger.run(...)` (in a thread of your own: run.map or run.wrap), call "
                "ledger.execute(...), or step.plain(...) to call the function without recording",
            )
        return cast(R, place.call(self, args, kwargs))

    @property
    def spec(self) -> StepSpec:
        """The part of the step that binding needs."""
        return StepSpec(
            name=self.name,
            function_name=self.function_name,
            depends_on=self.depends_on,
            parameters=self.parameters,
        )

    def read_environment(self) -> Mapping[str, object]:
        """Return the declared environment as it is now; anything but a mapping with string keys is Misuse."""
        declared = self.environment() if callable(self.environment) else self.environment
        if declared is None:
            return {}
        if not isinstance(declared, Mapping) or not all(isinstance(key, str) and is_text(key) for key in declared):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misuse(f"the environment of step {self.name!r} must be a mapping with string keys", code="bad_step")
        return declared

    def _check_settings(self) -> None:
        wrong = None
        if not callable(self.plain):
            wrong = "is not callable"
        elif not isinstance(self.name, str) or not self.name or not self.name.isprintable() or len(self.name) > 200:  # pyright: ignore[reportUnnecessaryIsInstance]
            wrong = "needs a printable name of 1 to 200 characters"
        elif self.name.startswith("run."):
            wrong = "has a name that is kept for a run's own values"
        elif not isinstance(self.version, str) or not is_text(self.version):  # pyright: ignore[reportUnnecessaryIsInstance]
            wrong = "needs a string as version"
        elif isinstance(self.retries, bool) or not isinstance(self.retries, int) or self.retries < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            wrong = "needs retries to be a whole number from 0 on"
        elif not all(map(_is_seconds, (self.retry_base_s, self.retry_cap_s))) or self.retry_base_s > self.retry_cap_s:
            wrong = "needs 0 <= retry_base_s <= retry_cap_s, in seconds"
        elif self.timeout_s is not None and not (_is_seconds(self.timeout_s) and self.timeout_s > 0):
            wrong = f"needs timeout_s above 0 and at most {MAX_SECONDS:,} seconds"
        elif not isinstance(self.interchangeable, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            wrong = "needs True or False as interchangeable"
        if wrong is not None:
            raise Misuse(f"step {self.name!r} {wrong}", code="bad_step")


def _step_names(depends_on: object, name: str) -> tuple[str, ...]:
    """Return the names of a list or tuple of steps; anything without an order of its own is Misuse."""
    if not isinstance(depends_on, list | tuple):
        raise Misuse(
            f"depends_on of step {name!r} must be a list or a tuple, not {type(depends_on).__name__}",
            code="bad_step",
            hint="its order decides which result fills which parameter",
        )
    return tuple(_step_name(one) for one in cast("list[object]", depends_on))


def _step_name(step: object) -> str:
    if isinstance(step, Step):
        return cast("Step[..., Any]", step).name
    if isinstance(step, str):
        return step
    raise Misuse(f"a step is named by a string or a Step, not by {type(step).__name__}", code="bad_step")


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_SECONDS


def parse_on_change(value: str) -> OnChange:
    """Return the policy named by `value`; an unknown one is Misuse."""
    try:
        return OnChange(value)
    except ValueError:
        known = ", ".join(repr(str(choice)) for choice in OnChange)
        raise Misuse(f"on_change must be one of {known}, not {value!r}", code="bad_step") from None


def _shape(fn: Callable[..., object]) -> Shape:
    bare: Any = fn
    while isinstance(bare, functools.partial):
        bare = bare.func
    if not inspect.isroutine(bare):
        bare = type(bare).__call__
    if inspect.isasyncgenfunction(bare):
        return Shape.ASYNC_GENERATOR
    if inspect.iscoroutinefunction(bare):
        return Shape.ASYNC
    if inspect.isgeneratorfunction(bare):
        return Shape.GENERATOR
    return Shape.SYNC


def _parameters(fn: Callable[..., object], name: str) -> tuple[tuple[Parameter, ...], dict[str, object]]:
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError) as error:
        raise Misuse(
            f"step {name!r}: its function has no readable signature", code="bad_step", hint="wrap it in a def"
        ) from error
    annotations = _annotations(fn, name)
    refused = codecs.refused_annotation(annotations.get("return", signature.return_annotation))
    if refused is not None and _shape(fn) not in (Shape.GENERATOR, Shape.ASYNC_GENERATOR):
        raise Misuse(
            f"step {name!r} returns what cannot be stored: {refused}", code="unstorable", hint="return plain values"
        )
    defaults = {p.name: p.default for p in signature.parameters.values() if p.default is not inspect.Parameter.empty}
    parameters = tuple(
        Parameter(
            name=parameter.name,
            kind=_KINDS[parameter.kind],
            required=parameter.default is inspect.Parameter.empty
            and parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD),
            source=_source(annotations.get(parameter.name, parameter.annotation)),
        )
        for parameter in signature.parameters.values()
    )
    return parameters, defaults


def _annotations(fn: Callable[..., object], name: str) -> dict[str, Any]:
    """Return the annotations that can be evaluated here; one that cannot and names From is Misuse, never dropped."""
    try:
        return typing.get_type_hints(fn, include_extras=True)
    except Exception:  # names that exist only for type checkers: evaluate each annotation alone
        bare = inspect.unwrap(fn)
    found: dict[str, Any] = {}
    for parameter, annotation in getattr(bare, "__annotations__", {}).items():
        alone = _Annotated()
        alone.__annotations__ = {parameter: annotation}
        try:
            found.update(typing.get_type_hints(alone, getattr(bare, "__globals__", {}), include_extras=True))
        except Exception as error:
            if "From(" in str(annotation):
                raise Misuse(
                    f"step {name!r}: the annotation of {parameter!r} cannot be evaluated: {error}",
                    code="bad_step",
                    hint="import the names in it outside of `if TYPE_CHECKING`",
                ) from error
    return found


class _Annotated:
    """Carries one annotation to where it is evaluated."""


def _source(annotation: object) -> str | None:
    for note in getattr(annotation, "__metadata__", ()):
        if isinstance(note, From):
            return _step_name(note.step)
    return None
