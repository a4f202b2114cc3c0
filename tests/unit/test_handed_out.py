"""Values that a family of runs handed out: written in their order, and nothing is committed where one is lost."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from agent_run_ledger import Unavailable, Uncertain
from agent_run_ledger.errors import LedgerError
from agent_run_ledger.kernel.record import Record
from agent_run_ledger.runs.handed_out import HandedOut


class Owner:
    """Writes into a log that a family shares, or fails."""

    def __init__(self, run_id: str, log: list[str], failure: BaseException | None = None) -> None:
        self.run_id, self.log, self.failure = run_id, log, failure

    def write(self, values: Sequence[Record]) -> None:
        if self.failure is not None:
            raise self.failure
        self.log += [f"{self.run_id}:{value}" for value in values]


@pytest.fixture
def log() -> list[str]:
    return []


def _add(handed_out: HandedOut, owner: Owner, *values: Any) -> None:
    for value in values:
        handed_out.add(owner, value)


def _commit(handed_out: HandedOut, owner: Owner, log: list[str]) -> None:
    with handed_out.in_order:
        values = handed_out.before(owner)
        with handed_out.writing(owner, len(values)):
            owner.write(values)
    log.append(f"{owner.run_id}!")


def test_what_the_family_handed_out_is_written_in_its_order_before_a_commit(log: list[str]) -> None:
    handed_out, one, other = HandedOut(), Owner("a", log), Owner("b", log)
    _add(handed_out, one, 1, 2)
    _add(handed_out, other, 3)
    _add(handed_out, one, 4, 5)
    _commit(handed_out, one, log)
    assert log == ["a:1", "a:2", "b:3", "a:4", "a:5", "a!"]
    _add(handed_out, other, 6)
    _commit(handed_out, one, log)
    assert log[6:] == ["b:6", "a!"]
    _commit(handed_out, other, log)
    assert log[8:] == ["b!"], "nothing is written twice"


def test_a_commit_adds_only_the_last_values_of_its_own(log: list[str]) -> None:
    handed_out, one, other = HandedOut(), Owner("a", log), Owner("b", log)
    _add(handed_out, one, 1)
    _add(handed_out, other, 2)
    _add(handed_out, one, 3)
    with handed_out.in_order:
        values: list[Any] = list(handed_out.before(one))
    assert (values, log) == ([3], ["a:1", "b:2"])
    assert handed_out.waits(one)
    assert not handed_out.waits(other)


@pytest.mark.parametrize("own", [True, False])
def test_what_could_not_be_written_is_written_later(log: list[str], own: bool) -> None:
    handed_out, one, other = HandedOut(), Owner("a", log, Unavailable("full")), Owner("b", log)
    _add(handed_out, one, 1)
    with pytest.raises(Unavailable, match="full"):
        _commit(handed_out, one if own else other, log)
    one.failure = None
    _commit(handed_out, other, log)
    assert log == ["a:1", "b!"]


@pytest.mark.parametrize("failure", [Uncertain("nobody knows"), KeyboardInterrupt()])
def test_where_nobody_knows_whether_a_value_is_on_record_the_others_commit_nothing(
    log: list[str], failure: BaseException
) -> None:
    handed_out, one, other = HandedOut(), Owner("a", log, failure), Owner("b", log)
    _add(handed_out, one, 1)
    with pytest.raises(type(failure)):
        _commit(handed_out, one, log)
    one.failure = None
    for _ in range(2):
        with pytest.raises(Unavailable, match="run 'a' handed out") as refused:
            _commit(handed_out, other, log)
        assert refused.value.code == "value_lost"
    _commit(handed_out, one, log)  # its own attempt was told already, and is halted elsewhere
    assert log == ["a!"], "it is not written a second time"


def test_who_meets_the_failure_of_another_is_told_whose_value_it_was(log: list[str]) -> None:
    handed_out, one, other = HandedOut(), Owner("a", log, Uncertain("nobody knows")), Owner("b", log)
    _add(handed_out, one, 1)
    with pytest.raises(Unavailable) as refused:
        _commit(handed_out, other, log)
    assert refused.value.code == "value_lost"
    assert isinstance(refused.value.__cause__, Uncertain)
    _add(handed_out, one, 2)
    _add(handed_out, other, 3)
    with pytest.raises(LedgerError, match="nobody knows"):
        _commit(handed_out, one, log)


@pytest.mark.parametrize("waits", [True, False])
def test_a_run_that_is_left_with_a_value_that_waits_has_lost_it(log: list[str], waits: bool) -> None:
    handed_out, one, other = HandedOut(), Owner("a", log), Owner("b", log)
    if waits:
        _add(handed_out, one, 1)
    handed_out.leave(one)
    if waits:
        with pytest.raises(Unavailable, match="run 'a' handed out"):
            _commit(handed_out, other, log)
    else:
        _commit(handed_out, other, log)
    assert log == ([] if waits else ["b!"])


def test_handing_out_does_not_wait_for_a_commit(log: list[str]) -> None:
    handed_out, one = HandedOut(), Owner("a", log)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with handed_out.in_order:
            held.set()
            assert done.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(30)
    adder = threading.Thread(target=_add, args=(handed_out, one, 1))
    adder.start()
    adder.join(30)
    came_back = not adder.is_alive()
    done.set()
    holder.join(30)
    assert came_back
    assert handed_out.waits(one)
