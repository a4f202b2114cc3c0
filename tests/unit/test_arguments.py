"""Arguments by name, as Python binds them; what a step ignores; the key a call goes by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger import Misuse, Step, codecs
from agent_run_ledger.runs.arguments import WrongCall, bind_arguments, call_key
from agent_run_ledger.runs.inputs import Inputs
from agent_run_ledger.runs.resolver import Resolver

UNSET: Any = object()


def plain(a: Any, b: Any = 2) -> None: ...
def only(a: Any, /, b: Any, *, c: Any, d: Any = 4) -> None: ...
def everything(a: Any, /, b: Any = 2, *more: Any, c: Any, **named: Any) -> None: ...


def told(given_: dict[str, Any], *, rest: str = "", options: str = "") -> dict[str, Any]:
    """The arguments that a function was given, named as `bind_arguments` names them."""
    found = {name: value for name, value in given_.items() if value is not UNSET and name not in (rest, options)}
    found |= {f"*{rest}": given_[rest]} if given_.get(rest) else {}
    return found | {f"**{options}.{name}": value for name, value in given_.get(options, {}).items()}


def tell_plain(a: Any, b: Any = UNSET) -> Any:
    return told(locals())


def tell_only(a: Any, /, b: Any, *, c: Any, d: Any = UNSET) -> Any:
    return told(locals())


def tell_rest(a: Any, *more: Any, c: Any = UNSET) -> Any:
    return told(locals(), rest="more")


def tell_options(a: Any = UNSET, /, b: Any = UNSET, **named: Any) -> Any:
    return told(locals(), options="named")


def tell_everything(a: Any, /, b: Any = UNSET, *more: Any, c: Any, **named: Any) -> Any:
    return told(locals(), rest="more", options="named")


def tell_nothing() -> Any:
    return told(locals())


FUNCTIONS: list[Callable[..., Any]] = [tell_plain, tell_only, tell_rest, tell_options, tell_everything, tell_nothing]


@given(
    st.sampled_from(FUNCTIONS),
    st.lists(st.integers(), max_size=4),
    st.dictionaries(st.sampled_from(["a", "b", "c", "d", "more", "named", "x"]), st.integers(), max_size=4),
)
def test_arguments_are_bound_as_python_binds_them(fn: Any, args: list[int], kwargs: dict[str, int]) -> None:
    try:
        expected = fn(*args, **kwargs)
    except TypeError:
        with pytest.raises(WrongCall, match=repr(fn.__name__)):
            bind_arguments(Step(fn), tuple(args), kwargs)
    else:
        assert bind_arguments(Step(fn), tuple(args), kwargs) == expected


def test_by_position_and_by_name_is_the_same_call() -> None:
    step = Step(plain)
    assert bind_arguments(step, (1, 3), {}) == bind_arguments(step, (1,), {"b": 3}) == {"a": 1, "b": 3}
    assert bind_arguments(step, (), {"b": 3, "a": 1}) == {"a": 1, "b": 3}


def test_binding_changes_nothing_that_it_was_given() -> None:
    kwargs = {"a": 1}
    bind_arguments(Step(plain), (), kwargs)
    assert kwargs == {"a": 1}


@pytest.mark.parametrize(
    ("fn", "args", "kwargs", "words"),
    [
        (plain, (), {}, "step 'plain' got nothing for its parameter 'a'"),
        (only, (1,), {}, "step 'only' got nothing for its parameters 'b', 'c'"),
        (plain, (1, 2, 3), {}, "step 'plain' takes at most 2 positional arguments, and got 3"),
        (plain, (1,), {"a": 1}, "step 'plain' got several values for its parameter 'a'"),
        (everything, (1, 2), {"b": 3, "c": 4}, "step 'everything' got several values for its parameter 'b'"),
        (plain, (1,), {"bb": 1}, "step 'plain' has no parameter 'bb' (did you mean 'b'?)"),
        (plain, (1,), {"zzz": 1}, "step 'plain' has no parameter 'zzz'"),
        (only, (), {"a": 1, "b": 1, "c": 1}, "step 'only' takes its parameter 'a' by position only"),
    ],
)
def test_a_wrong_call_names_step_and_parameter(fn: Any, args: Any, kwargs: Any, words: str) -> None:
    with pytest.raises(WrongCall) as caught:
        bind_arguments(Step(fn), args, kwargs)
    assert str(caught.value) == words
    assert caught.value.code == "wrong_call"


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ignore": ["z"]}, "ignore names 'z', which is no parameter of its function (its parameters are 'a', 'b')"),
        ({"ignore": "a"}, "ignore of step 'plain' must be a list of parameter names, not str"),
        ({"ignore": 1}, "ignore of step 'plain' must be a list of parameter names, not int"),
        ({"ignore": [1]}, "ignore names 1, which"),
        ({"key": "{z}"}, "its key names 'z', which is no parameter"),
        ({"key": "{z.name}"}, "its key names 'z'"),
        ({"key": "{a:{z}}"}, "its key names 'z'"),
        ({"key": "{}"}, "its key names ''"),
        ({"key": "{0}"}, "its key names '0'"),
        ({"key": "{a"}, "key of step 'plain' is no template"),
        ({"key": ""}, "key of step 'plain' must have characters"),
        ({"key": "\ud800"}, "key of step 'plain' must have characters"),
        ({"key": 3}, "key of step 'plain' must be a template or a function, not int"),
        ({"interchangeable": 1}, "needs True or False as interchangeable"),
    ],
)
def test_wrong_settings_are_refused_when_the_step_is_made(settings: Any, words: str) -> None:
    with pytest.raises(Misuse) as caught:
        Step(plain, **settings)
    assert words in str(caught.value)
    assert caught.value.code == "bad_step"


def test_what_a_step_ignores_is_no_part_of_a_pipelines_fingerprint_either() -> None:
    def identity(**inputs: Any) -> bytes:
        return Resolver([step], Inputs(inputs, limit_bytes=1000)).identity(0, lambda _: b"").fingerprint

    step = Step(plain, ignore=["b"])
    assert identity(a=1, b=2) == identity(a=1, b=3) != identity(a=2, b=2)
    step = Step(plain)
    assert identity(a=1, b=2) != identity(a=1, b=3)


# -- keys --------------------------------------------------------------------------------------------------------------


def key_of(step: Step[..., Any], *args: Any, **kwargs: Any) -> str | None:
    return call_key(step, bind_arguments(step, args, kwargs), args, kwargs)


def test_a_template_is_filled_with_arguments_and_defaults() -> None:
    step = Step(plain, key="user-{a}/{b}")
    assert key_of(step, 7) == key_of(step, a=7, b=2) == "user-7/2"
    assert key_of(Step(plain), 7) is None
    assert key_of(Step(plain, key="daily"), 7) == "daily"
    assert key_of(Step(plain, key="{a[id]}-{b:03}"), {"id": "x"}) == "x-002"
    assert key_of(Step(everything, key="{more[0]}-{named[x]}-{c}"), 1, 2, 3, c=4, x=5) == "3-5-4"
    assert key_of(Step(plain, key="{a}", ignore=["a"]), 7) == "7"


def test_a_function_gets_the_arguments_as_they_were_given() -> None:
    assert key_of(Step(plain, key=lambda a, b=9: f"{a}:{b}"), 1) == "1:9"
    assert key_of(Step(plain, key=lambda a, b: f"{a}:{b}"), 1, b=3) == "1:3"


def raising(a: Any) -> str:
    raise KeyError("there is none")


class Bare:
    pass


@pytest.mark.parametrize(
    ("key", "argument", "words"),
    [
        ("{a.id}", 1, "the key '{a.id}' of step 'plain' could not be made from its parameter 'a.id': AttributeError"),
        ("{a[x]}", {}, "the key '{a[x]}' of step 'plain' could not be made"),
        ("{a:d}", "x", "ValueError"),
        (raising, 1, "the key function of step 'plain' raised KeyError: 'there is none'"),
        (lambda a: 3, 1, "the key of a call of step 'plain', made by its key function, is a int, not a string"),
        (lambda a: "", 1, "the key of a call of step 'plain', made by its key function, is empty"),
        ("{a}", "", "made by its template '{a}', is empty"),
        ("{a}", "x\ud800", "has a lone surrogate"),
        ("{a}", Bare(), "holds the address of an object, which is another one in every process"),
        ("{a}", print.__class__.__call__, None),
    ],
)
def test_a_key_that_is_none_is_misuse(key: Any, argument: Any, words: str | None) -> None:
    step = Step(plain, key=key)
    if words is None:
        assert key_of(step, argument) is not None
        return
    with pytest.raises(Misuse) as caught:
        key_of(step, argument)
    assert words in str(caught.value)
    assert caught.value.code == "bad_key"


def test_an_error_of_ours_in_a_key_function_is_passed_on() -> None:
    def refusing(a: Any) -> str:
        return codecs.value_digest(a).hex()

    with pytest.raises(codecs.NotFinite):
        key_of(Step(plain, key=refusing), float("nan"))
