"""Stories from a seed: random pipelines, their lives, how each life is killed, and what people do in between."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from agent_run_ledger.testing import ALL, KillPoint, Point
from tests.campaign.programs import Node, Program

MEBIBYTE = 1 << 20
READERS = ("verify", "runs list", "runs show", "runs explain", "export")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """How a process dies: at a named point, or by the parent when it has written `lines` lines and `delay_s` passed."""

    point: KillPoint | None = None
    lines: int = 0
    delay_s: float = 0.0

    @property
    def where(self) -> str:
        """The name it is counted under."""
        return "instant" if self.point is None else self.point.point


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One process: its runs, at once in threads or one after another, and what it does where a run is live elsewhere.

    `manner`: "plain" takes no for an answer, "wait" waits, "takeover" takes the run over.
    """

    runs: tuple[str, ...]
    threads: bool = False
    manner: str = "plain"
    on_loop: bool = False
    kill: Kill | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What an operator does after a life: `event` on `run`, on the command line or through the library."""

    run: str
    event: str
    by_command: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One life: a program for each run, the processes that are there at once, a reader perhaps, and the acts after."""

    programs: dict[str, Program]
    workers: tuple[Worker, ...]
    durability: str = "full"
    reader: str | None = None
    reader_dies: bool = False
    acts: tuple[Act, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """All lives of one store. The last one is not killed, and its programs are mended."""

    seed: int
    inputs: dict[str, int]
    lives: tuple[Life, ...]


def story_of(seed: int) -> Story:
    """The story of this seed, the same in every process and on every machine."""
    rng = random.Random(seed)
    names = [f"run{number}" for number in range(rng.choice((1, 1, 1, 2, 2, 3)))]
    most = 25 if len(names) == 1 else 9
    heavy = names[0] if rng.random() < 0.25 else None
    whole = {name: _program(rng, rng.randint(2, most), heavy=name == heavy) for name in names}
    now = dict(whole)
    durability = "extra" if rng.random() < 0.2 else "full"
    quarantined: set[str] = set()
    lives: list[Life] = []
    for number in range(1, rng.randint(3, 5) + 1):
        switched = rng.random() < 0.1  # for which SQLite wants the file to itself
        if switched:
            durability = "full" if durability == "extra" else "extra"
        now = {name: _changed(rng, now[name], whole[name]) if number > 1 else now[name] for name in names}
        programs = {name: _for_this_life(rng, now[name]) for name in names}
        workers = _workers(rng, programs, durability=durability, number=number, most=1 if switched else 2)
        watched = number > 1 and len(workers) == 1 and not switched and rng.random() < 0.35
        lives.append(
            Life(
                programs=programs,
                workers=workers,
                durability=durability,
                reader=rng.choice(READERS) if watched else None,
                reader_dies=rng.random() < 0.4,
                acts=_acts(rng, names, quarantined),
            )
        )
    releases = tuple(Act(run=run, event="release", by_command=True) for run in names if run in quarantined)
    lives[-1] = replace(lives[-1], acts=lives[-1].acts + releases)
    lives.append(_last_life(rng, now, durability))
    return Story(seed=seed, inputs={name: rng.randrange(1000) for name in names}, lives=tuple(lives))


# -- programs -------------------------------------------------------------------------------------------------------


def _program(rng: random.Random, count: int, *, heavy: bool) -> Program:
    """A random graph: each step needs up to six earlier ones, near ones more often; a `heavy` one is beyond 1 MiB."""
    asynchronous = rng.random() < 0.4
    large = rng.randrange(count) if heavy else -1
    nodes: list[Node] = []
    for at in range(count):
        earlier = [node.name for node in nodes]
        wanted = min(len(earlier), rng.choice((0, 1, 1, 1, 2, 2, 3, 4, 6)))
        near = earlier[-5:] if rng.random() < 0.7 else earlier
        needs = rng.sample(near, min(wanted, len(near)))
        nodes.append(_node(rng, f"s{at:02}", needs, asynchronous=asynchronous, large=at == large))
    return Program(nodes=tuple(nodes), max_parallel=rng.randint(1, 8))


def _node(rng: random.Random, name: str, needs: list[str], *, asynchronous: bool, large: bool = False) -> Node:
    binding = rng.choice(("name", "name", "from", "place", "star"))
    split = len(needs) if binding in ("place", "star") else rng.randint(0, len(needs))
    retries = rng.choice((0, 0, 0, 1, 2, 3))
    shapes = ("sync", "async", "async_generator") if asynchronous else ("sync", "sync")
    return Node(
        name=name,
        takes=tuple(needs[:split]),
        waits=tuple(needs[split:]),
        binding=binding,
        takes_input=not needs or rng.random() < 0.3,
        setting=rng.choice((None, None, 0, 1)),
        shape=rng.choice((*shapes, "generator")),
        form=rng.choice(("text", "dict", "tuple", "bytes")),
        size=rng.randint(MEBIBYTE, 3 * MEBIBYTE // 2) if large else rng.choice((0, 10, 100, 1000, 10_000)),
        retries=retries,
        fails_first=rng.randint(0, retries),
        work=rng.choice((0, 0, 1, 2, 5)),
    )


def _changed(rng: random.Random, now: Program, whole: Program) -> Program:
    """The program of the next life: the same, changed in one place, or what it was in the beginning."""
    kind = rng.choice(("same", "same", "version", "setting", "setting", "add", "remove", "reorder", "wait", "back"))
    nodes = list(now.nodes)
    at = min(rng.randrange(len(nodes)), rng.randrange(len(nodes)))  # an early step is more often one that is recorded
    node = nodes[at]
    if kind == "back":
        return whole
    if kind == "version":
        nodes[at] = replace(node, version=str(int(node.version) + 1))
    elif kind == "setting":
        nodes[at] = replace(node, setting=rng.randrange(5))
    elif kind == "add":
        others = [other.name for other in nodes]
        name = next(f"t{number}" for number in range(100) if f"t{number}" not in others)
        needs = rng.sample(others, min(len(others), rng.randint(0, 3)))
        nodes.insert(rng.randint(0, len(nodes)), _node(rng, name, needs, asynchronous=False))
    elif kind == "remove" and len(nodes) > 2:
        nodes = [_without(other, node.name) for other in nodes if other is not node]
    elif kind == "reorder":
        rng.shuffle(nodes)
    elif kind == "wait" and node.takes and node.binding in ("name", "from"):
        nodes[at] = replace(node, takes=node.takes[:-1], waits=(*node.waits, node.takes[-1]))
    return replace(now, nodes=tuple(nodes), max_parallel=rng.randint(1, 8))


def _without(node: Node, gone: str) -> Node:
    takes, waits = (tuple(name for name in names if name != gone) for names in (node.takes, node.waits))
    return replace(node, takes=takes, waits=waits)


def _for_this_life(rng: random.Random, program: Program) -> Program:
    """Sometimes a step raises for good in this life only, and sometimes a step or all of them refuse changes."""
    nodes = list(program.nodes)
    if rng.random() < 0.3:
        at = rng.randrange(len(nodes))
        nodes[at] = replace(nodes[at], broken=True)
    if rng.random() < 0.25:
        at = rng.randrange(len(nodes))
        nodes[at] = replace(nodes[at], on_change="refuse")
    return replace(program, nodes=tuple(nodes), on_change="refuse" if rng.random() < 0.12 else "rerun")


# -- lives ----------------------------------------------------------------------------------------------------------


def _workers(
    rng: random.Random, programs: dict[str, Program], *, durability: str, number: int, most: int
) -> tuple[Worker, ...]:
    """One process with all runs, two with runs of their own, or two on the same run; at least one is to be killed."""
    names = list(programs)
    asynchronous = {name: any("async" in node.shape for node in programs[name].nodes) for name in names}

    def worker(runs: list[str], manner: str = "plain", likely: float = 1.0) -> Worker:
        size = sum(len(programs[run].nodes) for run in runs)
        return Worker(
            runs=tuple(runs),
            threads=len(runs) > 1 and rng.random() < 0.4,
            manner=manner,
            on_loop=any(asynchronous[run] for run in runs) and rng.random() < 0.5,
            kill=_kill(rng, size, durability=durability, number=number) if rng.random() < likely else None,
        )

    roll = rng.random() if most > 1 else 1.0
    if roll < 0.25:
        shared = rng.choice(names)
        manner = rng.choice(("plain", "wait", "takeover"))
        one = worker(names, likely=0.8)
        return (one, replace(worker([shared], likely=0.5 if one.kill else 1.0), manner=manner))
    if roll < 0.6 and len(names) > 1:
        split = rng.randint(1, len(names) - 1)
        return (worker(names[:split]), worker(names[split:], likely=0.6))
    return (worker(names),)


def _kill(rng: random.Random, size: int, *, durability: str, number: int) -> Kill:
    """At a random instant, or at one of the named points; earlier ones in later lives, which have less left to do."""
    first, size = number == 1, max(2, round(size / number))
    if rng.random() < 0.4:
        if rng.random() < 0.1:
            return Kill(lines=0, delay_s=rng.uniform(0.05, 0.4))
        return Kill(lines=1 + int(2 * size * rng.random()), delay_s=rng.uniform(0, 0.006))
    in_place = durability == "extra"
    reached = {
        Point.BODY_BEFORE: size,
        Point.BODY_AFTER: size,
        Point.RECORD_BEFORE: size,
        Point.COMMIT_BEGIN: size,
        Point.COMMIT_BEFORE: size,
        Point.COMMIT_AFTER: size,
        Point.RECORD_AFTER: size,
        Point.WAL_WRITE: 0 if in_place else 12 * size,
        Point.WAL_SYNC: 0 if in_place else size,
        Point.FILE_WRITE: 8 * size if in_place else 20 * first,
        Point.FILE_SYNC: size if in_place else 3 * first,
    }
    point = rng.choice([point for point in ALL if reached[Point(point)]])
    return Kill(point=KillPoint(point=point, nth=1 + int(reached[Point(point)] * rng.random())))


def _acts(rng: random.Random, names: list[str], quarantined: set[str]) -> tuple[Act, ...]:
    """What an operator does after a life. `quarantined` is kept up to date as far as the acts are lawful."""
    acts: list[Act] = []
    for run in names:
        if run in quarantined:
            event = rng.choice(("release", "release", "takeover", ""))
        else:
            event = rng.choice(("quarantine", "takeover", "release", *("",) * 12))
            event = "cancel" if rng.random() < 0.02 else event
        if event:
            acts.append(Act(run=run, event=event, by_command=rng.random() < 0.4))
        if event in ("quarantine", "release", "cancel"):
            (quarantined.add if event == "quarantine" else quarantined.discard)(run)
    return tuple(acts)


def _last_life(rng: random.Random, now: dict[str, Program], durability: str) -> Life:
    """Everything mended, nobody killed; sometimes a second process waits for a run of the first."""
    names = list(now)
    workers = [Worker(runs=tuple(names), threads=len(names) > 1 and rng.random() < 0.3)]
    if rng.random() < 0.3:
        workers.append(Worker(runs=(rng.choice(names),), manner="wait"))
    if rng.random() < 0.2:
        workers[0] = replace(workers[0], manner="wait")
    return Life(programs=now, workers=tuple(workers), durability=durability)
