"""The programs of stories: steps as plain values, the keys and results they must have, and real steps made of them."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from agent_run_ledger import From, Step
from tests.campaign.meter import Event, Meter

KEY_CHARACTERS = 24
_BLOCK = b"." * 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A step: what it takes, what it only waits for, what its identity rests on, and how its body behaves.

    `binding` says how results reach parameters: by "name", "from" (the explicit form), "place" or "star". `form` and
    `size` (bytes) shape the result. The body raises in its first `fails_first` tries of an attempt, and in every one
    while it is `broken`. `work` is how often it hashes a block, which takes time outside the interpreter's lock.
    """

    name: str
    takes: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()
    binding: str = "name"
    takes_input: bool = False
    version: str = "1"
    setting: int | None = None
    shape: str = "sync"
    form: str = "text"
    size: int = 40
    retries: int = 0
    fails_first: int = 0
    broken: bool = False
    on_change: str | None = None
    work: int = 0

    @property
    def needs(self) -> tuple[str, ...]:
        return self.takes + self.waits

    @property
    def fails(self) -> bool:
        """Whether an attempt in which the body runs ends with its exception."""
        return self.broken or self.fails_first > self.retries


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The steps of a run in one life, in the order of registration, and the settings of its ledger."""

    nodes: tuple[Node, ...]
    max_parallel: int = 1
    on_change: str = "rerun"

    def in_order(self) -> list[Node]:
        """Every step after all that it needs."""
        placed: dict[str, Node] = {}
        while len(placed) < len(self.nodes):
            placed |= {n.name: n for n in self.nodes if n.name not in placed and placed.keys() >= set(n.needs)}
        return list(placed.values())

    @property
    def terminals(self) -> list[str]:
        needed = {name for node in self.nodes for name in node.needs}
        return [node.name for node in self.nodes if node.name not in needed]


class Broken(Exception):
    """What a body raises: the name of its step."""


def digest_of(value: object) -> str:
    """Twelve bytes of hash over a result, types included; the order of a dict's keys says nothing."""
    digest = hashlib.sha256()
    _feed(digest, value)
    return digest.hexdigest()[:KEY_CHARACTERS]


def _feed(digest: hashlib._Hash, value: object) -> None:
    parts: Iterable[object] = ()
    if isinstance(value, dict):
        parts = (part for entry in sorted(value.items()) for part in entry)
    elif isinstance(value, list | tuple):
        parts = value
    raw = value if isinstance(value, bytes) else b"" if parts else repr(value).encode()
    digest.update(f"{type(value).__name__} {len(raw)} ".encode() + raw)
    for part in parts:
        _feed(digest, part)
    digest.update(b"end ")


def key_of(node: Node, results: Mapping[str, object], x: int) -> str:
    """What makes a call this call: name, version, environment, and each argument under its parameter's name."""
    taken = [digest_of(results[name]) for name in node.takes]
    labels = ["*"] * len(taken) if node.binding == "star" else _labels(node)
    parts = (node.name, node.version, node.setting, sorted(zip(labels, taken, strict=True)), x * node.takes_input)
    if node.binding == "star":
        parts = (*parts, taken)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:KEY_CHARACTERS]


def value_of(node: Node, key: str) -> object:
    """What the body returns: a value that holds its key, half of it noise that no compression makes smaller."""
    noise = random.Random(key).randbytes(node.size // 2)
    padding = noise + b"-" * (node.size - len(noise))
    if node.shape in ("generator", "async_generator"):
        return [key, padding[: node.size // 3], padding[node.size // 3 :]]
    if node.form == "dict":
        return {"key": key, "padding": padding}
    if node.form == "tuple":
        return (key, padding, len(padding))
    return key.encode() + padding if node.form == "bytes" else key + padding.decode("latin-1")


def key_in(value: Any) -> str:
    """The key that a result holds."""
    if isinstance(value, dict):
        return str(value["key"])
    if isinstance(value, list | tuple):
        return str(value[0])
    return value[:KEY_CHARACTERS].decode() if isinstance(value, bytes) else str(value)[:KEY_CHARACTERS]


def steps_of(program: Program, run: str, meter: Meter) -> list[Step[..., Any]]:
    """Real steps whose bodies write into the meter."""
    return [
        Step(
            _function(node, _Body(node, run, meter)),
            name=node.name,
            depends_on=node.needs,
            environment=None if node.setting is None else {"setting": node.setting},
            version=node.version,
            retries=node.retries,
            retry_base_s=0,
            retry_cap_s=0,
            on_change=node.on_change,
        )
        for node in program.nodes
    ]


class _Body:
    """What all shapes of a step's function share: the meter's lines around the work."""

    def __init__(self, node: Node, run: str, meter: Meter) -> None:
        self.node = node
        self._run = run
        self._meter = meter
        self._tries: Counter[str] = Counter()
        self.signature = _signature(node)

    def work(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        given = self.signature.bind(*args, **kwargs).arguments
        taken = given.get("values", ()) if self.node.binding == "star" else [given[p] for p in _labels(self.node)]
        key = key_of(self.node, dict(zip(self.node.takes, taken, strict=True)), given.get("x", 0))
        self._tries[key] += 1
        tries = self._tries[key]
        self._meter.write(self._run, self.node.name, key, Event.BEGAN, tries)
        for _ in range(self.node.work):
            hashlib.sha256(_BLOCK * 64)
        if self.node.broken or tries <= self.node.fails_first:
            self._meter.write(self._run, self.node.name, key, Event.RAISED, tries)
            raise Broken(self.node.name)
        value = value_of(self.node, key)
        self._meter.write(self._run, self.node.name, key, Event.RETURNED, tries)
        return value


def _function(node: Node, body: _Body) -> Callable[..., Any]:
    def plain(*args: Any, **kwargs: Any) -> object:
        return body.work(args, kwargs)

    async def on_a_loop(*args: Any, **kwargs: Any) -> object:
        await asyncio.sleep(0)
        return body.work(args, kwargs)

    def item_by_item(*args: Any, **kwargs: Any) -> Iterator[object]:
        yield from body.work(args, kwargs)  # type: ignore[misc]

    async def item_by_item_on_a_loop(*args: Any, **kwargs: Any) -> AsyncIterator[object]:
        for item in body.work(args, kwargs):  # type: ignore[attr-defined]
            await asyncio.sleep(0)
            yield item

    shapes: dict[str, Callable[..., Any]] = {
        "sync": plain,
        "async": on_a_loop,
        "generator": item_by_item,
        "async_generator": item_by_item_on_a_loop,
    }
    function = shapes[node.shape]
    function.__signature__ = body.signature  # type: ignore[attr-defined]
    return function


def _labels(node: Node) -> list[str]:
    """The parameters that take results, in the order of `takes`; not for `*values`."""
    return list(node.takes) if node.binding == "name" else [f"p{at}" for at in range(len(node.takes))]


def _signature(node: Node) -> inspect.Signature:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter("x", kind)] if node.takes_input else []
    if node.binding == "star":
        parameters.append(inspect.Parameter("values", inspect.Parameter.VAR_POSITIONAL))
    else:
        parameters += [
            inspect.Parameter(label, kind, annotation=Annotated[object, From(name)])
            if node.binding == "from"
            else inspect.Parameter(label, kind)
            for label, name in zip(_labels(node), node.takes, strict=True)
        ]
    return inspect.Signature(parameters)
