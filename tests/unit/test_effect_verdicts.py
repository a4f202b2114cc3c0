"""What follows from what the effect kit saw: the guarantee that is shown, and what a person is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent_run_ledger.effects import Found
from agent_run_ledger.testing.effect_desk import Looked
from agent_run_ledger.testing.effect_kit import Guarantee, KitReport, Probe, Promise, Ran, Row
from agent_run_ledger.testing.effect_scenarios import SCENARIOS, kills, scenario_of
from agent_run_ledger.testing.effect_verdicts import MUST_BE_SEEN, row_from, shown_by

NONE, N, I = Guarantee.NONE, Guarantee.N, Guarantee.I  # noqa: E741


def row(name: str, promise: Promise, **more: Any) -> Row:
    told = {"ran": Ran.YES, "effects": 1, "state": "succeeded", **more}
    return Row(name=name, title=name.upper(), promise=promise, **told)


PLAIN = row("plain", Promise.PLAIN)
KILLED = row("kill:target.written#1", Promise.PLAIN, probe=Probe.TRUE, seen=1)
TWICE = row("twice", Promise.REMEMBERS)
COPY = row("old_copy", Promise.REMEMBERS)
BEYOND = row("old_copy_successor", Promise.BEYOND, effects=2)
GOOD = (PLAIN, KILLED, TWICE, COPY, BEYOND)


def report(*rows: Row, claimed: Guarantee = I) -> KitReport:
    return KitReport(case="case.py:CASE", claimed=claimed, rows=rows)


def test_a_tool_that_does_everything_once_is_shown_to_remember() -> None:
    seen = report(*GOOD)
    assert (seen.shown, seen.ok) == (I, True)
    assert seen.verdict == "claimed: I (remembers a key); shown: I (remembers a key)"
    assert [seen.judged(one) for one in seen.rows] == ["holds"] * 4 + ["UNSAFE, expected"]
    assert seen.findings == ("it can happen twice, as its class says: OLD_COPY_SUCCESSOR",)


@pytest.mark.parametrize("at", [2, 3])
def test_twice_where_only_memory_helps_shows_a_plain_target(at: int) -> None:
    rows = [*GOOD]
    rows[at] = replace(rows[at], effects=2)
    seen = report(*rows)
    assert (seen.shown, seen.ok) == (N, False)
    assert seen.judged(rows[at]) == "BROKEN"
    assert f"it happened 2 times: {rows[at].title}" in seen.findings
    plain = report(*rows, claimed=N)
    assert (plain.shown, plain.ok) == (N, True)
    assert plain.judged(rows[at]) == "UNSAFE, expected"


@pytest.mark.parametrize("at", [0, 1])
def test_twice_where_everybody_is_honest_shows_less_than_a_plain_target(at: int) -> None:
    rows = [*GOOD]
    rows[at] = replace(rows[at], effects=3, seen=3 if rows[at].seen else None)
    for claimed in (N, I):
        seen = report(*rows, claimed=claimed)
        assert (seen.shown, seen.ok) == (NONE, False)
        assert seen.judged(rows[at]) == "BROKEN"
        assert rows[at].times == "3 TIMES"


@pytest.mark.parametrize("missing", sorted(MUST_BE_SEEN))
def test_what_was_not_played_is_not_shown(missing: str) -> None:
    seen = report(*(one for one in GOOD if one.name != missing))
    assert (seen.shown, seen.ok) == (N, False)
    assert f"nobody can say that it remembers: not played: {missing}" in seen.findings
    skipped = report(*(replace(one, ran=Ran.SKIPPED) if one.name == missing else one for one in GOOD))
    assert (skipped.shown, skipped.ok) == (N, False)
    assert f"nobody can say that it remembers: not played: {missing}" in skipped.findings
    assert shown_by(()) is NONE


@pytest.mark.parametrize("missing", sorted(MUST_BE_SEEN))
def test_played_is_only_where_it_happened(missing: str) -> None:
    idle = [replace(one, effects=0, state="unresolved") if one.name == missing else one for one in GOOD]
    seen = report(*idle)
    assert (seen.shown, seen.ok) == (N, False)
    assert f"nobody can say that it remembers: not played: {missing}" in seen.findings
    assert f"it never happened, so nothing is shown by: {missing.upper()}" in seen.findings


@pytest.mark.parametrize(("state", "said"), [("unresolved", "open"), ("not_executed", "shows nothing")])
def test_a_tool_that_never_does_anything_is_shown_to_be_nothing(state: str, said: str) -> None:
    rows = [replace(one, effects=0, state=state, seen=0 if one.seen else None) for one in GOOD]
    for claimed in (N, I):
        seen = report(*rows, claimed=claimed)
        assert (seen.shown, seen.ok) == (NONE, False)
        assert {seen.judged(one) for one in rows} == {said}
    assert shown_by([*rows[:2], TWICE, COPY]) is NONE
    assert shown_by([PLAIN, *rows[1:2], TWICE, COPY]) is I


@pytest.mark.parametrize(
    ("more", "works"),
    [
        ({}, True),
        ({"effects": 0}, False),
        ({"effects": 2}, False),
        ({"effects": None}, False),
        ({"state": "unresolved"}, False),
        ({"state": "not_executed"}, False),
        ({"ran": Ran.BROKEN}, False),
    ],
)
def test_where_nothing_goes_wrong_it_is_done_once_and_on_record(more: dict[str, Any], works: bool) -> None:
    assert replace(PLAIN, **more).works is works


def test_a_scenario_without_a_meaning_takes_nothing_away_and_is_named() -> None:
    restarted = row("restarted_target", Promise.REMEMBERS, ran=Ran.SKIPPED, effects=None, state="")
    seen = report(*GOOD, restarted)
    assert (seen.shown, seen.ok, restarted.times) == (I, True, "–")
    assert seen.judged(restarted) == "not run"
    assert "not seen: RESTARTED_TARGET" in seen.findings


def unseen(seen: KitReport) -> list[str]:
    return [said.partition(" (")[0] for said in seen.findings if said.startswith("not seen: whether")]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("reply_lost", "not seen: whether it tries again by itself"),
        ("reply_late", "not seen: whether it tries again by itself"),
        ("answered_502", "not seen: whether it tries again by itself"),
        ("answered_503", "not seen: whether it takes an error for done"),
        ("probe_cut", "not seen: whether the probe says NOTHING where nobody answers"),
    ],
)
def test_what_no_fault_met_is_no_evidence_and_is_said(name: str, said: str) -> None:
    behind = row(name, Promise.PLAIN, met=False)
    skipped = replace(behind, ran=Ran.SKIPPED, effects=None, state="", met=True)
    for claimed in (N, I):
        assert unseen(report(*GOOD, behind, claimed=claimed)) == [said]
        assert unseen(report(*GOOD, skipped, claimed=claimed)) == [said]
    seen = report(*GOOD, behind)
    assert (behind.shows, seen.judged(behind), seen.shown, seen.ok) == (False, "not met", I, True)
    assert not any("never happened" in one for one in seen.findings)
    assert unseen(report(*GOOD, replace(behind, met=True))) == []
    assert report(behind, TWICE, COPY).shown is NONE


def test_what_no_fault_met_speaks_against_a_tool_and_its_probe() -> None:
    twice = row("reply_lost", Promise.PLAIN, met=False, effects=2, seen=2, probe=Probe.TRUE)
    seen = report(*GOOD, twice)
    assert (seen.shown, seen.judged(twice)) == (NONE, "BROKEN")
    denied = replace(twice, seen=1, probe=Probe.DENIES)
    seen = report(*GOOD, denied)
    assert (seen.shown, seen.ok, seen.judged(denied)) == (I, False, "THE PROBE LIES")
    assert report(*GOOD).judged(replace(twice, effects=1, state="unresolved", probe=Probe.SILENT)) == "open"


def test_of_a_probe_that_says_nothing_anyway_nobody_asks_what_it_says_cut_off() -> None:
    skipped = row("probe_cut", Promise.PLAIN, ran=Ran.SKIPPED, effects=None, state="")
    for probe in (Probe.NOT_ASKED, Probe.SILENT):
        assert unseen(report(PLAIN, replace(KILLED, probe=probe), skipped)) == []


@pytest.mark.parametrize(("at", "shown"), [(1, NONE), (2, N), (4, I)])
def test_what_could_not_be_carried_out_is_never_well(at: int, shown: Guarantee) -> None:
    rows = [*GOOD]
    rows[at] = replace(rows[at], ran=Ran.BROKEN, effects=None, words="it hung")
    seen = report(*rows, claimed=NONE)
    assert (seen.shown, seen.ok) == (shown, False)
    assert seen.judged(rows[at]) == "NOT CARRIED OUT"
    assert f"not carried out: {rows[at].title}: it hung" in seen.findings


def test_what_a_denying_probe_causes_is_the_probes_and_not_the_tools() -> None:
    denied = replace(KILLED, effects=2, seen=1, probe=Probe.DENIES)
    seen = report(PLAIN, denied, TWICE, COPY)
    assert (seen.shown, seen.ok, seen.lies) == (I, False, (denied,))
    assert seen.judged(denied) == "THE PROBE LIES"
    assert "said NOTHING although the effect was there" in seen.findings[0]
    both = replace(denied, effects=3, seen=2)
    assert report(PLAIN, both, TWICE, COPY).shown is NONE


def test_an_inventing_probe_is_named_and_takes_no_class_away() -> None:
    invented = replace(KILLED, effects=0, seen=0, probe=Probe.INVENTS)
    seen = report(PLAIN, invented, TWICE, COPY)
    assert (seen.shown, seen.ok, invented.times) == (I, False, "never")
    assert seen.judged(invented) == "THE PROBE LIES"
    assert "said EXECUTED although nothing had happened" in seen.findings[0]


@pytest.mark.parametrize("probe", [Probe.NOT_ASKED, Probe.TRUE, Probe.SILENT])
def test_a_target_that_says_it_did_what_it_did_not_is_no_plain_target(probe: Probe) -> None:
    false = replace(KILLED, effects=0, seen=0, probe=probe)
    seen = report(PLAIN, false, TWICE, COPY, claimed=N)
    assert (seen.shown, seen.ok, seen.judged(false)) == (NONE, False, "BROKEN")
    assert any(said.startswith("the tool says that it did it") for said in seen.findings)


def test_what_waits_for_a_person_is_no_fault_and_is_said() -> None:
    waits = replace(KILLED, state="unresolved", probe=Probe.SILENT)
    seen = report(PLAIN, waits, TWICE, COPY)
    assert (seen.ok, seen.judged(waits)) == (True, "open")
    assert seen.findings[-1].startswith("nobody could say what became of it")


def test_more_than_is_claimed_is_well_and_said() -> None:
    seen = report(PLAIN, KILLED, TWICE, COPY, claimed=N)
    assert (seen.shown, seen.ok) == (I, True)
    assert seen.findings == ("more is shown than is claimed: I (remembers a key)",)


def test_a_report_goes_to_json_and_back_and_into_a_table() -> None:
    seen = report(*GOOD)
    told = seen.as_json()
    assert (told["claimed"], told["shown"], told["ok"]) == ("i", "i", True)
    assert [row_from({k: v for k, v in one.items() if k != "verdict"}) for one in told["scenarios"]] == [*GOOD]
    lines = seen.table().splitlines()
    assert len(lines) == len(GOOD) + 2
    assert lines[2].split() == ["TWICE", "once", "succeeded", "holds"]
    assert seen.of("twice") is TWICE
    with pytest.raises(KeyError):
        seen.of("nothing")


@pytest.mark.parametrize(
    ("found", "effects", "worth"),
    [
        (Found.NOTHING, 0, Probe.TRUE),
        (Found.NOTHING, 1, Probe.DENIES),
        (Found.EXECUTED, 1, Probe.TRUE),
        (Found.EXECUTED, 2, Probe.TRUE),
        (Found.EXECUTED, 0, Probe.INVENTS),
        (Found.UNKNOWN, 0, Probe.SILENT),
        (Found.UNKNOWN, 1, Probe.SILENT),
    ],
)
def test_a_probe_is_worth_what_the_count_says(found: Found, effects: int, worth: Probe) -> None:
    assert Looked(found=found, effects=effects).worth is worth


def test_a_tool_is_killed_where_it_comes_to() -> None:
    reached = {"commit.before": 2, "commit.after": 2, "dispatch.prepared": 1, "dispatch.sent": 1, "mail.sent": 4}
    assert kills(reached, ("mail.sent", "mail.never"), quick=False) == [
        *("kill:dispatch.prepared#1", "kill:dispatch.sent#1"),
        *("kill:commit.before#1", "kill:commit.before#2", "kill:commit.after#1", "kill:commit.after#2"),
        "kill:mail.sent#1",
    ]
    assert kills(reached, (), quick=True) == [
        *("kill:dispatch.prepared#1", "kill:dispatch.sent#1", "kill:commit.before#2"),
    ]
    assert kills({}, (), quick=True) == []


def test_every_scenario_has_a_name_a_title_and_a_kind() -> None:
    assert {name for name, one in SCENARIOS.items() if one.promise is not Promise.PLAIN} == {
        *("twice", "twice_at_once", "restarted_target", "old_copy", "old_copy_successor"),
    }
    assert {name for name, one in SCENARIOS.items() if one.quick} >= MUST_BE_SEEN
    assert scenario_of("kill:commit.before#3").title == "killed before commit: hand-out"
    assert scenario_of("kill:mail.sent#2").title == "killed at mail.sent#2"
    titles = [one.title for one in SCENARIOS.values()]
    assert len(set(titles)) == len(titles)
    assert max(map(len, titles)) <= 32
