"""The adapter kit's scenarios of effects: a tool that acts on the world, people who decide, and a kill in between."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from agent_run_ledger.kernel.effects import ActionState
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.testing.adapter_bench import Bench, Lived
from agent_run_ledger.testing.adapter_evidence import What
from agent_run_ledger.testing.adapter_job import Does, Plan, ToolCall, ToolPlan, Turn

ANSWER: Final = "The order is paid back"
KEY: Final = "pay:order 7"
_WAITS: Final = frozenset({"pending", "approval_pending", "effect_in_doubt", "effect_pending"})


def _pay(does: Does = Does.ANSWER, *, approves: bool = False) -> Plan:
    """One call of a tool that is an effect, and an answer. It kills, if it does, in the second life."""
    return Plan(
        script=(Turn(calls=(ToolCall(name="pay", call_id="call-1", text="order 7"),)), Turn(text=ANSWER)),
        tools=(ToolPlan(name="pay", safe=False, does=does, effect=True, kills_in=2),),
        swallow=True,
        approves=approves,
    )


def _alone(bench: Bench) -> str:
    people = bench.people()
    plan = _pay(approves=True)
    _expect_waits(bench, bench.live(plan), models=1)
    _expect_waits(bench, bench.live(plan), models=0)
    _expect_waits(bench, bench.live(replace(plan, deaf=True)), models=0, quiet=True)
    states = [one.state for one in people.members(KEY)]
    bench.expect(states == [ActionState.PROPOSED], f"the actions of the key are {states} and not one that waits")
    return "approved by the framework alone, at each of 3 starts: 0 bodies"


def _granted(bench: Bench) -> str:
    plan = _pay(approves=True)
    people = bench.people()
    _expect_waits(bench, bench.live(plan), models=1)
    people.grant(KEY)
    first = bench.live(plan)
    bench.expect_answer(first, ANSWER)
    bench.expect_counts(first, models=1, tools=1)
    _expect_told(bench, first, "pay found 'order 7'")
    for again in (bench.live(plan), bench.live(_pay())):
        bench.expect_answer(again, ANSWER)
        bench.expect_counts(again, models=0, tools=0)
    state = people.members(KEY)[-1].state
    bench.expect(state is ActionState.SUCCEEDED, f"the action is {state} and not succeeded")
    return "granted in the ledger: 1 body, once; started again: 0 model calls, 0 bodies"


def _rejected(bench: Bench) -> str:
    plan = _pay(approves=True)
    people = bench.people()
    _expect_waits(bench, bench.live(plan), models=1)
    people.reject(KEY)
    told = bench.live(plan)
    bench.expect_answer(told, ANSWER)
    bench.expect_counts(told, models=1, tools=0)
    _expect_told(bench, told, "rejected")
    again = bench.live(plan)
    bench.expect_answer(again, ANSWER)
    bench.expect_counts(again, models=0, tools=0)
    return "rejected by people, approved by the framework: 0 bodies, the model was told"


def _killed(bench: Bench) -> str:
    plan = _pay(Does.KILL, approves=True)
    people = bench.people()
    _expect_waits(bench, bench.live(plan), models=1)
    people.grant(KEY)
    dead = bench.live(plan)
    bench.expect_killed(dead)
    bench.expect_counts(dead, models=0, tools=1)
    for _ in range(2):
        _expect_waits(bench, bench.live(plan), models=0)
    people.saw_it(KEY)
    known = bench.live(plan)
    bench.expect_answer(known, ANSWER)
    bench.expect_counts(known, models=1, tools=0)
    _expect_told(bench, known, "evidence")
    return "killed between hand-out and record: never again, suspended until there was evidence"


def _expect_waits(bench: Bench, life: Lived, *, models: int, quiet: bool = False) -> None:
    """Note a problem unless a life ran nothing and left the run suspended. `quiet`: what it raised was swallowed."""
    bench.expect_counts(life, models=models, tools=0)
    said = life.error or f"the answer {life.answer!r}"
    if not quiet:
        bench.expect(bool(_WAITS & {*life.codes}), f"life {life.number} should have waited: it ended with {said}")
    bench.expect(bench.state() is RunState.SUSPENDED, f"the run is {bench.state()} and not suspended")


def _expect_told(bench: Bench, life: Lived, text: str) -> None:
    asked = bench.lines(What.MODEL, life)
    told = asked[-1].told.get("call-1", "") if asked else ""
    bench.expect(text in told, f"the model was not told {text!r} in life {life.number}: {told!r}")


EFFECT_SCENARIOS: Final[Mapping[str, Callable[[Bench], str]]] = MappingProxyType(
    {
        "effect_alone": _alone,
        "effect_granted": _granted,
        "effect_rejected": _rejected,
        "effect_killed": _killed,
    }
)
"""Every scenario of effects by name, in the order in which they are run."""
