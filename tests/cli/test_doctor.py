"""`arl doctor`: a finding for everything that matters, with a store and without one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger.cli import doctor_checks, doctor_growth
from tests.cli.conftest import Arl, edit
from tests.contract.effect_stories import Stories


def _by_subject(ended: Any) -> dict[str, dict[str, str]]:
    return {one["subject"]: one for one in ended.json["findings"]}


def test_a_sound_store_is_sound(arl: Arl, store: Path) -> None:
    store.chmod(0o600)
    ended = arl("doctor", "--db", store, "--json")
    assert ended.code == 0
    assert set(ended.json) == {"ok", "db", "findings", "numbers"}
    found = _by_subject(ended)
    assert set(found) >= {
        "versions", "store path", "filesystem", "mode", "store", "durability", "size", "free pages", "growth",
        "authority", "actions", "running", "lock file", "disk", "limits",
    }  # fmt: skip
    assert not [one for one in found.values() if one["level"] == "bad"]
    assert all(set(one) == {"level", "subject", "finding", "advice"} for one in found.values())
    numbers = ended.json["numbers"]
    assert (numbers["runs"], numbers["in_flight"], numbers["runs_running"]) == (7, 1, 1)
    assert numbers["bytes_per_record"] > 0
    assert numbers["sync_median_us"] > 0
    assert numbers["authority"] is False


def test_people_get_a_table_with_advice(arl: Arl, store: Path) -> None:
    out = arl("doctor", "--db", store).out
    assert "WHAT" in out
    assert f"-> `arl init --db {store}` grants it" in out


def test_without_a_store_the_machine_is_examined_and_nothing_is_made(arl: Arl, db: Path) -> None:
    ended = arl("doctor", "--db", db, "--json")
    assert ended.code == 0
    found = _by_subject(ended)
    assert found["store"]["level"] == "note"
    assert "disk" in found
    assert list(db.parent.iterdir()) == []


def test_a_store_that_others_may_read_is_warned_of(arl: Arl, store: Path) -> None:
    store.chmod(0o644)
    found = _by_subject(arl("doctor", "--db", store, "--json"))
    assert found["mode"]["level"] == "warn"
    assert found["mode"]["advice"].startswith("chmod 600")


@pytest.mark.parametrize(
    ("content", "code"), [(b"not a store at all, but long enough to be looked at" * 40, 6), (b"", 1)]
)
def test_a_file_that_is_no_store_is_bad(arl: Arl, db: Path, content: bytes, code: int) -> None:
    db.write_bytes(content)
    ended = arl("doctor", "--db", db, "--json")
    assert _by_subject(ended)["store"]["level"] == "bad"
    assert (ended.code, ended.json["ok"]) == (code, False)
    assert db.read_bytes() == content


def test_a_folder_that_does_not_exist_is_bad(arl: Arl, tmp_path: Path) -> None:
    ended = arl("doctor", "--db", tmp_path / "missing" / "runs.db", "--json")
    assert ended.code == 5
    assert _by_subject(ended)["folder"]["level"] == "bad"


@pytest.mark.parametrize(("kind", "level"), [("nfs4", "warn"), ("tmpfs", "warn"), ("unknown", "note"), ("ext4", "ok")])
def test_the_file_system_is_judged(arl: Arl, db: Path, monkeypatch: pytest.MonkeyPatch, kind: str, level: str) -> None:
    monkeypatch.setattr("agent_run_ledger.store.filesystem", lambda path: kind)
    assert _by_subject(arl("doctor", "--db", db, "--json"))["filesystem"]["level"] == level


@pytest.mark.parametrize(("median_us", "level"), [(5.0, "note"), (90.0, "ok"), (50_000.0, "warn")])
def test_the_disk_is_judged(arl: Arl, db: Path, monkeypatch: pytest.MonkeyPatch, median_us: float, level: str) -> None:
    monkeypatch.setattr(doctor_checks, "sync_median_us", lambda folder: median_us)
    assert _by_subject(arl("doctor", "--db", db, "--json"))["disk"]["level"] == level


def test_an_old_sqlite_is_bad(arl: Arl, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = {"agent-run-ledger": "0", "python": "3", "sqlite": "3.40.1", "apsw": "3.40.1.0", "platform": "x"}
    monkeypatch.setattr(doctor_checks, "versions", lambda: old)
    ended = arl("doctor", "--db", db, "--json")
    assert (ended.code, _by_subject(ended)["sqlite"]["level"]) == (5, "bad")


def test_the_probe_of_the_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    from agent_run_ledger.cli.disk_probe import sync_median_us

    assert sync_median_us(str(tmp_path)) > 0
    assert list(tmp_path.iterdir()) == []


# Growth


def test_growth_is_told_in_words_and_numbers(arl: Arl, store: Path) -> None:
    ended = arl("doctor", "--db", store, "--json")
    found, numbers = _by_subject(ended), ended.json["numbers"]
    assert set(found) >= {"records", "runs", "log", "growth", "oldest run"}
    assert numbers["runs_by_state"] == {"completed": 4, "failed": 2, "running": 1}
    assert sum(numbers["records_by_kind"].values()) == numbers["records"]
    assert (numbers["records_by_kind"]["rescued"], numbers["records_by_kind"]["abandoned"]) == (1, 1)
    assert numbers["leaves_last_day"] == numbers["leaves_last_30_days"] == numbers["leaves"]
    assert (numbers["bytes_next_30_days"], numbers["bytes_per_leaf"] > 0) == (None, True)
    assert found["oldest run"]["level"] == "ok"
    kinds = found["records"]["finding"]
    for words in ("9 starts", "7 ends", "1 rescued", "1 abandoned"):
        assert words in kinds
    assert found["oldest run"]["finding"].startswith("done completed ")
    assert "sizes" not in found


def test_old_runs_and_free_pages_are_pointed_at(arl: Arl, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time_ns()
    monkeypatch.setattr("agent_run_ledger.cli.doctor_checks.time.time_ns", lambda: now + 91 * 86_400 * 10**9)
    monkeypatch.setattr(doctor_growth, "MUCH_FREE", 0.0)
    monkeypatch.setattr(doctor_growth, "MUCH_FREE_BYTES", 0)
    ended = arl("doctor", "--db", store, "--json")
    found = _by_subject(ended)
    assert found["oldest run"]["level"] == found["free pages"]["level"] == "note"
    assert f"--db {store}`" in found["oldest run"]["advice"]
    assert "`arl prune --completed-before 2" in found["oldest run"]["advice"]
    assert "`arl prune --compact" in found["free pages"]["advice"]
    assert ended.json["numbers"]["leaves_last_30_days"] == 0
    assert ended.json["numbers"]["bytes_next_30_days"] == 0


def test_sizes_only_when_asked_for(arl: Arl, store: Path) -> None:
    ended = arl("doctor", "--sizes", "--db", store, "--json")
    numbers = ended.json["numbers"]
    assert sum(numbers["bytes_by_table"].values()) == numbers["pages"] * numbers["page_bytes"]
    assert numbers["unused_by_table"].keys() == numbers["bytes_by_table"].keys()
    assert "records " in _by_subject(ended)["sizes"]["finding"]


def test_a_leaf_that_says_no_time_is_bad(arl: Arl, store: Path) -> None:
    edit(
        store,
        "DROP TRIGGER events_no_update; UPDATE events SET envelope = x'00' WHERE leaf_index = 0; "
        "CREATE TRIGGER events_no_update BEFORE UPDATE ON events\nBEGIN SELECT RAISE(ABORT, 'events are history'); END",
    )
    ended = arl("doctor", "--db", store, "--json")
    assert ended.code == 6
    bad = [one["finding"] for one in ended.json["findings"] if one["level"] == "bad"]
    assert bad == ["leaf 0 is missing or says no time"]


NO_WITNESS = "no witness: a restored older copy of this database is not noticed"


def test_a_latest_record_of_an_action_that_cannot_be_read_is_bad(arl: Arl, db: Path) -> None:
    stories = Stories(db)
    stories.available("one")
    stories.ledger.close()
    edit(db, "UPDATE action_records SET payload = x'7b7d'")
    ended = arl("doctor", "--db", db, "--json")
    assert ended.code == 6
    assert "the record of the latest transition cannot be read" in _by_subject(ended)["store"]["finding"]


def test_actions_are_counted_by_state_and_a_doubt_is_warned_of(arl: Arl, db: Path) -> None:
    stories = Stories(db)
    assert _by_subject(arl("doctor", "--db", db, "--json"))["actions"]["finding"] == "none yet"
    stories.available("one")
    stories.available("two")
    found = arl("doctor", "--db", db, "--json")
    assert _by_subject(found)["actions"] == {
        "level": "ok", "subject": "actions", "finding": f"2 available; {NO_WITNESS}", "advice": "",
    }  # fmt: skip
    stories.doubted("three")
    ended = arl("doctor", "--sizes", "--db", db, "--json")
    told, numbers = _by_subject(ended)["actions"], ended.json["numbers"]
    assert (told["level"], told["finding"]) == ("warn", f"2 available, 1 unresolved; {NO_WITNESS}; 1 in doubt")
    assert "`arl effects list --doubt --db" in told["advice"]
    assert (numbers["actions_by_state"], numbers["actions_in_doubt"]) == ({"available": 2, "unresolved": 1}, 1)
    assert {"actions", "approvals", "requests", "action_records"} <= numbers["bytes_by_table"].keys()
    stories.ledger.close()


def test_an_action_in_a_state_that_there_is_not_is_bad(arl: Arl, db: Path) -> None:
    stories = Stories(db)
    stories.available("one")
    stories.ledger.close()
    edit(db, "PRAGMA ignore_check_constraints = 1; UPDATE actions SET state = 'done'")
    ended = arl("doctor", "--db", db, "--json")
    assert ended.code == 6
    assert "an action is in no known state" in _by_subject(ended)["store"]["finding"]
