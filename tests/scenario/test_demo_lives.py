"""Lives of the demonstration that go wrong (refusals, changed files, Ctrl-C, SIGTERM), and how they go on."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agent_run_ledger import RunLedger
from agent_run_ledger.demo import run_demo
from agent_run_ledger.demo.audit.collect import SourceChanged
from agent_run_ledger.demo.job import Job, write_job
from agent_run_ledger.demo.lives import run_life
from agent_run_ledger.demo.meter import Meter, MeterEvent, read_meter
from agent_run_ledger.demo.pipeline import Audit
from agent_run_ledger.demo.questions import Question
from agent_run_ledger.demo.reviewers import Answer, reviewer_from
from agent_run_ledger.demo.rule_reviewer import RuleReviewer
from agent_run_ledger.errors import LedgerError, Misuse, Refused, Unavailable
from agent_run_ledger.ledger.run_ledger import DEFAULT_PARALLEL
from agent_run_ledger.testing import check_ledger
from tests.unit.demo_server import GOOD, KEY, Endpoint, Reply, answered, serving, status

pytestmark = pytest.mark.fault


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    with serving() as served:
        served.otherwise = answered(GOOD)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{served.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("ARL_DEMO_MODEL", "m")
        for name in ("ARL_DEMO_REVIEWER", "ARL_DEMO_TIMEOUT_S"):
            monkeypatch.delenv(name, raising=False)
        yield served


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    for n in range(3):
        (folder / f"m{n}.py").write_text(f"def f(x):\n    return x == {n}\n")
    return folder


def _demo(path: Path | None, folder: Path, *, kill: bool = True) -> dict[str, Any]:
    stream = io.StringIO()
    run_demo(path, folder, json=True, kill=kill, console=Console(file=stream))
    return json.loads(stream.getvalue())


def _paid(path: Path) -> Counter[str]:
    return Counter(line.step for line in read_meter(path) if line.event is MeterEvent.PAID)


def test_a_model_behind_http_is_killed_and_restored_like_the_rules(
    endpoint: Endpoint, tree: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    facts = _demo(tree, tmp_path / "demo")
    first, second = facts["lives"]
    assert (first["model_calls"], second["model_calls"]) == (4, 1)
    assert first["tokens"] == {"paid": 72, "spent": 54, "uncertain": 18, "restored": 0}
    assert second["tokens"] == {"paid": 18, "spent": 18, "uncertain": 0, "restored": 54}
    assert facts["tokens_estimated"] is False
    assert len(endpoint.asked) == 5
    assert {asked["headers"]["Authorization"] for asked in endpoint.asked} == {f"Bearer {KEY}"}
    # The key went to the endpoint and nowhere else.
    kept = [path for path in (tmp_path / "demo").rglob("*") if path.is_file()]
    assert len(kept) >= 5
    assert [path for path in kept if KEY.encode() in path.read_bytes()] == []
    shown = capfd.readouterr()
    assert KEY not in shown.out + shown.err


def test_a_refusal_stops_the_demo_and_the_same_folder_goes_on_without_paying_again(
    endpoint: Endpoint, tree: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "demo"
    endpoint.replies = [answered(GOOD), answered(GOOD), status(401, f"no such key {KEY}".encode())]
    with pytest.raises(Refused, match=r"answered 401: no such key \[key\]") as caught:
        _demo(tree, folder)
    assert f"arl demo --output {folder}" in caught.value.hint
    assert sum(_paid(folder / "meter.jsonl").values()) == 2
    facts = _demo(None, folder)
    assert _paid(folder / "meter.jsonl") == {"review_01": 1, "review_02": 1, "review_03": 1, "synthesise": 1}
    assert [life["ended"] for life in facts["lives"]] == ["stopped with exit code 1", "completed"]
    assert [life["model_calls"] for life in facts["lives"]] == [2, 2]
    assert facts["lives"][0]["tokens"]["uncertain"] == 0
    check_ledger(facts["database"])


def test_a_folder_of_another_tree_is_not_gone_on_with(endpoint: Endpoint, tree: Path, tmp_path: Path) -> None:
    endpoint.otherwise = status(400)
    with pytest.raises(Refused):
        _demo(tree, tmp_path / "demo")
    with pytest.raises(Misuse, match="another tree"):
        _demo(tmp_path, tmp_path / "demo")


@pytest.mark.parametrize("stop", ["ctrl-c", "sigterm"])
def test_a_demo_that_is_stopped_lets_its_calls_finish_and_goes_on_later(
    endpoint: Endpoint, tree: Path, tmp_path: Path, stop: str
) -> None:
    job = Job(folder=tmp_path / "demo", label="tree", roots=(str(tree),), reviews=3)
    job.folder.mkdir()
    write_job(job)

    def interrupt(line: dict[str, Any]) -> None:
        if line["event"] == "body" and line["step"] == "measure":
            if stop == "ctrl-c":
                raise KeyboardInterrupt
            os.kill(os.getpid(), signal.SIGTERM)

    ended = run_life(job, 1, kill_in="", on_line=interrupt)
    assert isinstance(ended.error, Unavailable)
    assert ended.error.code == "stopped"
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    facts = _demo(None, job.folder)
    assert facts["state"] == "completed"
    assert facts["recorded_steps_paid_again"] == []
    assert facts["unrecorded_steps_paid_again"] == []  # nothing that was paid was thrown away
    assert facts["lives"][0]["tokens"]["uncertain"] == 0


def test_sigterm_drains_a_life(endpoint: Endpoint, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for n in range(DEFAULT_PARALLEL + 4):
        (tree / f"m{n:02}.py").write_text(f"X = {n}\n")
    job = Job(folder=tmp_path / "demo", label="tree", roots=(str(tree),), reviews=DEFAULT_PARALLEL + 4)
    job.folder.mkdir()
    write_job(job)
    good = answered(GOOD)
    endpoint.otherwise = lambda handler: endpoint.hold.wait() and good(handler)
    command = [sys.executable, "-P", "-m", "agent_run_ledger.demo.life", "--folder", str(job.folder), "--life", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        begun = 0
        for line in child.stdout:
            said = json.loads(line)
            begun += said["event"] == "body" and said["step"].startswith("review_")
            if begun == DEFAULT_PARALLEL:
                break
        child.send_signal(signal.SIGTERM)
        assert any(json.loads(line).get("event") == "stopping" for line in child.stdout)
        endpoint.hold.set()
        told = [json.loads(line) for line in child.stdout]
        code = child.wait()
    assert code == Unavailable.exit_code
    assert told[-1]["code"] == "stopped"
    assert Counter(line.get("event") for line in told[:-1]) == {"paid": DEFAULT_PARALLEL}
    facts = _demo(None, job.folder)
    assert facts["lives"][-1]["model_calls"] == 4 + 1
    assert set(_paid(job.meter).values()) == {1}


# -- the same steps in this process ---------------------------------------------------------------------------


class Failing(RuleReviewer):
    """Answers everything but one step, for which it raises."""

    def __init__(self, step: str) -> None:
        object.__setattr__(self, "step", step)

    __slots__ = ("step",)

    def answer(self, question: Question) -> Answer:
        if question.step == self.step:
            raise RuntimeError("played")
        return super().answer(question)


def _run(tmp_path: Path, tree: Path, audit: Audit) -> str:
    with RunLedger(run_id="r", db_path=tmp_path / "r.db", steps=audit.steps(3)) as ledger:
        return ledger.execute(roots=[str(tree)], label="tree", report_path=str(tmp_path / "audit.md"))


@pytest.mark.parametrize(
    ("replies", "lost"),
    [
        ([status(429), status(500), status(503)], 0),
        ([status(429), status(200, b"<html>"), lambda handler: handler.connection.close()], 2),
    ],
)
def test_busy_and_lost_answers_are_asked_again_by_the_steps_retries(
    endpoint: Endpoint, tree: Path, tmp_path: Path, replies: list[Reply], lost: int
) -> None:
    endpoint.replies = list(replies)
    meter = tmp_path / "meter.jsonl"
    audit = Audit(reviewer=reviewer_from(os.environ), meter=Meter(meter, life=1), retry_base_s=0.0)
    assert _run(tmp_path, tree, audit).startswith("# Audit of tree")
    assert len(endpoint.asked) == 4 + 3
    events = Counter(line.event for line in read_meter(meter))
    # A refusal costs nothing; a lost answer costs what nobody knows.
    assert (events[MeterEvent.PAID], events[MeterEvent.LOST]) == (4, lost)
    check_ledger(tmp_path / "r.db")


def test_retries_end_and_the_last_error_is_told(endpoint: Endpoint, tree: Path, tmp_path: Path) -> None:
    endpoint.otherwise = status(503, b"down")
    audit = Audit(reviewer=reviewer_from(os.environ), meter=Meter(tmp_path / "m", life=1), retry_base_s=0.0)
    with pytest.raises(ConnectionError, match="answered 503: down"):
        _run(tmp_path, tree, audit)
    # A step asks 4 times at most; how many of the other two do depends on when the first one gives up.
    assert 4 <= len(endpoint.asked) <= 12


def test_files_that_changed_after_their_reviews_do_not_matter(tree: Path, tmp_path: Path) -> None:
    meter = Meter(tmp_path / "meter.jsonl", life=1)
    with pytest.raises(RuntimeError, match="played"):
        _run(tmp_path, tree, Audit(reviewer=Failing("synthesise"), meter=meter, retry_base_s=0.0))
    (tree / "m0.py").unlink()
    text = _run(tmp_path, tree, Audit(reviewer=RuleReviewer(), meter=meter))
    assert "m0.py" in text
    assert _paid(tmp_path / "meter.jsonl") == {"review_01": 1, "review_02": 1, "review_03": 1, "synthesise": 1}


def test_a_review_of_a_file_that_changed_in_between_is_refused(tree: Path, tmp_path: Path) -> None:
    meter = Meter(tmp_path / "meter.jsonl", life=1)
    with pytest.raises(RuntimeError, match="played"):
        _run(tmp_path, tree, Audit(reviewer=Failing("review_02"), meter=meter, retry_base_s=0.0))
    for path in tree.iterdir():
        path.write_text("changed = 1\n")
    with pytest.raises(SourceChanged, match="changed since this run collected it") as caught:
        _run(tmp_path, tree, Audit(reviewer=RuleReviewer(), meter=meter))
    assert isinstance(caught.value, LedgerError)
