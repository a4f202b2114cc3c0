"""Each measurement, on sizes so small that they say nothing of speed: the figures are there and rest on real runs."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from agent_run_ledger import RunLedger
from agent_run_ledger.benchmark import (
    contender,
    dynamic,
    effect_steps,
    effects,
    main,
    processes,
    restore,
    sequential,
    stalls,
    sync_count,
    verifying,
)
from agent_run_ledger.benchmark.command import MEASUREMENTS, measure_all
from agent_run_ledger.benchmark.dynamic_work import Kind, make_calls
from agent_run_ledger.benchmark.floor import Floor, busy_handler, statements
from agent_run_ledger.benchmark.plan import QUICK
from agent_run_ledger.benchmark.processes import Contest, ContestPair, contest_of
from agent_run_ledger.benchmark.restore import Return, Returns
from agent_run_ledger.benchmark.sequential import Cost, Pair
from agent_run_ledger.benchmark.work import chain, result
from agent_run_ledger.testing import recorded_calls

TINY = dataclasses.replace(
    QUICK,
    name="tiny",
    steps=6,
    step_pairs=1,
    at_most_step_pairs=1,
    processes=2,
    steps_each=4,
    contest_pairs=1,
    at_most_contest_pairs=1,
    recorded=3,
    recorded_many=5,
    lives=1,
    leaves=300,
    proofs=5,
    imports=1,
    dynamic_calls=6,
    dynamic_pairs=1,
    calls_each=2,
    messages=3,
    effect_lives=3,
    effect_pairs=1,
    effects_each=3,
    inbox_actions=300,
)


def test_a_result_has_about_one_kib() -> None:
    assert len(json.dumps(result(1_234), separators=(",", ":"))) == 1_015


def test_the_chain_hands_each_result_to_the_next_step() -> None:
    entered: list[int] = []
    first, second, third = chain(3, entered.append)
    assert (first.depends_on, second.depends_on, third.depends_on) == ((), ("step_0",), ("step_1",))
    assert third.plain(second.plain(first.plain())) == result(2)
    assert entered == [0, 1, 2]


def test_the_floor_keeps_one_row_per_step(tmp_path: Path) -> None:
    floor = Floor(str(tmp_path / "floor.db"))
    floor.put_all(3, result, first_key=10)
    assert [json.loads(text) for text in floor.texts()] == [result(0), result(1), result(2)]
    assert json.loads(floor.text(11)) == result(1)
    with pytest.raises(KeyError):
        floor.text(0)
    floor.close()


def test_the_floor_commits_each_row_for_itself_and_durably() -> None:
    names = list(statements())
    assert names == ["wal", "delete", "full", "create", "begin", "insert", "commit", "select", "select_all"]
    assert "IMMEDIATE" in statements()["begin"]


def test_the_busy_handler_waits_at_first_and_gives_up_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [0.0], []
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", slept.append)
    wait = busy_handler()
    assert [wait(0), wait(1)] == [True, True]
    assert all(0.0002 <= seconds <= 0.002 for seconds in slept)
    now[0] = 61.0
    assert wait(2) is False
    assert wait(0) is True


def test_syncs_are_told_apart_by_what_was_written_before_them() -> None:
    counted = sync_count.Syncs()
    counted.wrote("wal", 32)
    counted.synced("wal")  # a WAL begun anew
    counted.wrote("wal", 4_120)
    counted.synced("wal")  # a commit
    counted.synced("wal")  # a checkpoint begins
    counted.wrote("db", 4_096)
    counted.synced("db")  # and ends
    assert (counted.commits, counted.other, counted.checkpoints) == (1, 3, 1)
    counted.clear()
    assert (counted.commits, counted.other, counted.checkpoints) == (0, 0, 0)


def test_the_figures_of_pairs_are_medians_and_the_ratio_is_that_of_the_pairs() -> None:
    def pair(floor_s: float, product_s: float) -> Pair:
        return Pair(
            floor=Cost(steps=1_000, seconds=floor_s, cpu_s=0.08, stored_bytes=1_405_000),
            product=Cost(steps=1_000, seconds=product_s, cpu_s=0.2, stored_bytes=2_000_000),
        )

    figures = sequential.figures_of(
        [pair(0.2, 0.4), pair(0.1, 0.125), pair(0.2, 0.5)], dropped=2, sync_us=61.4, enough=True
    )
    speed, cpu, stored = figures
    assert (speed.value, speed.floor, speed.ratio, speed.met) == (2_500.0, 5_000.0, 0.5, True)
    assert (round(cpu.value), round(cpu.floor or 0), cpu.met) == (200, 80, True)
    assert (stored.value, stored.floor, stored.met) == (2_000.0, 1_405.0, True)
    assert speed.note == "median of 3 pairs, 2 dropped for a noisy disk; one sync took 61 µs"


@pytest.mark.parametrize(("commits", "met"), [(1_002, True), (2_000, False)])
def test_more_than_one_sync_per_step_misses_the_target(commits: int, met: bool) -> None:
    floor = {"steps": 1_000, "commits": 1_000, "other": 3, "checkpoints": 1}
    product = {"steps": 1_000, "commits": commits, "other": 6, "checkpoints": 2}
    figure = sequential.syncs_figure(floor, product)
    assert figure.met is met
    assert "6 for 2 checkpoints" in figure.note


def test_a_contest_counts_who_failed_and_measures_the_others() -> None:
    contest = contest_of(
        [
            {"started_s": 1.0, "ended_s": 3.0, "longest_wait_s": 0.2},
            {"started_s": 1.5, "ended_s": 2.5, "longest_wait_s": 0.3},
            {"error": "exit code 1"},
        ],
        steps_each=50,
    )
    assert contest == Contest(steps_per_s=50.0, slowest_to_fastest=2.0, longest_wait_s=0.3, errors=1)
    assert contest_of([{"error": "exit code 1"}], 50).errors == 1


def test_an_error_in_a_contest_is_a_missed_target() -> None:
    def contest(steps_per_s: float, errors: int = 0) -> Contest:
        return Contest(steps_per_s=steps_per_s, slowest_to_fastest=1.4, longest_wait_s=0.1, errors=errors)

    pair = ContestPair(floor=contest(4_000.0), product=contest(1_600.0, errors=1))
    figures = processes.figures_of([pair], TINY, dropped=0, errors=1, enough=True)
    assert [figure.met for figure in figures] == [True, True, True, False]
    assert figures[0].ratio == 0.4


def test_a_lap_keeps_the_longest_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([10.0, 10.1, 10.6, 10.7])
    monkeypatch.setattr("time.monotonic", lambda: next(moments))
    lap = contender.Lap()
    lap.start()
    lap.entered(0)
    lap.entered(1)
    lap.end()
    assert (lap.started, lap.ended, round(lap.longest_wait_s, 6)) == (10.0, 10.7, 0.5)


def test_growth_compares_the_time_per_recorded_step() -> None:
    def returns(recorded: int, product_s: float, floor_s: float) -> Returns:
        product = Return(execute_s=product_s, process_s=0.2)
        return Returns(recorded=recorded, product=product, floor=Return(execute_s=floor_s, process_s=0.1))

    figures = restore.figures_of(returns(1_000, 0.03, 0.01), returns(10_000, 0.6, 0.1), TINY)
    few, first, many, growth = figures
    assert (few.value, few.floor, few.met) == (30.0, 10.0, True)
    assert (first.value, first.met) == (0.2, True)
    assert (many.value, many.met) == (600.0, False)
    assert (round(growth.value, 6), growth.met) == (2.0, False)
    fewer = restore.figures_of(returns(1_000, 0.03, 0.01), returns(3_000, 0.6, 0.1), TINY)
    assert fewer[2].met is None  # the target is about 10,000 records


def test_a_call_of_a_dynamic_run_is_judged_by_its_ratio_to_a_pipelines_step() -> None:
    def one(step_us: float, safe_us: float, unsafe_us: float) -> dynamic.Round:
        us = {"bare row": 100.0, "pipeline step": 200.0, "pure step": step_us, "safe tool": safe_us}
        return dynamic.Round(us={**us, "unsafe tool": unsafe_us, "safe tool, watched": safe_us + 100})

    rounds = [one(300.0, 320.0, 500.0), one(290.0, 310.0, 400.0), one(900.0, 900.0, 440.0)]
    step, safe, unsafe, watched = dynamic.call_figures(rounds, dropped=1, enough=True)
    assert (step.value, step.floor, step.ratio, step.met) == (300.0, 200.0, 1.5, True)
    assert (safe.ratio, safe.met) == (1.6, False)
    assert (unsafe.ratio, unsafe.met) == (2.2, True)
    assert (watched.ratio, watched.met) == (2.1, None)
    assert step.note == "floor: a step of a pipeline, which takes 2.00 × a bare row; 3 rounds, 1 dropped"


def test_a_round_of_calls_can_be_written_as_json(tmp_path: Path) -> None:
    one = dynamic._round(str(tmp_path), 1, calls=2)
    assert orjson.loads(orjson.dumps(dataclasses.asdict(one)))["us"].keys() == {*dynamic.ORDER}


def test_one_long_stall_of_many_rounds_misses_the_target() -> None:
    def one(product_ms: float) -> dynamic.Stalls:
        return dynamic.Stalls(floor_ms=1.0, product_ms=product_ms, floor_per_s=4_000.0, product_per_s=1_000.0)

    longest, speed = dynamic.stall_figures([one(3.0), one(20.5), one(2.0)], 100, enough=True)
    assert (longest.value, longest.met) == (20.5, False)
    assert (speed.value, speed.floor, speed.met) == (1_000.0, 4_000.0, None)


def test_a_loop_that_stands_still_is_seen() -> None:
    async def blocking() -> None:
        time.sleep(0.05)

    assert asyncio.run(stalls.watched(blocking)) >= 0.04


def test_the_last_calls_of_a_transcript_count() -> None:
    figure = dynamic.transcript_figure([1.0] * 180 + [4.0] * 20, [0.5] * 200)
    assert (figure.name, figure.value, figure.floor) == ("dynamic: call with 200 messages", 4.0, 0.5)


@pytest.mark.parametrize("kind", Kind)
def test_each_measured_call_runs_its_body_and_is_recorded(kind: Kind, tmp_path: Path) -> None:
    entered: list[int] = []
    with RunLedger("bench", tmp_path / "calls.db") as ledger:
        make_calls(ledger, kind, 3, entered.append)
    calls = recorded_calls(tmp_path / "calls.db")
    assert entered == [0, 1, 2]
    assert len({call.fingerprint_hex for call in calls}) == len(calls) == 3


def test_the_figures_of_an_audit() -> None:
    speed, memory = verifying.verify_figures(
        100_000, [2.0, 3.0, 2.5], 150_000_000, floor_per_s=400_000.0, made_on="tmpfs"
    )
    assert (speed.value, speed.floor, speed.met) == (40_000.0, 400_000.0, True)
    assert (memory.value, memory.met) == (150.0, True)
    median, tail = verifying.proof_figures(100, [0.0001] * 98 + [0.002] * 2, floor_s=0.00005)
    assert (round(median.value, 6), median.met) == (0.1, True)
    assert (round(tail.value, 6), tail.met) == (2.0, False)


def test_a_life_of_an_action_is_judged_by_its_ratio_and_costs_a_transaction_its_share() -> None:
    floor = Cost(steps=10, seconds=1.0, cpu_s=0.003, stored_bytes=0)
    product = Cost(steps=10, seconds=2.0, cpu_s=0.009, stored_bytes=0)
    speed, cpu = effects.life_figures("lives", 3, [Pair(floor=floor, product=product)], enough=True)
    assert (speed.value, speed.floor, speed.ratio, speed.met) == (5.0, 10.0, 0.5, True)
    assert (round(cpu.value), round(cpu.floor or 0.0)) == (300, 100)
    slower = dataclasses.replace(product, seconds=3.0)
    missed, _ = effects.life_figures("lives", 3, [Pair(floor=floor, product=slower)], enough=True)
    assert missed.met is False


def test_a_contest_counts_claims_that_are_lost_or_doubled_and_workers_that_died() -> None:
    first: dict[str, Any] = {"started_s": 1.0, "ended_s": 2.0, "claimed": ["a", "b"], "errors": {"store_busy": 2}}
    second: dict[str, Any] = {"started_s": 1.5, "ended_s": 4.0, "claimed": ["b"], "errors": {}}
    died: dict[str, Any] = {"error": "exit code 1"}
    contest = effects.contest_of([first, second, died], ["a", "b", "c"], 9.0)
    assert (contest.lost, contest.doubled, contest.errors) == (1, 1, {"died": 1, "store_busy": 2})
    assert contest.commits_per_s == 3.0
    speed, wrong, errors = effects.contest_figures("8", [contest], [contest, contest], TINY)
    assert round(speed.ratio or 0.0, 2) == 0.33
    assert (wrong.value, wrong.met, errors.value, errors.met) == (4.0, False, 6.0, False)


def test_an_inbox_that_is_too_small_is_not_judged() -> None:
    assert effects.inbox_figure("first page", [0.001], 999_999).met is None
    assert effects.inbox_figure("first page", [0.001], 1_000_000).met is True
    assert effects.inbox_figure("first page", [0.001, 0.006, 0.006], 1_000_000).met is False


def test_an_effect_step_is_judged_by_four_bare_rows_its_syncs_and_its_longest_wait() -> None:
    floor = Cost(steps=10, seconds=1.0, cpu_s=0.1, stored_bytes=0)
    for seconds, met in ((3.3, True), (3.4, False)):
        product = Cost(steps=10, seconds=seconds, cpu_s=0.5, stored_bytes=0)
        speed, cpu = effect_steps.step_figures([Pair(floor=floor, product=product)], enough=True)
        assert (speed.met, cpu.value) == (met, pytest.approx(50_000))
    counted = {"steps": 100.0, "other": 3.0}
    assert effect_steps.syncs_figure({**counted, "commits": 402.0}).met is True
    assert effect_steps.syncs_figure({**counted, "commits": 500.0}).met is False
    assert effect_steps.wait_figure([0.1, 0.9]).met is True
    assert effect_steps.wait_figure([0.1, 1.1, 0.1]).met is False


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MEASUREMENTS))
def test_each_measurement_runs_to_its_figures_and_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    report = measure_all(TINY, tmp_path, only=[name])
    assert report.figures
    wrong = [figure for figure in report.figures if "errors" in figure.name or "lost or doubled" in figure.name]
    assert all(figure.value > 0 for figure in report.figures if figure not in wrong)
    assert not any(figure.value for figure in wrong)
    assert list(report.raw) == [name]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_command_writes_all_three_outputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = {kind: tmp_path / f"bench.{kind}" for kind in ("json", "svg")}
    arguments = ["--quick", "--only", "import", "--dir", str(tmp_path)]
    for kind, path in written.items():
        arguments += [f"--{kind}", str(path)]
    assert main(arguments) == 0
    said = capsys.readouterr()
    assert "import: agent_run_ledger" in said.out
    assert "import: in new processes" in said.err
    assert json.loads(written["json"].read_bytes())["plan"] == "quick"
    assert written["svg"].read_text(encoding="utf-8").startswith("<svg")


def test_an_unknown_measurement_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--only", "nonsense"])
    assert caught.value.code == 2
    assert "nonsense" in capsys.readouterr().err
