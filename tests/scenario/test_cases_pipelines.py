"""Faults from public bug reports that concern pipelines, as scenarios of our own."""

from __future__ import annotations

import importlib
import inspect
import json
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pydantic
import pytest

from agent_run_ledger import ClassGone, RunLedger, RunState, Step, Unstorable
from agent_run_ledger.testing import BodyCounter, Exit, check_ledger, recorded_calls, run_scenario, start_scenario
from tests.scenario.programs import held

PROGRAMS = Path(__file__).resolve().parent / "programs"

LATER = "issue 4: "
CASES = {
    "RES-02": "test_a_changed_graph_runs_the_new_steps_and_none_of_the_old",
    "RES-04": "test_two_steps_of_one_function_keep_their_own_records_when_reordered",
    "RES-06": LATER + "needs nested runs and a pause",
    "RES-07": LATER + "needs dynamic runs and tool calls",
    "RES-08": LATER + "needs tools with effects",
    "RES-09": "test_a_run_frozen_and_killed_inside_a_step_goes_on_and_later_starts_are_no_ops",
    "RES-11": LATER + "needs approvals",
    "SER-01": "test_a_dataclass_with_a_computed_field_is_restored_equal",
    "SER-02": "test_a_class_that_is_gone_is_named_and_nothing_runs_again",
    "SER-05": "test_a_pydantic_result_is_restored_as_its_own_class",
    "SER-06": "test_what_cannot_be_stored_fails_at_once_and_is_named",
    "SER-08": "test_a_pydantic_input_with_rich_fields_is_equal_in_every_life",
    "REC-02": "test_a_stream_broken_off_is_not_recorded_and_asked_for_again",
    "REC-03": "test_identity_does_not_depend_on_a_warm_cache",
}


CIRCLE = "from dataclasses import dataclass\n\n@dataclass\nclass Circle:\n    radius: int\n"


class Crash(BaseException):
    """The process ends here: nothing of this is an error of a step."""


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Path]:
    """A ledger's path; whatever a test did, the ledger must hold."""
    path = tmp_path / "ledger.db"
    yield path
    if path.exists():
        check_ledger(path)


class Life:
    """One life of a program: a ledger with steps that count how often their bodies ran."""

    def __init__(self, db: Path, **settings: Any) -> None:
        self.ledger = RunLedger("r1", db, **settings)
        self.bodies: Counter[str] = Counter()

    def step(self, fn: Callable[..., object], name: str, **settings: Any) -> Step[..., Any]:
        """Register a step whose body counts."""

        def counted(*args: object, **kwargs: object) -> object:
            self.bodies[name] += 1
            return fn(*args, **kwargs)

        counted.__signature__ = inspect.signature(fn)  # type: ignore[attr-defined]
        return self.ledger.add(Step(counted, name=name, **settings))

    def execute(self, **inputs: object) -> Any:
        """Run it to its end or its crash, and close."""
        with self.ledger:
            return self.ledger.execute(**inputs)


def _crash(*_: object, **__: object) -> object:
    raise Crash


def test_a_changed_graph_runs_the_new_steps_and_none_of_the_old(db: Path) -> None:
    def pipeline(analyst: str, work: Callable[[int], object]) -> Life:
        life = Life(db)
        life.step(lambda: 5, "load")
        life.step(work, analyst, depends_on=["load"])
        life.step(lambda opinion: f"decided on {opinion}", "decide", depends_on=[analyst])
        return life

    first = pipeline("analyst_old", _crash)
    with pytest.raises(Crash):
        first.execute()
    second = pipeline("analyst_new", lambda load: load + 100)
    assert second.execute() == "decided on 105"
    assert second.bodies == {"analyst_new": 1, "decide": 1}


def test_two_steps_of_one_function_keep_their_own_records_when_reordered(db: Path) -> None:
    outputs = {1: "S1", 2: "S2"}
    ran: list[int] = []

    def summarise(doc: int, *, dies: bool) -> str:
        ran.append(doc)
        if dies:
            raise Crash
        return outputs[doc]

    def pipeline(order: list[int], dies: int) -> RunLedger:
        ledger = RunLedger("r1", db, max_parallel=1)
        for doc in order:
            body = partial(summarise, doc, dies=doc == dies)
            ledger.add(Step(lambda body=body: body(), name=f"summarise {doc}", environment={"doc": doc}))
        return ledger

    with pipeline([1, 2], dies=2) as ledger, pytest.raises(Crash):
        ledger.execute()
    with pipeline([2, 1], dies=0) as ledger:
        assert ledger.execute() == {"summarise 1": "S1", "summarise 2": "S2"}
    assert ran == [1, 2, 2]


def test_a_run_frozen_and_killed_inside_a_step_goes_on_and_later_starts_are_no_ops(tmp_path: Path) -> None:
    program = f"{PROGRAMS / 'held.py'}"
    entered, _ = held.Gate(tmp_path / held.ENTERED), held.Gate(tmp_path / held.GO_ON)
    with start_scenario(f"{program}:waiting", tmp_path) as frozen:
        entered.wait()
        frozen.send(signal.SIGKILL)
        assert frozen.wait().signal == signal.SIGKILL
    resumed = run_scenario(f"{program}:plain", tmp_path, life=2)
    again = run_scenario(f"{program}:plain", tmp_path, life=3)
    assert (resumed.result, again.result) == ("result 4", "result 4"), resumed.describe() + again.describe()
    bodies = BodyCounter(tmp_path / "bodies.log")
    assert bodies.count() == {"first": 1, "second": 2, "third": 1}
    assert bodies.count(life=3) == {}
    report = check_ledger(tmp_path / "ledger.db")
    assert (report.results, report.abandoned) == (3, 1)


@dataclass
class Measured:
    """A dataclass one field of which the constructor does not take."""

    a: int
    b: int = field(init=False, default=0)


class UserModel(pydantic.BaseModel):
    """A model of the program's own."""

    name: str
    tags: set[str]


class Order(pydantic.BaseModel):
    """A model with fields that JSON does not have."""

    placed: datetime
    price: Decimal
    scan: bytes


def _measured() -> Measured:
    measured = Measured(a=3)
    measured.b = 9
    return measured


def _user() -> UserModel:
    return UserModel(name="Ada", tags={"x", "y"})


@pytest.mark.parametrize("make", [_measured, _user])
def test_a_restored_value_is_what_the_live_one_was(make: Callable[[], object], db: Path) -> None:
    """SER-01 and SER-05 side by side: live, restored and returned by a completed run."""
    seen: list[object] = []

    def pipeline(work: Callable[[object], object]) -> Life:
        life = Life(db)
        life.step(make, "make")
        life.step(lambda make: seen.append(make) or work(make), "use", depends_on=["make"])
        return life

    with pytest.raises(Crash):
        pipeline(_crash).execute()
    second = pipeline(lambda value: value)
    third = pipeline(_crash)
    assert second.execute() == third.execute() == make()
    assert second.bodies == {"use": 1}
    assert third.bodies == {}
    assert seen == [make(), make()]
    assert {type(value) for value in seen} == {type(make())}


def test_a_dataclass_with_a_computed_field_is_restored_equal(db: Path) -> None:
    Life(db).ledger.close()
    for _ in range(2):
        life = Life(db)
        life.step(_measured, "measure")
        restored = life.execute()
        assert (type(restored), restored.a, restored.b) == (Measured, 3, 9)
    assert life.bodies == {}


def test_a_pydantic_result_is_restored_as_its_own_class(db: Path) -> None:
    for _ in range(2):
        life = Life(db)
        life.step(_user, "user")
        restored = life.execute()
        assert type(restored) is UserModel
        assert restored == _user()
    assert life.bodies == {}


def test_a_class_that_is_gone_is_named_and_nothing_runs_again(
    db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "shapes_of_today.py"
    module.write_text(CIRCLE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))

    def pipeline(work: Callable[[Any], object]) -> Life:
        life = Life(db)
        life.step(lambda: importlib.import_module("shapes_of_today").Circle(4), "draw")
        life.step(work, "use", depends_on=["draw"])
        return life

    with pytest.raises(Crash):
        pipeline(_crash).execute()
    module.unlink()
    del sys.modules["shapes_of_today"]
    importlib.invalidate_caches()
    second = pipeline(lambda circle: circle.radius)
    with pytest.raises(ClassGone, match=r"(?s)draw.*shapes_of_today.*Circle"):
        second.execute()
    assert second.bodies == {}
    assert check_ledger(db).classes_gone
    module.write_text(CIRCLE, encoding="utf-8")
    importlib.invalidate_caches()
    importlib.import_module("shapes_of_today")
    third = pipeline(lambda circle: circle.radius)
    assert third.execute() == 4
    assert third.bodies == {"use": 1}
    del sys.modules["shapes_of_today"]


class Handle:
    """Has no stored form."""

    def __init__(self) -> None:
        self.opened = object()


def test_what_cannot_be_stored_fails_at_once_and_is_named(db: Path) -> None:
    as_input = Life(db)
    as_input.step(lambda timeout: timeout, "call")
    with pytest.raises(Unstorable, match="timeout"):
        as_input.execute(timeout=Handle())
    assert as_input.bodies == {}

    as_result = Life(db)
    as_result.step(lambda: {"ok": 1, "handle": Handle()}, "open", retries=5, retry_base_s=0)
    with pytest.raises(Unstorable, match=r"(?s)open.*handle") as raised:
        as_result.execute()
    assert raised.value.type_name.endswith("Handle")
    assert as_result.bodies == {"open": 1}
    assert [(call.name, call.kind.name) for call in recorded_calls(db)] == [("open", "RESCUED")]
    with RunLedger("r1", db) as ledger:
        assert ledger.bind("r1").state is RunState.FAILED


def test_a_pydantic_input_with_rich_fields_is_equal_in_every_life(db: Path) -> None:
    order = Order(placed=datetime(2026, 11, 29, 8, 30, tzinfo=UTC), price=Decimal("19.90"), scan=b"\x00\xff")
    seen: list[Order] = []

    def pipeline(work: Callable[[Order], object]) -> Life:
        life = Life(db)
        life.step(lambda order: seen.append(order) or order.price * 2, "double")
        life.step(lambda order, double: work(order) or double, "book", depends_on=["double"])
        return life

    with pytest.raises(Crash):
        pipeline(_crash).execute(order=order)
    second = pipeline(seen.append)
    assert second.execute(order=order.model_copy(deep=True)) == Decimal("39.80")
    assert second.bodies == {"book": 1}
    assert seen == [order, order]
    assert all(type(one) is Order for one in seen)


def test_a_stream_broken_off_is_not_recorded_and_asked_for_again(db: Path) -> None:
    upstream = 0

    def pipeline(*, aborts: bool) -> RunLedger:
        ledger = RunLedger("r1", db)

        @ledger.step
        def stream(prompt: str) -> Iterator[str]:
            nonlocal upstream
            upstream += 1
            yield f"{prompt} one"
            if aborts:
                raise Crash
            yield f"{prompt} two"

        return ledger

    with pipeline(aborts=True) as ledger, pytest.raises(Crash):
        ledger.execute(prompt="p")
    for _ in range(2):
        with pipeline(aborts=False) as ledger:
            assert ledger.execute(prompt="p") == ["p one", "p two"]
    assert upstream == 2
    assert [call.kind.name for call in recorded_calls(db)] == ["ABANDONED", "RESULT"]


def test_identity_does_not_depend_on_a_warm_cache(tmp_path: Path) -> None:
    program = f"{PROGRAMS / 'registry_of_tools.py'}:one_call"
    killed = run_scenario(program, tmp_path, env={"CACHE": "warm", "PYTHONHASHSEED": "1"})
    assert killed.exit is Exit.KILLED, killed.describe()
    resumed = run_scenario(program, tmp_path, life=2, env={"CACHE": "cold", "PYTHONHASHSEED": "2"})
    assert resumed.result == "Which Tools Are There!", resumed.describe()
    assert BodyCounter(tmp_path / "bodies.log").count() == {"ask": 1, "act": 2}
    check_ledger(tmp_path / "ledger.db")


def test_every_assigned_case_is_a_test_of_this_file() -> None:
    tests = {name for name in globals() if name.startswith("test_")}
    assert {name for name in CASES.values() if not name.startswith(LATER)} <= tests


def test_no_shared_case_of_these_kinds_is_silently_left_out(shared: Path) -> None:
    lines = (shared / "cases" / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    ids = {case["id"] for case in map(json.loads, lines) if case["id"].startswith(("RES-", "SER-", "REC-"))}
    assert ids == set(CASES)
