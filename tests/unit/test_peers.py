"""The arithmetic and the outputs of the comparison with others, on numbers that are given."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from agent_run_ledger.benchmark.work import PAYLOAD
from bench.peers import page, picture, summary
from bench.peers.environments import clean_environ, licence_of
from bench.peers.lives import Seen, seen, sync_calls
from bench.peers.measure import Plan, Raw
from bench.peers.report import Report, as_text, assemble, rounded, troubles
from bench.peers.roster import FLOOR, LOCKS, ROSTER, Side, chosen

BY_NAME = {one.name: one for one in ROSTER}
TRIO = (FLOOR, BY_NAME["arl"], BY_NAME["dbos"])


def timed(*lives: tuple[float, tuple[float, float]], stored: float = 1_500.0) -> list[dict[str, Any]]:
    """Lives of rounds 0, 1, ...: (steps per second, (sync before, sync after))."""
    return [
        {"round": at, "steps_per_s": speed, "cpu_us_per_step": 100.0, "bytes_per_step": stored, "sync_us": list(us)}
        for at, (speed, us) in enumerate(lives)
    ]


def kill(run_again: int = 0, *, body_ms: float = 0.0, never_ran: int = 0, stuck: str | None = None) -> dict[str, Any]:
    return {
        "steps": 100,
        "kill_at": 50,
        "body_ms": body_ms,
        "run_again": run_again,
        "killed_body_ran": 2,
        "never_ran": never_ran,
        "could_not_go_on": stuck,
    }


@pytest.fixture
def raws() -> dict[str, Raw]:
    quiet = (60.0, 61.0)
    floor = Raw(speed=timed((4_000.0, quiet), (6_000.0, quiet)), kills=[kill()], syncs={"20": 25, "120": 125})
    ours = Raw(
        settings={"journal_mode": "wal", "synchronous": 2, "sqlite": "3.x"},
        speed=timed((2_000.0, quiet), (2_000.0, quiet)),
        kills=[kill(), kill(3), kill(1), kill(body_ms=50.0)],
        restores=[{"first_body": 900, "restore_ms": 20.0, "process_s": 0.2}],
        syncs={"20": 30, "120": 130},
    )
    return {"floor": floor, "arl": ours, "dbos": Raw(trouble="the packages <of> dbos.txt could not be installed: why")}


@pytest.fixture
def report(raws: dict[str, Raw]) -> Report:
    installed = {None: {"apsw": ("3.54", "any-OSI"), "agent-run-ledger": ("0.1.0", "Apache-2.0")}}
    return assemble(TRIO, raws, installed, plan=Plan(), machine={"python": "3.x"}, took_s=12.3)


# who is measured


def test_every_contender_has_its_script_its_lock_and_a_name_of_its_own(root: Path) -> None:
    assert len({one.name for one in ROSTER}) == len({one.title for one in ROSTER}) == len(ROSTER)
    for one in ROSTER:
        assert one.path.is_file()
        if one.environment is None:
            assert one.side in (Side.FLOOR, Side.OURS)
        else:
            lock = (LOCKS / f"{one.environment}.txt").read_text(encoding="utf-8")
            assert all(re.search(rf"^{re.escape(name)}==", lock, re.MULTILINE) for name in one.packages)


def test_the_floor_is_always_among_the_chosen_and_first() -> None:
    assert chosen([]) == ROSTER
    assert [one.name for one in chosen(["dbos"])] == ["floor", "dbos"]
    assert {one.environment for one in chosen(["langgraph"])[1:]} == {"langgraph"}
    assert len(chosen(["langgraph"])) == 5
    with pytest.raises(ValueError, match="no contender dbus"):
        chosen(["dbos", "dbus"])


def test_the_body_of_every_contender_returns_what_the_benchmark_returns(root: Path) -> None:
    protocol = (root / "bench" / "peers" / "contenders" / "protocol.py").read_text(encoding="utf-8")
    assert f'PAYLOAD = "x" * {len(PAYLOAD)}\n' in protocol
    assert '{"i": i, "ok": True, "data": PAYLOAD}' in protocol


def test_no_variable_that_steers_a_contender_is_handed_on() -> None:
    given = {
        "PATH": "/bin",
        "PYTHONPATH": "x",
        "LANGSMITH_TRACING": "true",
        "DBOS_SYSTEM_DATABASE_URL": "x",
        "PIP_CERT": "y",
    }
    assert clean_environ(given) == {"PATH": "/bin", "PIP_CERT": "y", "PYTHONNOUSERSITE": "1", "LC_ALL": "C.UTF-8"}


@pytest.mark.parametrize(
    ("said", "licence"),
    [
        (["MIT", "", "License :: OSI Approved :: BSD License"], "MIT"),
        (["", "", "License :: OSI Approved :: BSD License"], "BSD License"),
        (["", "Copyright me\nAll of a text", "License :: OSI Approved :: MIT License"], "MIT License"),
        (["", ""], "unknown"),
        (["", "x" * 61], "unknown"),
    ],
)
def test_a_licence_is_said_in_a_few_words(said: list[str], licence: str) -> None:
    assert licence_of(said) == licence


# what a witness and a trace say


@pytest.mark.parametrize(
    ("bodies", "told"),
    [
        ("0 1 2 2 3 4", Seen(run_again=0, killed_body_ran=2, never_ran=0)),
        ("0 1 2 1 2 3 4", Seen(run_again=1, killed_body_ran=2, never_ran=0)),
        ("0 1 2 0 1 2 3 4", Seen(run_again=2, killed_body_ran=2, never_ran=0)),
        ("0 1 2 3 4", Seen(run_again=0, killed_body_ran=1, never_ran=0)),
        ("0 1 2", Seen(run_again=0, killed_body_ran=1, never_ran=2)),
        ("0 1 2 2 3 3 4", Seen(run_again=0, killed_body_ran=2, never_ran=0)),
    ],
)
def test_a_witness_tells_finished_steps_from_the_killed_one(bodies: str, told: Seen) -> None:
    assert seen("\n".join(bodies.split()) + "\n", steps=5, kill_at=2) == told


def test_a_sync_is_counted_once_however_its_line_is_broken() -> None:
    trace = (
        "10 fdatasync(4)                      = 0\n"
        "11 fsync(7 <unfinished ...>\n"
        "10 fdatasync(4) = 0\n"
        "11 <... fsync resumed>)  = 0\n"
        "10 +++ exited with 0 +++\n"
    )
    assert sync_calls(trace) == 3


# figures


def test_a_ratio_is_taken_within_a_round(raws: dict[str, Raw]) -> None:
    figures = summary.figures(raws)
    assert figures["arl"]["floor_to_it"] == {"median": 2.5, "low": 2.0, "high": 3.0, "count": 2}
    assert figures["floor"]["floor_to_it"] == {"median": 1.0, "low": 1.0, "high": 1.0, "count": 2}
    assert figures["arl"]["steps_per_s"]["median"] == 2_000.0


def test_a_round_with_a_noisy_disk_counts_for_nothing_but_the_bytes() -> None:
    floor = Raw(speed=timed((4_000.0, (60.0, 60.0)), (400.0, (60.0, 91.0))))
    ours = Raw(speed=timed((2_000.0, (60.0, 90.0)), (2_000.0, (60.0, 60.0)), stored=7.0))
    figures = summary.figures({"floor": floor, "arl": ours})
    assert figures["floor"]["steps_per_s"]["median"] == 4_000.0
    assert figures["floor"]["noisy_rounds"] == 1
    assert figures["arl"]["floor_to_it"] == {"median": 2.0, "low": 2.0, "high": 2.0, "count": 1}
    assert figures["arl"]["bytes_per_step"]["count"] == 2


def test_where_no_round_was_quiet_all_of_them_count_and_are_said_to_be_noisy() -> None:
    floor = Raw(speed=timed((4_000.0, (60.0, 60.0))))
    ours = Raw(speed=timed((1_000.0, (60.0, 300.0))))
    figures = summary.figures({"floor": floor, "arl": ours})
    assert (figures["arl"]["noisy_rounds"], figures["arl"]["quiet"], figures["floor"]["quiet"]) == (1, False, True)
    assert figures["arl"]["floor_to_it"]["median"] == 4.0
    assert page.cost(figures["arl"])[:2] == ["noisy: 1,000", "noisy: 4"]
    assert page.cost(figures["floor"])[:2] == ["4,000", "1"]


def test_without_the_floor_there_is_no_ratio_and_nothing_of_nothing(raws: dict[str, Raw]) -> None:
    figures = summary.figures({"arl": raws["arl"], "dbos": raws["dbos"]})
    assert figures["arl"]["floor_to_it"] is None
    assert figures["dbos"]["steps_per_s"] is None
    assert figures["dbos"]["kills"] is None
    assert figures["dbos"]["syncs_per_step"] is None


def test_syncs_are_those_of_the_steps_alone() -> None:
    assert summary.syncs_per_step(Raw(syncs={"20": 31, "120": 131})) == 1.0
    assert summary.syncs_per_step(Raw(syncs={"20": None, "120": None})) is None


def test_kills_are_added_up_by_what_the_bodies_took(raws: dict[str, Raw]) -> None:
    figures = summary.figures(raws)["arl"]
    assert figures["kills"] == {
        "count": 3,
        "with_loss": 2,
        "run_again": 4,
        "most_run_again": 3,
        "killed_body_ran": [2],
        "never_ran": 0,
        "could_not_go_on": 0,
    }
    assert figures["slow_kills"]["count"] == 1
    assert figures["slow_kills"]["with_loss"] == 0


# the report, the page and the picture


def test_the_report_is_json_with_four_digits_and_every_raw_number(report: Report) -> None:
    again = json.loads(as_text(report))
    assert [one["name"] for one in again["contenders"]] == ["floor", "arl", "dbos"]
    assert again["raw"]["arl"]["speed"][1]["steps_per_s"] == 2_000.0
    assert rounded({"a": [1.23456, 3, True, None, "x"]}) == {"a": [1.235, 3, True, None, "x"]}
    assert troubles(again) == [f"{BY_NAME['dbos'].title}: {again['contenders'][2]['trouble']}"]


def test_the_tables_say_what_was_measured_and_what_was_not(report: Report) -> None:
    lines = page.section(report).splitlines()
    ours = [line for line in lines if line.startswith(f"| {BY_NAME['arl'].title} |")]
    assert ours == [
        "| agent-run-ledger (default) | 2,000 (2,000–2,000) | 2.5 (2–3) | 100 | 1,500 | 1 |",
        "| agent-run-ledger (default) | 4 in 2 of 3 kills, at most 3 | 0 in 1 kill | 2 × | 0 | 20 | 0.2 |",
        "| agent-run-ledger (default) | agent-run-ledger 0.1.0, Apache-2.0 | WAL, FULL | 3.x |",
    ]
    assert "| DBOS on SQLite (default) | – | – | – | – | – |" in lines
    assert (
        "Not measured, or not to the end: DBOS on SQLite (default): " + report["contenders"][2]["trouble"] + "."
        in lines
    )
    assert "NOT MEASURED DBOS" in page.terminal(report)


def test_runs_that_could_not_go_on_and_steps_that_never_ran_are_in_the_table(raws: dict[str, Raw]) -> None:
    raws["arl"].kills = [kill(), kill(never_ran=50, stuck="it ended")]
    figures = summary.figures(raws)["arl"]
    assert page.kills(figures)[3] == "50; 1 runs could not go on"


def test_only_what_is_between_the_two_marks_is_rewritten(report: Report) -> None:
    before = f"# Page\n\n{page.BEGIN}\nold\n{page.END}\n\nrest\n"
    after = page.rewritten(before, report)
    assert after.startswith("# Page\n\n<!--")
    assert after.endswith("-->\n\nrest\n")
    assert "old" not in after
    assert page.rewritten(after, report) == after


@pytest.mark.parametrize(
    "broken", ["# Page\n", f"{page.BEGIN}\n", f"{page.END}\n{page.BEGIN}\n", f"{page.BEGIN}{page.END}" * 2]
)
def test_a_page_without_its_marks_is_refused(report: Report, broken: str) -> None:
    with pytest.raises(ValueError, match="exactly once"):
        page.rewritten(broken, report)


def test_the_page_and_the_picture_are_those_of_the_kept_results(root: Path) -> None:
    results = root / "bench" / "results"
    kept = json.loads((results / "peers.json").read_text(encoding="utf-8"))
    text = (root / "docs" / "reference" / "peers.md").read_text(encoding="utf-8")
    assert page.rewritten(text, kept) == text
    assert picture.picture(kept) == (results / "peers.svg").read_text(encoding="utf-8")
    assert [one["name"] for one in kept["contenders"]] == [one.name for one in ROSTER]


def test_the_kept_figures_are_those_of_the_kept_raw_numbers(root: Path) -> None:
    kept = json.loads((root / "bench" / "results" / "peers.json").read_text(encoding="utf-8"))
    figures = summary.figures({name: Raw(**raw) for name, raw in kept["raw"].items()})
    assert figures.keys() == {one["name"] for one in kept["contenders"]}
    for one in kept["contenders"]:
        assert {key: one[key] for key in figures[one["name"]]} == rounded(figures[one["name"]])


def _texts(svg: str) -> list[ElementTree.Element]:
    return [element for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("text")]


def test_the_picture_is_well_formed_and_no_words_run_into_others(report: Report, root: Path) -> None:
    kept = json.loads((root / "bench" / "results" / "peers.json").read_text(encoding="utf-8"))
    for shown in (report, kept):
        for element in _texts(picture.picture(shown)):
            left, words = float(element.attrib["x"]), element.text or ""
            letter = {"small": 6.4, "title": 11.0}.get(element.attrib.get("class", ""), 7.6)  # of a wide sans serif
            edge = (
                picture.BAR_LEFT if left < picture.BAR_LEFT and element.attrib.get("class") is None else picture.WIDTH
            )
            assert left + letter * len(words) <= edge, words


def test_a_bar_is_as_long_as_its_speed_and_none_where_nothing_was_measured(report: Report) -> None:
    root = ElementTree.fromstring(picture.picture(report))
    bars = [float(element.attrib["width"]) for element in root if element.tag.endswith("rect")][1:]
    assert bars == [round(picture.BAR_WIDTH * 5_000 / 6_000), round(picture.BAR_WIDTH * 2_000 / 6_000)]
    assert picture.beside(report["contenders"][2])[0] == "not measured"
