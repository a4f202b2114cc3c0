"""Erasures as pure values: what is left of a record, what a decision says, and whether the two add up."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.kernel.erasure import (
    ERASABLE,
    EVENTS,
    ErasedAccount,
    Erasure,
    erased_form,
    kept_digest,
    kept_sha256,
    parse_erasure,
)
from agent_run_ledger.kernel.record import Record, RecordKind, record_frame

RECORD = Record(
    kind=RecordKind.RESULT,
    run_uid=b"u" * 16,
    salt=b"s" * 32,
    scope=b"c",
    name="ask",
    fingerprint=b"f" * 32,
    occurrence=3,
    attempt=2,
    tries=4,
    started_at_ms=5,
    ended_at_ms=6,
    inputs=b"{}",
    code=b"d" * 8,
    value_sha256=b"v" * 32,
    encoding=1,
    payload=b"secret",
    usage=b'[{"model":"m"}]',
)


def digest(number: int) -> bytes:
    return hashlib.sha256(b"%d" % number).digest()


def said(*ids: int, ranges: list[tuple[int, int]] | None = None, count: int | None = None) -> Erasure:
    return Erasure(
        event="erase",
        count=len(ids) if count is None else count,
        ranges=[(one, one) for one in ids] if ranges is None else ranges,
        kept_sha256=kept_sha256(map(digest, ids)),
    )


def noted(*ids: int) -> ErasedAccount:
    account = ErasedAccount()
    for record_id in ids:
        account.note("r", record_id, digest(record_id))
    return account


def test_everything_but_ends_and_decisions_can_be_erased() -> None:
    assert set(RecordKind) - set(ERASABLE) == {RecordKind.END, RecordKind.DECISION}
    assert EVENTS == ("erase", "prune")


def test_an_erased_record_keeps_place_name_times_and_usage_and_nothing_else() -> None:
    assert erased_form(0x1020304, RECORD) == replace(
        RECORD,
        salt=b"",
        fingerprint=b"\0\0\0\0\1\2\3\4",
        inputs=b"",
        code=b"",
        value_sha256=b"",
        payload=b"",
    )
    assert b"secret" not in record_frame(erased_form(1, RECORD))


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "asc"}, {"usage": b""}, {"ended_at_ms": 7}, {"attempt": 1}, {"kind": RecordKind.ERROR},
        {"occurrence": 0}, {"scope": b""}, {"payload": b"back"}, {"inputs": b"{}"}, {"fingerprint": b"f" * 32},
    ],
)  # fmt: skip
def test_the_digest_of_what_is_kept_covers_all_of_it(fields: dict[str, Any]) -> None:
    left = erased_form(9, RECORD)
    assert kept_digest(left) == hashlib.sha256(record_frame(left)).digest()
    assert kept_digest(replace(left, **fields)) != kept_digest(left)


CONTENT = {"event": "prune", "count": 2, "ranges": [[1, 5], [8, 8]], "kept_sha256": "ab" * 32, "more": 1}


def test_a_decision_says_what_it_erased() -> None:
    wanted = Erasure(event="prune", count=2, ranges=[(1, 5), (8, 8)], kept_sha256=b"\xab" * 32)
    assert parse_erasure(CONTENT) == wanted
    assert parse_erasure(CONTENT | {"count": 0, "ranges": []}) is not None


@pytest.mark.parametrize(
    "other",
    [
        {"event": "cancel"}, {"event": None}, {"count": -1}, {"count": True}, {"count": "2"}, {"ranges": None},
        {"ranges": [[5, 1]]}, {"ranges": [[1, 5], [5, 8]]}, {"ranges": [[1]]}, {"ranges": [[1, "5"]]},
        {"ranges": [1, 5]}, {"ranges": [[-1, 4]]}, {"kept_sha256": "ab"}, {"kept_sha256": "x" * 64},
        {"kept_sha256": None},
    ],
)  # fmt: skip
def test_anything_else_says_nothing(other: dict[str, object]) -> None:
    assert parse_erasure(CONTENT | other) is None
    assert parse_erasure([CONTENT]) is None


def test_what_decisions_name_is_settled_and_the_rest_is_not() -> None:
    account = noted(1, 2, 3, 4, 5)
    assert account.settle("r", said(2, 4)) == []
    assert not account.is_settled
    assert list(account.unexplained()) == [("r", 1), ("r", 3), ("r", 5)]
    assert account.settle("r", said(1, 3, 5, ranges=[(1, 5)])) == []
    assert account.is_settled
    assert list(account.unexplained()) == []


@pytest.mark.parametrize(
    ("erased", "decision"),
    [((1, 2), said(1, 2, 3)), ((1, 2, 3), said(1, 3, ranges=[(1, 3)])), ((), said(1)), ((1,), said())],
    ids=["one put back", "one more than it said", "nothing erased", "nothing named"],
)
def test_a_number_that_is_not_so_is_said(erased: tuple[int, ...], decision: Erasure) -> None:
    account = noted(*erased)
    wrong = account.settle("r", decision)
    assert bool(wrong) is (decision.count > 0)
    assert wrong == [] or f"erased {decision.count} records" in wrong[0]
    assert account.is_settled is (decision.count > 0 or not erased)


def test_an_erased_record_that_was_changed_is_said() -> None:
    account = ErasedAccount()
    account.note("r", 1, digest(7))
    assert "what is left" in account.settle("r", said(1))[0]


def test_decisions_speak_of_their_own_run_and_of_what_came_before() -> None:
    account = noted(1)
    assert account.settle("other", said(1))
    assert not account.is_settled
    assert account.settle("r", said(1)) == []
    account.note("r", 2, digest(2))
    assert list(account.unexplained()) == [("r", 2)]


def test_what_was_read_before_it_was_erased_is_looked_at_once_more() -> None:
    account = noted(2)
    assert account.settle("r", said(1, 2, 3, ranges=[(1, 3)]), lambda *_: [(n, digest(n)) for n in (1, 2, 3)]) == []
    assert account.is_settled
    assert account.settle("r", said(4, ranges=[(1, 4)]), lambda *_: [(n, digest(n)) for n in (1, 2, 3, 4)]) == []


def test_a_second_look_does_not_find_what_was_put_back() -> None:
    account = noted(1, 3)
    wrong = account.settle("r", said(1, 2, 3, ranges=[(1, 3)]), lambda *_: [(1, digest(1)), (3, digest(3))])
    assert wrong == ["the erase says that it erased 3 records, and 2 of them are erased"]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_any_split_of_any_erasures_adds_up(waves: list[int], random: Any) -> None:
    """Each record is erased in a wave of its own choice; ranges run over whatever was erased in waves before."""
    account = noted(*range(len(waves)))
    left = list(range(len(waves)))
    for wave in range(5):
        chosen = [n for n in left if waves[n] == wave]
        ranges: list[tuple[int, int]] = []
        for at, n in enumerate(left):
            if n in chosen and at and left[at - 1] in chosen and ranges and random.random() < 0.9:
                ranges[-1] = (ranges[-1][0], n)
            elif n in chosen:
                ranges.append((n, n))
        if chosen:
            assert account.settle("r", said(*chosen, ranges=ranges)) == []
        left = [n for n in left if n not in chosen]
    assert account.is_settled
