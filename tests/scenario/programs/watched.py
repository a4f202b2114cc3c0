"""A run that pays for tokens and is watched by OpenTelemetry, with everything that it emits kept in files."""

from __future__ import annotations

import json
import os
from pathlib import Path

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agent_run_ledger import RunLedger
from agent_run_ledger.kernel.notices import Notice
from agent_run_ledger.kernel.usage import Usage, usage_bytes
from agent_run_ledger.runs.batches import Concluded
from agent_run_ledger.runs.journal import Journal
from agent_run_ledger.telemetry import OpenTelemetry
from agent_run_ledger.testing import BodyCounter

TOKENS = {"first": 100, "second": 10, "third": 1}


class Emitted(OpenTelemetry):
    """Writes down after every notice what was emitted so far, as an exporter would have sent it."""

    def __init__(self, path: Path) -> None:
        self._spans = InMemorySpanExporter()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self._reader = InMemoryMetricReader()
        self._path = path
        super().__init__(tracers, MeterProvider([self._reader]))

    def tell(self, notice: Notice) -> None:
        super().tell(notice)
        spans = [{"name": span.name, **dict(span.attributes or {})} for span in self._spans.get_finished_spans()]
        self._path.write_text(json.dumps({"tokens": self._tokens_emitted(), "spans": spans}))

    def _tokens_emitted(self) -> int:
        collected = self._reader.get_metrics_data()
        scopes = [s for r in collected.resource_metrics for s in r.scope_metrics] if collected else []
        points = [
            point
            for scope in scopes
            for metric in scope.metrics
            if metric.name == "gen_ai.client.token.usage"
            for point in metric.data.data_points
        ]
        return int(sum(getattr(point, "sum", 0) for point in points))


def paying(workdir: Path) -> object:
    """Three steps in a row, each of which says what it used."""
    bodies = BodyCounter(workdir / "bodies.log")
    whole = Journal.conclude

    def conclude(self: Journal, *args: object, **settings: object) -> Concluded:
        concluded = whole(self, *args, **settings)  # type: ignore[arg-type]
        used = Usage(model="m", provider="p", input_tokens=TOKENS[concluded.record.name])
        concluded.record.usage = usage_bytes([used])
        return concluded

    Journal.conclude = conclude  # type: ignore[method-assign]
    emitted = Emitted(workdir / f"emitted-{os.environ['ARL_LIFE']}.json")
    with RunLedger("paying", observers=[emitted]) as ledger:

        @ledger.step
        def first() -> int:
            bodies.ran("first")
            return 1

        @ledger.step(depends_on=["first"])
        def second(first: int) -> int:
            bodies.ran("second")
            return first + 1

        @ledger.step(depends_on=["second"])
        def third(second: int) -> int:
            bodies.ran("third")
            return second + 1

        return ledger.execute()
