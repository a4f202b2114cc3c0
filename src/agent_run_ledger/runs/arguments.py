"""What a call was given: its arguments by parameter name, whatever way it was written, and the key it goes by."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from agent_run_ledger.errors import LedgerError, Misuse
from agent_run_ledger.kernel.binding import Parameter
from agent_run_ledger.runs.differences import is_text

if TYPE_CHECKING:
    from agent_run_ledger.runs.steps import Step

_OBJECT_REPR: Final = re.compile(r"<[^<>]{1,200} at 0x[0-9a-fA-F]{4,}>")


class WrongCall(Misuse, TypeError):
    """A step was called with arguments that its function does not take."""

    code = "wrong_call"


def bind_arguments(step: Step[..., Any], args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
    """Return the given arguments by parameter name: the same for `f(1)` and `f(x=1)`.

    What `*names` takes is one tuple under "*names", each entry of `**options` stands under "**options.key"; where
    nothing was given, nothing stands, and defaults are not filled in. Raises WrongCall, which is a TypeError, where
    Python would refuse the call.
    """
    if not kwargs and step.plainly_positional and step.required_count <= len(args) <= len(step.parameter_names):
        return dict(zip(step.parameter_names, args, strict=False))
    return _bind(step, args, dict(kwargs))


def _bind(step: Step[..., Any], args: Sequence[object], left: dict[str, object]) -> dict[str, object]:
    bound: dict[str, object] = {}
    missing: list[str] = []
    taken, rest, options = 0, None, None
    for parameter in step.parameters:
        kind, name = parameter.kind, parameter.name
        if kind == "var_positional":
            rest = name
        elif kind == "var_keyword":
            options = name
        elif kind != "keyword_only" and taken < len(args):
            if kind == "positional" and name in left:
                _refuse(step, f"got several values for its parameter {name!r}")
            bound[name] = args[taken]
            taken += 1
        elif kind != "positional_only" and name in left:
            bound[name] = left.pop(name)
        elif parameter.required:
            missing.append(name)
    if taken < len(args):
        if rest is None:
            _refuse(step, f"takes at most {taken} positional arguments, and got {len(args)}")
        bound[f"*{rest}"] = tuple(args[taken:])
    if left and options is None:
        _refuse_unknown(step, next(iter(left)))
    if missing:
        _refuse(step, f"got nothing for its {_parameters(missing)}")
    bound.update((f"**{options}.{name}", value) for name, value in left.items())
    return bound


def check_ignored(ignore: object, parameters: Sequence[Parameter], name: str) -> frozenset[str]:
    """Return the ignored parameters of a step; Misuse for what names none of them."""
    if not isinstance(ignore, Iterable) or isinstance(ignore, str | bytes):
        raise Misuse(
            f"ignore of step {name!r} must be a list of parameter names, not {type(ignore).__name__}", code="bad_step"
        )
    known = [parameter.name for parameter in parameters]
    names = list(cast("Iterable[str]", ignore))
    for one in names:
        if one not in known:
            _refuse_name(name, "ignore names", one, known)
    return frozenset(names)


def check_key(key: object, known: Sequence[str], name: str) -> None:
    """Refuse with Misuse a key that is neither a function nor a template over the parameters of a step."""
    if key is None or (callable(key) and not isinstance(key, str)):
        return
    if not isinstance(key, str):
        raise Misuse(
            f"key of step {name!r} must be a template or a function, not {type(key).__name__}", code="bad_step"
        )
    if not key or not is_text(key):
        raise Misuse(f"key of step {name!r} must have characters, and no lone surrogate", code="bad_step")
    for field in _fields(key, name):
        root = re.split(r"[.\[]", field, maxsplit=1)[0]
        if root not in known:
            _refuse_name(name, "its key names", root, known)


def call_key(
    step: Step[..., Any], bound: Mapping[str, object], args: Sequence[object], kwargs: Mapping[str, object]
) -> str | None:
    """Return the key of a call, None for a step without one. `bound`: its arguments as `bind_arguments` returns them.

    A template is filled with the arguments and the defaults of those not given; a function is called with the
    arguments. Misuse, naming the step, where that fails, and where the key is empty, no text or no string, or holds
    the address of an object, which is another one in every process.
    """
    return None if step.key is None else made_key(step, step.key, bound, args, kwargs)


def made_key(
    step: Step[..., Any],
    key: str | Callable[..., object],
    bound: Mapping[str, object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> str:
    """Return a key made of the arguments of a call, by a template or a function. Misuse as of `call_key`."""
    made = _filled(step, key, bound) if isinstance(key, str) else _called(step, key, args, kwargs)
    how = f"template {key!r}" if isinstance(key, str) else "key function"
    if type(made) is not str:
        _refuse_key(step, how, f"is a {type(made).__name__}, not a string")
    if not made or not is_text(made):
        _refuse_key(step, how, "has a lone surrogate" if made else "is empty")
    if _OBJECT_REPR.search(made):
        _refuse_key(step, how, "holds the address of an object, which is another one in every process")
    return made


def _filled(step: Step[..., Any], template: str, bound: Mapping[str, object]) -> object:
    values: dict[str, object] = dict(step.defaults)
    for parameter in step.parameters:
        if parameter.kind == "var_positional":
            values[parameter.name] = bound.get(f"*{parameter.name}", ())
        elif parameter.kind == "var_keyword":
            prefix = f"**{parameter.name}."
            values[parameter.name] = {n[len(prefix) :]: v for n, v in bound.items() if n.startswith(prefix)}
        elif parameter.name in bound:
            values[parameter.name] = bound[parameter.name]
    try:
        return template.format_map(values)
    except LedgerError:
        raise
    except Exception as error:  # a value's own __format__ may raise anything
        fields = _parameters(_fields(template, step.name))
        raise Misuse(
            f"the key {template!r} of step {step.name!r} could not be made from its {fields}: "
            f"{type(error).__name__}: {error}",
            code="bad_key",
        ) from error


def _called(
    step: Step[..., Any], key: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
) -> object:
    try:
        return key(*args, **kwargs)
    except LedgerError:
        raise
    except Exception as error:
        raise Misuse(
            f"the key function of step {step.name!r} raised {type(error).__name__}: {error}",
            code="bad_key",
            hint="it is called with the arguments of the step and returns a string",
        ) from error


def _fields(template: str, name: str) -> list[str]:
    """Return what the braces of a template name, those within format specifications included."""
    found: list[str] = []
    try:
        for _, field, specification, _ in string.Formatter().parse(template):
            if field is not None:
                found += [field, *_fields(specification or "", name)]
    except ValueError as error:
        raise Misuse(f"key of step {name!r} is no template: {error}", code="bad_step") from error
    return found


def _parameters(names: Sequence[str]) -> str:
    return f"parameter{'s' * (len(names) > 1)} {', '.join(map(repr, names))}"


def _refuse_unknown(step: Step[..., Any], name: str) -> NoReturn:
    positional_only = any(p.kind == "positional_only" and p.name == name for p in step.parameters)
    close = get_close_matches(name, step.parameter_names, n=1)
    if positional_only:
        _refuse(step, f"takes its parameter {name!r} by position only")
    _refuse(step, f"has no parameter {name!r}", hint=f"did you mean {close[0]!r}?" if close else "")


def _refuse(step: Step[..., Any], reason: str, *, hint: str = "") -> NoReturn:
    raise WrongCall(f"step {step.name!r} {reason}", hint=hint)


def _refuse_name(step_name: str, what: str, name: object, known: Sequence[str]) -> NoReturn:
    raise Misuse(
        f"step {step_name!r}: {what} {name!r}, which is no parameter of its function",
        code="bad_step",
        hint=f"its parameters are {', '.join(map(repr, known)) or 'none'}",
    )


def _refuse_key(step: Step[..., Any], how: str, reason: str) -> NoReturn:
    raise Misuse(f"the key of a call of step {step.name!r}, made by its {how}, {reason}", code="bad_key")
