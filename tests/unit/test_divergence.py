"""A divergence names the deepest known path in the record that fits best, and what at that path may be the cause."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest

from agent_run_ledger import Diverged, Step, codecs
from agent_run_ledger.kernel.record import Record, RecordKind
from agent_run_ledger.ports import StoredRecord
from agent_run_ledger.runs.arguments import bind_arguments
from agent_run_ledger.runs.calls import CallIdentity, identify_call
from agent_run_ledger.runs.divergence import Difference, difference_from, diverged_call, explain_difference

NOW = datetime(2026, 11, 30, 3, 12, tzinfo=UTC)


def ask(messages: Any, data: Any = None, *more: Any) -> None: ...


def call(*args: Any, environment: dict[str, Any] | None = None, version: str = "1", **named: Any) -> CallIdentity:
    step = Step(ask, version=version)
    digests = {key: codecs.value_digest(value) for key, value in (environment or {}).items()}
    return identify_call(step, bind_arguments(step, args, named), digests, cache=codecs.DigestCache())


def recorded(identity: CallIdentity, salt: bytes = b"s" * 32) -> Record:
    return Record(
        kind=RecordKind.RESULT,
        run_uid=b"u" * 16,
        salt=salt,
        name=identity.name,
        fingerprint=identity.fingerprint,
        occurrence=identity.occurrence,
        inputs=identity.stored_inputs(salt, []),
    )


def difference(before: CallIdentity | list[CallIdentity], now: CallIdentity) -> Difference:
    befores = before if isinstance(before, list) else [before]
    return explain_difference(now, [recorded(one, bytes([n]) * 32) for n, one in enumerate(befores)], now=NOW)


def paths(before: CallIdentity | list[CallIdentity], now: CallIdentity) -> tuple[str, ...]:
    return difference(before, now).paths


def messages(*texts: Any) -> list[Any]:
    return [{"role": "user", "content": text} for text in texts]


TWENTY = messages(*range(20))


def changed(at: int, text: str = "other") -> list[Any]:
    return [*TWENTY[:at], *messages(text), *TWENTY[at + 1 :]]


@pytest.mark.parametrize(
    ("before", "now", "path"),
    [
        ([1, 2], [1, 3], "[1]"),
        ([1, 2], [1], "[1]"),
        ([1], [1, 2], "[1]"),
        ([], [1], "[0]"),
        ([1], [], "[0]"),
        (TWENTY, changed(0), "[0]"),
        (TWENTY, changed(7), "[7]"),
        (TWENTY, changed(8), "[8:12]"),
        (TWENTY, changed(11), "[8:12]"),
        (TWENTY, changed(12), "[12]"),
        (TWENTY, changed(19), "[19]"),
        (TWENTY, TWENTY[:15], "[15]"),
        (TWENTY, TWENTY[:5], "[5]"),
        (TWENTY, [*TWENTY, 1], "[20]"),
        (TWENTY[:16], changed(8)[:16], "[8]"),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, ".b"),
        ({"a": 1, "b": 2}, {"a": 1}, ".b"),
        ({"a": 1}, {"a": 1, "b": 2}, ".b"),
        ({"a": 1, 1: 2}, {"a": 1, 1: 3}, ""),
        ({f"n{n}": n for n in range(20)}, {f"n{n}": n % 19 for n in range(20)}, ""),
        ([1], {"a": 1}, ""),
        ("a", "b", ""),
        ((1,), (2,), ""),
        ([1], [1.0], "[0]"),
        ([[1]], [[2]], "[0]"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_the_path_goes_as_deep_as_is_known(before: Any, now: Any, path: str) -> None:
    assert paths(call(before), call(now)) == (f"arguments.messages{path}",)
    assert paths(call(1, data=before), call(1, data=now)) == (f"arguments.data{path}",)


def test_environment_comes_first_and_version_last() -> None:
    before = call("x", [1], environment={"model": "a", "top": 1})
    now = call("y", [2], environment={"model": "b", "top": 1}, version="2")
    assert paths(before, now) == ("environment.model", "arguments.messages", "arguments.data[0]", "version")


def test_arguments_that_came_or_went_are_named() -> None:
    assert paths(call("x"), call("x", 1)) == ("arguments.data",)
    assert paths(call("x", 1), call("x")) == ("arguments.data",)
    assert paths(call("x", 1, 2), call("x", 1, 3)) == ("arguments.*more",)


def test_a_call_without_tags_is_compared_by_its_arguments() -> None:
    before = call([1], {"a": 1})
    before.given = None
    assert paths(before, call([2], {"a": 1})) == ("arguments.messages",)


# -- the record that fits best -----------------------------------------------------------------------------------------


def test_the_record_with_the_fewest_differences_is_compared_with() -> None:
    far, near = call("x", "y", environment={"m": 1}), call("z", 1)
    assert paths([far, near], call("x", 1)) == paths([near, far], call("x", 1)) == ("arguments.messages",)


def test_of_equal_ones_the_one_with_the_longest_common_part() -> None:
    same_length, longest = call([*TWENTY[:1], *messages(*"abcdefgh")]), call(TWENTY[:4])
    assert paths([same_length, longest], call([*TWENTY[:5], *messages(*"wxyz")])) == ("arguments.messages[4]",)


def test_of_equal_ones_the_one_of_that_length() -> None:
    befores = [call(TWENTY[:n]) for n in (17, 18, 19, 20)]
    assert paths(befores, call(changed(8)[:18])) == ("arguments.messages[8:10]",)


def test_of_equal_ones_the_oldest() -> None:
    assert paths([call("x", {"a": 1}), call("x", {"b": 1})], call("x", {"a": 2, "b": 2})) == ("arguments.data.a",)


def test_a_step_that_declares_something_else_is_told_so_and_not_to_look_at_its_arguments() -> None:
    error = words(call("a"), call("a", environment={"m": 1}))
    assert error.message.endswith("has no record of this call: environment.m differs")
    assert error.hint == (
        "the step itself declares something else than before; on_change='rerun' runs it as a new call, "
        "a new run_id begins anew"
    )
    assert "run.now" in words(call("a"), call("b", environment={"m": 1})).hint


# -- what may be the cause ---------------------------------------------------------------------------------------------


def words(before: CallIdentity, now: CallIdentity) -> Diverged:
    return diverged_call("ticket-17", "ask", difference(before, now))


def test_an_agent_with_the_time_in_its_prompt_is_told_so() -> None:
    error = words(
        call([{"role": "system", "content": "Today is 2026-11-29 19:55"}, *TWENTY]),
        call([{"role": "system", "content": "Today is 2026-11-30 03:12"}, *TWENTY]),
    )
    assert error.message == (
        "step 'ask' of run 'ticket-17' has no record of this call: arguments.messages[0] differs, and "
        "arguments.messages[0].content holds what looks like a time ('Today is 2026-11-30 03:12'): use run.now(), "
        "which is recorded"
    )
    assert error.hint == "on_change='rerun' runs it as a new call, a new run_id begins anew"
    assert error.code == "diverged"


def test_a_time_that_is_an_argument_itself_is_told() -> None:
    error = words(call("x", {"when": NOW.replace(year=2025)}), call("x", {"when": NOW}))
    assert (
        "arguments.data.when differs, and holds what looks like a time ('2026-11-30 03:12:00+00:00')" in error.message
    )


def test_only_what_differs_is_suspected() -> None:
    before, now = call([NOW.isoformat(), "a"]), call([NOW.isoformat(), "b"])
    assert difference(before, now).volatile is None
    found = difference(call(changed(10)), call(changed(10, f"id {uuid.UUID(int=5)}"))).volatile
    assert found is not None
    assert found.path == "arguments.messages[10].content"


def test_an_element_before_the_first_tagged_one_that_differs_is_looked_at_too() -> None:
    now = [*changed(10, "It is 2026-11-30")[:12], *messages("p"), *TWENTY[13:]]
    found = difference(call(TWENTY), call(now))
    assert found.paths == ("arguments.messages[12]",)
    assert found.volatile is not None
    assert found.volatile.path == "arguments.messages[10].content"
    assert "arguments.messages[12] differs, and arguments.messages[10].content holds" in str(
        diverged_call("r", "ask", found)
    )


def test_other_differences_are_named_beside_the_suspect() -> None:
    error = words(call("a", "2026-11-29"), call("b", "2026-11-30", environment={"m": 1}))
    assert "arguments.data differs, and holds what looks like a time ('2026-11-30')" in error.message
    assert error.message.endswith("; environment.m, arguments.messages differ too")


def test_without_a_suspect_the_ways_out_are_named() -> None:
    error = words(call("a", 1), call("b", 2))
    assert error.message == (
        "step 'ask' of run 'ticket-17' has no record of this call: arguments.messages, arguments.data differ"
    )
    for way in ("run.now", "run.value", "run.gather", "run.map", "key=", "on_change='rerun'", "a new run_id"):
        assert way in error.hint
    assert words(call("a"), call("b")).message.endswith("arguments.messages differs")


def test_an_equal_call_too_many_is_told() -> None:
    error = words(call("a"), call("a"))
    assert error.message == "step 'ask' of run 'ticket-17' is called more often with the same arguments than before"


def test_a_part_that_cannot_be_looked_at_does_not_hide_the_path() -> None:
    class Unreadable(dict[str, Any]):
        def __iter__(self) -> Any:
            raise RuntimeError("no")

    now = call("x", 1)
    assert now.given is not None
    now.given.values = {**now.given.values, "data": Unreadable(a=1)}
    assert difference(call("x", 2), now) == Difference(paths=("arguments.data",))


class Shelf:
    """A store that has these records."""

    def __init__(self, *records: Record) -> None:
        self._records = records

    def reader(self) -> Shelf:
        return self

    def record(self, record_id: int) -> StoredRecord:
        return StoredRecord(record_id=record_id, run_row_id=1, record=self._records[record_id])


def test_beside_erased_records_only_the_others_are_compared() -> None:
    gone = Record(kind=RecordKind.RESULT, run_uid=b"u" * 16, salt=b"", name="ask")
    shelf: Any = Shelf(gone, recorded(call("x", 1)))
    now_ms = int(NOW.timestamp() * 1000)
    assert difference_from(shelf, [0, 1], call("x", 2), now_ms).paths == ("arguments.data",)
    assert difference_from(shelf, [0], call("x", 2), now_ms).paths == ("fingerprint",)
    found = difference_from(shelf, [1], call("x", "at 2026-11-30"), now_ms)
    assert found.volatile is not None
