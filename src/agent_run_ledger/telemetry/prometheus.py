"""Runs as Prometheus metrics of this process: counted while they are told, with labels of few values."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from agent_run_ledger.errors import LedgerError, Misuse
from agent_run_ledger.kernel.effects.states import ActionState, Event, LedgerState
from agent_run_ledger.kernel.gauges import EffectGauges, StoreGauges
from agent_run_ledger.kernel.notices import (
    AttemptEnded,
    AttemptOpened,
    CallBegun,
    CallConcluded,
    CallJudged,
    CallRestored,
    CallUnrecorded,
    CommitMade,
    Notice,
)
from agent_run_ledger.kernel.usage import parse_usage
from agent_run_ledger.ports.effects import EffectNotice, Gave
from agent_run_ledger.telemetry.exposition import families
from agent_run_ledger.telemetry.extras import missing_extra
from agent_run_ledger.telemetry.outcomes import FAILED, OUTCOMES, REPLAYED

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Histogram
    from prometheus_client.core import GaugeMetricFamily

log = logging.getLogger("agent_run_ledger")

PREFIX: Final = "agent_run_ledger_"
TOKEN_TYPES: Final = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_read": "cache_read_tokens",
    "cache_write": "cache_write_tokens",
}
"""Value of the label `type` by field of Usage. Both cache types are parts of the input."""

STEP_BUCKETS_S: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
COMMIT_BUCKETS_S: Final = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)

DECISIONS: Final = frozenset(
    {
        Event.APPROVE,
        Event.EDIT,
        Event.REJECT,
        Event.REVOKE,
        Event.EXPIRE,
        Event.SUCCESS,
        Event.NOT_EXECUTED,
        Event.WRITE_OFF,
        Event.CLOSE_UNPREPARED,
        Event.SUCCESSOR,
    }
)
"""What others than the executor decide about an action, by the word that the label `decision` has for it."""

FIRST: Final = frozenset(
    map(str, (ActionState.CLAIMED, ActionState.PREPARED, ActionState.UNRESOLVED, ActionState.SUCCEEDED))
)
"""The codes of a claim that is refused because somebody was first."""

StoreReading = Callable[[], StoreGauges | None]


class Prometheus:
    """An observer for `RunLedger(observers=[…])` and `EffectLedger(observers=[…])`. One for all ledgers of a process.

    Counters and histograms are of this process and begin at 0 with it; gauges come from the store, see `watch_store`.
    No label holds a run id, an input or anything else of a run's; `step_names=True` adds the step's name to
    `agent_run_ledger_steps_total` and `agent_run_ledger_step_duration_seconds`, for programs with few steps.

    `registry`: prometheus_client's own by default. Misuse: "extra_missing" without the packages of the extra
    `prometheus`, "bad_registry" where the registry has these metrics already.
    """

    def __init__(self, registry: CollectorRegistry | None = None, *, step_names: bool = False) -> None:
        try:
            from prometheus_client import REGISTRY
        except ImportError as error:
            raise missing_extra("Prometheus", "prometheus", error) from error
        self._registry = REGISTRY if registry is None else registry
        self._step_names = step_names
        try:
            self._make()
        except ValueError as error:
            raise Misuse(
                f"this registry has the metrics of another Prometheus observer: {error}",
                code="bad_registry",
                hint="make one and give it to every ledger",
            ) from error

    def watch_store(self, read: StoreReading) -> None:
        """Add gauges of a store to every scrape; `read` is a ledger's `store_gauges`. One store for a registry.

        A store that does not exist yet or cannot be read has no samples; the reason is logged. Misuse("bad_registry")
        for a second store.
        """
        try:
            self._registry.register(_StoreCollector(read))
        except ValueError as error:
            raise Misuse("this registry watches a store already", code="bad_registry") from error

    def tell(self, notice: Notice | EffectNotice) -> None:
        """See ports.Observer.tell and ports.effects.EffectObserver.tell."""
        match notice:
            case EffectNotice():
                self._asked(notice)
            case AttemptOpened():
                kind = "takeover" if notice.takeover else "resumed" if notice.resumed else "first"
                self._attempts.labels(kind).inc()
                self._abandoned.inc(len(notice.abandoned))
                self._unknown.inc(sum(call.unknown for call in notice.abandoned))
            case CallRestored():
                self._count(REPLAYED, notice.step)
                self._add_tokens("replayed", notice.read_usage())
            case CallConcluded():
                self._concluded(notice)
            case CallJudged():
                self._verdicts.labels(notice.level).inc()
            case CallUnrecorded():
                self._unrecorded.inc()
                self._add_tokens("uncertain", notice.usage)
            case CommitMade():
                self._committed(notice)
            case AttemptEnded():
                self._runs.labels(notice.state).inc()
            case _:
                return

    def around(self, call: CallBegun) -> AbstractContextManager[object]:
        """See ports.Observer.around: nothing is put around bodies."""
        return nullcontext()

    def _make(self) -> None:
        step = ("step",) if self._step_names else ()
        self._steps = self._counter(
            "steps", "Calls of steps: live, replayed from their record, failed.", "outcome", *step
        )
        self._tokens = self._counter(
            "tokens", "Tokens: spent by bodies, spared by replays, spent and not on record.", "type", "disposition"
        )
        self._runs = self._counter("runs", "Attempts that ended, by the state the run was left in.", "state")
        self._attempts = self._counter("attempts", "Attempts that began: first, resumed, takeover.", "kind")
        self._abandoned = self._counter("abandoned_calls", "Calls found begun and not concluded by a later attempt.")
        self._unknown = self._counter("unknown_outcomes", "Those of them that may not be repeated: a person must look.")
        self._unrecorded = self._counter("unrecorded_calls", "Calls whose body ran in vain: no record is known to be.")
        self._verdicts = self._counter(
            "breaker_verdicts", "Calls that repeat others: warn, nudge, quarantine.", "level"
        )
        self._retries = self._counter("retries", "Failures after which the step was to be tried again.")
        self._commits = self._counter("commits", "Commits of attempts: committed, failed.", "outcome")
        self._claims = self._counter(
            "claims", "Claims asked for: granted, again, taken (somebody was first), waiting, refused, ...", "result"
        )
        self._decisions = self._counter("decisions", "Decisions about actions that were recorded, by kind.", "decision")
        self._doubts = self._counter("doubts", "Doubts about actions that were recorded.")
        self._duration = self._histogram(
            "step_duration_seconds", "From the start mark of a call to its end, as recorded.", STEP_BUCKETS_S, *step
        )
        self._waits = self._histogram(
            "commit_wait_seconds", "Time that a commit waited for the store's write lock.", COMMIT_BUCKETS_S
        )
        self._commit_times = self._histogram("commit_seconds", "Time of a commit, waiting included.", COMMIT_BUCKETS_S)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        from prometheus_client import Counter

        return Counter(PREFIX + name, text, labels, registry=self._registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        from prometheus_client import Histogram

        return Histogram(PREFIX + name, text, labels, buckets=buckets, registry=self._registry)

    def _concluded(self, concluded: CallConcluded) -> None:
        call = concluded.call
        self._count(OUTCOMES.get(concluded.kind, FAILED), call.step)
        duration = self._duration.labels(call.step) if self._step_names else self._duration
        duration.observe(max(0, concluded.ended_at_ms - call.started_at_ms) / 1000)
        if concluded.again:
            self._retries.inc()
        self._add_tokens("spent", concluded.usage)

    def _asked(self, notice: EffectNotice) -> None:
        """Count one question to an effect ledger."""
        if notice.event is Event.CLAIM:
            self._claims.labels(_claim_result(notice)).inc()
        elif notice.gave is Gave.ACCEPTED and notice.event in DECISIONS:
            self._decisions.labels(str(notice.event)).inc()
        elif notice.gave is Gave.ACCEPTED and notice.event is Event.DOUBT:
            self._doubts.inc()

    def _committed(self, commit: CommitMade) -> None:
        self._commits.labels("failed" if commit.failed else "committed").inc()
        self._commit_times.observe(commit.took_s)
        if commit.waited_s >= 0:
            self._waits.observe(commit.waited_s)

    def _count(self, outcome: str, step: str) -> None:
        labels = (outcome, step) if self._step_names else (outcome,)
        self._steps.labels(*labels).inc()

    def _add_tokens(self, disposition: str, stored_usage: bytes) -> None:
        for line in parse_usage(stored_usage):
            for label, field in TOKEN_TYPES.items():
                tokens: int | None = getattr(line, field)
                if tokens is not None:
                    self._tokens.labels(label, disposition).inc(tokens)


def _claim_result(notice: EffectNotice) -> str:
    """Return the value of the label `result` of a claim that was asked for."""
    if notice.gave is Gave.REFUSED:
        return "taken" if notice.code in FIRST else "refused"
    words = {Gave.ACCEPTED: "granted", Gave.RECORDED: "again", Gave.PENDING: "waiting"}
    return words.get(notice.gave, str(notice.gave))


class _StoreCollector:
    """Reads the store at each scrape."""

    def __init__(self, read: StoreReading) -> None:
        self._read = read

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Name the gauges without reading the store, so that a second collector is refused."""
        effects = EffectGauges(
            actions={}, state=LedgerState.OPEN, doubt_age_s=0, stranded=0, waiting_age_s=0, unclaimed_age_s=0
        )
        return self._families(
            StoreGauges(runs={}, unresolved_age_s=0, leaves=0, database_bytes=0, wal_bytes=0, effects=effects)
        )

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the gauges as they are now; none where the store cannot say."""
        try:
            gauges = self._read()
        except LedgerError as error:
            log.warning("the store's gauges cannot be read: %s", error)
            return []
        return [] if gauges is None else self._families(gauges)

    def _families(self, gauges: StoreGauges) -> list[GaugeMetricFamily]:
        from prometheus_client.core import GaugeMetricFamily

        found: list[GaugeMetricFamily] = []
        for family in families(gauges):
            metric = GaugeMetricFamily(family.name, family.text, labels=[family.label] if family.label else [])
            for value, number in family.samples.items():
                metric.add_metric([value] if family.label else [], number)
            found.append(metric)
        return found
