"""What looks like a time, an id or a counter is found, named by its path and quoted in part; the rest is left alone."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given

from agent_run_ledger.runs.volatile import find_volatile
from tests.unit.codecs import strategies
from tests.unit.codecs.samples import Boxed

NOW = datetime(2026, 11, 30, 3, 12, 44, tzinfo=UTC)
EPOCH = int(NOW.timestamp())


def looks(value: Any) -> str | None:
    found = find_volatile(value, "v", NOW)
    return None if found is None else found.looks_like


@pytest.mark.parametrize(
    "text",
    [
        "Today is 2026-11-30 03:12",
        "2026-11-30",
        "at 2026-11-30T03:12:44.123456+00:00.",
        "2026-11-29T22:12:44-05:00",
        "2026-12-01 05:00",
        "20261130T031244Z",
        "20261130",
        "2026/11/30",
        "30.11.2026",
        "11/30/2026, 03:12:44",
        "30/11/2026",
        "Today is November 30, 2026.",
        "Nov 30, 2026",
        "30 Nov 2026",
        "30th November 2026",
        "november 30 2026",
        "Mon Nov 30 03:12:44 2026",
        "Mon, 30 Nov 2026 03:12:44 GMT",
        f"now={EPOCH}",
        f"{EPOCH}.25",
        f"{EPOCH * 1000 + 17} ms",
        f"{EPOCH * 10**6}",
        f"{EPOCH * 10**9}",
        "it is 03:12",
        "it is 08:42:01 in Kolkata",
        "03:11:59.5",
    ],
)
def test_a_time_near_now_in_a_text_is_found(text: str) -> None:
    assert looks(text) == looks(f"before {text} after") == "a time"


@pytest.mark.parametrize(
    "value",
    [
        NOW,
        NOW.replace(tzinfo=None) + timedelta(hours=14),
        NOW.astimezone(timezone(timedelta(hours=-7))),
        date(2026, 11, 29),
        date(2026, 12, 1),
        EPOCH,
        EPOCH + 0.5,
        EPOCH * 1000,
        EPOCH * 10**9,
    ],
    ids=repr,
)
def test_a_time_near_now_that_is_no_text_is_found(value: Any) -> None:
    assert looks(value) == looks({"a": [value]}) == "a time"


@pytest.mark.parametrize(
    "value",
    [
        "born 1990-05-17",
        "2026-11-27",
        "2026-12-03T00:00:00Z",
        "due on March 3, 2027",
        "12026-11-301",
        "version 2026.11",
        "1596008320",
        "17960083204",
        "it is 03:20",
        "ratio 3:12:44:55",
        "user@host:03:120",
        "the answer is 42",
        "defaced facade added",
        "1234567890123456",
        "try again",
        "3 attempts at most",
        "<b>bold</b> at 0x10",
        "",
        NOW - timedelta(days=3),
        date(2026, 11, 27),
        date(1990, 5, 17),
        EPOCH - 10**6,
        42,
        0.5,
        0.25,
        1.1234567890123,
        True,
        10**400,
        float("nan"),
        float("inf"),
        b"2026-11-30",
        None,
        {"name": 3, "total": 7},
    ],
    ids=repr,
)
def test_what_is_the_same_at_every_start_is_left_alone(value: Any) -> None:
    assert looks(value) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("session 12cab8d2-6c1d-4f0c-8b8c-5c1b4ccf9f11", "a UUID"),
        (uuid.UUID(int=7), "a UUID"),
        ("request 9f86d081884c7d65", "an id made at random"),
        ("req_0a1b2c3d", "an id made at random"),
        ("client <app.Client object at 0x7f3a2b1c>", "the address of an object"),
        ("<function work at 0x7f3a2b1c>", "the address of an object"),
        ("read /tmp/tmpab12_x9z/in.txt", "the name of a temporary file"),
        (PurePosixPath("/tmp/tmpab12_x9z"), "the name of a temporary file"),
        ("worker pid=4711", "a process id"),
        ("PID: 4711", "a process id"),
        ({"pid": 1}, "a counter"),
        (0.8444218515250481, "a random number"),
        ("This is attempt 3.", "a counter"),
        ("retry #2", "a counter"),
        ("try no. 7", "a counter"),
        ({"attempt": 3}, "a counter"),
        ({"request_nonce": 17}, "a counter"),
    ],
    ids=repr,
)
def test_ids_addresses_and_counters_are_found(value: Any, expected: str) -> None:
    assert looks(value) == looks([value]) == expected


def test_the_number_of_this_process_is_found() -> None:
    assert looks(os.getpid()) == "a process id"


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (NOW, "run.now()"),
        (uuid.UUID(int=7), "run.uuid4()"),
        (0.8444218515250481, "run.random()"),
        ("attempt 3", "run.value(name, fn)"),
        ("0a1b2c3d", "run.value(name, fn)"),
        ("tmpab12_x9z", "run.value(name, fn)"),
        ("pid 3", "run.value(name, fn)"),
        ("<X object at 0x7f3a2b1c>", "pass an id instead"),
    ],
    ids=repr,
)
def test_the_advice_is_what_records_it(value: Any, advice: str) -> None:
    found = find_volatile(value, "v", NOW)
    assert found is not None
    assert advice in found.advice


@dataclass
class Order:
    number: int
    at: Any


class Bag:
    def __init__(self, inside: Any) -> None:
        self.inside = inside


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ([{"role": "system", "content": "It is 2026-11-30."}], "v[0].content"),
        ({"a": {"b c": [1, (2, NOW)]}}, "v.a.b c[1][1]"),
        ({1: NOW}, "v[1]"),
        ({"a": {NOW.isoformat(): 1}}, "v.a"),
        (Order(1, {"when": NOW}), "v.at.when"),
        (Bag([Order(1, NOW)]), "v.inside[0].at"),
        (Boxed(NOW), "v.content"),
        ({NOW}, "v"),
        (NOW, "v"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_the_deepest_part_is_named(value: Any, path: str) -> None:
    found = find_volatile(value, "v", NOW)
    assert found is not None
    assert found.path == path


def test_what_says_most_comes_first() -> None:
    assert looks(["attempt 3", "0a1b2c3d", uuid.UUID(int=7), NOW]) == "a time"
    assert looks(["attempt 3", 0.8444218515250481, "0a1b2c3d", uuid.UUID(int=7)]) == "a UUID"
    assert looks(["attempt 3", "0a1b2c3d"]) == "an id made at random"


SECRET = "sk-secret-key"


@pytest.mark.parametrize("around", [("", ""), ("x" * 500, "y" * 500), ("", f" {SECRET * 9}"), (f"{SECRET * 9} ", "")])
def test_at_most_forty_characters_around_it_are_quoted(around: tuple[str, str]) -> None:
    before, after = around
    found = find_volatile(f"{before} 2026-11-30 03:12 {after}", "v", NOW)
    assert found is not None
    assert "2026-11-30 03:12" in found.quote
    assert found.quote[0] == found.quote[-1] == "'"
    assert len(found.quote) <= 42
    assert SECRET * 3 not in found.quote


@pytest.mark.parametrize(
    "value", ["Bearer 0a1b2c3d4e5f60718293a4b5c6d7e8f9", "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9",
              uuid.UUID("0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9")]
)  # fmt: skip
def test_of_an_id_that_may_be_a_secret_only_the_beginning_is_quoted(value: object) -> None:
    found = find_volatile(value, "v", NOW)
    assert found is not None
    assert found.quote == "'0a1b2c3d…'"


def test_a_quote_can_be_printed() -> None:
    found = find_volatile("\ud800\n2026-11-30", "v", NOW)
    assert found is not None
    assert found.quote.encode("utf-8") == b"'\\ud800\\n2026-11-30'"


def test_a_long_match_is_cut() -> None:
    found = find_volatile(f"<{'X' * 190} at 0x7f3a2b1c>", "v", NOW)
    assert found is not None
    assert len(found.quote) == 42


@given(strategies.storable)
def test_every_value_can_be_looked_at(value: Any) -> None:
    found = find_volatile(value, "v", NOW)
    assert found is None or found.path.startswith("v")


def test_a_value_that_contains_itself_comes_to_an_end() -> None:
    cycle: list[Any] = [1]
    cycle.append(cycle)
    assert looks(cycle) is None
