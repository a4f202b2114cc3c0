"""Runs as OpenTelemetry spans and metrics, under the names of its GenAI conventions, and nothing billable twice."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent_run_ledger.errors import pending_of
from agent_run_ledger.kernel.notices import (
    AttemptEnded,
    AttemptOpened,
    CallBegun,
    CallConcluded,
    CallJudged,
    CallRestored,
    CallUnrecorded,
    Notice,
)
from agent_run_ledger.kernel.usage import Usage, parse_usage
from agent_run_ledger.telemetry import names
from agent_run_ledger.telemetry.extras import missing_extra
from agent_run_ledger.telemetry.outcomes import FAILED, OUTCOMES, REPLAYED, UNRECORDED, total, type_name

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

SCOPE = "agent_run_ledger"


@dataclass(slots=True)
class _Body:
    """The span of a body; `ended_ns` is when the body ended, in Unix nanoseconds, `error` what it raised."""

    span: Span
    ended_ns: int | None = None
    error: BaseException | None = None


class OpenTelemetry:
    """An observer for `RunLedger(observers=[…])`: see ports.Observer.

    One span for each attempt of a run, below it one for each body that ran (current while it runs, so that what
    instrumented libraries do inside becomes its child) and one without length for each restored call, marked
    `agent_run_ledger.replayed`. Guarantees: `gen_ai.usage.*` attributes and `gen_ai.client.token.usage` are emitted
    for bodies that ran, never for restored calls; no input, result or exception message is emitted.

    `tracer_provider`, `meter_provider`: the global ones by default. `workflow`: the name of what runs here, for span
    names; of few values, and not the run id. `usage`: False where the model's client is instrumented itself, for two
    reports of the same tokens are summed up by what reads them. `replayed_spans`: whether restored calls get spans.
    `exception_messages`: True adds the message of an exception to the status of its span; messages may quote inputs.

    Misuse("extra_missing") without the packages of the extra `otel`.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        workflow: str = "",
        usage: bool = True,
        replayed_spans: bool = True,
        exception_messages: bool = False,
    ) -> None:
        try:
            from opentelemetry import context, metrics, trace
        except ImportError as error:
            raise missing_extra("OpenTelemetry", "otel", error) from error
        self._trace, self._context = trace, context
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
        self._tokens = meter.create_histogram(
            names.TOKEN_USAGE,
            unit="{token}",
            description="Tokens of the bodies that ran, for each step and model.",
            explicit_bucket_boundaries_advisory=names.TOKEN_USAGE_BUCKETS,
        )
        self._steps = meter.create_counter(names.STEPS, unit="{call}", description="Calls of steps, by outcome.")
        self._duration = meter.create_histogram(
            names.STEP_DURATION, unit="s", description="From the start mark of a call to its end, as recorded."
        )
        self._workflow = workflow
        self._usage = usage
        self._replayed_spans = replayed_spans
        self._messages = exception_messages
        self._attempts: dict[AttemptOpened, Span] = {}
        self._bodies: dict[CallBegun, _Body] = {}

    def tell(self, notice: Notice) -> None:
        """See ports.Observer.tell."""
        match notice:
            case AttemptOpened():
                self._opened(notice)
            case CallRestored():
                self._restored(notice)
            case CallConcluded():
                self._concluded(notice)
            case CallJudged():
                self._judged(notice)
            case CallUnrecorded():
                self._unrecorded(notice)
            case AttemptEnded():
                self._ended(notice)
            case _:
                return

    def around(self, call: CallBegun) -> AbstractContextManager[object]:
        """See ports.Observer.around."""
        return self._within(call)

    @contextmanager
    def _within(self, call: CallBegun) -> Generator[None]:
        body = _Body(self._step_span(call.attempt, call.step, {names.STEP_TRY: call.tries, names.REPLAYED: False}))
        self._bodies[call] = body
        token = self._context.attach(self._trace.set_span_in_context(body.span))
        try:
            yield
        except BaseException as error:
            body.error = error
            raise
        finally:
            body.ended_ns = time.time_ns()
            self._context.detach(token)

    def _opened(self, opened: AttemptOpened) -> None:
        attributes: dict[str, str | int | bool] = {
            names.OPERATION: names.INVOKE_WORKFLOW,
            names.RUN_ID: opened.run_id,
            names.RUN_ATTEMPT: opened.attempt,
            names.RUN_GENERATION: opened.generation,
            names.RUN_RESUMED: opened.resumed,
            names.RUN_TAKEOVER: opened.takeover,
        }
        if self._workflow:
            attributes[names.WORKFLOW] = self._workflow
        span = self._tracer.start_span(f"{names.INVOKE_WORKFLOW} {self._workflow}".rstrip(), attributes=attributes)
        self._attempts[opened] = span
        for call in opened.abandoned:
            unknown = {names.UNKNOWN: True} if call.unknown else {}
            span.add_event(names.ABANDONED_EVENT, {names.STEP: call.step, names.RUN_ATTEMPT: call.attempt, **unknown})

    def _restored(self, restored: CallRestored) -> None:
        self._steps.add(1, {names.OUTCOME: REPLAYED})
        if self._replayed_spans:
            now_ns = time.time_ns()
            span = self._step_span(
                restored.attempt,
                restored.step,
                {names.OUTCOME: REPLAYED, names.REPLAYED: True, names.RECORD_ID: restored.record_id},
                now_ns,
            )
            span.end(now_ns)

    def _concluded(self, concluded: CallConcluded) -> None:
        outcome, call = OUTCOMES.get(concluded.kind, FAILED), concluded.call
        self._steps.add(1, {names.OUTCOME: outcome})
        self._duration.record(max(0, concluded.ended_at_ms - call.started_at_ms) / 1000, {names.OUTCOME: outcome})
        body = self._bodies.pop(call, None)
        if body is None:  # its body never began
            return
        body.span.set_attribute(names.OUTCOME, outcome)
        body.span.set_attribute(names.RECORD_ID, concluded.record_id)
        if concluded.error is not None:
            body.span.set_attribute(names.STEP_AGAIN, concluded.again)
            self._mark_failed(body.span, concluded.error)
        self._end(body, concluded.usage)

    def _judged(self, judged: CallJudged) -> None:
        span = self._attempts.get(judged.attempt)
        if span is not None:
            said = {names.VERDICT_LEVEL: judged.level, names.VERDICT_RULE: judged.rule}
            span.add_event(names.VERDICT_EVENT, {names.STEP: judged.step, names.RECORD_ID: judged.record_id, **said})

    def _unrecorded(self, unrecorded: CallUnrecorded) -> None:
        body = self._bodies.pop(unrecorded.call, None)
        if body is None:
            return
        body.span.set_attribute(names.OUTCOME, UNRECORDED)
        if body.error is not None:
            self._mark_failed(body.span, body.error)
        self._end(body, unrecorded.usage)

    def _ended(self, ended: AttemptEnded) -> None:
        span = self._attempts.pop(ended.attempt, None)
        if span is None:
            return
        span.set_attribute(names.RUN_STATE, ended.state)
        if ended.error is not None:
            self._mark_failed(span, ended.error)
        span.end()

    def _end(self, body: _Body, stored_usage: bytes) -> None:
        """End the span of a body when the body ended, with what it used, which was paid for whatever became of it."""
        try:
            lines = parse_usage(stored_usage) if self._usage else ()
            self._tell_usage(body.span, lines)
        finally:
            body.span.end(body.ended_ns)

    def _tell_usage(self, span: Span, lines: tuple[Usage, ...]) -> None:
        for field, name in names.USAGE.items():
            tokens = total(lines, field)
            if tokens is not None:
                span.set_attribute(name, tokens)
        if len(lines) == 1:
            span.set_attributes(_told_of(lines[0]))
        for line in lines:
            told = {names.OPERATION: names.STEP_OPERATION, names.PROVIDER: names.OTHER, **_told_of(line)}
            if line.input_tokens is not None:
                self._tokens.record(line.input_tokens, {**told, names.TOKEN_TYPE: "input"})
            if line.output_tokens is not None:
                self._tokens.record(line.output_tokens, {**told, names.TOKEN_TYPE: "output"})

    def _step_span(
        self,
        attempt: AttemptOpened,
        step: str,
        attributes: dict[str, str | int | bool],
        start_ns: int | None = None,
    ) -> Span:
        above = self._attempts.get(attempt)
        return self._tracer.start_span(
            f"step {step}",
            context=None if above is None else self._trace.set_span_in_context(above),
            attributes={names.STEP: step, **attributes},
            start_time=start_ns,
        )

    def _mark_failed(self, span: Span, error: BaseException) -> None:
        if pending_of(error) is not None:  # nothing is wrong
            return
        span.set_attribute(names.ERROR_TYPE, type_name(error))
        description = str(error) if self._messages else None
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, description))


def _told_of(line: Usage) -> dict[str, str]:
    told = {names.MODEL: line.model, names.PROVIDER: line.provider}
    return {name: value for name, value in told.items() if value}
