"""The demonstration as a newcomer sees it: killed for real, finished by a second process, and every number checked."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agent_run_ledger.demo import run_demo
from agent_run_ledger.demo.audit.collect import TreeRefused
from agent_run_ledger.demo.outcome import PROVENANCE
from agent_run_ledger.errors import Misuse, Refused
from agent_run_ledger.testing import check_ledger

pytestmark = pytest.mark.fault

HEADINGS = ["Summary", "Riskiest modules", "Findings", "Import structure", "Reviews", "Method and limits", "Provenance"]


@pytest.fixture(autouse=True)
def _no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ARL_DEMO_REVIEWER", "ARL_DEMO_MODEL", "ARL_DEMO_TIMEOUT_S"):
        monkeypatch.delenv(name, raising=False)


def _demo(path: Path | None, folder: Path | None, *, kill: bool = True) -> dict[str, Any]:
    stream = io.StringIO()
    run_demo(path, folder, json=True, kill=kill, console=Console(file=stream))
    return json.loads(stream.getvalue())


def _tree(root: Path, modules: int) -> Path:
    """Write modules that import each other in a chain and have something to find, more of it with each number."""
    root.mkdir()
    for n in range(modules):
        branches = "".join(f"    if x == {k}:\n        return {k}\n" for k in range(n + 10))
        (root / f"m{n}.py").write_text(f"import m{n - 1}\n\n\ndef f(x, y=[]):\n{branches}" if n else branches.lstrip())
    (root / "m0.py").write_text("X = 1\n")
    return root


def _body(report: str) -> str:
    """The report without what differs between runs."""
    text, separator, _ = Path(report).read_text("utf-8").partition(f"\n{PROVENANCE}\n")
    assert separator
    return text


def test_the_demo_dies_in_step_19_and_pays_nothing_recorded_twice(tmp_path: Path) -> None:
    facts = _demo(None, tmp_path / "demo")
    first, second = facts["lives"]

    assert len(facts["steps"]) == 20
    assert first["ended"] == "killed by signal 9"
    assert first["killed_in"] == facts["steps"][18]["name"] == "synthesise"
    assert (first["steps_live"], first["steps_restored"], first["model_calls"]) == (18, 0, 15)
    assert second["ended"] == "completed"
    assert (second["steps_live"], second["steps_restored"], second["model_calls"]) == (2, 18, 1)
    assert [step["lives"] for step in facts["steps"]] == [
        *[["live", "restored"]] * 18,
        ["killed", "live"],
        ["not reached", "live"],
    ]

    # The meter is read here once more, as lines: the facts must be what it says.
    meter = [json.loads(line) for line in Path(facts["meter"]).read_text().splitlines()]
    paid = [(line["life"], line["step"]) for line in meter if line["event"] == "paid"]
    assert Counter(step for _, step in paid) == {**{f"review_{n:02}": 1 for n in range(1, 15)}, "synthesise": 2}
    assert [life for life, step in paid if step == "synthesise"] == [1, 2]
    bodies = Counter(line["step"] for line in meter if line["event"] == "body")
    assert {step for step, count in bodies.items() if count > 1} == {"synthesise"}
    tokens = {
        (life, step): sum(
            line["tokens_in"] + line["tokens_out"]
            for line in meter
            if line["event"] == "paid" and line["life"] == life and (line["step"] == "synthesise") is (step == "last")
        )
        for life in (1, 2)
        for step in ("reviews", "last")
    }
    assert all(tokens[key] > 0 for key in ((1, "reviews"), (1, "last"), (2, "last")))
    assert first["tokens"] == {
        "paid": tokens[1, "reviews"] + tokens[1, "last"],
        "spent": tokens[1, "reviews"],
        "uncertain": tokens[1, "last"],
        "restored": 0,
    }
    assert second["tokens"] == {
        "paid": tokens[2, "last"],
        "spent": tokens[2, "last"],
        "uncertain": 0,
        "restored": tokens[1, "reviews"],
    }
    assert facts["tokens_in_records"] == tokens[1, "reviews"] + tokens[2, "last"]
    assert facts["recorded_steps_paid_again"] == []
    assert facts["unrecorded_steps_paid_again"] == ["synthesise"]
    assert facts["tokens_estimated"] is True

    assert facts["state"] == "completed"
    check_ledger(facts["database"])
    assert facts["proof"]["verified"] is True
    assert re.fullmatch(r"[0-9a-f]{64}", facts["proof"]["root_hex"])
    assert facts["proof"]["log_size"] > 10

    report = Path(facts["report"]).read_text("utf-8")
    assert re.findall(r"^## (.+)$", report, re.MULTILINE) == HEADINGS
    assert "Attempt 1: killed by signal 9; 18 steps ran and were recorded" in report
    assert "json/decoder.py" in report
    assert "email/message.py" in report
    assert "asyncio/base_events.py" in report
    assert len(re.findall(r"^### \d+\. ", report, re.MULTILINE)) == 14
    assert facts["reviewer"] in report.replace("\\", "")


def test_without_a_kill_there_is_one_life_and_the_same_report(tmp_path: Path) -> None:
    tree = _tree(tmp_path / "tree", 3)
    killed = _demo(tree, tmp_path / "killed")
    whole = _demo(tree, tmp_path / "whole", kill=False)
    (life,) = whole["lives"]
    assert (life["ended"], life["steps_live"], life["steps_restored"]) == ("completed", 9, 0)
    assert life["tokens"]["uncertain"] == 0
    assert whole["unrecorded_steps_paid_again"] == []
    assert _body(whole["report"]) == _body(killed["report"])
    check_ledger(whole["database"])


def test_a_tiny_tree_and_a_single_file_have_fewer_reviews(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("def f(a=[]):\n    return a\n")
    facts = _demo(tmp_path / "one.py", tmp_path / "demo")
    names = ["collect", "parse", "measure", "imports", "review_01", "synthesise", "report"]
    assert [step["name"] for step in facts["steps"]] == names
    assert [life["steps_live"] for life in facts["lives"]] == [5, 2]
    assert facts["steps"][4]["subject"] == "one.py"
    assert "**mutable default argument**" in Path(facts["report"]).read_text("utf-8")


def test_a_tree_of_empty_files_has_no_review_at_all(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "__init__.py").write_text("\n")
    facts = _demo(tmp_path / "tree", tmp_path / "demo")
    assert len(facts["steps"]) == 6
    assert [life["steps_restored"] for life in facts["lives"]] == [0, 4]
    assert "None in the reviewed modules." in Path(facts["report"]).read_text("utf-8")


def test_broken_and_hostile_sources_are_findings_without_effects(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    evil = "\x1b[2J<script>|`# x`"
    (tree / f"{evil.replace('/', '')}.py").write_text(
        f'"""{evil}"""\n\nX = {{"{evil}": 1, "{evil}": 2}}  # TODO {evil}\n', encoding="utf-8"
    )
    (tree / "broken.py").write_text("def (:\n")
    (tree / "latin.py").write_bytes(b"# \xe9\n")
    facts = _demo(tree, tmp_path / "demo")
    report = Path(facts["report"]).read_text("utf-8")
    assert all(line.isprintable() for line in report.split("\n"))
    assert "\\x1b[2J" in report
    outside_code = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", report).replace("<br>", "")
    assert "<" not in outside_code
    for title in ("file does not parse", "file cannot be decoded", "duplicate key in a dict display"):
        assert f"**{title}**" in report
    assert {step["subject"] for step in facts["steps"]} >= {"broken.py", "latin.py"}


def test_nothing_of_the_audited_tree_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    trap = "import pathlib\npathlib.Path(__file__).with_name('trapped').touch()\n"
    for name in ("agent_run_ledger", "json", "email", "orjson", "sitecustomize", "typing"):
        (tree / f"{name}.py").write_text(trap)
    monkeypatch.chdir(tree)
    facts = _demo(Path(), None, kill=False)
    assert len(facts["steps"]) == 12
    assert not (tree / "trapped").exists()


def test_each_demo_gets_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = _tree(tmp_path / "tree", 1)
    monkeypatch.chdir(tmp_path)
    folders = [Path(_demo(tree, None, kill=False)["folder"]) for _ in range(2)]
    assert folders == [tmp_path / "arl-demo", tmp_path / "arl-demo-2"]
    with pytest.raises(Refused, match="finished"):
        _demo(None, folders[0])
    with pytest.raises(Refused, match="not empty"):
        _demo(tree, tree)


def test_what_cannot_be_audited_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    for path, kind in (("missing", Misuse), ("empty", TreeRefused), ("notes.txt", TreeRefused)):
        with pytest.raises(kind):
            _demo(tmp_path / path, tmp_path / "demo")
    assert not (tmp_path / "demo").exists()
