"""`arl metrics`: the numbers of a store in the format that Prometheus reads."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.cli.conftest import Arl
from tests.cli.effect_store import Effects


def test_the_stores_numbers_are_printed_for_a_textfile_collector(arl: Arl, store: Path) -> None:
    ended = arl("metrics", "--db", store)
    assert (ended.code, ended.err) == (0, "")
    read = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(ended.out)
        for sample in family.samples
    }
    runs = arl("runs", "list", "--limit", "1000", "--db", store, "--json").json["runs"]
    states = [run["state"] for run in runs]
    assert states
    assert {name[1]: count for name, count in read.items() if name[0] == "agent_run_ledger_stored_runs"} == {
        state: states.count(state)
        for state in ("running", "suspended", "failed", "quarantined", "cancelled", "completed")
    }
    assert read["agent_run_ledger_store_bytes", "database"] == store.stat().st_size
    assert read["agent_run_ledger_unresolved_age_seconds",] > 0, "a dead run has a call in flight"


def test_as_json_it_says_the_same(arl: Arl, store: Path) -> None:
    said = arl("metrics", "--db", store, "--json").json
    assert set(said) == {
        *("runs", "quarantined", "unresolved_age_seconds", "leaves", "database_bytes", "wal_bytes", "effects")
    }
    assert said["effects"] is None, "a store without actions and without authority"
    assert "agent_run_ledger_stored_actions" not in arl("metrics", "--db", store).out
    assert f"agent_run_ledger_log_leaves {said['leaves']}\n" in arl("metrics", "--db", store).out


def test_of_actions_json_says_what_the_text_says(arl: Arl, db: Path) -> None:
    effects = Effects(db)
    effects.doubted("refund:1")
    effects.propose("refund:2")
    said = arl("metrics", "--db", db, "--json").json["effects"]
    read = {
        (family.name.removeprefix("agent_run_ledger_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(arl("metrics", "--db", db).out)
        for sample in family.samples
    }
    assert list(said) == [
        *("actions", "doubt_age_seconds", "stranded_claims", "waiting_approval_age_seconds"),
        *("unclaimed_age_seconds", "ledger_state"),
    ]
    assert said["actions"] == {name[1]: count for name, count in read.items() if name[0] == "stored_actions"}
    assert (said["actions"]["unresolved"], said["actions"]["proposed"]) == (1, 1)
    assert (read["ledger_state", said["ledger_state"]], said["stranded_claims"]) == (1, read["stranded_claims",])


def test_no_store_is_made_and_nothing_is_printed(arl: Arl, tmp_path: Path) -> None:
    ended = arl("metrics", "--db", tmp_path / "none.db")
    assert (ended.code, ended.out) == (1, "")
    assert not (tmp_path / "none.db").exists()
