"""The effect kit on small real targets: each is shown to be what it is, and each wrong one is caught."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_run_ledger.testing.effect_kit import (
    Guarantee,
    KitReport,
    Probe,
    Ran,
    Row,
    assert_guarantee,
    run_kit,
)

pytestmark = pytest.mark.fault

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples" / "effect_targets"
SERVICES, LOCAL, WRONG = (str(EXAMPLES / name) for name in ("services.py", "local.py", "wrong.py"))

ON_THE_WAY = {
    *("answered_502", "answered_503", "probe_cut"),
    *("request_late", "refused", "twice_at_once", "restarted_target"),
}
"""What needs a way that can be cut."""

AGAIN = {"twice", "twice_at_once", "restarted_target", "old_copy"}
"""What only a memory helps against."""


def happened(report: KitReport) -> dict[str, str]:
    """How often each scenario's effect happened; nothing is left open, and no ledger contradicts itself."""
    assert all(row.ran is not Ran.BROKEN for row in report.rows), report.table()
    assert all(row.state == "succeeded" for row in report.rows if row.ran is Ran.YES), report.table()
    return {row.name: row.times for row in report.rows}


def expected(report: KitReport, *, twice: set[str], skipped: set[str]) -> dict[str, str]:
    """Once everywhere, but there."""
    return {row.name: "–" if row.name in skipped else "TWICE" if row.name in twice else "once" for row in report.rows}


def test_a_service_that_remembers_keys_is_once_in_every_scenario_but_the_one_that_nothing_promises() -> None:
    report = run_kit(f"{SERVICES}:WITH_KEYS")
    assert happened(report) == expected(report, twice={"old_copy_successor"}, skipped=set())
    assert (report.claimed, report.shown, report.ok) == (Guarantee.I, Guarantee.I, True)
    assert {row.name for row in report.rows} >= ON_THE_WAY | AGAIN
    assert all(row.met for row in report.rows)
    assert not [said for said in report.findings if said.startswith("not seen")]
    assert not report.partial
    killed = [row for row in report.rows if row.name.startswith("kill:")]
    assert len(killed) == 17
    assert all("killed" in row.words for row in killed)
    asked = {row.name: row.probe for row in killed}
    assert {name for name, probe in asked.items() if probe is Probe.NOT_ASKED} == {
        *("kill:commit.before#1", "kill:commit.after#4", "kill:dispatch.recorded#1"),
    }
    assert set(asked.values()) == {Probe.TRUE, Probe.NOT_ASKED}


@pytest.mark.parametrize("name", ["PLAIN", "CALLED"])
def test_a_service_without_keys_is_a_plain_target(name: str) -> None:
    report = run_kit(f"{SERVICES}:{name}", quick=True)
    assert happened(report) == expected(report, twice=AGAIN, skipped=set())
    assert (report.claimed, report.shown, report.ok) == (Guarantee.N, Guarantee.N, True)


@pytest.mark.parametrize("name", ["FILE", "TABLE"])
def test_a_file_and_a_table_without_a_key_are_plain_targets(name: str) -> None:
    report = run_kit(f"{LOCAL}:{name}", quick=True)
    assert happened(report) == expected(report, twice=AGAIN, skipped=ON_THE_WAY)
    assert (report.claimed, report.shown, report.ok) == (Guarantee.N, Guarantee.N, True)
    assert report.judged(report.of("reply_lost")) == "not met"
    assert [said.partition(" (")[0] for said in report.findings if said.startswith("not seen")] == [
        "not seen: whether it tries again by itself; whether it takes an error for done",
        "not seen: whether the probe says NOTHING where nobody answers",
    ]


def test_a_table_with_a_key_is_more_than_it_claims() -> None:
    report = assert_guarantee(f"{LOCAL}:UNIQUE_TABLE", Guarantee.I, quick=True)
    assert happened(report) == expected(report, twice=set(), skipped=ON_THE_WAY)
    assert (report.claimed, report.shown) == (Guarantee.N, Guarantee.I)
    assert f"not seen: {_title(report, 'twice_at_once')}; {_title(report, 'restarted_target')}" in report.findings


def test_a_memory_that_a_restart_empties_is_caught() -> None:
    report = run_kit(f"{WRONG}:FORGETS", only=["twice", "restarted_target", "old_copy"])
    assert happened(report) == expected(report, twice={"restarted_target"}, skipped=set())
    assert (report.claimed, report.shown, report.ok) == (Guarantee.I, Guarantee.N, False)


def test_a_key_that_is_drawn_anew_is_caught() -> None:
    report = run_kit(f"{WRONG}:FRESH_KEYS", only=["twice", "old_copy"])
    assert happened(report) == expected(report, twice={"old_copy"}, skipped=set())
    assert (report.claimed, report.shown, report.ok) == (Guarantee.I, Guarantee.N, False)


def test_a_probe_that_denies_is_caught_and_the_tool_is_not_blamed() -> None:
    report = run_kit(f"{WRONG}:DENIED", only=["reply_lost", "refused", "twice", "old_copy"])
    assert happened(report) == expected(report, twice={"reply_lost"}, skipped=set())
    assert {row.name: row.probe for row in report.lies} == {"reply_lost": Probe.DENIES}
    assert (report.shown, report.ok) == (Guarantee.I, False)


def test_a_probe_that_invents_is_caught() -> None:
    report = run_kit(f"{WRONG}:INVENTED", only=["refused"])
    (row,) = report.lies
    assert (row.name, row.probe, row.times, row.state) == ("refused", Probe.INVENTS, "never", "succeeded")
    assert not report.ok


def test_a_client_that_tries_again_by_itself_is_less_than_a_plain_target() -> None:
    report = run_kit(f"{WRONG}:RETRIES", only=["reply_lost", "two_workers"])
    assert happened(report) == expected(report, twice={"reply_lost"}, skipped=set())
    assert (report.claimed, report.shown, report.ok) == (Guarantee.N, Guarantee.NONE, False)


ANSWERED = ["answered_502", "answered_503"]


@pytest.mark.parametrize("name", ["PLAIN", "WITH_KEYS", "CALLED"])
def test_an_error_for_an_answer_is_a_doubt_for_a_tool_that_looks_at_it(name: str) -> None:
    report = run_kit(f"{SERVICES}:{name}", only=[*ANSWERED, "probe_cut"])
    assert happened(report) == expected(report, twice=set(), skipped=set())
    assert [report.judged(row) for row in report.rows] == ["holds"] * 4
    assert report.of("answered_502").words.endswith(", probe: executed")
    assert ", probe: nothing, drained, probe: nothing, successor, " in report.of("answered_503").words
    assert report.of("probe_cut").words.endswith(
        "killed, probe cut off: ConnectionRefusedError, probe cut off: unknown, probe: executed"
    )
    assert (report.shown, report.lies) == (Guarantee.N, ())


def test_a_client_that_tries_again_after_an_error_is_less_than_a_plain_target() -> None:
    report = run_kit(f"{WRONG}:RETRIES_5XX", only=ANSWERED)
    assert happened(report) == expected(report, twice={"answered_502"}, skipped=set())
    assert (report.claimed, report.shown, report.ok) == (Guarantee.N, Guarantee.NONE, False)
    assert "it happened 2 times: done, and answered 502" in report.findings


def test_a_client_that_never_looks_at_the_status_is_less_than_a_plain_target() -> None:
    report = run_kit(f"{WRONG}:IGNORES", only=ANSWERED)
    row = report.of("answered_503")
    assert (row.times, row.state, report.judged(row)) == ("never", "succeeded", "BROKEN")
    assert (report.claimed, report.shown, report.ok) == (Guarantee.N, Guarantee.NONE, False)
    assert f"the tool says that it did it, and it did not: {row.title}" in report.findings


@pytest.mark.parametrize(("name", "asked"), [("DEAF", "nothing"), ("HALF_DEAF", "ConnectionRefusedError")])
def test_a_probe_that_takes_silence_for_nothing_is_caught_and_the_tool_is_not_blamed(name: str, asked: str) -> None:
    report = run_kit(f"{WRONG}:{name}", only=["probe_cut", "refused", "twice", "old_copy"])
    assert happened(report) == expected(report, twice={"probe_cut"}, skipped=set())
    assert {row.name: row.probe for row in report.lies} == {"probe_cut": Probe.DENIES}
    assert f"killed, probe cut off: {asked}, " in report.of("probe_cut").words
    assert (report.shown, report.ok) == (Guarantee.I, False)


def test_a_probe_that_takes_an_error_for_executed_is_caught() -> None:
    report = run_kit(f"{WRONG}:HOPEFUL", only=["probe_cut", "refused"])
    assert {row.name: row.probe for row in report.lies} == {"probe_cut": Probe.INVENTS}
    assert not report.ok


def _title(report: KitReport, name: str) -> str:
    row: Row = report.of(name)
    return row.title
