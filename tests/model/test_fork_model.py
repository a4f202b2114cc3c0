"""A fork of any pipeline, made in any state of it: the result of a fresh run, and of its prefix no body."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_run_ledger import RunLedger, Step
from agent_run_ledger.testing import check_ledger
from tests.model.test_pipeline_model import Crash, Program, body_of, programs

CAMPAIGN = int(os.environ.get("ARL_CAMPAIGN", "1"))


def ledger_of(db: Path, program: Program, ran: list[str]) -> RunLedger:
    """Return a ledger of the program, whose bodies add their names to `ran`."""
    steps = [
        Step(
            body_of(node, ran),
            name=node.name,
            depends_on=node.takes + node.waits,
            environment={"setting": node.environment},
        )
        for node in program
    ]
    return RunLedger("parent", db, steps=steps, max_parallel=1)


def live(db: Path, program: Program, run_id: str, x: int) -> tuple[list[str], object]:
    """Execute one run, and return the bodies that ran and the result, None where it had none."""
    ran: list[str] = []
    with ledger_of(db, program, ran) as ledger:
        try:
            return ran, ledger.bind(run_id).execute(x=x)
        except (ValueError, Crash):
            return ran, None


def depend_on(program: Program, name: str) -> set[str]:
    """The step and all that need it, by the plainest means."""
    found = {name}
    for _ in program:
        found |= {node.name for node in program if node.needs & found}
    return found


@settings(max_examples=80 * CAMPAIGN, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(whole=programs(), x=st.integers(0, 3), data=st.data())
def test_a_fork_returns_what_a_fresh_run_returns_and_no_body_of_its_prefix_runs(
    whole: Program, x: int, data: st.DataObject
) -> None:
    names = [node.name for node in whole]
    bad = data.draw(st.dictionaries(st.sampled_from(names), st.sampled_from(["raises", "crashes"]), max_size=1))
    parent = tuple(replace(node, ends=bad.get(node.name, "well")) for node in whole)
    first, second = data.draw(st.sampled_from(names)), data.draw(st.sampled_from(names))
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "ledger.db"
        done = set(live(db, parent, "parent", x)[0]) - bad.keys()
        with ledger_of(db, whole, []) as ledger:
            ledger.fork("parent", from_step=first, new_run_id="fork")
        ran, result = live(db, whole, "fork", x)
        assert set(ran) == set(names) - (done - depend_on(whole, first))
        assert result == live(Path(folder) / "fresh.db", whole, "fresh", x)[1]
        with ledger_of(db, whole, []) as ledger:
            ledger.fork("fork", from_step=second, new_run_id="nested")
        again, nested = live(db, whole, "nested", x)
        assert set(again) == depend_on(whole, second)
        assert nested == result
        assert check_ledger(db).results == len(done) + len(ran) + len(again)


@settings(max_examples=40 * CAMPAIGN, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(whole=programs(), x=st.integers(0, 3), y=st.integers(0, 3), data=st.data())
def test_a_fork_with_other_inputs_returns_what_a_fresh_run_with_them_returns(
    whole: Program, x: int, y: int, data: st.DataObject
) -> None:
    names = [node.name for node in whole]
    step = data.draw(st.sampled_from(names))
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "ledger.db"
        live(db, whole, "parent", x)
        with ledger_of(db, whole, []) as ledger:
            ledger.fork("parent", from_step=step, new_run_id="fork", inputs={"x": y})
        ran, result = live(db, whole, "fork", y)
        assert result == live(Path(folder) / "fresh.db", whole, "fresh", y)[1]
        assert depend_on(whole, step) <= set(ran)
        assert x != y or set(ran) == depend_on(whole, step)
        check_ledger(db)
