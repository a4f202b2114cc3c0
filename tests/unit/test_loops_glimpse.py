"""Glimpses: small, without readable text, the same in every process, and packed as the golden file says."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.errors import Misuse
from agent_run_ledger.kernel.loops import Call, Glimpse, glimpse_of
from agent_run_ledger.kernel.loops.normalise import nameless, timeless
from agent_run_ledger.kernel.loops.similarity import cosine, features, overlap, sketch, vector
from tests.unit.kernel_formats import golden, worked_example
from tests.unit.loop_calls import call

MIB = 1 << 20
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
calls = st.builds(
    Call,
    tool=st.text(),
    arguments=values,
    outcome=values,
    error=st.none() | st.text(),
    vetoed=st.booleans(),
    poll=st.booleans(),
    volatile=st.sampled_from([(), ("a",), ("a.b", "c")]),
)


def call_of(case: dict[str, Any]) -> Call:
    return Call(**{**case, "volatile": tuple(case.get("volatile", ()))})


@pytest.mark.parametrize("case", golden("glimpse") + worked_example("glimpse"))
def test_a_glimpse_is_packed_as_the_golden_file_says(case: dict[str, Any]) -> None:
    assert glimpse_of(call_of(case["call"])).pack().hex() == case["packed_hex"]


@given(calls)
def test_every_glimpse_comes_back_from_its_bytes_and_is_small(one: Call) -> None:
    glimpse = glimpse_of(one)
    packed = glimpse.pack()
    assert Glimpse.unpack(packed) == glimpse
    assert len(packed) <= 235


@pytest.mark.parametrize("change", [lambda b: b"", lambda b: b"\x02" + b[1:], lambda b: b[:-1], lambda b: b + b"\0"])
def test_bytes_of_another_version_or_length_are_no_glimpse(change: Any) -> None:
    packed = glimpse_of(call("read", "a few words here", path="a")).pack()
    with pytest.raises(Misuse) as refused:
        Glimpse.unpack(change(packed))
    assert refused.value.code == "bad_glimpse"


def test_a_count_of_pairs_beyond_the_most_is_no_glimpse() -> None:
    packed = bytearray(glimpse_of(call("read", "", path="a")).pack())
    packed[42] = 17
    with pytest.raises(Misuse):
        Glimpse.unpack(bytes(packed) + b"\0" * 68)


def test_no_piece_of_an_argument_or_an_outcome_can_be_read_in_a_glimpse() -> None:
    packed = glimpse_of(call("pay", "the word is swordfish", card="4111 1111 1111 1111", to="alice@example.org")).pack()
    for secret in ("swordfish", "4111", "alice", "pay"):
        assert secret.encode() not in packed


def test_glimpses_do_not_depend_on_the_process() -> None:
    program = (
        "from agent_run_ledger.kernel.loops import Call, glimpse_of\n"
        "print(glimpse_of(Call(tool='t', arguments={'b': ['x'], 'a': 1}, outcome='one two three four')).pack().hex())"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(said) == 1


def test_texts_of_any_length_are_told_apart_and_looked_at_in_part() -> None:
    text = "x y " * (MIB // 4)
    middle = text[: MIB // 2] + "z" + text[MIB // 2 + 1 :]
    one, other = (glimpse_of(call("read", whole, text=whole)) for whole in (text, middle))
    assert one.features == other.features
    assert (one.given, one.came) != (other.given, other.came)
    assert one.given != other.given
    assert one.came != other.came
    assert len(one.pack()) <= 235


def test_what_only_counts_or_changes_at_every_call_makes_no_difference() -> None:
    def same(one: Call, other: Call) -> bool:
        first, second = glimpse_of(one), glimpse_of(other)
        return (first.given, first.came) == (second.given, second.came)

    assert same(
        call("t", {"a": 1, "request_id": "x"}, p=1, attempt=1), call("t", {"request_id": "y", "a": 1}, attempt=2, p=1)
    )
    assert same(call("t", '{"a": 1, "took_ms": 3}'), call("t", {"took_ms": 4, "a": 1}))
    assert same(call("t", "done in 0.31 s"), call("t", "Done in  12 s"))
    assert same(call("t", "at 2026-01-02T03:04:05Z"), call("t", "at 2026-02-03 04:05:06.789+01:00"))
    assert not same(call("t", {"a": 1}), call("t", {"a": 2}))
    assert not same(call("t", attempt=1), call("t", attempt=2)), "where a counter is all there is, it is the argument"
    assert not same(call("t", p=1), call("t", p="1x"))
    assert not same(call("t", "3 failed"), call("t", "4 failed"))


def test_values_that_json_cannot_hold_still_make_a_glimpse() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert glimpse_of(call("t", endless, a=endless)) == glimpse_of(call("t", endless, a=endless))
    mixed = glimpse_of(call("t", {1: "a", "b": 2}, p={1: "a", "b": {3}}))
    assert mixed != glimpse_of(call("t", {1: "a", "b": 3}, p={1: "a", "b": {4}}))
    assert glimpse_of(call("t", "{not json")).came != glimpse_of(call("t", "{no json")).came


def test_the_cosine_is_that_of_3_gram_counts() -> None:
    one = "select name from players where final_table > 3 order by name"
    near, far = one.replace("name", "names"), "rm -rf /var/tmp/cache && echo finished"
    assert cosine(vector(features(one)), vector(features(one))) == pytest.approx(1)
    assert cosine(vector(features(one)), vector(features(near))) == pytest.approx(_exact(one, near), abs=0.05)
    assert (
        abs(cosine(vector(features(one)), vector(features(far))) - _exact(one, far)) < 0.25
    )  # four times 1 / sqrt(256)
    assert cosine(vector(features("")), vector(features(one))) == 0


def _exact(one: str, other: str) -> float:
    def counts(text: str) -> dict[str, int]:
        grams = [text[i : i + 3] for i in range(len(text) - 2)]
        return {gram: grams.count(gram) for gram in grams}

    a, b = counts(one), counts(other)
    product = sum(count * b.get(gram, 0) for gram, count in a.items())
    return product / (sum(c * c for c in a.values()) * sum(c * c for c in b.values())) ** 0.5


def test_the_overlap_of_word_pairs_does_not_see_the_order_of_lines() -> None:
    lines = [f"row {n} of the table" for n in range(4)]
    assert overlap(sketch("\n".join(lines)), sketch("\n".join(reversed(lines)))) == 1
    assert overlap(sketch("a b c"), sketch("c b a")) == 0
    assert overlap(sketch(""), sketch("")) == 0
    assert 0.5 < overlap(sketch("a b c d e f g h"), sketch("a b c d e f g x")) < 1


def test_counts_beyond_seven_are_clipped_on_either_side() -> None:
    assert {max(map(abs, vector(features(letter * 100)))) for letter in "abcdefgh"} == {7}
    assert {sum(vector(features(letter * 100))) for letter in "abcdefgh"} == {7, -7}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("at 12:30:45 on", "at @ on"),
        ("v12:30:45", "v12:30:45"),
        ("x2024-01-02T03:04:05.5Z y", "x@ y"),
        ("7:08:09,1 and 107:08:09", "@ and 107:08:09"),
        ("took 1m30s", "took ~"),
        ("took 3.5 seconds, x15ms, 15 msx", "took ~, x15ms, 15 msx"),
        ("/proc/12/fd", "~/fd"),
        ("of pid: 34, stupid 5", "of ~, stupid 5"),
    ],
)
def test_moments_durations_and_processes_are_taken_out_where_they_stand_alone(text: str, left: str) -> None:
    assert timeless(text) == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("line 12: a word", "#: a word"),
        ("12 lines of code", "# of code"),
        ("a word\n  7|code", "a word\n#|code"),
        ("a word 7|code", "a word 7|code"),
        ("outline 5, 6 linesx", "outline 5, 6 linesx"),
        ("at 0xdeadbeef, 0xab", "at ~, 0xab"),
        ("ab12cd34 and 1234567890 and deadbeef", "~ and 1234567890 and deadbeef"),
        ("id 0f8fad5b-d9cb-469f-a165-70867728950e", "id ~"),
    ],
)
def test_generated_names_and_line_numbers_are_taken_out_and_other_numbers_stay(text: str, left: str) -> None:
    assert nameless(text) == left
