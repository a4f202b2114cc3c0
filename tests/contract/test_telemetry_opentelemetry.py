"""Spans and metrics that OpenTelemetry's own SDK sees: parents, names, errors, and nothing billable for a replay."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from agent_run_ledger import Misuse, Pending, RunLedger, StepTimeout, Unavailable
from agent_run_ledger.kernel.usage import Usage
from agent_run_ledger.runs.batches import Batch, Written
from agent_run_ledger.runs.journal import Journal
from agent_run_ledger.telemetry import OpenTelemetry
from agent_run_ledger.telemetry import opentelemetry as observer_module
from tests.contract.observer_kit import let_pay, two_steps
from tests.contract.run_kit import store_of, until

New = Callable[..., RunLedger]
SECRET = "the customer's name"
PAID = {
    "first": [Usage(model="large", provider="openai", input_tokens=100, output_tokens=7, cache_read_tokens=60)],
    "second": [
        Usage(model="large", input_tokens=10, output_tokens=2),
        Usage(model="small", provider="openai", input_tokens=1, cache_write_tokens=4),
    ],
}


class Seen:
    """One observer with the SDK behind it, and what the SDK got."""

    def __init__(self, **settings: Any) -> None:
        self._spans = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self._reader = InMemoryMetricReader()
        self.observer = OpenTelemetry(self.tracers, MeterProvider([self._reader]), **settings)

    def spans(self) -> list[ReadableSpan]:
        return list(self._spans.get_finished_spans())

    def span(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.spans() if span.name == name]
        return found

    def points(self, name: str) -> dict[tuple[tuple[str, Any], ...], Any]:
        """The data points of one metric, by their attributes: the sum of a histogram, the value of a counter."""
        collected = self._reader.get_metrics_data()
        found: dict[tuple[tuple[str, Any], ...], Any] = {}
        for resource in collected.resource_metrics if collected else []:
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                for point in metric.data.data_points if metric.name == name else []:
                    key = tuple(sorted((point.attributes or {}).items()))
                    found[key] = getattr(point, "value", getattr(point, "sum", None))
        return found

    def tokens(self) -> int:
        """All tokens that were told to be used."""
        return sum(self.points("gen_ai.client.token.usage").values())


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def gen_ai_usage(span: ReadableSpan) -> dict[str, Any]:
    return {name: value for name, value in attributes(span).items() if name.startswith("gen_ai.usage")}


def parent_of(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def test_an_attempt_is_a_span_with_a_span_for_each_body_below_it(
    new_ledger: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_pay(monkeypatch, PAID)
    seen = Seen(workflow="audit")
    ledger = new_ledger(observers=[seen.observer])
    two_steps(ledger)
    with seen.tracers.get_tracer("caller").start_as_current_span("caller") as caller:
        ledger.execute()
        assert trace.get_current_span() is caller
    first, second, attempt, outer = seen.spans()
    assert attempt.name == "invoke_workflow audit"
    assert attempt.kind is SpanKind.INTERNAL
    assert parent_of(attempt) == id_of(outer)
    assert attributes(attempt) == {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.workflow.name": "audit",
        "agent_run_ledger.run.id": "r1",
        "agent_run_ledger.run.attempt": 1,
        "agent_run_ledger.run.generation": 1,
        "agent_run_ledger.run.resumed": False,
        "agent_run_ledger.run.takeover": False,
        "agent_run_ledger.run.state": "completed",
    }
    assert (first.name, second.name) == ("step first", "step second")
    assert [parent_of(span) for span in (first, second)] == [id_of(attempt)] * 2
    assert attributes(first) == {
        "agent_run_ledger.step.name": "first",
        "agent_run_ledger.step.try": 1,
        "agent_run_ledger.replayed": False,
        "agent_run_ledger.step.outcome": "live",
        "agent_run_ledger.record.id": attributes(first)["agent_run_ledger.record.id"],
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "gen_ai.provider.name": "openai",
        "gen_ai.response.model": "large",
    }
    assert first.status.status_code is StatusCode.UNSET
    # one model alone can be named, and a sum with an unknown part is unknown
    assert gen_ai_usage(second) == {"gen_ai.usage.input_tokens": 11}
    assert "gen_ai.response.model" not in attributes(second)


def test_a_span_ends_with_its_body_and_not_with_its_commit(new_ledger: New, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen()
    ledger = new_ledger(observers=[seen.observer])
    two_steps(ledger)
    committing: list[int] = []
    whole, moments = Journal.commit, itertools.count(1)
    monkeypatch.setattr(observer_module, "time", SimpleNamespace(time_ns=lambda: next(moments)))

    def commit(self: Journal, batch: Batch) -> Written:
        committing.append(next(moments))
        return whole(self, batch)

    monkeypatch.setattr(Journal, "commit", commit)
    ledger.execute()
    for name, began_ns in zip(("first", "second"), committing[1:], strict=True):
        assert seen.span(f"step {name}").end_time == began_ns - 1


def test_tokens_are_a_histogram_by_model_and_type_without_run_or_step(
    new_ledger: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_pay(monkeypatch, PAID)
    seen = Seen()
    ledger = new_ledger(observers=[seen.observer])
    two_steps(ledger)
    ledger.execute()

    def key(model: str, provider: str, type_: str) -> tuple[tuple[str, Any], ...]:
        return (
            ("gen_ai.operation.name", "step"),
            ("gen_ai.provider.name", provider),
            ("gen_ai.response.model", model),
            ("gen_ai.token.type", type_),
        )

    assert seen.points("gen_ai.client.token.usage") == {
        key("large", "openai", "input"): 100,
        key("large", "openai", "output"): 7,
        key("large", "_OTHER", "input"): 10,
        key("large", "_OTHER", "output"): 2,
        key("small", "openai", "input"): 1,
    }
    assert seen.points("agent_run_ledger.steps") == {(("agent_run_ledger.step.outcome", "live"),): 2}
    assert set(seen.points("agent_run_ledger.step.duration")) == {(("agent_run_ledger.step.outcome", "live"),)}


def test_usage_can_be_left_to_the_clients_own_instrumentation(new_ledger: New, monkeypatch: pytest.MonkeyPatch) -> None:
    let_pay(monkeypatch, PAID)
    seen = Seen(usage=False)
    ledger = new_ledger(observers=[seen.observer])
    two_steps(ledger)
    ledger.execute()
    assert seen.tokens() == 0
    assert not any(gen_ai_usage(span) for span in seen.spans())


def test_nothing_billable_is_told_of_a_restored_step(new_ledger: New, monkeypatch: pytest.MonkeyPatch) -> None:
    let_pay(monkeypatch, PAID)
    lives = [Seen(), Seen(), Seen()]
    for seen, second in zip(lives, [lambda first: 1 // 0, lambda first: first, lambda first: first], strict=True):
        ledger = new_ledger(observers=[seen.observer])
        two_steps(ledger, second)
        if seen is lives[0]:
            with pytest.raises(ZeroDivisionError):
                ledger.execute()
        else:
            ledger.execute()
        ledger.close()
    first, again, afterwards = lives
    replayed = again.span("step first")
    assert attributes(replayed)["agent_run_ledger.replayed"] is True
    assert attributes(replayed)["agent_run_ledger.step.outcome"] == "replayed"
    assert replayed.start_time == replayed.end_time
    assert parent_of(replayed) == id_of(again.span("invoke_workflow"))
    assert not any(name.startswith("gen_ai.") for name in attributes(replayed))
    assert attributes(again.span("invoke_workflow"))["agent_run_ledger.run.resumed"] is True
    paid_first, paid_second = 107, 13
    assert first.tokens() == paid_first + paid_second, "the failed body was paid for"
    assert again.tokens() == paid_second
    assert afterwards.spans() == []  # the run is completed
    assert again.points("agent_run_ledger.steps") == {
        (("agent_run_ledger.step.outcome", "replayed"),): 1,
        (("agent_run_ledger.step.outcome", "live"),): 1,
    }


def test_spans_of_restored_steps_can_be_left_out(new_ledger: New) -> None:
    failing = new_ledger()
    two_steps(failing, lambda first: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        failing.execute()
    seen = Seen(replayed_spans=False)
    ledger = new_ledger(observers=[seen.observer])
    two_steps(ledger)
    ledger.execute()
    assert [span.name for span in seen.spans()] == ["step second", "invoke_workflow"]


def test_spans_made_inside_bodies_are_children_of_their_steps_also_in_parallel(new_ledger: New) -> None:
    seen = Seen()
    tracer = seen.tracers.get_tracer("client")
    together = threading.Barrier(2)

    def ask(name: str) -> str:
        with tracer.start_as_current_span(f"chat {name}"):
            together.wait(30)
        return name

    ledger = new_ledger(observers=[seen.observer])
    ledger.step(name="a")(lambda: ask("a"))
    ledger.step(name="b")(lambda: ask("b"))
    ledger.execute()
    for name in ("a", "b"):
        assert parent_of(seen.span(f"chat {name}")) == id_of(seen.span(f"step {name}"))
        assert parent_of(seen.span(f"step {name}")) == id_of(seen.span("invoke_workflow"))


def test_spans_made_inside_async_bodies_and_streams_are_children_of_their_steps(new_ledger: New) -> None:
    seen = Seen()
    tracer = seen.tracers.get_tracer("client")
    ledger = new_ledger(observers=[seen.observer])

    async def ask(name: str) -> str:
        with tracer.start_as_current_span(f"chat {name}"):
            await asyncio.sleep(0)
        return name

    @ledger.step
    async def a() -> str:
        return await ask("a")

    @ledger.step
    async def b() -> Any:
        yield await ask("b")

    @ledger.step
    def c() -> Any:
        with tracer.start_as_current_span("chat c"):
            yield 1

    async def main() -> None:
        with tracer.start_as_current_span("caller") as caller:
            await ledger.aexecute()
            assert trace.get_current_span() is caller

    asyncio.run(main())
    assert parent_of(seen.span("invoke_workflow")) == id_of(seen.span("caller"))
    for name in ("a", "b", "c"):
        assert parent_of(seen.span(f"chat {name}")) == id_of(seen.span(f"step {name}"))
        assert parent_of(seen.span(f"step {name}")) == id_of(seen.span("invoke_workflow"))


def everything_said(seen: Seen) -> str:
    return "".join(span.to_json() for span in seen.spans())


def test_an_error_is_told_by_its_type_and_nothing_of_what_it_says(new_ledger: New) -> None:
    seen = Seen()
    ledger = new_ledger(observers=[seen.observer])

    @ledger.step(retries=1, retry_base_s=0)
    def ask(name: str) -> str:
        raise LookupError(name)

    with pytest.raises(LookupError):
        ledger.execute(name=SECRET)
    once, twice, attempt = seen.spans()
    assert [attributes(span)["agent_run_ledger.step.will_be_tried_again"] for span in (once, twice)] == [True, False]
    assert [attributes(span)["agent_run_ledger.step.try"] for span in (once, twice)] == [1, 2]
    for span in (once, twice, attempt):
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description is None
        assert attributes(span)["error.type"] == "LookupError"
    assert attributes(twice)["agent_run_ledger.step.outcome"] == "failed"
    assert attributes(attempt)["agent_run_ledger.run.state"] == "failed"
    assert SECRET not in everything_said(seen)


def test_the_message_of_an_error_is_told_where_that_is_asked_for(new_ledger: New) -> None:
    seen = Seen(exception_messages=True)
    ledger = new_ledger(observers=[seen.observer])

    @ledger.step
    def ask(name: str) -> str:
        raise LookupError(name)

    with pytest.raises(LookupError):
        ledger.execute(name=SECRET)
    assert seen.span("step ask").status.description == SECRET


def test_inputs_results_and_usage_of_replays_never_leave_by_a_span(new_ledger: New) -> None:
    seen = Seen()
    ledger = new_ledger(observers=[seen.observer])
    ledger.step(name="echo")(lambda name: f"result of {name}")
    ledger.execute(name=SECRET)
    assert len(seen.spans()) == 2
    assert SECRET not in everything_said(seen)


def test_a_run_that_waits_for_a_decision_is_no_error(new_ledger: New) -> None:
    seen = Seen()
    ledger = new_ledger(observers=[seen.observer])

    @ledger.step
    def approve() -> None:
        raise Pending("wait")

    with pytest.raises(Pending):
        ledger.execute()
    attempt = seen.span("invoke_workflow")
    assert attempt.status.status_code is StatusCode.UNSET
    assert attributes(attempt)["agent_run_ledger.run.state"] == "suspended"


def test_a_timed_out_body_has_one_span_that_ended_with_its_conclusion(new_ledger: New) -> None:
    seen, go_on, gone = Seen(), threading.Event(), threading.Event()
    ledger = new_ledger(observers=[seen.observer])

    @ledger.step(timeout_s=0.01)
    def slow() -> None:
        go_on.wait(30)
        gone.set()

    with pytest.raises(StepTimeout):
        ledger.execute()
    assert attributes(seen.span("step slow"))["error.type"] == "agent_run_ledger.errors.StepTimeout"
    go_on.set()
    until(gone.is_set)
    until(lambda: not any(t.name == "arl-step-slow" for t in threading.enumerate()))
    assert len(seen.spans()) == 2


def test_a_body_whose_record_did_not_land_ends_as_unrecorded_and_its_tokens_were_paid(
    new_ledger: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_pay(monkeypatch, PAID)
    seen = Seen()
    ledger = new_ledger(observers=[seen.observer])
    two_steps(ledger)
    kind = type(store_of(ledger))
    whole, calls = kind.transact, iter(range(100))

    def transact(self: Any, op_id: bytes, fn: Any, *, sync: bool = True, first: Any = ()) -> Any:
        if next(calls) == 2:
            raise Unavailable("the disk is full", code="disk_full")
        return whole(self, op_id, fn, sync=sync, first=first)

    monkeypatch.setattr(kind, "transact", transact)
    with pytest.raises(Unavailable):
        ledger.execute()
    assert attributes(seen.span("step first"))["agent_run_ledger.step.outcome"] == "unrecorded"
    assert attributes(seen.span("invoke_workflow"))["agent_run_ledger.run.state"] == "running"
    assert seen.tokens() == 107


def test_what_an_interrupt_left_behind_is_ended_and_the_next_attempt_says_what_it_found(new_ledger: New) -> None:
    seen = Seen()
    ledger = new_ledger(observers=[seen.observer])

    def interrupt(first: int) -> int:
        raise KeyboardInterrupt

    two_steps(ledger, interrupt)
    with pytest.raises(KeyboardInterrupt):
        ledger.execute()
    second = seen.span("step second")
    assert attributes(second)["agent_run_ledger.step.outcome"] == "unrecorded"
    assert attributes(second)["error.type"] == "KeyboardInterrupt"
    after = Seen()
    other = new_ledger(observers=[after.observer])
    two_steps(other)
    other.execute()
    (event,) = after.span("invoke_workflow").events
    assert event.name == "agent_run_ledger.call.abandoned"
    assert dict(event.attributes or {}) == {"agent_run_ledger.step.name": "second", "agent_run_ledger.run.attempt": 1}


def test_an_outcome_that_nobody_knows_is_told_apart(new_ledger: New) -> None:
    for attempt in range(2):
        seen = Seen()
        ledger = new_ledger(observers=[seen.observer])

        @ledger.tool
        def send(to: str, fails: bool = attempt == 0) -> str:
            if fails:
                raise KeyboardInterrupt
            return to

        with suppress(KeyboardInterrupt), ledger.run():
            send("ann")
    (event,) = seen.span("invoke_workflow").events
    assert dict(event.attributes or {}) == {
        "agent_run_ledger.step.name": "send",
        "agent_run_ledger.run.attempt": 1,
        "agent_run_ledger.call.outcome_unknown": True,
    }


def test_a_verdict_of_the_breaker_is_an_event_of_the_attempt(new_ledger: New) -> None:
    seen = Seen()
    ledger = new_ledger(observers=[seen.observer])
    read = ledger.tool(name="read", safe=True)(lambda: "nothing new")
    with ledger.run():
        for _ in range(3):
            read()
    said = [dict(event.attributes or {}) for event in seen.span("invoke_workflow").events]
    assert [one["agent_run_ledger.breaker.level"] for one in said] == ["warn", "nudge"]
    assert {one["agent_run_ledger.breaker.rule"] for one in said} == {"again"}


def test_a_usage_that_cannot_be_read_still_ends_the_span(new_ledger: New, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.contract import observer_kit

    monkeypatch.setattr(observer_kit, "usage_bytes", lambda lines: b"[not usage")
    let_pay(monkeypatch, PAID)
    seen = Seen()
    ledger = new_ledger(observers=[seen.observer])
    two_steps(ledger)
    assert ledger.execute() == 2
    assert seen.span("step first").end_time is not None


def test_without_the_extra_the_refusal_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(Misuse) as refused:
        OpenTelemetry()
    assert refused.value.code == "extra_missing"
    assert refused.value.hint == 'pip install "agent-run-ledger[otel]"'
