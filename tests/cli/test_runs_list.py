"""`arl runs list`: states with and without a living attempt, filters, pages, JSON, hostile names."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agent_run_ledger import RunLedger
from tests.cli.conftest import ALL_RUNS, HOSTILE_RUN, Arl, is_safe


def test_the_table_shows_every_run_with_state_reason_attempt_and_steps(arl: Arl, store: Path) -> None:
    ended = arl("runs", "list", "--db", store)
    assert ended.code == 0
    rows = {line.split("  ")[0]: line for line in ended.out.splitlines()[2:]}
    assert list(rows) == ALL_RUNS[::-1]
    assert "completed" in rows["crashed"]
    assert " 2  " in rows["crashed"]
    assert "4/4" in rows["crashed"]
    assert "running (no live attempt)" in rows["dead"]
    assert "2/4" in rows["dead"]
    assert "failed · step 'judge': ValueError" in rows["failed"]


def test_json_has_the_documented_shape(arl: Arl, store: Path) -> None:
    runs = arl("runs", "list", "--db", store, "--json").json["runs"]
    assert [run["run_id"] for run in runs] == ALL_RUNS[::-1]
    dead = runs[ALL_RUNS[::-1].index("dead")]
    assert set(dead) == {
        "run_id", "run_uid", "state", "reason", "live_attempt", "attempt", "generation", "steps_recorded",
        "steps_total", "forked_from", "erased", "holder", "created_at", "updated_at", "kind", "parent", "children",
    }  # fmt: skip
    assert (dead["state"], dead["live_attempt"], dead["steps_recorded"], dead["steps_total"]) == (
        "running",
        False,
        2,
        4,
    )
    assert dead["updated_at"].endswith("Z")
    assert set(dead["holder"]) == {"pid", "host"}


def test_pages_go_on_where_the_last_one_ended(arl: Arl, store: Path) -> None:
    seen: list[str] = []
    before: list[str] = []
    while True:
        page = arl("runs", "list", "--db", store, "--json", "--limit", 3, *before).json
        seen += [run["run_id"] for run in page["runs"]]
        if page["next_before"] is None:
            break
        before = ["--before", page["next_before"]]
    assert seen == ALL_RUNS[::-1]
    said = arl("runs", "list", "--db", store, "--limit", 4).err
    assert said == f"more: arl runs list --limit 4 --before failed --db {store}\n"


def test_a_page_that_ends_with_the_last_run_promises_nothing(arl: Arl, store: Path) -> None:
    ended = arl("runs", "list", "--db", store, "--limit", len(ALL_RUNS))
    assert ended.err == ""


def test_the_state_filter(arl: Arl, store: Path) -> None:
    found = arl("runs", "list", "--db", store, "--state", "failed", "--json").json["runs"]
    assert [run["run_id"] for run in found] == ["rescued", "failed"]
    assert arl("runs", "list", "--db", store, "--state", "suspended").out == f"no suspended runs in {store}\n"
    assert arl("runs", "list", "--db", store, "--before", "done").out == "no runs older than done\n"
    assert arl("runs", "list", "--db", store, "--state", "asleep").code == 2


def test_a_store_without_runs_says_so(arl: Arl, db: Path) -> None:
    assert arl("init", "--db", db).code == 0
    assert arl("runs", "list", "--db", db).out == f"no runs in {db}\n"


def test_a_step_that_left_the_pipeline_is_not_counted(arl: Arl, db: Path) -> None:
    for names in (("old", "last"), ("last",)):
        with RunLedger(run_id="r", db_path=db) as ledger:
            for name in names:
                ledger.step(name=name)(lambda: 1)
            if len(names) == 2:
                ledger.step(name="fails")(lambda: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    ledger.execute()
            else:
                ledger.execute()
    (run,) = arl("runs", "list", "--db", db, "--json").json["runs"]
    assert (run["steps_recorded"], run["steps_total"]) == (1, 1)


def test_before_an_unknown_run_is_refused(arl: Arl, store: Path) -> None:
    ended = arl("runs", "list", "--db", store, "--before", "nobody", "--json")
    assert (ended.code, ended.error["code"]) == (1, "no_run")


def test_markup_in_a_run_id_is_only_text(arl: Arl, store: Path) -> None:
    out = arl("runs", "list", "--db", store).out
    assert HOSTILE_RUN in out
    assert is_safe(out)


def test_a_living_attempt_is_seen_from_this_and_from_another_process(arl: Arl, shell: Arl, db: Path) -> None:
    entered, leave = threading.Event(), threading.Event()
    ledger = RunLedger(run_id="alive", db_path=db)

    @ledger.step
    def wait() -> int:
        entered.set()
        leave.wait(60)
        return 1

    worker = threading.Thread(target=ledger.execute)
    worker.start()
    try:
        assert entered.wait(60)
        here, there = arl("runs", "list", "--db", db, "--json"), shell("runs", "list", "--db", db, "--json")
        shown = shell("runs", "show", "alive", "--db", db)
        explained = arl("runs", "explain", "alive", "--db", db, "--json")
    finally:
        leave.set()
        worker.join()
    assert [ended.json["runs"][0]["live_attempt"] for ended in (here, there)] == [True, True]
    assert "▶ running" in shown.out
    assert explained.json["next_execute"] == "busy"
    assert arl("runs", "list", "--db", db, "--json").json["runs"][0]["state"] == "completed"
    ledger.close()


def test_a_probe_leaves_the_run_free(arl: Arl, store: Path) -> None:
    from agent_run_ledger.store import open_sqlite

    opened = open_sqlite(store, create=False)  # kept open: closing the last handle would free every lock
    arl("runs", "list", "--db", store)
    lock = opened.lock_run("dead")
    assert lock is not None
    lock.release()
    opened.close()
