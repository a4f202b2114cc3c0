"""Random lives, erasures and prunes of one run: the log verifies after each, and nothing erased ever runs again."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_run_ledger import Refused, RunLedger, Step
from agent_run_ledger.ledger.verify import verify_log
from agent_run_ledger.runs.erase import Act, Selection, erase_run
from agent_run_ledger.runs.prune import old_runs, prune
from agent_run_ledger.testing import check_ledger

CAMPAIGN = int(os.environ.get("ARL_CAMPAIGN", "1"))
GRAPH: dict[str, tuple[str, ...]] = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c"), "e": ()}
TAKEN_BY = {name: {other for other, needs in GRAPH.items() if name in needs} for name in GRAPH}
NAMES = tuple(GRAPH)

Deed = tuple[str, str]
"""What is done: ("live", the step that raises, or none), ("erase" or "only", a step), ("all" or "prune", "")."""


@dataclass
class Model:
    """The reference. `recorded` and `gone` are steps whose result was recorded, and erased after that."""

    recorded: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    begun: bool = False
    completed: bool = False
    start_gone: bool = False

    def live(self, bad: str) -> tuple[list[str], str]:
        """Return the bodies that run in order, and how it ends."""
        if self.start_gone:
            return [], "erased"
        if self.completed:
            return [], "erased" if self.gone & {"d", "e"} else "well"
        if self.gone:
            return [], "erased"
        self.begun = True
        ran: list[str] = []
        for name in NAMES:
            if name in self.recorded:
                continue
            ran.append(name)
            if name == bad:
                return ran, "raised"
            self.recorded.add(name)
        self.completed = True
        return ran, "well"

    def erase(self, name: str, *, only: bool) -> None:
        """Erase one step, and what takes its result."""
        chosen, left = {name}, [name]
        while left and not only:
            more = TAKEN_BY[left.pop()] - chosen
            chosen |= more
            left += more
        self.gone |= chosen & self.recorded

    def erase_all(self) -> None:
        """Erase everything."""
        self.gone |= self.recorded
        self.start_gone = self.begun


class World:
    """The real run. One ledger in its own store, opened anew for each deed."""

    def __init__(self, db: Path) -> None:
        self.db = db

    def live(self, bad: str) -> tuple[list[str], str]:
        ran: list[str] = []

        def body(name: str) -> str:
            ran.append(name)
            if name == bad:
                raise ValueError(name)
            return f"secret {name}"

        functions = {
            "a": lambda: body("a"),
            "b": lambda a: body("b"),
            "c": lambda a: body("c"),
            "d": lambda b, c: body("d"),
            "e": lambda: body("e"),
        }
        steps = [Step(functions[name], name=name, depends_on=GRAPH[name]) for name in NAMES]
        with RunLedger("r", self.db, steps=steps, max_parallel=1) as ledger:
            try:
                result = ledger.execute()
            except ValueError:
                return ran, "raised"
            except Refused as error:
                return ran, error.code
        return ran, "well" if result == {"d": "secret d", "e": "secret e"} else f"wrong: {result}"

    def erase(self, selection: Selection) -> str:
        with RunLedger("r", self.db) as ledger:
            try:
                erase_run(ledger._opened.context(), "r", selection, Act(event="erase", reason="x", actor="ann"))
            except Refused as error:
                return error.code
        return ""

    def prune(self) -> int:
        with RunLedger("r", self.db) as ledger:
            context = ledger._opened.context()
            row_ids = old_runs(context.store, before_ms=1 << 60)
            return prune(context, row_ids, Act(event="prune", reason="x", actor="ann")).runs

    def erased(self) -> set[str]:
        """Verify, and return which steps have an erased result."""
        with RunLedger("r", self.db) as ledger:
            reader = ledger._opened.context().store.reader()
            report = verify_log(reader)
            assert report.ok, report.problems
            row = reader.find_run("r")
            return set() if row is None else {key.name for key in reader.result_keys(row.row_id) if key.erased}


deeds = st.one_of(
    st.tuples(st.just("live"), st.sampled_from([*NAMES, ""])),
    st.tuples(st.sampled_from(["erase", "only"]), st.sampled_from(NAMES)),
    st.sampled_from([("all", ""), ("prune", "")]),
)


@settings(max_examples=60 * CAMPAIGN, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(story=st.lists(deeds, min_size=2, max_size=8))
def test_nothing_that_was_erased_ever_runs_again_and_the_log_verifies_after_each_deed(story: list[Deed]) -> None:
    model = Model()
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder) / "ledger.db")
        world.live("a"), model.live("a")
        bodies: list[str] = []
        for deed, name in story:
            if deed == "live":
                ran, end = world.live(name)
                assert (ran, end) == model.live(name)
                assert not model.gone & set(ran)
                bodies += [one for one in ran if one != name]
            elif deed == "prune":
                assert world.prune() == (model.completed and not model.start_gone)
                if model.completed:
                    model.erase_all()
            elif deed == "all":
                assert world.erase(Selection()) == ""
                model.erase_all()
            elif world.erase(Selection(steps=(name,), only=deed == "only")) == "":
                model.erase(name, only=deed == "only")
            else:
                assert model.start_gone
            assert world.erased() == model.gone
        assert len(bodies) == len(set(bodies)), "a recorded call ran twice"
        check_ledger(world.db)
