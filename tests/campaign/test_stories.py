"""Stories are what the campaign promises: the same in every process, of every kind, and with keys that fit."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

from agent_run_ledger.testing import ALL
from tests.campaign.meter import FILE_NAME, Event, Meter, read_meter
from tests.campaign.programs import Node, Program, digest_of, key_in, key_of, steps_of, value_of
from tests.campaign.stories import MEBIBYTE, READERS, Life, Story, story_of


@cache
def _stories() -> list[Story]:
    return [story_of(seed) for seed in range(1, 401)]


def _lives() -> list[Life]:
    return [life for story in _stories() for life in story.lives]


def test_a_seed_is_one_story_in_every_process(root: Path) -> None:
    script = "from tests.campaign.stories import story_of; print(story_of(17))"
    told = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=root,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert told == {f"{story_of(17)}\n"}


def test_every_kind_of_life_occurs() -> None:
    workers = [worker for life in _lives() for worker in life.workers]
    points = Counter(worker.kill.where for worker in workers if worker.kill is not None)
    assert points.keys() == {*ALL, "instant"}
    assert {worker.manner for worker in workers} == {"plain", "wait", "takeover"}
    assert {(worker.threads, worker.on_loop) for worker in workers} == {
        (a, b) for a in (True, False) for b in (True, False)
    }
    assert {life.reader for life in _lives()} == {None, *READERS}
    assert {act.event for life in _lives() for act in life.acts} == {"quarantine", "release", "takeover", "cancel"}
    switched = [story for story in _stories() if len({life.durability for life in story.lives}) == 2]
    assert switched
    assert {len(story.inputs) for story in _stories()} == {1, 2, 3}
    assert min(len(story.lives) for story in _stories()) == 4


def test_every_kind_of_program_occurs_and_can_be_bound() -> None:
    programs = [program for life in _lives() for program in life.programs.values()]
    nodes = [node for program in programs for node in program.nodes]
    assert {len(program.nodes) for program in programs} >= set(range(2, 26))
    assert {program.max_parallel for program in programs} == set(range(1, 9))
    assert {node.shape for node in nodes} == {"sync", "async", "generator", "async_generator"}
    assert {node.binding for node in nodes} == {"name", "from", "place", "star"}
    assert {node.form for node in nodes} == {"text", "dict", "tuple", "bytes"}
    assert max(node.size for node in nodes) > MEBIBYTE
    assert any(node.waits for node in nodes)
    assert {node.on_change for node in nodes} == {None, "refuse"}
    assert {program.on_change for program in programs} == {"rerun", "refuse"}
    assert any(node.broken for node in nodes)
    for program in programs:
        assert len(program.in_order()) == len(program.nodes)


def test_nobody_is_killed_and_nothing_is_broken_in_the_last_life() -> None:
    for story in _stories():
        assert not any(worker.kill for worker in story.lives[-1].workers)
        assert not any(node.fails for program in story.lives[-1].programs.values() for node in program.nodes)
        assert all(any(worker.kill for worker in life.workers) for life in story.lives[:-1])


def test_a_body_finds_the_key_that_the_reference_foretells(tmp_path: Path) -> None:
    for binding in ("name", "from", "place", "star"):
        nodes = (
            Node(name="a", form="dict"),
            Node(name="b", form="tuple"),
            Node(name="c", takes=("a", "b"), binding=binding),
        )
        values: dict[str, object] = {}
        steps = {step.name: step for step in steps_of(Program(nodes=nodes), "r", Meter(tmp_path, 1))}
        for node in nodes:
            key = key_of(node, values, 3)
            values[node.name] = steps[node.name].plain(*[values[name] for name in node.takes])
            assert values[node.name] == value_of(node, key)
            assert key_in(values[node.name]) == key


def test_a_line_that_a_kill_left_half_written_announces_nothing_and_spoils_no_other(tmp_path: Path) -> None:
    meter = Meter(tmp_path, 1)
    meter.write("r", "a", "key", Event.BEGAN, 11)
    whole = (tmp_path / FILE_NAME).read_bytes()
    for cut in range(len(whole)):
        (tmp_path / FILE_NAME).write_bytes(whole[:cut])
        meter.write("r", "b", "key", Event.BEGAN, 1)
        names = [line.name for line in read_meter(tmp_path, life=1)]
        assert names == (["a", "b"] if cut == len(whole) - 1 else ["b"]), cut
    assert read_meter(tmp_path, life=2) == []


def test_a_key_tells_calls_apart() -> None:
    node = Node(name="c", takes=("a", "b"), binding="name")
    values: dict[str, object] = {"a": "one", "b": "two"}
    keys = {
        key_of(one, given, x)
        for one, given, x in (
            (node, values, 1),
            (replace(node, version="2"), values, 1),
            (replace(node, setting=0), values, 1),
            (replace(node, binding="place"), values, 1),
            (replace(node, binding="star"), values, 1),
            (replace(node, binding="star", takes=("b", "a")), values, 1),
            (node, {"a": "two", "b": "one"}, 1),
            (replace(node, takes_input=True), values, 1),
            (replace(node, takes_input=True), values, 2),
        )
    }
    assert len(keys) == 9
    assert key_of(node, values, 1) == key_of(node, values, 2), "an input that it does not take says nothing"
    assert key_of(node, values, 1) == key_of(replace(node, waits=("d",)), values, 1)
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
