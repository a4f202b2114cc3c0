"""Binding: each rule of where a parameter gets its value, and each trap, before any step runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.errors import Misuse
from agent_run_ledger.kernel.binding import (
    InputSource,
    Parameter,
    ParameterKind,
    Plan,
    ResultSource,
    Source,
    StepSpec,
    arrange,
    bind_graph,
)

KINDS: dict[Any, ParameterKind] = {
    inspect.Parameter.POSITIONAL_ONLY: "positional_only",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "positional",
    inspect.Parameter.KEYWORD_ONLY: "keyword_only",
    inspect.Parameter.VAR_POSITIONAL: "var_positional",
    inspect.Parameter.VAR_KEYWORD: "var_keyword",
}


def parameters_of(fn: Callable[..., Any], sources: dict[str, str] | None = None) -> tuple[Parameter, ...]:
    return tuple(
        Parameter(
            name=p.name,
            kind=KINDS[p.kind],
            required=p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD),
            source=(sources or {}).get(p.name),
        )
        for p in inspect.signature(fn).parameters.values()
    )


def step(name: str, fn: Callable[..., Any], *depends_on: str, function: str = "", **sources: str) -> StepSpec:
    return StepSpec(
        name=name,
        function_name=function or f"{name}_fn",
        depends_on=depends_on,
        parameters=parameters_of(fn, sources),
    )


def sources_of(plan: Plan, index: int = -1) -> dict[str, Source]:
    return {parameter.name: source for parameter, source in plan.bindings[index].arguments}


def refusal(code: str, steps: list[StepSpec], *inputs: str) -> str:
    with pytest.raises(Misuse) as caught:
        bind_graph(steps, inputs)
    assert caught.value.code == code
    assert caught.value.hint
    return str(caught.value)


def result(index: int) -> ResultSource:
    return ResultSource(step_index=index)


def given_input(name: str) -> InputSource:
    return InputSource(name=name)


A = step("a", lambda: None)
B = step("b", lambda: None)


# By name


def test_a_parameter_takes_the_input_of_its_name() -> None:
    plan = bind_graph([step("s", lambda x, *, y, z=1: None)], ["x", "y", "z"])
    assert sources_of(plan) == {"x": given_input("x"), "y": given_input("y"), "z": given_input("z")}
    assert plan.unused_inputs == ()


def test_a_parameter_takes_the_dependency_of_its_name() -> None:
    plan = bind_graph([A, B, step("s", lambda b, a: None, "a", "b")], [])
    assert sources_of(plan) == {"b": result(1), "a": result(0)}


def test_a_parameter_takes_the_dependency_whose_function_has_its_name() -> None:
    plan = bind_graph([A, B, step("s", lambda b_fn, a_fn: None, "a", "b")], [])
    assert sources_of(plan) == {"b_fn": result(1), "a_fn": result(0)}


def test_names_reach_keyword_only_and_defaulted_parameters() -> None:
    plan = bind_graph([A, B, step("s", lambda *, a, b=None: None, "a", "b")], [])
    assert sources_of(plan) == {"a": result(0), "b": result(1)}


def test_a_step_that_is_no_dependency_is_no_source_by_name() -> None:
    text = refusal("missing_argument", [A, step("s", lambda a: None)])
    assert "'a'" in text
    assert "'s'" in text
    assert "add it to depends_on" in text


def test_one_result_may_reach_two_parameters_by_both_of_its_names() -> None:
    plan = bind_graph([A, step("s", lambda a, a_fn: None, "a")], [])
    assert sources_of(plan) == {"a": result(0), "a_fn": result(0)}


def test_input_and_dependency_of_one_name_are_ambiguous() -> None:
    text = refusal("ambiguous_argument", [A, step("s", lambda a: None, "a")], "a")
    assert "parameter 'a' of step 's'" in text
    assert "run input 'a'" in text
    assert "result of step 'a'" in text
    text = refusal("ambiguous_argument", [A, step("s", lambda a_fn: None, "a")], "a_fn")
    assert "run input 'a_fn'" in text


def test_two_dependencies_that_answer_to_one_name_are_ambiguous() -> None:
    twin = step("other", lambda: None, function="a")
    text = refusal("ambiguous_argument", [A, twin, step("s", lambda a: None, "a_fn", "other")])
    assert "'a'" in text
    assert "'other'" in text


def test_an_input_named_like_a_step_that_no_parameter_names_is_no_ambiguity() -> None:
    plan = bind_graph([A, step("s", lambda value: None, "a")], ["a"])
    assert sources_of(plan) == {"value": result(0)}
    assert plan.unused_inputs == ("a",)


# Explicitly


def test_from_names_a_step_or_its_function() -> None:
    for name in ("a", "a_fn"):
        plan = bind_graph([A, B, step("s", lambda x, y: None, "a", "b", x=name)], [])
        assert sources_of(plan) == {"x": result(0), "y": result(1)}


def test_from_adds_the_dependency_after_the_listed_ones() -> None:
    plan = bind_graph([A, B, step("s", lambda x, y: None, "b", x="a")], [])
    assert sources_of(plan) == {"x": result(0), "y": result(1)}
    assert plan.bindings[2].dependencies == (1, 0)
    assert plan.bindings[2].ordering_only == ()
    assert plan.terminals == (2,)


def test_from_settles_what_would_be_ambiguous() -> None:
    steps = [A, step("s", lambda a: None, "a", a="a"), step("t", lambda a: None)]
    plan = bind_graph(steps, ["a"])
    assert sources_of(plan, 1) == {"a": result(0)}
    assert sources_of(plan, 2) == {"a": given_input("a")}


def test_from_may_name_one_step_twice_and_serve_keyword_only_and_defaulted_parameters() -> None:
    plan = bind_graph([A, step("s", lambda x, *, y, z=1: None, x="a", y="a", z="a")], [])
    assert sources_of(plan) == {"x": result(0), "y": result(0), "z": result(0)}
    assert plan.bindings[1].dependencies == (0,)


def test_from_an_unknown_step_names_parameter_and_step() -> None:
    text = refusal("unknown_step", [A, step("s", lambda x: None, x="aa")])
    assert "parameter 'x' of step 's' is From 'aa'" in text
    assert "did you mean 'a'" in text


@pytest.mark.parametrize("fn", [lambda *many: None, lambda **many: None])
def test_from_on_a_parameter_of_many_values_is_refused(fn: Callable[..., Any]) -> None:
    assert "'many'" in refusal("ambiguous_argument", [A, step("s", fn, many="a")])


# By position


def test_what_no_name_binds_is_filled_in_order() -> None:
    plan = bind_graph([A, B, step("s", lambda x, y: None, "b", "a")], [])
    assert sources_of(plan) == {"x": result(1), "y": result(0)}


def test_position_skips_what_a_name_has_bound() -> None:
    c = step("c", lambda: None)
    plan = bind_graph([A, B, c, step("s", lambda x, b, company, y: None, "a", "b", "c", y="a")], ["company"])
    assert sources_of(plan) == {"x": result(2), "b": result(1), "company": given_input("company"), "y": result(0)}


def test_positional_only_parameters_are_bound_by_name_and_by_position() -> None:
    plan = bind_graph([A, B, step("s", lambda x, b, /: None, "a", "b")], [])
    assert sources_of(plan) == {"x": result(0), "b": result(1)}


def test_a_default_is_never_replaced_by_position() -> None:
    plan = bind_graph([A, step("s", lambda x=1: None, "a")], [])
    assert sources_of(plan) == {}
    assert plan.bindings[1].ordering_only == (0,)
    text = refusal("argument_count", [A, B, step("s", lambda x, y=1: None, "a", "b")])
    assert "'x'" in text
    assert "'y'" not in text


def test_a_keyword_only_parameter_is_never_filled_by_position() -> None:
    text = refusal("missing_argument", [A, step("s", lambda *, x: None, "a")])
    assert "'x'" in text


def test_more_dependencies_than_parameters_is_a_mismatch() -> None:
    text = refusal("argument_count", [A, B, step("s", lambda x: None, "a", "b")])
    assert (
        "step 's' has 1 parameters without a source ('x') and 2 dependencies that no parameter names ('a', 'b')" in text
    )


def test_fewer_dependencies_than_parameters_is_a_mismatch() -> None:
    text = refusal("argument_count", [A, step("s", lambda x, y: None, "a")])
    assert "'x', 'y'" in text


def test_a_misspelt_input_is_not_filled_by_a_dependency_unnoticed() -> None:
    refusal("argument_count", [A, step("s", lambda company, value: None, "a")], "compny")
    plan = bind_graph([A, step("s", lambda company: None, "a")], ["compny"])
    assert plan.unused_inputs == ("compny",)


def test_dependencies_without_a_parameter_only_order() -> None:
    plan = bind_graph([A, B, step("s", lambda: None, "a", "b")], [])
    assert plan.bindings[2].arguments == ()
    assert plan.bindings[2].ordering_only == (0, 1)
    plan = bind_graph([A, B, step("s", lambda a: None, "b", "a")], [])
    assert plan.bindings[2].ordering_only == (1,)


# *values and **kwargs


def test_star_takes_all_dependencies_not_yet_bound_in_order() -> None:
    c = step("c", lambda: None)
    plan = bind_graph([A, B, c, step("s", lambda b, *rest: None, "c", "b", "a")], [])
    assert sources_of(plan) == {"b": result(1), "rest": (result(2), result(0))}
    assert plan.bindings[3].ordering_only == ()


def test_star_comes_after_the_required_positional_parameters() -> None:
    c = step("c", lambda: None)
    plan = bind_graph([A, B, c, step("s", lambda x, *rest: None, "a", "b", "c")], [])
    assert sources_of(plan) == {"x": result(0), "rest": (result(1), result(2))}
    text = refusal("argument_count", [A, step("s", lambda x, y, *rest: None, "a")])
    assert "'x', 'y'" in text


def test_star_without_dependencies_is_empty_and_is_never_an_input() -> None:
    plan = bind_graph([step("s", lambda *rest: None)], ["rest"])
    assert sources_of(plan) == {"rest": ()}
    assert plan.unused_inputs == ("rest",)


def test_star_does_not_fill_a_default_before_it() -> None:
    plan = bind_graph([A, B, step("s", lambda x, y=1, *rest: None, "a", "b")], [])
    assert sources_of(plan) == {"x": result(0), "rest": (result(1),)}


def test_keyword_star_receives_nothing() -> None:
    plan = bind_graph([A, step("s", lambda **rest: None, "a")], ["rest", "x"])
    assert sources_of(plan) == {}
    assert plan.bindings[1].ordering_only == (0,)
    assert plan.unused_inputs == ("rest", "x")


# Missing


def test_a_parameter_without_any_source_is_missing() -> None:
    text = refusal("missing_argument", [step("s", lambda x: None)])
    assert "parameter 'x' of step 's' has no source" in text
    assert "x=…" in text


def test_all_parameters_without_a_source_are_named_and_close_inputs_suggested() -> None:
    text = refusal("missing_argument", [step("s", lambda company_id, year: None)], "compny_id")
    assert "'company_id', 'year'" in text
    assert "did you mean 'compny_id'?" in text


# The graph


def test_a_dependency_may_be_named_by_its_function() -> None:
    plan = bind_graph([A, step("s", lambda x: None, "a_fn")], [])
    assert plan.bindings[1].dependencies == (0,)


def test_two_steps_of_one_name_are_refused() -> None:
    assert "two steps are named 'a'" in refusal("duplicate_step", [A, B, A])


def test_an_unknown_dependency_is_refused_with_close_matches() -> None:
    text = refusal("unknown_step", [step("fetch_quarterly", lambda: None), step("s", lambda: None, "fetch_quartely")])
    assert "step 's' depends on 'fetch_quartely'" in text
    assert "did you mean 'fetch_quarterly'" in text
    text = refusal("unknown_step", [A, step("s", lambda: None, "zzzzzz")])
    assert "the steps are: 'a', 's'" in text


def test_a_reference_that_two_steps_answer_to_is_refused() -> None:
    twins = [step("one", lambda: None, function="same"), step("two", lambda: None, function="same")]
    text = refusal("ambiguous_step", [*twins, step("s", lambda: None, "same")])
    assert "'one', 'two'" in text
    text = refusal("ambiguous_step", [A, step("x", lambda: None, function="a"), step("s", lambda: None, "a")])
    assert "'a', 'x'" in text
    assert bind_graph([*twins, step("s", lambda: None, "two")], []).bindings[2].dependencies == (1,)


def test_a_step_whose_function_has_the_step_name_is_one_step() -> None:
    plan = bind_graph([step("a", lambda: None, function="a"), step("s", lambda a: None, "a")], [])
    assert sources_of(plan) == {"a": result(0)}


@pytest.mark.parametrize("listed", [("a", "a"), ("a", "a_fn")])
def test_a_dependency_listed_twice_is_refused(listed: tuple[str, str]) -> None:
    text = refusal("duplicate_dependency", [A, step("s", lambda: None, *listed)])
    assert "step 's' lists 'a' twice" in text
    assert repr(listed[1]) in text


def test_a_cycle_is_printed_as_it_runs() -> None:
    steps = [
        step("before", lambda: None),
        step("x", lambda: None, "z", "before"),
        step("y", lambda: None, "x"),
        step("z", lambda: None, "y"),
        step("after", lambda: None, "z"),
    ]
    text = refusal("cycle", steps)
    assert "'x' → 'z' → 'y' → 'x'" in text
    assert "before" not in text
    assert "after" not in text


def test_a_cycle_is_found_behind_a_step_that_only_waits_for_it() -> None:
    steps = [step("after", lambda: None, "x"), step("x", lambda: None, "y"), step("y", lambda: None, "x")]
    assert "'x' → 'y' → 'x'" in refusal("cycle", steps)


def test_a_step_that_depends_on_itself_is_a_cycle() -> None:
    assert "'s' → 's'" in refusal("cycle", [step("s", lambda: None, "s")])
    assert "'s' → 's'" in refusal("cycle", [step("s", lambda x: None, x="s")])


def test_the_order_keeps_registration_where_the_graph_allows() -> None:
    steps = [
        step("late", lambda: None, "root"),
        step("free", lambda: None),
        step("root", lambda: None),
        step("end", lambda: None, "late"),
        step("also_free", lambda: None),
    ]
    plan = bind_graph(steps, [])
    assert plan.order == (1, 2, 0, 3, 4)
    assert plan.terminals == (1, 3, 4)


def test_no_steps_is_an_empty_plan() -> None:
    assert bind_graph([], ["x"]) == Plan(order=(), bindings=(), terminals=(), unused_inputs=("x",))


@given(st.data())
def test_every_order_is_topological_and_takes_the_first_that_is_ready(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    ranks = data.draw(st.permutations(range(count)))
    needs = [
        tuple(j for j in range(count) if ranks[j] < ranks[i] and data.draw(st.booleans(), label=f"{i} needs {j}"))
        for i in range(count)
    ]
    steps = [step(f"s{i}", lambda: None, *(f"s{j}" for j in needed)) for i, needed in enumerate(needs)]
    order = bind_graph(steps, []).order
    done: set[int] = set()
    for index in order:
        ready = [i for i in range(count) if i not in done and done.issuperset(needs[i])]
        assert index == min(ready)
        done.add(index)
    assert len(done) == count


def test_a_deep_chain_and_a_wide_fan_in_are_bound_without_recursion() -> None:
    count = 10_000
    chain = [step("s0", lambda: None)]
    chain += [step(f"s{i}", lambda x: None, f"s{i - 1}") for i in range(1, count)]
    assert bind_graph(chain, []).order == tuple(range(count))
    assert bind_graph(chain[::-1], []).order == tuple(reversed(range(count)))
    fan = [step(f"s{i}", lambda: None) for i in range(count)]
    fan.append(step("end", lambda *many: None, *(f"s{i}" for i in range(count))))
    assert sources_of(bind_graph(fan, [])) == {"many": tuple(result(i) for i in range(count))}
    ring = [step(f"s{i}", lambda: None, f"s{(i + 1) % count}") for i in range(count)]
    assert "'s0' → 's1' → " in refusal("cycle", ring)


# The call itself


def called(fn: Callable[..., Any], values: dict[str, object]) -> Any:
    signature = inspect.signature(fn)
    defaults = {p.name: p.default for p in signature.parameters.values() if p.default is not p.empty}
    args, kwargs = arrange(parameters_of(fn), values, defaults)
    return fn(*args, **kwargs)


@pytest.mark.parametrize(
    ("fn", "values", "expected"),
    [
        (lambda a, b: (a, b), {"a": 1, "b": 2}, (1, 2)),
        (lambda a, b=9, *, c=8: (a, b, c), {"a": 1}, (1, 9, 8)),
        (lambda a, b=9, *, c=8: (a, b, c), {"a": 1, "c": 3}, (1, 9, 3)),
        (lambda a, b=9, *rest: (a, b, rest), {"a": 1, "rest": (2, 3)}, (1, 9, (2, 3))),
        (lambda a, b=9, *rest: (a, b, rest), {"a": 1, "rest": ()}, (1, 9, ())),
        (lambda a, b=9, *rest, c=8: (a, b, rest, c), {"a": 1, "b": 2, "rest": (3,), "c": 4}, (1, 2, (3,), 4)),
        (lambda a=9, b=8, /: (a, b), {"b": 2}, (9, 2)),
        (lambda a=9, b=8, /, c=7: (a, b, c), {"c": 3}, (9, 8, 3)),
        (lambda a, /, **rest: (a, rest), {"a": 1}, (1, {})),
        (lambda a, b: (a, b), {"b": None, "a": False}, (False, None)),
        (lambda: "nothing", {}, "nothing"),
    ],
)
def test_a_call_gives_each_parameter_its_own_value(
    fn: Callable[..., Any], values: dict[str, object], expected: object
) -> None:
    assert called(fn, values) == expected
