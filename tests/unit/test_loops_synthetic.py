"""The 32 templates of made runs in ../shared: healthy ones go on, stuck ones are stopped near the right step."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_run_ledger.cli.breaker_corpus import Trajectory, read_trajectories
from tests.unit.loop_calls import trip

TEMPLATES = (
    "poll_percent", "poll_static_named", "poll_static_unnamed", "poll_sleep_shell", "paginate_pages", "paginate_cursor",
    "iterate_ids", "iterate_ids_some_404", "bulk_insert_const_ack", "bulk_insert_similar_args", "edits_same_file",
    "edit_test_cycle", "retry_then_success", "retry4_then_success", "monitor_ab", "read_chunks_same_args",
    "same_call_same_error", "same_call_same_result", "same_call_jitter_result", "same_call_line_numbers",
    "cycle_period_2", "cycle_period_3", "cycle_period_4", "cycle_period_5", "cycle_period_7",
    "paraphrased_search_same_result", "varied_args_same_error", "growing_arg", "key_order_and_space_jitter",
    "page_moves_content_does_not", "poll_forever", "edit_grows_file",
)  # fmt: skip


@pytest.fixture(scope="module")
def made(shared: Path) -> dict[str, list[Trajectory]]:
    runs: dict[str, list[Trajectory]] = {}
    for run in read_trajectories(shared / "loops" / "synthetic" / "synthetic.jsonl"):
        runs.setdefault(run.key[1].split("#")[0], []).append(run)
    return runs


def test_every_template_is_tried(made: dict[str, list[Trajectory]]) -> None:
    assert sorted(made) == sorted(TEMPLATES)


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_is_judged_right(made: dict[str, list[Trajectory]], template: str) -> None:
    wrong: list[tuple[str, int | None, int | None]] = []
    for run in made[template]:
        assert run.label is not None
        stopped = trip(run.calls)
        right = (
            stopped is None if run.label.stop is None else stopped is not None and abs(stopped - run.label.stop) <= 4
        )
        if not right:
            wrong.append((run.key[1], stopped, run.label.stop))
    assert wrong == []
