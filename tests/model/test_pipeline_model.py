"""Random pipelines, changed from life to life, against a small model of what must run and what is restored."""

from __future__ import annotations

import heapq
import inspect
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_run_ledger import RunLedger, Step
from agent_run_ledger.testing import check_ledger

CAMPAIGN = int(os.environ.get("ARL_CAMPAIGN", "1"))
NAMES = tuple("abcdefgh")


class Crash(BaseException):
    """The process ends inside a body."""


@dataclass(frozen=True)
class Node:
    """A step: what it takes, what it only waits for, its environment, and what its body does in this life."""

    name: str
    takes: tuple[str, ...]
    waits: tuple[str, ...]
    environment: int
    takes_input: bool
    ends: str = "well"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(self.takes + self.waits)


Program = tuple[Node, ...]
"""The steps of one life in the order of registration."""


@dataclass
class Model:
    """The reference: what a run remembers between lives, and what one life does."""

    recorded: dict[tuple[object, ...], str] = field(default_factory=dict)
    completed: bool = False
    result: object = None

    def live(self, program: Program, x: int) -> tuple[list[str], str, object]:
        """Return the bodies that run in order, how the life ends ("well", "raises", "crashes") and its result."""
        if self.completed:
            return [], "well", self.result
        place = {node.name: at for at, node in enumerate(program)}
        values: dict[str, str] = {}
        ran: list[str] = []
        runnable: list[int] = []
        looked_at: set[str] = set()
        while len(values) < len(program):
            for node in self._ready(program, values, looked_at):
                looked_at.add(node.name)
                if self._call(node, values, x) in self.recorded:
                    values[node.name] = self.recorded[self._call(node, values, x)]
                    break
                heapq.heappush(runnable, place[node.name])
            else:
                node = program[heapq.heappop(runnable)]
                ran.append(node.name)
                if node.ends != "well":
                    return ran, node.ends, None
                values[node.name] = self.recorded[self._call(node, values, x)] = value_of(node, values, x)
        needed = frozenset[str]().union(*(node.needs for node in program))
        terminal = {node.name: values[node.name] for node in program if node.name not in needed}
        self.completed = True
        self.result = next(iter(terminal.values())) if len(terminal) == 1 else terminal
        return ran, "well", self.result

    def _ready(self, program: Program, values: dict[str, str], looked_at: set[str]) -> list[Node]:
        return [node for node in program if node.name not in looked_at and node.needs <= values.keys()]

    def _call(self, node: Node, values: dict[str, str], x: int) -> tuple[object, ...]:
        taken = tuple(sorted((name, values[name]) for name in node.takes))
        return (node.name, taken, node.environment, x if node.takes_input else None)


def value_of(node: Node, values: dict[str, str], x: int) -> str:
    """What a body returns: all that it was given, in words."""
    given_to = ",".join(f"{name}={values[name]}" for name in sorted(node.takes))
    return f"{node.name}{node.environment}({given_to}{x if node.takes_input else ''})"[:400]


def body_of(node: Node, ran: list[str]) -> Callable[..., str]:
    """Return a function with one parameter per result that the step takes."""
    parameters = (*node.takes, "x") if node.takes_input else node.takes
    signature = inspect.Signature([inspect.Parameter(p, inspect.Parameter.POSITIONAL_OR_KEYWORD) for p in parameters])

    def body(*args: Any, **kwargs: Any) -> str:
        ran.append(node.name)
        if node.ends == "raises":
            raise ValueError(node.name)
        if node.ends == "crashes":
            raise Crash
        values = signature.bind(*args, **kwargs).arguments
        return value_of(node, values, values.get("x", 0))

    body.__signature__ = signature  # type: ignore[attr-defined]
    return body


def live(db: Path, program: Program, x: int) -> tuple[list[str], str, object]:
    """Do one life for real, one body at a time. The same answer as Model.live."""
    ran: list[str] = []
    steps = [
        Step(
            body_of(node, ran),
            name=node.name,
            depends_on=node.takes + node.waits,
            environment={"setting": node.environment},
        )
        for node in program
    ]
    with RunLedger("r", db, steps=steps, max_parallel=1) as ledger:
        try:
            return ran, "well", ledger.execute(x=x)
        except ValueError:
            return ran, "raises", None
        except Crash:
            return ran, "crashes", None


@st.composite
def programs(draw: st.DrawFn) -> Program:
    nodes: list[Node] = []
    for at, name in enumerate(NAMES[: draw(st.integers(1, len(NAMES)))]):
        needs = draw(st.lists(st.sampled_from(NAMES[:at]), unique=True, max_size=3)) if at else []
        split = draw(st.integers(0, len(needs)))
        nodes.append(
            Node(
                name=name,
                takes=tuple(needs[:split]),
                waits=tuple(needs[split:]),
                environment=draw(st.integers(0, 1)),
                takes_input=draw(st.booleans()),
            )
        )
    return tuple(nodes)


@st.composite
def changed(draw: st.DrawFn, whole: Program) -> Program:
    """A life's own version of the program: steps left out, put in another order, set differently, ending badly."""
    kept = draw(st.sets(st.sampled_from([node.name for node in whole]), min_size=1))
    bad = draw(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["raises", "crashes"]), max_size=2))
    other = draw(st.sets(st.sampled_from(NAMES), max_size=1))
    nodes = [
        replace(
            node,
            takes=tuple(name for name in node.takes if name in kept),
            waits=tuple(name for name in node.waits if name in kept),
            environment=node.environment + 2 if node.name in other else node.environment,
            ends=bad.get(node.name, "well"),
        )
        for node in whole
        if node.name in kept
    ]
    return tuple(draw(st.permutations(nodes)))


@st.composite
def stories(draw: st.DrawFn) -> list[Program]:
    whole = draw(programs())
    lives = draw(st.lists(changed(whole), min_size=1, max_size=2))
    return [*lives, whole]


@settings(max_examples=120 * CAMPAIGN, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(story=stories(), x=st.integers(0, 3))
def test_bodies_restorations_and_results_are_those_of_the_model(story: list[Program], x: int) -> None:
    model = Model()
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "ledger.db"
        for number, program in enumerate(story, 1):
            assert live(db, program, x) == model.live(program, x), f"life {number}"
        report = check_ledger(db)
        assert report.results == len(model.recorded)


@settings(max_examples=40 * CAMPAIGN, suppress_health_check=[HealthCheck.too_slow])
@given(whole=programs(), x=st.integers(0, 3), data=st.data())
def test_the_order_of_registration_changes_no_result(whole: Program, x: int, data: st.DataObject) -> None:
    shuffled = tuple(data.draw(st.permutations(whole)))
    with tempfile.TemporaryDirectory() as folder:
        straight = live(Path(folder) / "one.db", whole, x)
        other = live(Path(folder) / "two.db", shuffled, x)
    assert sorted(straight[0]) == sorted(other[0])
    assert straight[1:] == other[1:]
