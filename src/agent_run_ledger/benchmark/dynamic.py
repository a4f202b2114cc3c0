"""Measures the calls of dynamic runs: beside a pipeline's steps, on an event loop, at a restart, with long input."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from agent_run_ledger.benchmark.children import json_of_child
from agent_run_ledger.benchmark.disk import Disk, quiet_pairs
from agent_run_ledger.benchmark.dynamic_work import MESSAGE, Kind, grow_transcript, make_calls, opened
from agent_run_ledger.benchmark.figures import Figure, Measured, Sense, Target
from agent_run_ledger.benchmark.floor import Floor
from agent_run_ledger.benchmark.plan import Bench
from agent_run_ledger.benchmark.restore import Returns, returns
from agent_run_ledger.benchmark.work import Result, chain, create_store, result
from agent_run_ledger.benchmark.work import opened as opened_pipeline

REPEATABLE = Target(sense=Sense.AT_MOST, limit=1.5, of_ratio=True)
UNSAFE = Target(sense=Sense.AT_MOST, limit=2.2, of_ratio=True)
STALL = Target(sense=Sense.AT_MOST, limit=20)
TARGETS: Mapping[Kind, Target | None] = {
    Kind.STEP: REPEATABLE,
    Kind.SAFE: REPEATABLE,
    Kind.UNSAFE: UNSAFE,
    Kind.WATCHED: None,
}

BARE, PIPELINE = "bare row", "pipeline step"
ORDER = (BARE, PIPELINE, *Kind)
TASKS = 16
LAST_CALLS = 20
"""How many of the last calls of a growing transcript count: those with nearly all of its messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The same number of calls of each kind, one right after the other: µs per call by kind."""

    us: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalls:
    """How long the event loop stood still at most, and calls per second, for the floor and the product."""

    floor_ms: float
    product_ms: float
    floor_per_s: float
    product_per_s: float


def measure(bench: Bench) -> Measured:
    """Return the time per call, the stalls of an event loop, a restart, and a call with a long transcript."""
    plan = bench.plan
    with Disk(bench.folder) as disk:

        def one_round(number: int) -> Round:
            bench.say(f"dynamic: round {number + 1}, wanted {plan.dynamic_pairs} quiet ones")
            return _round(bench.folder, number, plan.dynamic_calls)

        kept, timed = quiet_pairs(one_round, disk.sample_us, wanted=plan.dynamic_pairs, at_most=3 * plan.dynamic_pairs)

        def one_stall(number: int) -> Stalls:
            bench.say(f"dynamic: event loop, round {number + 1}, wanted {plan.dynamic_pairs} quiet ones")
            return _stalls(bench.folder, number, plan.calls_each)

        kept_stalls, timed_stalls = quiet_pairs(
            one_stall, disk.sample_us, wanted=plan.dynamic_pairs, at_most=3 * plan.dynamic_pairs
        )
    back = returns(bench, plan.recorded, life="dynamic_life")
    bench.say("dynamic: a growing transcript")
    rounds, stalls = [one.pair for one in kept or timed], [one.pair for one in kept_stalls or timed_stalls]
    transcripts = {kind: _transcript(bench.folder, kind, plan.messages) for kind in ("floor", "product")}
    figures = [
        *call_figures(rounds, dropped=len(timed) - len(kept), enough=len(kept) >= plan.dynamic_pairs),
        *stall_figures(stalls, plan.calls_each, enough=len(kept_stalls) >= plan.dynamic_pairs),
        restored_figure(back),
        transcript_figure(transcripts["product"], transcripts["floor"]),
    ]
    return Measured(
        figures=figures,
        raw={
            "rounds": [asdict(one) for one in timed],
            "stalls": [asdict(one) for one in timed_stalls],
            "returns": asdict(back),
            "transcripts_ms": transcripts,
        },
    )


def call_figures(rounds: Sequence[Round], *, dropped: int, enough: bool) -> list[Figure]:
    """Return the time of each kind of call beside that of a pipeline's step: medians, of the rounds' ratios too."""
    bare = statistics.median(one.us[PIPELINE] / one.us[BARE] for one in rounds)
    note = f"floor: a step of a pipeline, which takes {bare:.2f} × a bare row; {len(rounds)} rounds, {dropped} dropped"
    return [
        Figure(
            name=f"dynamic: {kind}",
            value=statistics.median(one.us[kind] for one in rounds),
            unit="µs/call",
            floor=statistics.median(one.us[PIPELINE] for one in rounds),
            ratio=statistics.median(one.us[kind] / one.us[PIPELINE] for one in rounds),
            target=target,
            note=note,
            enough=enough,
        )
        for kind, target in TARGETS.items()
    ]


def stall_figures(stalls: Sequence[Stalls], calls_each: int, *, enough: bool) -> list[Figure]:
    """Return the longest stall of all rounds that count, and how many calls the tasks made in a second."""
    return [
        Figure(
            name=f"dynamic, {TASKS} tasks: longest stall",
            value=max(one.product_ms for one in stalls),
            unit="ms",
            floor=max(one.floor_ms for one in stalls),
            target=STALL,
            note=f"of the event loop, in {len(stalls)} rounds of {TASKS} × {calls_each} calls",
            enough=enough,
        ),
        Figure(
            name=f"dynamic, {TASKS} tasks: calls per second",
            value=statistics.median(one.product_per_s for one in stalls),
            unit="calls/s",
            floor=statistics.median(one.floor_per_s for one in stalls),
            note="with the start of the process's event loop and of the run",
        ),
    ]


def restored_figure(back: Returns) -> Figure:
    """Return the time from entering a killed run to the first live body."""
    return Figure(
        name=f"dynamic: {back.recorded:,} calls restored",
        value=back.product.execute_s * 1e3,
        unit="ms",
        floor=back.floor.execute_s * 1e3,
        note="entering the run to the first live body; floor: read and decode as many bare rows",
    )


def transcript_figure(product_ms: Sequence[float], floor_ms: Sequence[float]) -> Figure:
    """Return the time of a call whose argument is nearly the whole transcript."""
    return Figure(
        name=f"dynamic: call with {len(product_ms)} messages",
        value=statistics.median(product_ms[-LAST_CALLS:]),
        unit="ms",
        floor=statistics.median(floor_ms[-LAST_CALLS:]),
        note=f"median of the last {LAST_CALLS} calls; floor: JSON and SHA-256 of the messages, and a bare row",
    )


def _round(folder: str, number: int, calls: int) -> Round:
    """Measure every kind, beginning with another one each time."""
    first = number % len(ORDER)
    return Round(us={str(kind): _us(folder, kind, calls) for kind in (*ORDER[first:], *ORDER[:first])})


def _us(folder: str, kind: str, calls: int) -> float:
    inside = os.path.join(folder, "calls")
    os.mkdir(inside)
    run, close = _work(os.path.join(inside, "calls.db"), kind, calls)
    gc.collect()
    started = time.perf_counter()
    run()
    seconds = time.perf_counter() - started
    close()
    shutil.rmtree(inside)
    return seconds * 1e6 / calls


def _work(path: str, kind: str, calls: int) -> tuple[Callable[[], object], Callable[[], None]]:
    """Return what is timed, and what closes the store after it."""
    if kind == BARE:
        floor = Floor(path)
        return lambda: floor.put_all(calls, result), floor.close
    create_store(path)
    if kind == PIPELINE:
        pipeline = opened_pipeline("bench", path, chain(calls))
        return pipeline.execute, pipeline.close
    ledger = opened(path, watched=kind == Kind.WATCHED)
    return lambda: make_calls(ledger, Kind(kind), calls), ledger.close


def _stalls(folder: str, number: int, calls_each: int) -> Stalls:
    inside = os.path.join(folder, "stalls")
    os.mkdir(inside)
    answers: dict[str, dict[str, float]] = {}
    for kind in ("floor", "product") if number % 2 == 0 else ("product", "floor"):
        path = os.path.join(inside, f"{kind}.db")
        if kind == "product":
            create_store(path)
        answers[kind] = json_of_child("stalls", kind, path, str(TASKS), str(calls_each))
    shutil.rmtree(inside)
    floor, product = answers["floor"], answers["product"]
    return Stalls(
        floor_ms=floor["longest_stall_s"] * 1e3,
        product_ms=product["longest_stall_s"] * 1e3,
        floor_per_s=TASKS * calls_each / floor["seconds"],
        product_per_s=TASKS * calls_each / product["seconds"],
    )


def _transcript(folder: str, kind: str, messages: int) -> list[float]:
    """Return the time of each call in ms, the transcript growing by one message each time."""
    inside = os.path.join(folder, f"transcript-{kind}")
    os.mkdir(inside)
    path = os.path.join(inside, "calls.db")
    times_ms: list[float] = []
    last = time.perf_counter()

    def called() -> None:
        nonlocal last
        now = time.perf_counter()
        times_ms.append((now - last) * 1e3)
        last = time.perf_counter()

    if kind == "product":
        create_store(path)
        ledger = opened(path)
        gc.collect()
        last = time.perf_counter()
        grow_transcript(ledger, messages, called)
        ledger.close()
    else:
        _bare_transcript(path, messages, called)
    shutil.rmtree(inside)
    return times_ms


def _bare_transcript(path: str, messages: int, called: Callable[[], None]) -> None:
    floor = Floor(path)
    transcript: list[dict[str, str]] = []
    for i in range(messages):
        transcript.append({**MESSAGE, "id": str(i)})
        digest = hashlib.sha256(json.dumps(transcript).encode()).hexdigest()
        floor.put_all(1, partial(_said, digest), first_key=i)
        called()
    floor.close()


def _said(digest: str, _: int) -> Result:
    return {"digest": digest}
