"""The scenarios of the adapter kit: each runs a few lives of a subject and says what must have happened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.testing.adapter_bench import Bench, Lived
from agent_run_ledger.testing.adapter_effects import EFFECT_SCENARIOS
from agent_run_ledger.testing.adapter_evidence import What
from agent_run_ledger.testing.adapter_job import Does, Mode, Plan, ToolCall, ToolPlan, Turn

ANSWER: Final = "The archive says that all is well"
MANY: Final = 30
"""So many turns of a script that never ends by itself; the breaker must have stopped it long before."""

MOST_REPETITIONS: Final = 12


def _look(does: Does = Does.ANSWER, *, safe: bool = True, mode: Mode = Mode.SYNC) -> Plan:
    """One call of one tool, and an answer."""
    return Plan(
        script=(
            Turn(calls=(ToolCall(name="look", call_id="call-1", text="shelf 7"),), input_tokens=100, output_tokens=10),
            Turn(text=ANSWER, input_tokens=150, output_tokens=20),
        ),
        tools=(ToolPlan(name="look", safe=safe, does=does),),
        mode=mode,
    )


def _live(bench: Bench) -> str:
    life = bench.live(_look())
    bench.expect_answer(life, ANSWER)
    bench.expect_counts(life, models=2, tools=1)
    _expect_told(bench, life, "call-1", "look found 'shelf 7'")
    bench.expect(bench.state() is RunState.COMPLETED, f"the run is {bench.state()} and not completed")
    return "2 model calls and 1 tool call, answered"


def _restart(bench: Bench) -> str:
    return _lived_twice(bench, _look())


def _async(bench: Bench) -> str:
    return _lived_twice(bench, _look(mode=Mode.ASYNC))


def _lived_twice(bench: Bench, plan: Plan) -> str:
    first = bench.live(plan)
    bench.expect_answer(first, ANSWER)
    bench.expect_counts(first, models=2, tools=1)
    again = bench.live(plan)
    bench.expect_answer(again, ANSWER)
    bench.expect_counts(again, models=0, tools=0)
    return "started again: 0 model calls, 0 tool bodies, the same answer"


def _parallel(bench: Bench) -> str:
    return _two_at_once(bench, Mode.SYNC)


def _parallel_async(bench: Bench) -> str:
    return _two_at_once(bench, Mode.ASYNC)


def _two_at_once(bench: Bench, mode: Mode) -> str:
    calls = (
        ToolCall(name="left", call_id="call-l", text="shelf 1"),
        ToolCall(name="right", call_id="call-r", text="shelf 2"),
    )
    tools = tuple(ToolPlan(name=name, does=Does.MEET) for name in ("left", "right"))
    plan = Plan(script=(Turn(calls=calls), Turn(text=ANSWER)), tools=tools, mode=mode)
    first = bench.live(plan)
    bench.expect_answer(first, ANSWER)
    bench.expect_counts(first, models=2, tools=2)
    order = [line.what for line in bench.seen.lines() if line.what in (What.TOOL, What.TOOL_DONE)]
    bench.expect(order[:2] == [What.TOOL, What.TOOL], "the two tools ran one after the other")
    _expect_told(bench, first, "call-l", "left found 'shelf 1'")
    _expect_told(bench, first, "call-r", "right found 'shelf 2'")
    again = bench.live(plan)
    bench.expect_answer(again, ANSWER)
    bench.expect_counts(again, models=0, tools=0)
    return "two tools at once, each result at its own call; started again: 0 model calls, 0 tool bodies"


def _stream(bench: Bench) -> str:
    return _in_chunks(bench, Mode.STREAM)


def _stream_async(bench: Bench) -> str:
    return _in_chunks(bench, Mode.ASYNC_STREAM)


def _in_chunks(bench: Bench, mode: Mode) -> str:
    plan = _look(mode=mode)
    first = bench.live(plan)
    bench.expect_answer(first, ANSWER)
    bench.expect_counts(first, models=2, tools=1)
    passed = [line.what for line in bench.seen.lines() if line.what in (What.SENT, What.GOT) and line.name]
    live = What.GOT in passed and What.SENT in passed[passed.index(What.GOT) :]
    bench.expect(live, "no chunk arrived before the model had sent them all")
    _expect_chunks(bench, first)
    again = bench.live(plan)
    bench.expect_answer(again, ANSWER)
    bench.expect_counts(again, models=0, tools=0)
    _expect_chunks(bench, again)
    return "chunks come live; started again they come from the record, 0 model calls"


def _expect_chunks(bench: Bench, life: Lived) -> None:
    chunks = [line.name for line in bench.lines(What.GOT, life) if line.name]
    whole = "".join(chunks)
    bench.expect(whole == ANSWER, f"the chunks of life {life.number} make {whole!r}")
    bench.expect(len(chunks) > 1, f"life {life.number} got {len(chunks)} chunks, not several")


def _loop(bench: Bench) -> str:
    return _for_ever(bench, Does.SAME)


def _loop_of_errors(bench: Bench) -> str:
    return _for_ever(bench, Does.RAISE)


def _for_ever(bench: Bench, does: Does) -> str:
    turns = tuple(
        Turn(calls=(ToolCall(name="look", call_id=f"call-{number}", text="shelf 7"),)) for number in range(MANY)
    )
    plan = Plan(script=(*turns, Turn(text=ANSWER)), tools=(ToolPlan(name="look", does=does),), swallow=True)
    first = bench.live(plan)
    tools, models = len(bench.lines(What.TOOL, first)), len(bench.lines(What.MODEL, first))
    bench.expect(1 < tools <= MOST_REPETITIONS, f"the tool ran {tools} times before the breaker stopped it")
    bench.expect(models == tools, f"the model was asked {models} times for {tools} calls: it was asked after the stop")
    _expect_code(bench, first, "loop_detected")
    bench.expect(bench.state() is RunState.QUARANTINED, f"the run is {bench.state()} and not in QUARANTINE")
    again = bench.live(plan)
    bench.expect_counts(again, models=0, tools=0)
    bench.expect(again.answer is None, f"life {again.number} answered {again.answer!r} in QUARANTINE")
    return f"stopped after {tools} calls, no model call after the stop; started again: refused"


def _kill_safe(bench: Bench) -> str:
    _die(bench, _look(Does.KILL))
    again = bench.live(_look(Does.KILL))
    bench.expect_answer(again, ANSWER)
    bench.expect_counts(again, models=1, tools=1)
    _expect_told(bench, again, "call-1", "look found 'shelf 7'")
    return "killed in the tool: it ran once more, the recorded model call did not"


def _kill_unsafe(bench: Bench) -> str:
    plan = _look(Does.KILL, safe=False)
    _die(bench, plan)
    again = bench.live(plan)
    bench.expect_answer(again, ANSWER)
    bench.expect_counts(again, models=1, tools=0)
    _expect_told(bench, again, "call-1", "outcome")
    _expect_told(bench, again, "call-1", "unknown")
    third = bench.live(plan)
    bench.expect_answer(third, ANSWER)
    bench.expect_counts(third, models=0, tools=0)
    return "killed in the tool: it never ran again, the model was told that its outcome is unknown"


def _tokens(bench: Bench) -> str:
    _die(bench, _look(Does.KILL))
    again = bench.live(_look(Does.KILL))
    bench.expect_answer(again, ANSWER)
    used = bench.usage()
    spent, restored = used.spent, used.restored
    for words, total, wanted in (("spent", spent, (2, 250, 30)), ("restored", restored, (1, 100, 10))):
        seen = (total.calls, total.input_tokens, total.output_tokens)
        bench.expect(seen == wanted, f"{words} are (calls, tokens in, tokens out) {seen} on record instead of {wanted}")
    return "spent 250 + 30 tokens in 2 calls, restored 100 + 10 in 1"


def _divergence(bench: Bench) -> str:
    plan = _look(Does.KILL)
    _die(bench, plan)
    other = bench.live(replace(plan, system="You are a careless clerk."))
    bench.expect_counts(other, models=0, tools=0)
    _expect_code(bench, other, "diverged")
    bench.expect("arguments." in other.error, f"the refusal names no path in the request: {other.error}")
    again = bench.live(plan)
    bench.expect_answer(again, ANSWER)
    bench.expect_counts(again, models=1, tools=1)
    return f"another prompt was refused before the model was asked: {other.error.partition(' (')[0]}"


def _gate_allowed(bench: Bench) -> str:
    plan = replace(_look(safe=False), gated=True, swallow=True)
    _wait(bench, plan)
    waits = bench.live(plan)
    bench.expect_counts(waits, models=0, tools=0)
    _expect_code(bench, waits, "pending")
    _expect_gate(bench, waits)
    bench.decide("allowed")
    allowed = bench.live(plan)
    bench.expect_answer(allowed, ANSWER)
    bench.expect_counts(allowed, models=1, tools=1)
    _expect_gate(bench, allowed)
    again = bench.live(plan)
    bench.expect_answer(again, ANSWER)
    bench.expect_counts(again, models=0, tools=0)
    return "pending: 0 bodies, and no model call; asked again at each start; allowed: 1 body, once"


def _gate_denied(bench: Bench) -> str:
    plan = replace(_look(safe=False), gated=True, swallow=True)
    _wait(bench, plan)
    bench.decide("denied")
    denied = bench.live(plan)
    bench.expect_counts(denied, models=0 if denied.answer is None else 1, tools=0)
    if denied.answer is None:
        _expect_code(bench, denied, "vetoed")
    else:
        _expect_told(bench, denied, "call-1", "refused")
    again = bench.live(plan)
    bench.expect_counts(again, models=0, tools=0)
    return "denied: 0 bodies, and " + ("the run ended" if denied.answer is None else "the model was told")


def _gate_swallowed(bench: Bench) -> str:
    plan = replace(_look(safe=False), gated=True, swallow=True, deaf=True)
    bench.decide("pending")
    for models in (1, 0):
        waits = bench.live(plan)
        bench.expect_counts(waits, models=models, tools=0)
        _expect_gate(bench, waits)
        bench.expect(bench.state() is RunState.SUSPENDED, f"what waits was swallowed: the run is {bench.state()}")
    bench.decide("allowed")
    allowed = bench.live(plan)
    bench.expect_answer(allowed, ANSWER)
    bench.expect_counts(allowed, models=1, tools=1)
    again = bench.live(plan)
    bench.expect_answer(again, ANSWER)
    bench.expect_counts(again, models=0, tools=0)
    return "pending, and every error swallowed: suspended, no model call; allowed: 1 body, once"


def _wait(bench: Bench, plan: Plan) -> None:
    bench.decide("pending")
    first = bench.live(plan)
    bench.expect_counts(first, models=1, tools=0)
    _expect_code(bench, first, "pending")
    _expect_gate(bench, first)
    bench.expect(bench.state() is RunState.SUSPENDED, f"the run is {bench.state()} and not suspended")


def _no_framework(bench: Bench) -> str:
    found = bench.without_framework()
    bench.expect(not found["import"], f"importing {bench.adapter} raised {found['import']}")
    names: Mapping[str, list[str]] = found["names"]
    needs = [name for name, (code, _) in names.items() if code == "missing_extra"]
    bench.expect(bool(needs), f"no name of {bench.adapter} says that its framework is missing")
    for name, (code, said) in names.items():
        bench.expect(code in ("missing_extra", ""), f"{name} raised {code} without the framework: {said}")
        if code == "missing_extra":
            bench.expect("pip install" in said, f"{name} does not say what to install: {said}")
    return f"{', '.join(sorted(needs))}: missing_extra, with what to install"


def _die(bench: Bench, plan: Plan) -> None:
    first = bench.live(plan)
    bench.expect_killed(first)
    bench.expect_counts(first, models=1, tools=1)


def _expect_told(bench: Bench, life: Lived, call_id: str, text: str) -> None:
    """Note a problem unless the last question to the model in this life held this text as the result of that call."""
    asked = bench.lines(What.MODEL, life)
    told = dict(asked[-1].told) if asked else {}
    bench.expect(
        text in told.get(call_id, ""), f"the model was not told {text!r} of {call_id} in life {life.number}: {told}"
    )


def _expect_code(bench: Bench, life: Lived, code: str) -> None:
    said = life.error or f"the answer {life.answer!r}"
    bench.expect(code in life.codes, f"life {life.number} should have raised {code!r}: it ended with {said}")


def _expect_gate(bench: Bench, life: Lived) -> None:
    asked = bench.lines(What.GATE, life)
    bench.expect(bool(asked), f"the gate was not asked in life {life.number}")
    wrong = [line.call_id for line in asked if line.call_id not in ("call-1", "")]
    bench.expect(not wrong, f"the gate was asked for {wrong}, not for call-1")


SCENARIOS: Final[Mapping[str, Callable[[Bench], str]]] = MappingProxyType(
    {
        "live": _live,
        "restart": _restart,
        "async": _async,
        "parallel": _parallel,
        "parallel_async": _parallel_async,
        "stream": _stream,
        "stream_async": _stream_async,
        "loop": _loop,
        "loop_of_errors": _loop_of_errors,
        "kill_safe": _kill_safe,
        "kill_unsafe": _kill_unsafe,
        "tokens": _tokens,
        "divergence": _divergence,
        "gate_allowed": _gate_allowed,
        "gate_denied": _gate_denied,
        "gate_swallowed": _gate_swallowed,
        **EFFECT_SCENARIOS,
        "no_framework": _no_framework,
    }
)
"""Every scenario by name, in the order in which they are run."""
