"""The small parts of a run: settings of steps, paths of differences, results that are let go, identities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from agent_run_ledger import Misuse, RunLedger, Step, codecs
from agent_run_ledger.kernel.policy import LoopDetectorPolicy
from agent_run_ledger.ledger.run_ledger import check_run_id
from agent_run_ledger.runs.calls import CallIdentity, identify
from agent_run_ledger.runs.differences import deep_difference
from agent_run_ledger.runs.inputs import Inputs
from agent_run_ledger.runs.resolver import Resolver
from agent_run_ledger.runs.results import Results
from agent_run_ledger.runs.steps import MAX_SECONDS

SALT = b"s" * 32


def digest(value: object) -> bytes:
    return codecs.value_digest(value)


def one(n: int) -> int:
    return n


# -- steps and ledgers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"timeout_s": float("inf")},
        {"timeout_s": float("nan")},
        {"timeout_s": 0},
        {"timeout_s": MAX_SECONDS * 2},
        {"retry_cap_s": float("inf")},
        {"retry_base_s": float("nan")},
        {"retry_base_s": -1},
        {"retries": 1.5},
        {"version": "\ud800"},
        {"depends_on": [one]},
        {"depends_on": [["one"]]},
        {"name": "x" * 201},
    ],
)
def test_what_could_only_fail_later_is_refused_at_registration(settings: dict[str, Any]) -> None:
    with pytest.raises(Misuse) as caught:
        Step(one, **settings)
    assert caught.value.code == "bad_step"


@pytest.mark.parametrize("declared", [[("a", 1)], "text", {1: 2}, {"\ud800": 1}, lambda: 3])
def test_an_environment_is_a_mapping_with_keys_that_are_text(declared: Any) -> None:
    with pytest.raises(Misuse, match="'one'"):
        Step(one, environment=declared).read_environment()


@pytest.mark.parametrize("value", [float("nan"), object()])
def test_what_is_wrong_in_an_environment_is_named(value: object) -> None:
    with pytest.raises(Misuse, match=r"step 'one', environment 'seed'"):
        resolver_of(Step(one, environment={"seed": value}), n=1)


def test_an_environment_is_read_when_it_is_asked_for() -> None:
    values = iter([1, 2])
    step = Step(one, environment=lambda: {"v": next(values)})
    assert [step.read_environment(), step.read_environment()] == [{"v": 1}, {"v": 2}]


def test_two_steps_of_one_name_are_refused_at_registration() -> None:
    ledger = RunLedger(run_id="r", steps=[Step(one)])
    with pytest.raises(Misuse) as caught:
        ledger.add(Step(one))
    assert caught.value.code == "duplicate_step"
    assert len(ledger.steps) == 1


@pytest.mark.parametrize("run_id", ["", "  ", "a\nb", "x" * 201, 7, None, b"r"])
def test_a_run_id_is_one_printable_line(run_id: Any) -> None:
    with pytest.raises(Misuse):
        check_run_id(run_id)


@pytest.mark.parametrize("wait_s", [-1, float("nan"), "1", None])
def test_a_wait_is_a_number_of_seconds(wait_s: Any) -> None:
    with pytest.raises(Misuse):
        RunLedger(run_id="r").bind("r", wait_s=wait_s)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_parallel": 0},
        {"max_parallel": True},
        {"max_parallel": 1025},
        {"max_payload_bytes": 0},
        {"policy": {"max_repetitions": 3}},
        {"on_change": "maybe"},
    ],
)
def test_settings_of_a_ledger_outside_their_range_are_misuse(settings: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        RunLedger(run_id="r", **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_repetitions": 0},
        {"max_repetitions": True},
        {"threshold": 0},
        {"threshold": 1.01},
        {"threshold": float("nan")},
        {"rule": "else"},
        {"max_repetitions": 101},
        {"max_repetitions": 3.0},
        {"threshold": "0.9"},
        {"threshold": -0.1},
        {"window": 1},
        {"window": 1001},
        {"window": True},
    ],
)
def test_a_policy_outside_its_range_is_misuse(settings: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        LoopDetectorPolicy(**settings)


def test_a_policy_is_stored_with_its_window_only_where_that_is_another_one() -> None:
    assert LoopDetectorPolicy().as_stored() == {"max_repetitions": 3, "threshold": 0.92, "rule": "outcome"}
    assert LoopDetectorPolicy(window=20, rule="off").as_stored()["window"] == 20


# -- differences -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now", "path"),
    [
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}, None),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, ".a[1].b"),
        ([1, 2], [1, 2, 3], "[2]"),
        ([1, 2, 3], [1, 2], "[2]"),
        ({"a": 1}, {"a": 1, "b": 2}, ".b"),
        ({"a": 1, "b": 2}, {"a": 1}, ".b"),
        ({7: 1}, {7: 2}, "[7]"),
        ({"\ud800": 1}, {"\ud800": 2}, r"['\ud800']"),
        (1, True, ""),
        ((1,), [1], ""),
        (float("nan"), float("nan"), ""),
    ],
)
def test_the_first_difference_is_named_in_text_that_can_be_kept(before: Any, now: Any, path: str | None) -> None:
    found = deep_difference(before, now)
    assert found == path
    orjson.dumps(found)


# -- identities --------------------------------------------------------------------------------------------------------


def identity(**changes: Any) -> CallIdentity:
    settings = {"name": "one", "version": "1", **{k: v for k, v in changes.items() if k in ("name", "version")}}
    arguments = {"n": digest(changes.get("n", 1))}
    environment = {"model": digest(changes.get("model", "m"))}
    return identify(Step(one, **settings), arguments, environment)


@pytest.mark.parametrize("change", [{"name": "two"}, {"version": "2"}, {"n": 2}, {"model": "x"}])
def test_name_version_arguments_and_environment_are_in_the_fingerprint(change: dict[str, Any]) -> None:
    assert identity(**change).fingerprint != identity().fingerprint
    assert identity(**change).key != identity().key


def test_a_fingerprint_has_nothing_else_in_it() -> None:
    slow = Step(one, retries=3, timeout_s=5, on_change="refuse")
    assert identify(slow, {"n": digest(1)}, {"model": digest("m")}).fingerprint == identity().fingerprint


def test_differences_are_told_from_salted_digests() -> None:
    stored = identity().stored_inputs(SALT, [])
    assert digest(1).hex().encode() not in stored
    other = orjson.loads(identity().stored_inputs(b"t" * 32, []))
    assert all(other[part] != kept for part, kept in orjson.loads(stored).items())
    assert set(other) == {"a", "e"}
    assert identity().differences(stored, SALT) == []
    assert identity(n=2, model="x", version="2").differences(stored, SALT) == [
        "environment.model", "arguments.n", "version",
    ]  # fmt: skip


def resolver_of(*steps: Step[..., Any], **inputs: Any) -> Resolver:
    return Resolver(steps, Inputs(inputs, limit_bytes=1000))


def test_what_a_step_takes_enters_its_identity_and_what_it_only_waits_for_does_not() -> None:
    def join(*values: int) -> int:
        return sum(values)

    a, b = Step(lambda: 1, name="a"), Step(lambda: 2, name="b")
    takes = resolver_of(a, b, Step(join, depends_on=["a", "b"]))
    waits = resolver_of(a, b, Step(lambda: 3, name="alone", depends_on=["a", "b"]))

    def fingerprint(resolver: Resolver, one: int, other: int) -> bytes:
        return resolver.identity(2, lambda index: digest([one, other][index])).fingerprint

    assert len({fingerprint(takes, 1, 2), fingerprint(takes, 2, 1), fingerprint(takes, 1, 3)}) == 3
    assert fingerprint(waits, 1, 2) == fingerprint(waits, 5, 6)
    with pytest.raises(LookupError):
        takes.identity(2, lambda index: {0: digest(1)}[index])


def test_inputs_are_handed_out_fresh() -> None:
    given = [1]
    inputs = Inputs({"x": given}, limit_bytes=1000)
    given.append(2)
    inputs.take("x").append(3)
    assert inputs.take("x") == [1]


# -- results -----------------------------------------------------------------------------------------------------------


class Disk:
    """Stands in for the journal: every record holds the same list."""

    def load(self, record_id: int) -> list[int]:
        return [record_id]


def results_of(consumers: int) -> Results:
    steps: list[Callable[..., Any]] = [lambda source: source for _ in range(consumers)]
    resolver = resolver_of(
        Step(lambda: [1], name="source"),
        *(Step(fn, name=f"use{n}", depends_on=["source"]) for n, fn in enumerate(steps)),
    )
    results = Results(Disk(), resolver)  # type: ignore[arg-type]
    results.live(0, codecs.pack([0], limit_bytes=1000))
    return results


def test_before_the_commit_everybody_gets_a_copy_from_memory_and_after_it_from_disk() -> None:
    results = results_of(3)
    copies = [results.take(0), results.take(0)]
    assert copies == [[0], [0]]
    assert copies[0] is not copies[1]
    results.landed(0, 7)
    assert results.take(0) == [7]
    assert results.record_ids() == {0: 7}


def test_nothing_of_a_result_stays_in_memory_when_nobody_needs_it() -> None:
    results = results_of(2)
    held = results._results[0]
    assert held is not None
    assert held.packed is not None
    results.landed(0, 7)
    assert held.packed is None
    results.consumed(1)
    assert held.decoded is not None
    results.consumed(2)
    assert held.decoded is None
    assert results.take(0) == [7]


def test_a_result_that_is_not_there_is_never_none() -> None:
    results = results_of(1)
    with pytest.raises(Misuse):
        results.take(1)
