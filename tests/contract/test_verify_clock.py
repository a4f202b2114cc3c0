"""The auditor on clock corrections: silent about honest ones, precise about each forgery, however thorough."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger.effects import LedgerState
from agent_run_ledger.kernel.effects import Standing
from agent_run_ledger.kernel.effects.clock import CorrectClock, Correction, correction_mac
from agent_run_ledger.kernel.effects.reading import LEAP_MS, Sample
from agent_run_ledger.store import effect_reader, open_sqlite
from agent_run_ledger.testing import LedgerBroken, check_ledger
from tests.contract.effect_kit import A, E, effects
from tests.contract.effect_stories import Change, edit, forge_record, forge_words, places, problems_of, rewrite
from tests.contract.test_effect_clock import OFF

Tree = dict[str, Any]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two corrections, back and forward, with actions before, between and after them."""
    with effects(officers_needed=2) as kit:
        kit.reach(A.AVAILABLE, key="before")
        for number, ms in enumerate((-5_000, 3 * LEAP_MS)):
            kit.ticks.leap(ms)
            kit.do(E.REVOKE, kit.propose(key=f"untrusted {number}"))
            kit.ledger.correct_clock(OFF, frozenset({"otto"}))
            kit.ticks.tick(100)
            kit.reach(A.PREPARED, key=f"after {number}")
        kit.ledger.close()
        return Path(shutil.copy(kit.path, tmp_path_factory.mktemp("clock") / "written.db"))


@pytest.fixture
def ledger(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(written, tmp_path / "forged.db"))


def corrections(path: Path) -> list[int]:
    """The record ids of the corrections."""
    store = open_sqlite(path, create=False)
    try:
        return [one.record_id for one in store.reader().effects.leaf_corrections(first=0, stop=999)]
    finally:
        store.close()


def forge(path: Path, at: int, change: Change, line: Change = lambda line: None) -> None:
    """Rewrite a correction's record thoroughly: see `forge_record`."""
    forge_record(
        path,
        at,
        read=lambda effects: effects.leaf_corrections,
        table="clock_corrections",
        mac=correction_mac,
        change=change,
        of_leaf=line,
    )


def test_honest_corrections_are_no_problem(ledger: Path) -> None:
    assert problems_of(ledger) == []
    assert len(corrections(ledger)) == 2
    check_ledger(ledger)


BESIDE: dict[str, tuple[str, str]] = {
    "another payload": (
        "UPDATE clock_corrections SET payload = CAST(replace(payload, 'otto', 'okto') AS BLOB) WHERE record_id = {at}",
        "change 0, a clock correction: the record is not the one whose MAC the leaf has",
    ),
    "another salt": (
        "UPDATE clock_corrections SET salt = zeroblob(32) WHERE record_id = {at}",
        "the record is not the one whose MAC the leaf has",
    ),
    "a record less": (
        "DELETE FROM clock_corrections WHERE record_id = {at}",
        "it has the MAC of a record that is not in the store",
    ),
    "a record more": (
        "INSERT INTO clock_corrections SELECT record_id + 1, later_ms, salt, payload FROM clock_corrections "
        "WHERE record_id = {at}",
        "a record of a clock correction at position 1, where the leaf has none",
    ),
    "another time in the row": (
        "UPDATE clock_corrections SET later_ms = 5 WHERE record_id = {at}",
        "its row says 5 ms, its record 1000000 ms",
    ),
    "a payload of another type": (
        "UPDATE clock_corrections SET payload = CAST(payload AS TEXT) WHERE record_id = {at}",
        "a record of a clock correction cannot be read",
    ),
    "a salt of another type": (
        "UPDATE clock_corrections SET salt = 'x' WHERE record_id = {at}",
        "a record of a clock correction cannot be read",
    ),
    "a time of another type": (
        "UPDATE clock_corrections SET later_ms = 'x' WHERE record_id = {at}",
        "a record of a clock correction cannot be read",
    ),
    "a leaf less": (
        "DELETE FROM events WHERE leaf_index = {at} >> 16",
        "a record of a clock correction, whose leaf is missing",
    ),
}


@pytest.mark.parametrize(("sql", "words"), BESIDE.values(), ids=BESIDE)
def test_a_record_that_is_not_the_leafs_is_named_at_its_leaf(ledger: Path, sql: str, words: str) -> None:
    at, _ = corrections(ledger)
    assert edit(ledger, sql.format(at=at)) > 0
    problems = problems_of(ledger)
    assert any(index == at >> 16 and words in text for index, text in problems), problems
    with pytest.raises(LedgerBroken, match="forged"):
        check_ledger(ledger)


def test_what_follows_a_correction_that_cannot_be_read_is_not_blamed(ledger: Path) -> None:
    at, _ = corrections(ledger)
    edit(ledger, f"DELETE FROM clock_corrections WHERE record_id = {at}")
    assert [index for index, _ in problems_of(ledger)] == [at >> 16]


@pytest.mark.parametrize("leaf", [-3, 999])
def test_a_record_outside_the_log_is_named(ledger: Path, leaf: int) -> None:
    at, _ = corrections(ledger)
    columns = "later_ms, salt, payload FROM clock_corrections"
    edit(ledger, f"INSERT INTO clock_corrections SELECT {leaf << 16}, {columns} WHERE record_id = {at}")
    assert (leaf, "a record of a clock correction outside the log that the head describes") in problems_of(ledger)


def test_a_record_of_the_last_leaf_is_named_where_that_is_missing(ledger: Path) -> None:
    store = open_sqlite(ledger, create=False)
    size = store.reader().head().size
    store.close()
    _, at = corrections(ledger)
    edit(ledger, f"DELETE FROM events WHERE leaf_index >= {at >> 16}")
    assert size > at >> 16
    assert (at >> 16, "a record of a clock correction, whose leaf is missing") in problems_of(ledger)


REWRITTEN: dict[str, tuple[Callable[[Tree], object], Callable[[Tree], object], str]] = {
    "no officer": (
        lambda tree: tree["command"]["actor"].update(roles=["operator"]),
        lambda line: None,
        "the rule does not allow it: wrong_role",
    ),
    "an officer too few": (
        lambda tree: tree["command"].pop("people"),
        lambda line: None,
        "the rule does not allow it: few_officers",
    ),
    "an open ledger": (
        lambda tree: tree["ledger"].pop("state"),
        lambda line: None,
        "the rule does not allow it: time_trusted",
    ),
    "a ledger in recovery": (
        lambda tree: tree["ledger"].update(state="recovery"),
        lambda line: None,
        "the rule does not allow it: ledger_recovery",
    ),
    "a clock that was trusted": (
        lambda tree: tree["new"].update(wall_ms=tree["old"]["wall_ms"]),
        lambda line: None,
        "the rule does not allow it: time_trusted",
    ),
    "a mark that nobody believed": (
        lambda tree: tree["old"].update(wall_ms=tree["old"]["wall_ms"] - 1),
        lambda line: None,
        "it set aside 999999 ms, and 1000000 ms was believed",
    ),
    "the record of another log": (
        lambda tree: tree["ledger"].update(ledger_id="00" * 16),
        lambda line: None,
        "log and epoch",
    ),
    "the record of another epoch": (
        lambda tree: tree["ledger"].update(epoch=1),
        lambda line: None,
        "log and epoch",
    ),
    "a correction more than there were": (
        lambda tree: tree["ledger"].update(corrections=1),
        lambda line: None,
        "1 clock corrections up to 0 ms in the record, 0 up to 0 ms in the log",
    ),
    "another old state": (
        lambda tree: None,
        lambda line: line.update(old="open"),
        "old state 'open', generation 0",
    ),
    "a generation": (
        lambda tree: None,
        lambda line: line.update(generation=1),
        "old state 'time_untrusted', generation 1",
    ),
    "no record at all": (
        lambda tree: tree.pop("new"),
        lambda line: None,
        "the record is none: this is no record of a clock correction, version 1",
    ),
    "no MAC": (
        lambda tree: None,
        lambda line: line.pop("mac"),
        "the leaf has no MAC of its record",
    ),
    "another change in its place": (
        lambda tree: None,
        lambda line: line.update(new="time_corrextd"),
        "a record of a clock correction at position 0, where the leaf has none",
    ),
}


@pytest.mark.parametrize(("change", "line", "words"), REWRITTEN.values(), ids=REWRITTEN)
def test_a_correction_that_was_rewritten_against_the_rule_is_named(
    ledger: Path, change: Callable[[Tree], object], line: Callable[[Tree], object], words: str
) -> None:
    at, _ = corrections(ledger)
    forge(ledger, at, change, line)
    problems = problems_of(ledger)
    assert any(index == at >> 16 and words in text for index, text in problems), problems
    assert not any("frontier" in text for _, text in problems)


def test_the_mark_before_a_correction_is_the_one_that_the_last_correction_set(ledger: Path) -> None:
    """Where nothing was written between them; else the last time that was believed since."""
    first, second = corrections(ledger)
    store = open_sqlite(ledger, create=False)
    one, two = (json.loads(record.payload) for record in store.reader().effects.leaf_corrections(first=0, stop=999))
    store.close()
    assert two["old"]["wall_ms"] == one["new"]["wall_ms"] + 100, "the actions after it were believed 100 ms later"
    forge(ledger, second, lambda tree: tree["old"].update(wall_ms=one["new"]["wall_ms"]))
    assert (
        second >> 16,
        f"change 0, a clock correction: it set aside {one['new']['wall_ms']} ms, "
        f"and {two['old']['wall_ms']} ms was believed",
    ) in problems_of(ledger)
    assert first < second


@pytest.mark.parametrize("told", [{"corrections": 0}, {"corrected_ms": 7}])
def test_an_action_that_was_decided_without_a_correction_is_named(ledger: Path, told: dict[str, int]) -> None:
    (at,) = places(ledger, "after 0", "Claim")

    def forget(tree: Tree) -> None:
        tree["ledger"].update(told)
        tree["ledger"] = {name: value for name, value in tree["ledger"].items() if value != 0}

    rewrite(ledger, at, forget)
    problems = problems_of(ledger)
    assert any(index == at >> 16 and "clock corrections up to" in text for index, text in problems), problems


def test_a_drain_is_not_made_to_be_of_the_corrected_clock(tmp_path: Path) -> None:
    """In its row it would let a permit's end count that a wrong clock had said."""
    with effects() as kit:
        view = kit.reach(A.UNRESOLVED)
        kit.do(E.OBSERVE, view, evidence=kit.drain(view))
        kit.ledger.close()
        path = Path(shutil.copy(kit.path, tmp_path / "forged.db"))
    more = """replace(more, '"evidence":', '"drain_corrections":1,"evidence":')"""
    assert edit(path, f"UPDATE actions SET more = CAST({more} AS BLOB)") == 1
    problems = problems_of(path)
    assert any("says drain_corrections 1, the log 0" in text for _, text in problems), problems


@pytest.mark.parametrize(
    ("old", "new"), [(b'"new":"authority"', b'"new":"authoritx"'), (b'"new":"authority"', b'"new":"copy"')]
)
def test_a_log_without_authority_and_that_of_a_copy_have_no_corrections(ledger: Path, old: bytes, new: bytes) -> None:
    at, _ = corrections(ledger)
    forge_words(ledger, old, new)
    words = "change 0, a clock correction: the log is a copy's, or never gave this store authority"
    assert (at >> 16, words) in problems_of(ledger)


def test_a_copys_log_that_had_authority_has_no_corrections_behind_it(tmp_path: Path) -> None:
    with effects() as kit:
        kit.propose()
        kit.ledger._store.backup(tmp_path / "copy.db")
    copy = tmp_path / "copy.db"
    store = open_sqlite(copy, create=False)
    log_id = store.log_id
    store.close()
    _correct_copy(copy, log_id)
    assert any("the log is a copy's, or never gave this store authority" in text for _, text in problems_of(copy))


def _correct_copy(path: Path, log_id: bytes) -> None:
    """Write a whole correction into a copy, past every rule."""

    def write(tx: Any) -> None:
        mark = tx.effects.time_kept()[0]
        new = Sample(wall_ms=mark.wall_ms - 1, uptime_ms=mark.uptime_ms, boot=mark.boot)
        standing = Standing(ledger_id=log_id, state=LedgerState.TIME_UNTRUSTED)
        asked = Correction(command=CorrectClock(actor=OFF), ledger=standing, old=mark, new=new)
        tx.effects.correct_clock(asked, salt=bytes(32))

    store = open_sqlite(path, create=False)
    try:
        store.transact(b"sixteen bytes op", write)
    finally:
        store.close()


def test_records_come_in_pages(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effect_reader, "_CHUNK_ROWS", 1)
    assert len(set(corrections(ledger))) == 2
    assert problems_of(ledger) == []
