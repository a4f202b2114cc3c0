"""`arl breaker eval`: recorded runs go through the real detector, and its trips are scored by what people said."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Arl


def step(result: str, error: bool = False, **args: object) -> dict[str, Any]:
    known = {"tool": "t", "args": args, "args_sha": "0", "error": error}
    return known | {"result": result, "result_sha": "0", "result_len": len(result)}


def run(name: str, steps: Iterable[dict[str, Any]], source: str = "one", **more: object) -> dict[str, Any]:
    return {"source": source, "trajectory_id": name, "steps": list(steps), **more}


def loop(times: int) -> list[dict[str, Any]]:
    return [step("the same rows as before", q="x")] * times


def work(times: int) -> list[dict[str, Any]]:
    return [step(f"answer {n} to question {n}", q=f"question {n}") for n in range(times)]


RUNS = [
    run("stuck", loop(8), outcome={"resolved": False}),
    run("missed", work(8)),
    run("early", [*loop(5), *work(9), *loop(5)]),
    run("halted", loop(6), source="two", outcome={"resolved": True}),
    run("fine", work(8), source="two", outcome={"resolved": True}),
    run("unclear", loop(6), source="two"),
]
LABELS = [
    ("one", "stuck", "stuck", 2),
    ("one", "missed", "stuck", 5),
    ("one", "early", "stuck", 16),
    ("two", "halted", "healthy", None),
    ("two", "fine", "healthy", None),
    ("two", "unclear", "ambiguous", None),
    ("two", "nowhere", "healthy", None),
]


def write(path: Path, lines: Iterable[object]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    write(tmp_path / "corpus" / "a.jsonl", RUNS[:3])
    write(tmp_path / "corpus" / "b.jsonl", RUNS[3:])
    return tmp_path / "corpus"


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    keys = ("source", "trajectory_id", "label", "stop")
    return write(tmp_path / "labels.jsonl", [dict(zip(keys, label, strict=True)) for label in LABELS])


def test_the_figures_are_those_of_the_labels(arl: Arl, corpus: Path, labels: Path) -> None:
    ended = arl("breaker", "eval", "--corpus", corpus, "--labels", labels, "--json")
    assert (ended.code, ended.err) == (0, "")
    said = ended.json
    assert said["confusion"] == {
        "stuck": {"tripped": 2, "passed": 1},
        "healthy": {"tripped": 1, "passed": 1},
        "ambiguous": {"tripped": 1, "passed": 0},
    }
    assert (said["scored"], said["precision"], said["recall"], said["f1"]) == (5, 0.6667, 0.6667, 0.6667)
    assert (said["healthy_halted"], said["early_trips"], said["median_delay"]) == (0.5, 1, -6)
    assert said["successes"] == {"resolved": 2, "killed": 1, "killed_share": 0.5}
    assert (said["replayed"], said["tripped"], said["labelled"]) == (6, 4, 6)
    assert said["labels_without_run"] == ["two nowhere"]
    assert said["by_source"]["two"]["confusion"]["healthy"] == {"tripped": 1, "passed": 1}
    assert said["by_source"]["two"]["median_delay"] is None
    assert {one["trajectory_id"]: (one["source"], one["trip"], one["rule"]) for one in said["runs"]} == {
        "stuck": ("one", 3, "again"),
        "missed": ("one", None, None),
        "early": ("one", 3, "again"),
        "halted": ("two", 3, "again"),
        "fine": ("two", None, None),
        "unclear": ("two", 3, "again"),
    }
    assert said["calls"] == sum(len(one["steps"]) for one in RUNS)
    assert said["us_per_call"] > 0
    assert said["policy"] == {"max_repetitions": 3, "threshold": 0.92, "rule": "outcome", "window": 40}


def test_people_get_tables(arl: Arl, corpus: Path, labels: Path) -> None:
    ended = arl("breaker", "eval", "--corpus", corpus, "--labels", labels)
    assert ended.code == 0
    for words in ("6 runs replayed, 4 tripped", "healthy halted", "recorded successes stopped: 1 of 2", "µs"):
        assert words in ended.out
    assert ended.err == "1 label without a run in the corpus, first two nowhere\n"


def test_without_labels_there_are_only_trips(arl: Arl, corpus: Path) -> None:
    said = arl("breaker", "eval", "--corpus", corpus, "--json").json
    assert (said["tripped"], said["scored"], said["f1"], said["by_source"]) == (4, 0, None, {})
    out = arl("breaker", "eval", "--corpus", corpus).out
    assert "precision" not in out


def test_several_places_are_read_and_a_run_given_twice_counts_once(arl: Arl, corpus: Path) -> None:
    said = arl("breaker", "eval", "--corpus", corpus / "a.jsonl", "--corpus", corpus, "--json").json
    assert said["replayed"] == 6


def test_a_label_within_the_line_counts_and_one_from_a_file_counts_more(arl: Arl, tmp_path: Path) -> None:
    made = write(
        tmp_path / "made.jsonl",
        [run("x", loop(6), label="stuck", stop=3), run("y", work(6), label="healthy", stop=None)],
    )
    said = arl("breaker", "eval", "--corpus", made, "--json").json
    assert (said["f1"], said["median_delay"]) == (1, 0)
    told = write(tmp_path / "told.jsonl", [{"source": "one", "trajectory_id": "x", "label": "healthy", "stop": None}])
    assert arl("breaker", "eval", "--corpus", made, "--labels", told, "--json").json["healthy_halted"] == 0.5


@pytest.mark.parametrize(
    ("options", "trip"),
    [
        (("--max-repetitions", "5"), 5),
        (("--rule", "inputs"), 2),
        (("--rule", "off"), None),
        (("--policy", "inputs"), 2),
        (("--policy", '{"rule": "inputs", "max_repetitions": 4}'), 3),
        (("--policy", '{"max_repetitions": 4}', "--max-repetitions", "2"), 2),
        (("--threshold", "0.5", "--window", "10"), 3),
    ],
)
def test_the_policy_can_be_given(arl: Arl, corpus: Path, options: tuple[str, ...], trip: int | None) -> None:
    said = arl("breaker", "eval", "--corpus", corpus / "a.jsonl", *options, "--json").json
    assert said["runs"][0]["trip"] == trip


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--max-repetitions", "0"), "bad_policy"),
        (("--threshold", "2"), "bad_policy"),
        (("--rule", "else"), "bad_policy"),
        (("--policy", "else"), "usage"),
        (("--policy", '{"repetitions": 3}'), "usage"),
    ],
)
def test_a_policy_out_of_range_is_refused(arl: Arl, corpus: Path, options: tuple[str, ...], code: str) -> None:
    ended = arl("breaker", "eval", "--corpus", corpus, *options, "--json")
    assert (ended.code, ended.out, ended.error["code"]) == (2, "", code)


GOOD = json.dumps(RUNS[0])
BAD_LINES = {
    "no JSON": "{",
    "a line must be a JSON object": "[]",
    "`source` and `trajectory_id` must be text": '{"source": 1}',
    "`steps` must be a list": '{"source": "s", "trajectory_id": "t"}',
    "step 1 must be a JSON object": json.dumps(run("t", [step("x"), 3])),  # type: ignore[list-item]
    "step 0 must have `tool`": json.dumps(run("t", [{"args": {}}])),
    "`label` must be one of": json.dumps(run("t", [], label="bad")),
    "`stop` must be a step": json.dumps(run("t", [], label="stuck", stop=None)),
}


@pytest.mark.parametrize("flaw", BAD_LINES)
def test_a_bad_line_is_named_by_file_and_number(arl: Arl, tmp_path: Path, flaw: str) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text(f"{GOOD}\n\n{BAD_LINES[flaw]}\n", encoding="utf-8")
    ended = arl("breaker", "eval", "--corpus", bad, "--json")
    assert (ended.code, ended.out, ended.error["code"]) == (2, "", "bad_corpus")
    assert f"{bad}:3: " in ended.error["message"]
    assert flaw in ended.error["message"]


def test_a_run_that_is_labelled_in_two_ways_is_refused(arl: Arl, corpus: Path, tmp_path: Path) -> None:
    label = {"source": "one", "trajectory_id": "x", "label": "healthy", "stop": None}
    told = write(tmp_path / "told.jsonl", [label, label, label | {"label": "ambiguous"}])
    ended = arl("breaker", "eval", "--corpus", corpus, "--labels", told, "--json")
    assert f"{told}:3: " in ended.error["message"]


def test_places_that_are_not_there_are_refused(arl: Arl, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for options in (
        ("--corpus", tmp_path / "none"),
        ("--corpus", tmp_path / "empty"),
        ("--corpus", corpus, "--labels", tmp_path / "none"),
    ):
        assert arl("breaker", "eval", *options, "--json").error["code"] == "no_corpus"


def test_clipped_texts_are_told_apart_by_their_digests(arl: Arl, tmp_path: Path) -> None:
    def clipped(n: int, sha: str) -> dict[str, Any]:
        return step("the beginning of a text that was clipped ... and its end", q=f"which part of it {n}") | {
            "result_len": 90_000,
            "result_sha": sha,
        }

    same = write(tmp_path / "same.jsonl", [run("x", [clipped(n, "a" * 16) for n in range(8)])])
    other = write(tmp_path / "other.jsonl", [run("x", [clipped(n, f"{n}bcdefgh") for n in range(8)])])
    assert arl("breaker", "eval", "--corpus", same, "--json").json["tripped"] == 1
    assert arl("breaker", "eval", "--corpus", other, "--json").json["tripped"] == 0


def test_the_dev_labels_are_met(arl: Arl, shared: Path) -> None:
    loops = shared / "loops"
    said = arl(
        "breaker", "eval", "--corpus", loops / "corpus", "--labels", loops / "labels" / "dev.jsonl", "--json"
    ).json
    assert said["labels_without_run"] == []
    assert said["f1"] >= 0.95
    assert said["healthy_halted"] <= 0.04
    assert said["median_delay"] <= 1
    assert said["successes"]["killed_share"] <= 0.035
