"""What passes for exact comes back from its record as it is."""

from __future__ import annotations

from dataclasses import fields, replace
from enum import StrEnum
from typing import Any

import orjson
import pytest

from agent_run_ledger.kernel.effects import Event, Role
from agent_run_ledger.kernel.effects.clock import CorrectClock
from agent_run_ledger.kernel.effects.commands import BY_NAME, Actor, Claim, Command
from agent_run_ledger.kernel.effects.evidence import Found
from agent_run_ledger.kernel.effects.exact import is_exact
from agent_run_ledger.kernel.effects.plain import from_plain, to_plain
from tests.unit.effects import examples

EXAMPLES = [examples.example(event).command for event in Event]


class Text(str):
    __slots__ = ()


class Bytes(bytes):
    __slots__ = ()


class Word(StrEnum):
    NAME = "name"


ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    1,
    1 << 53,
    -(1 << 53),
    0.0,
    "",
    "text",
    "half \ud800",
    Text("text"),
    Word.NAME,
    Role.OFFICER,
    Found.NOTHING,
    b"",
    b"bytes",
    Bytes(b"bytes"),
    bytearray(b"bytes"),
    "ab" * 16,
    (),
    [],
    [("uid", "7")],
    (("uid",),),
    (("uid", 7),),
    (["uid", "7"],),
    ("uid", "7"),
    {},
    {"ann"},
    frozenset(),
    frozenset({7}),
    frozenset({b"ann"}),
    frozenset({"officer"}),
    frozenset({Role.OFFICER}),
    examples.RECEIPT,
    examples.DRAIN,
    examples.TERMS,
    Actor("ann", frozenset()),
)


def test_every_command_of_the_examples_is_exact() -> None:
    assert {type(command) for command in EXAMPLES} == set(BY_NAME.values())
    for command in EXAMPLES:
        assert is_exact(command)
        assert came_back(command)
    assert is_exact(CorrectClock(actor=Actor("ann", frozenset({Role.OFFICER})), people=frozenset({"bob"})))


@pytest.mark.parametrize("command", EXAMPLES, ids=lambda command: type(command).__name__)
def test_nothing_is_exact_that_does_not_come_back_as_it_is(command: Command) -> None:
    changed = [one for odd in ODD for one in variants(command, odd)]
    exact = [is_exact(one) for one in changed]
    assert exact == [came_back(one) for one in changed]
    assert False in exact


@pytest.mark.parametrize("number", [(1 << 53) - 1, -(1 << 53) + 1])
def test_the_largest_numbers_that_json_holds_are_exact(number: int) -> None:
    prepare = examples.example(Event.PREPARE).command
    assert is_exact(replace(prepare, permit_ms=number))
    assert not is_exact(replace(prepare, permit_ms=number * 2))


@pytest.mark.parametrize("value", [None, 7, "text", b"bytes", Claim, object()], ids=repr)
def test_what_is_no_dataclass_is_not_exact(value: object) -> None:
    assert not is_exact(value)


def variants(value: Any, odd: object) -> list[Any]:
    """The value with `odd` in the place of each part, and of each part of its parts."""
    found: list[Any] = []
    for one in fields(value):
        part = getattr(value, one.name)
        found.append(replace(value, **{one.name: odd}))
        if hasattr(part, "__dataclass_fields__"):
            found += [replace(value, **{one.name: inner}) for inner in variants(part, odd)]
    return found


def came_back(command: Any) -> bool:
    """Whether a command's record gives back the same values of the same types, as JSON of 53-bit integers."""
    try:
        plain = to_plain(command)
        orjson.dumps(plain, option=orjson.OPT_STRICT_INTEGER)
        held = from_plain(type(command), plain)
    except (TypeError, ValueError):
        return False
    return bool(held == command) and types_of(held) == types_of(command)


def types_of(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return type(value), [types_of(getattr(value, one.name)) for one in fields(value)]
    if isinstance(value, tuple):
        return type(value), [types_of(one) for one in value]
    return (type(value), {type(one) for one in value}) if isinstance(value, frozenset) else type(value)
