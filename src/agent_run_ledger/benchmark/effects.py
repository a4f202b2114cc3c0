"""Measures effects: the life of an action against as many bare commits, workers side by side, and a large inbox."""

from __future__ import annotations

import gc
import json
import os
import shutil
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any, cast

import apsw

from agent_run_ledger.benchmark.children import command, race
from agent_run_ledger.benchmark.disk import Disk, quiet_pairs
from agent_run_ledger.benchmark.effect_work import (
    Approved,
    approved,
    carry_out,
    claim,
    create_effect_store,
    propose,
)
from agent_run_ledger.benchmark.figures import Figure, Measured, Sense, Target
from agent_run_ledger.benchmark.floor import Connection, Floor, statements
from agent_run_ledger.benchmark.plan import Bench, Plan
from agent_run_ledger.benchmark.sequential import Cost, Pair, cpu_s
from agent_run_ledger.effects import ActionState
from agent_run_ledger.ledger.effect_inbox import read_inbox
from agent_run_ledger.ledger.effect_ledger import EffectLedger
from agent_run_ledger.store import open_sqlite

SPEED = Target(sense=Sense.AT_LEAST, limit=0.40, of_ratio=True)
NONE = Target(sense=Sense.AT_MOST, limit=0)
READ = Target(sense=Sense.AT_MOST, limit=5)
OPERATOR_READ = Target(sense=Sense.AT_MOST, limit=20)

JUDGED_FROM = 1_000_000
"""The number of actions that the target of the inbox is about; a smaller one is measured and not judged."""

COMMITS = {"claim, prepare, outcome": 3, "with the hand-out": 4}
EVERY = 10
"""One of so many actions of the inbox is approved."""
READS = 21
PAGE = 100
OPERATOR_PAGE = 20
OPERATOR = "the operator's inbox, first page"
"""The page of `arl effects list`, with what may be done next of each action."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Workers let go together. `lost` and `doubled`: actions that nobody claimed, or more than one worker did."""

    commits_per_s: float
    floor_per_s: float
    lost: int
    doubled: int
    errors: dict[str, int]


def measure(bench: Bench) -> Measured:
    """Return the figures of lives in one process, of workers side by side, and of the inbox."""
    with Disk(bench.folder) as disk:
        lives, contests = _lives(bench, disk), _contests(bench, disk)
    inbox = _inbox_figures(bench)
    parts = (lives, contests, inbox)
    return Measured(
        figures=[figure for part in parts for figure in part.figures],
        raw={name: value for part in parts for name, value in part.raw.items()},
    )


def _lives(bench: Bench, disk: Disk) -> Measured:
    plan, figures, raw = bench.plan, list[Figure](), dict[str, object]()
    for what, commits in COMMITS.items():

        def one(number: int, what: str = what, commits: int = commits) -> Pair:
            bench.say(f"effects: {what}, pair {number + 1}, wanted {plan.effect_pairs} quiet ones")
            return _pair(bench.folder, number, plan.effect_lives, commits)

        kept, timed = quiet_pairs(one, disk.sample_us, wanted=plan.effect_pairs, at_most=3 * plan.effect_pairs)
        pairs, enough = [each.pair for each in kept or timed], len(kept) >= plan.effect_pairs
        figures += life_figures(what, commits, pairs, enough=enough)
        raw[what] = [asdict(each) for each in timed]
    return Measured(figures=figures, raw=raw)


def _contests(bench: Bench, disk: Disk) -> Measured:
    plan, figures, raw = bench.plan, list[Figure](), dict[str, object]()
    for same, what in ((False, "actions of their own"), (True, "the same actions")):

        def one(number: int, same: bool = same, what: str = what) -> Contest:
            bench.say(f"effects: {plan.processes} processes on {what}, pair {number + 1}")
            return _contest(bench.folder, plan, same=same)

        kept, timed = quiet_pairs(one, disk.sample_us, wanted=plan.effect_pairs, at_most=3 * plan.effect_pairs)
        held, tried = [each.pair for each in kept or timed], [each.pair for each in timed]
        figures += contest_figures(f"{plan.processes} processes, {what}", held, tried, plan)
        raw[what] = [asdict(each) for each in timed]
    return Measured(figures=figures, raw=raw)


def _inbox_figures(bench: Bench) -> Measured:
    actions = bench.plan.inbox_actions
    bench.say(f"effects: an inbox of {actions:,}")
    reads, written_s = _inbox(os.path.join(bench.folder, "inbox.db"), actions)
    figures = [
        inbox_figure(name, seconds, actions, OPERATOR_READ if name == OPERATOR else READ)
        for name, seconds in reads.items()
    ]
    return Measured(figures=figures, raw={"inbox_written_s": written_s})


def life_figures(what: str, commits: int, pairs: Sequence[Pair], *, enough: bool) -> list[Figure]:
    """Return speed and processor time of a life, which is `commits` transactions, as medians of the pairs."""

    def median(of: Callable[[Pair], float]) -> float:
        return statistics.median(of(pair) for pair in pairs)

    note = f"median of {len(pairs)} pairs; floor: {commits} bare rows of the same size for each action"
    return [
        Figure(
            name=f"effects: {what}",
            value=median(lambda pair: pair.product.steps_per_s),
            unit="actions/s",
            floor=median(lambda pair: pair.floor.steps_per_s),
            ratio=median(lambda pair: pair.ratio),
            target=SPEED,
            note=note,
            enough=enough,
        ),
        Figure(
            name=f"effects: {what}, CPU per transaction",
            value=median(lambda pair: pair.product.cpu_us_per_step) / commits,
            unit="µs",
            floor=median(lambda pair: pair.floor.cpu_us_per_step) / commits,
            note="user + system",
        ),
    ]


def contest_figures(name: str, held: Sequence[Contest], tried: Sequence[Contest], plan: Plan) -> list[Figure]:
    """Return the speed of the contests that count, and what was lost, doubled or refused for a lock in all of them."""
    wrong = sum(one.lost + one.doubled for one in tried)
    errors: Counter[str] = Counter()
    for one in tried:
        errors.update(one.errors)
    said = ", ".join(f"{code} {count}" for code, count in sorted(errors.items())) or "none"
    return [
        Figure(
            name=f"effects, {name}",
            value=statistics.median(one.commits_per_s for one in held),
            unit="commits/s",
            floor=statistics.median(one.floor_per_s for one in held),
            ratio=statistics.median(one.commits_per_s / one.floor_per_s for one in held),
            note=f"median of {len(held)} pairs; floor: as many bare processes with as many rows",
        ),
        Figure(
            name=f"effects, {name}: lost or doubled claims",
            value=float(wrong),
            unit="actions",
            target=NONE,
            note=f"of {len(tried) * plan.processes * plan.effects_each:,} in all pairs",
        ),
        Figure(
            name=f"effects, {name}: errors",
            value=float(errors.total()),
            unit="calls",
            target=NONE,
            note=f"other than that somebody else was first, a lock among them: {said}",
        ),
    ]


def inbox_figure(name: str, seconds: Sequence[float], actions: int, target: Target = READ) -> Figure:
    """Return the time of one kind of read; no verdict where the inbox is too small for its target."""
    return Figure(
        name=f"effects: {name}",
        value=statistics.median(seconds) * 1e3,
        unit="ms",
        target=target,
        note=f"{actions:,} actions, median of {len(seconds)}",
        enough=actions >= JUDGED_FROM,
    )


def contest_of(answers: Sequence[dict[str, Any]], keys: Sequence[str], floor_per_s: float) -> Contest:
    """Return one contest from what its workers printed; one that did not end is an error."""
    ended = [one for one in answers if "error" not in one]
    claims = Counter(key for one in ended for key in one["claimed"])
    errors: Counter[str] = Counter(died=len(answers) - len(ended))
    for one in ended:
        errors.update(one["errors"])
    wall = max(one["ended_s"] for one in ended) - min(one["started_s"] for one in ended) if ended else float("inf")
    return Contest(
        commits_per_s=COMMITS["claim, prepare, outcome"] * claims.total() / wall,
        floor_per_s=floor_per_s,
        lost=sum(key not in claims for key in keys),
        doubled=sum(count > 1 for count in claims.values()),
        errors={code: count for code, count in errors.items() if count},
    )


def _pair(folder: str, number: int, lives: int, commits: int) -> Pair:
    """Measure both, the floor first in even pairs and last in odd ones."""
    inside = os.path.join(folder, f"lives-{commits}-{number}")
    os.mkdir(inside)
    path = os.path.join(inside, "effects.db")
    create_effect_store(path)
    with EffectLedger(path) as ledger:
        size = _bytes_of_a_commit(path, ledger)
        actions = approved(ledger, [f"key-{i}" for i in range(lives)])
        floor = Floor(os.path.join(inside, "floor.db"))
        work: dict[str, Callable[[], None]] = {
            "product": lambda: _live_all(ledger, actions, hand_out=commits > COMMITS["claim, prepare, outcome"]),
            "floor": lambda: floor.put_all(lives * commits, lambda i: {"data": "x" * (size - len('{"data": ""}'))}),
        }
        order = ("floor", "product") if number % 2 == 0 else ("product", "floor")
        costs = {kind: _cost(lives, work[kind]) for kind in order}
        floor.close()
    shutil.rmtree(inside)
    return Pair(floor=costs["floor"], product=costs["product"])


def _bytes_of_a_commit(path: str, ledger: EffectLedger) -> int:
    """Return how many bytes of records and envelopes a transition of a life takes on average."""
    first = approved(ledger, ["first"])
    _live_all(ledger, first, hand_out=True)
    connection = cast("Connection", apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY))
    ((size,),) = connection.execute(statements("actions.sql")["mean_size"])
    connection.close()
    return int(cast("float", size))


def _live_all(ledger: EffectLedger, actions: Sequence[Approved], *, hand_out: bool) -> None:
    for one in actions:
        carry_out(ledger, one, claim(ledger, one, "worker"), "worker", hand_out=hand_out)


def _cost(lives: int, work: Callable[[], None]) -> Cost:
    gc.collect()
    used, started = cpu_s(), time.perf_counter()
    work()
    return Cost(steps=lives, seconds=time.perf_counter() - started, cpu_s=cpu_s() - used, stored_bytes=0)


def _contest(folder: str, plan: Plan, *, same: bool) -> Contest:
    inside = os.path.join(folder, "contest")
    os.mkdir(inside)
    path, bare = os.path.join(inside, "effects.db"), os.path.join(inside, "floor.db")
    create_effect_store(path)
    keys = [f"key-{i}" for i in range(plan.processes * plan.effects_each)]
    with EffectLedger(path) as ledger:
        actions = approved(ledger, keys)
    starts: list[list[str]] = []
    for number in range(plan.processes):
        own = actions if same else actions[number :: plan.processes]
        listed = os.path.join(inside, f"actions-{number}.json")
        with open(listed, "w", encoding="utf-8") as file:
            json.dump([(one.key, one.action_id.hex()) for one in own], file)
        starts.append(command("effect_contender", path, f"worker-{number}", listed))
    Floor(bare).close()
    rows = COMMITS["claim, prepare, outcome"] * plan.effects_each
    bare_starts = [command("contender", "floor", bare, str(i), str(rows)) for i in range(plan.processes)]
    answers = race(bare_starts)
    wall = max(one["ended_s"] for one in answers) - min(one["started_s"] for one in answers)
    contest = contest_of(race(starts), keys, rows * plan.processes / wall)
    shutil.rmtree(inside)
    return contest


def _inbox(path: str, actions: int) -> tuple[dict[str, list[float]], float]:
    """Write a store with so many actions, and return the times of each kind of read, and of the writing."""
    create_effect_store(path)
    with EffectLedger(path) as ledger:
        propose(ledger, "copy-0")
    started = time.perf_counter()
    _copy(path, actions)
    written_s = time.perf_counter() - started
    with closing(open_sqlite(path, create=False, readonly=True)) as store, EffectLedger(path) as ledger:
        reads: dict[str, Callable[[int], object]] = {
            "inbox, first page": lambda _: ledger.inbox(limit=PAGE),
            "inbox, a page of one state": lambda _: ledger.inbox(ActionState.AVAILABLE, limit=PAGE),
            OPERATOR: lambda _: read_inbox(store, limit=OPERATOR_PAGE),
            "inspect a key": lambda i: ledger.inspect(f"copy-{i * (actions // READS)}"),
        }
        return {name: [_timed(read, i) for i in range(READS)] for name, read in reads.items()}, written_s


def _timed(read: Callable[[int], object], number: int) -> float:
    started = time.perf_counter()
    if not read(number):
        raise LookupError("the benchmark's inbox is not what was written")
    return time.perf_counter() - started


def _copy(path: str, actions: int) -> None:
    sql = statements("actions.sql")
    connection = cast("Connection", apsw.Connection(path))
    values: dict[str, tuple[object, ...]] = {"copy": (actions - 1,), "approve": (EVERY,), "release": (EVERY,)}
    for name in ("pattern", "begin", "copy", "approve", "release", "commit"):
        list(connection.execute(sql[name], values.get(name, ())))
    connection.close()
