"""Foreign text is safe on a terminal, and numbers read well."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.cli.words import (
    ago_words,
    clean,
    clean_lines,
    counted,
    duration_words,
    first_line,
    iso,
    listed,
    size_words,
)


@given(st.text(alphabet=st.characters(codec=None)))
def test_clean_leaves_nothing_that_a_terminal_obeys(text: str) -> None:
    assert clean(text).isprintable()


@given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126)))
def test_clean_leaves_ascii_as_it_is(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb", "a\\nb"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\x9b2J", "\\x9b2J"),
        ("\u202etxt.exe", "\\u202etxt.exe"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("naïve ✓ 表", "naïve ✓ 表"),
    ],
)
def test_clean_writes_codes(text: str, shown: str) -> None:
    assert clean(text) == shown


def test_lines_stay_lines_and_tabs_become_spaces() -> None:
    assert clean_lines("a\n\tb\x07\n") == ["a", "    b\\a", ""]


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (3 << 20, "3.0 MiB"), (5 << 40, "5.0 TiB")],
)
def test_sizes(count: int, words: str) -> None:
    assert size_words(count) == words


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [
        (-1, "clock changed"),
        (0, "0 ms"),
        (999, "999 ms"),
        (1250, "1.25 s"),
        (125_000, "2 min 05 s"),
        (11_400_000, "3 h 10 min"),
        (10 * 86_400_000, "10 days"),
    ],
)
def test_durations(milliseconds: int, words: str) -> None:
    assert duration_words(milliseconds) == words


@pytest.mark.parametrize(
    ("age_ms", "words"),
    [
        (-60_000, "in the future"),
        (400, "just now"),
        (59_000, "59 s ago"),
        (61_000, "1 min ago"),
        (7_200_000, "2 h ago"),
        (3 * 86_400_000, "3 days ago"),
    ],
)
def test_ages(age_ms: int, words: str) -> None:
    now_ms = 1_800_000_000_000
    assert ago_words(now_ms - age_ms, now_ms) == words


def test_times_are_utc_with_milliseconds_and_impossible_ones_are_numbers() -> None:
    assert iso(0) == "1970-01-01T00:00:00.000Z"
    assert iso(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert iso(1 << 62) == str(1 << 62)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        (" \n one \n", "one"),
        ("one\ntwo", "one …"),
        ("x" * 300, "x" * 300),
        ("x" * 301, f"{'x' * 300} …"),
        ("\n\n", ""),
    ],
)
def test_the_first_line(text: str, line: str) -> None:
    assert first_line(text) == line


def test_twenty_names_and_how_many_more() -> None:
    names = [f"n{number}" for number in range(1021)]
    assert listed(names[:20]) == ", ".join(names[:20])
    assert listed(names) == f"{', '.join(names[:20])}, and 1,001 more (all with --json)"
    assert listed(names[:3], limit=2, rest="") == "n0, n1, and 1 more"


def test_counted() -> None:
    assert counted(1, "run") == "1 run"
    assert counted(1234, "run") == "1,234 runs"
