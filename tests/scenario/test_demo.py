"""The demonstration as a newcomer sees it: killed for real, finished by a second process, and every number checked."""

from __future__ import annotations

import io
import json
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agent_run_ledger import RunLedger
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


def _meter(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """The meter read once more, as lines: the facts must be what it says."""
    return [json.loads(line) for line in Path(facts["meter"]).read_text().splitlines()]


def _body(report: str) -> str:
    """The report without what differs between runs."""
    text, separator, _ = Path(report).read_text("utf-8").partition(f"\n{PROVENANCE}\n")
    assert separator
    return text


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The facts of the demo over this interpreter's own packages, with its kill."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARL_DEMO_REVIEWER", "rules")
        return _demo(None, tmp_path_factory.mktemp("demo") / "demo")


def test_the_first_life_dies_in_step_19_and_the_second_restores_18(killed: dict[str, Any]) -> None:
    first, second = killed["lives"]
    assert len(killed["steps"]) == 20
    assert first["ended"] == "killed by signal 9"
    assert first["killed_in"] == killed["steps"][18]["name"] == "synthesise"
    assert (first["steps_live"], first["steps_restored"], first["model_calls"]) == (18, 0, 15)
    assert second["ended"] == "completed"
    assert (second["steps_live"], second["steps_restored"], second["model_calls"]) == (2, 18, 1)
    assert [step["lives"] for step in killed["steps"]] == [
        *[["live", "restored"]] * 18,
        ["killed", "live"],
        ["not reached", "live"],
    ]


def test_no_recorded_step_was_paid_twice_says_the_meter(killed: dict[str, Any]) -> None:
    meter = _meter(killed)
    paid = [(line["life"], line["step"]) for line in meter if line["event"] == "paid"]
    assert Counter(step for _, step in paid) == {**{f"review_{n:02}": 1 for n in range(1, 15)}, "synthesise": 2}
    assert [life for life, step in paid if step == "synthesise"] == [1, 2]
    bodies = Counter(line["step"] for line in meter if line["event"] == "body")
    assert len(bodies) == 20
    assert {step for step, count in bodies.items() if count > 1} == {"synthesise"}
    assert killed["recorded_steps_paid_again"] == []
    assert killed["unrecorded_steps_paid_again"] == ["synthesise"]


def test_tokens_spent_restored_and_uncertain_are_those_of_the_meter(killed: dict[str, Any]) -> None:
    tokens: Counter[tuple[int, bool]] = Counter()
    for line in _meter(killed):
        if line["event"] == "paid":
            tokens[line["life"], line["step"] == "synthesise"] += line["tokens_in"] + line["tokens_out"]
    reviews, lost, last = tokens[1, False], tokens[1, True], tokens[2, True]
    assert reviews > lost > 0
    assert last > 0
    assert [life["tokens"] for life in killed["lives"]] == [
        {"paid": reviews + lost, "spent": reviews, "uncertain": lost, "restored": 0},
        {"paid": last, "spent": last, "uncertain": 0, "restored": reviews},
    ]
    assert killed["tokens_in_records"] == reviews + last
    assert killed["tokens_estimated"] is True


def test_the_ledger_alone_says_the_same_of_its_tokens(killed: dict[str, Any]) -> None:
    first, second = (life["tokens"] for life in killed["lives"])
    with RunLedger(killed["run_id"], killed["database"], create=False) as ledger:
        account = ledger.bind(killed["run_id"]).usage()
    assert account is not None
    total = account.total
    assert total.spent.tokens == first["spent"] + second["spent"]
    assert total.restored.tokens == second["restored"]
    assert (total.uncertain.calls, total.uncertain.repeated) == (1, 1)
    assert total.uncertain.estimate.tokens == first["uncertain"]  # the rules repeat themselves to the letter
    assert account.silent == len(killed["steps"]) - 15


def test_the_run_is_completed_and_its_log_verifies(killed: dict[str, Any]) -> None:
    assert killed["state"] == "completed"
    check_ledger(killed["database"])
    assert killed["proof"]["verified"] is True
    assert re.fullmatch(r"[0-9a-f]{64}", killed["proof"]["root_hex"])
    assert killed["proof"]["log_size"] > 10


def test_the_report_is_about_all_three_packages(killed: dict[str, Any]) -> None:
    report = Path(killed["report"]).read_text("utf-8")
    assert re.findall(r"^## (.+)$", report, re.MULTILINE) == HEADINGS
    assert "Attempt 1: killed by signal 9; 18 steps ran and were recorded" in report
    for path in ("json/decoder.py", "email/message.py", "asyncio/base_events.py"):
        assert path in report
    assert len(re.findall(r"^### \d+\. ", report, re.MULTILINE)) == 14
    assert killed["reviewer"] in report.replace("\\", "")


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


def test_make_clean_removes_every_folder_of_the_demo(root: Path, tmp_path: Path) -> None:
    for name in ("arl-demo", "arl-demo-2", "arl-demo-17", "arl-demonstration", "src", "own-venv"):
        (tmp_path / name).mkdir()
    # VENV by hand: the environment may name the one that this very test runs in.
    command = ["make", "--silent", f"--makefile={root / 'Makefile'}", "clean", "VENV=own-venv"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["arl-demonstration", "src"]


def test_what_cannot_be_audited_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    for path, kind in (("missing", Misuse), ("empty", TreeRefused), ("notes.txt", TreeRefused)):
        with pytest.raises(kind):
            _demo(tmp_path / path, tmp_path / "demo")
    assert not (tmp_path / "demo").exists()
