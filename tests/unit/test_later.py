"""Which calls began after a record: the index says what a look at every call says, and looks at few."""

from __future__ import annotations

import random

import pytest

from agent_run_ledger.kernel.scopes import ELEMENT_BYTES, WRAPPED, branch_scope, call_scope, keyed_scope
from agent_run_ledger.runs.later import CallKey, Later

KEY = bytes(16)


def scopes() -> list[bytes]:
    """The run's own scope and a call's body, with branches, branches of branches, and keys within both."""
    body = call_scope(KEY, b"", "plan", b"f", 0)
    found = [b"", body]
    for _ in range(2):
        for scope in list(found):
            found += [branch_scope(scope, group, number) for group in (0, 1, WRAPPED) for number in (0, 1)]
            found += [keyed_scope(KEY, scope, "pay", text) for text in ("a", "b")]
    return sorted(set(found))


def parted(one: bytes, other: bytes) -> bool:
    """Return whether two scopes are in different branches of one group: their first twelve bytes that differ say so."""
    for at in range(0, min(len(one), len(other)), ELEMENT_BYTES):
        here, there = one[at : at + ELEMENT_BYTES], other[at : at + ELEMENT_BYTES]
        if here != there:
            return here[0] == there[0] == 2 and here[1:6] == there[1:6]
    return False


def body_of(scope: bytes) -> bytes:
    """All calls are in the run's own body, or in that of the one call."""
    return scope[:ELEMENT_BYTES] if scope[:1] == b"\1" else b""


@pytest.mark.parametrize("seed", range(40))
def test_the_index_says_what_a_look_at_every_call_says(seed: int) -> None:
    choose = random.Random(seed)
    places = choose.sample(scopes(), 12)
    keys: list[CallKey] = [(choose.choice(places), choose.choice("ab"), b"f", choose.choice((0, 1))) for _ in range(14)]
    later, noted = Later(), dict[CallKey, int]()
    for _ in range(30):
        key, after = choose.choice(keys), choose.randrange(1, 40)
        later.note(key, after)
        noted[key] = min(after, noted.get(key, after))
        for asked in keys:
            for record_id in (1, choose.randrange(1, 40), 40):
                for before in (None, choose.randrange(1, 40)):
                    expected = any(
                        record_id <= at
                        and (before is None or at < before)
                        and other != asked
                        and body_of(other[0]) == body_of(asked[0])
                        and not parted(asked[0], other[0])
                        for other, at in noted.items()
                    )
                    assert later.than(asked, record_id, before=before) is expected


class Counted(int):
    """A number that counts how often it is compared."""

    compared = 0

    def __ge__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) >= other

    def __gt__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) > other


@pytest.mark.parametrize("branches", [False, True])
def test_asking_of_each_of_many_calls_compares_few_numbers(branches: bool) -> None:
    later, calls = Later(), 2_000
    keys: list[CallKey] = [
        (branch_scope(b"", 0, number) if branches else b"", "work", b"%d" % number, 0) for number in range(calls)
    ]
    for number, key in enumerate(keys):
        later.note(key, Counted(number + 1))
    Counted.compared = 0
    for number, key in enumerate(keys):
        assert later.than(key, number + 1) is (not branches and number < calls - 1)
    assert Counted.compared <= 4 * calls
