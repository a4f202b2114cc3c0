"""The example agent as a real process: killed in every interesting place, started again, and every call counted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.testing import check_ledger, recorded_calls
from tests.services.postgres import Cluster

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "agent"
SETTINGS = ("AGENT_", "OPENAI_", "ANTHROPIC_")

BODIES = Counter(ask=8, answer=1, list_files=1, outline=4, search=1, read_function=1, file_issue=1)
"""What an agent runs that is not disturbed: the lead asks five times, the reviewer, who outlines too, three times."""

pytestmark = pytest.mark.fault


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files to write a guide to."""
    folder = tmp_path_factory.mktemp("code", numbered=False)
    (folder / "small.py").write_text('"""Says one thing."""\n\n\ndef one():\n    return 1\n')
    (folder / "empty.py").write_text("")
    (folder / "hard.py").write_text(
        '"""Decides."""\nimport os\n\n\nclass Judge:\n    def judge(self, x):\n        if x:\n'
        "            for y in x:\n                raise ValueError(y)\n        return os.sep\n"
    )
    return folder


def _run(code: Path, place: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith((*SETTINGS, "AGENT_RUN_LEDGER_"))}
    return subprocess.run(
        [sys.executable, str(EXAMPLE / "agent.py"), str(code)],
        cwd=place,
        env={**kept, **settings},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _guide(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout.rpartition("[the model was asked")[0]


def _ran(place: Path) -> Counter[str]:
    lines = (place / "calls.log").read_text().splitlines()
    return Counter(line.split(" ", 1)[1] for line in lines)


def _issues(place: Path) -> list[str]:
    tracker = place / "issues.jsonl"
    return tracker.read_text().splitlines() if tracker.exists() else []


def _recorded(place: Path, kind: RecordKind = RecordKind.RESULT) -> Counter[str]:
    calls = recorded_calls(place / "agent_run_ledger.db", kinds=(kind,))
    return Counter(call.name for call in calls if not call.name.startswith("run."))


@pytest.fixture(scope="module")
def guide(code: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What an agent writes that nobody disturbs."""
    return _guide(_run(code, tmp_path_factory.mktemp("undisturbed")))


def test_a_run_that_is_over_gives_its_guide_again_and_asks_nobody(code: Path, guide: str, tmp_path: Path) -> None:
    assert "The hardest: hard.py. judge takes 5 lines" in guide
    assert _guide(_run(code, tmp_path)) == guide
    ran = _ran(tmp_path)
    assert ran - Counter({"file_issue done": 1}) == BODIES

    again = _run(code, tmp_path)

    assert _guide(again) == guide
    assert _ran(tmp_path) == ran
    assert "asked 0 times in this process, 9 times in all" in again.stdout
    assert _recorded(tmp_path) == BODIES
    assert check_ledger(tmp_path / "agent_run_ledger.db").runs == 2


@pytest.mark.parametrize(
    ("dies", "more"),
    [
        pytest.param("ask 1", {}, id="the first question"),
        pytest.param("ask 3", {}, id="a question"),
        pytest.param("outline 2", {}, id="a parallel safe tool"),
        pytest.param("ask 5", {}, id="the agent within the agent"),
        pytest.param("read_function 1", {}, id="a tool of the agent within the agent"),
        pytest.param("file_issue 1", {"ask": 2, "list_issues": 1}, id="the unsafe tool before its effect"),
        pytest.param("file_issue done 1", {"ask": 1, "list_issues": 1, "file_issue": -1}, id="after its effect"),
        pytest.param("answer 20", {}, id="the stream"),
    ],
)
def test_killed_anywhere_it_goes_on_and_nothing_recorded_runs_again(
    code: Path, guide: str, tmp_path: Path, dies: str, more: Mapping[str, int]
) -> None:
    here = tmp_path
    killed = _run(code, here, AGENT_DIES=dies)
    assert killed.returncode == -9
    first, recorded = _ran(here), _recorded(here)
    check_ledger(here / "agent_run_ledger.db")

    assert _guide(_run(code, here)) == guide
    second = _ran(here) - first
    second.pop("file_issue done", None)
    left = Counter(BODIES)
    left.subtract(recorded)
    left.update(more)
    assert second == +left, "what was recorded ran again, or what was not did not run"
    assert len(_issues(here)) == 1, "the issue was filed twice, or not at all"

    killed_in = dies.partition(" ")[0]
    assert _recorded(here, RecordKind.ABANDONED)[killed_in] >= 1, "the record does not say that it was killed"
    report = check_ledger(here / "agent_run_ledger.db")
    assert (report.runs, report.in_flight) == (2, 0)


def test_killed_with_its_ledger_at_a_server_it_goes_on(
    code: Path, guide: str, tmp_path: Path, postgres: Cluster
) -> None:
    name = postgres.new_database()
    url = postgres.url(name)
    assert _run(code, tmp_path, AGENT_DIES="file_issue done 1", AGENT_RUN_LEDGER_DB=url).returncode == -9
    check_ledger(url)
    first = _ran(tmp_path)
    assert _guide(_run(code, tmp_path, AGENT_RUN_LEDGER_DB=url)) == guide
    assert (_ran(tmp_path) - first)["file_issue"] == 0
    assert len(_issues(tmp_path)) == 1, "the issue was filed twice, or not at all"
    report = check_ledger(url)
    assert (report.runs, report.in_flight) == (2, 0)
    assert not (tmp_path / "agent_run_ledger.db").exists()
    postgres.drop(name)


def test_the_first_program_of_the_readme_has_its_ledger_where_the_environment_says(
    root: Path, tmp_path: Path, postgres: Cluster
) -> None:
    name = postgres.new_database()
    text = (root / "README.md").read_text(encoding="utf-8")
    program = text.split("```python run\n")[1].split("```")[0]
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "AGENT_RUN_LEDGER_DB": postgres.url(name)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("<h1>Digest</h1>")
    assert check_ledger(postgres.url(name)).results == 3
    assert list(tmp_path.iterdir()) == []
    postgres.drop(name)


def test_a_model_without_its_package_says_what_to_do(code: Path, tmp_path: Path) -> None:
    (tmp_path / "openai.py").write_text("raise ModuleNotFoundError('openai')\n")
    done = _run(code, tmp_path, OPENAI_API_KEY="x", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "OPENAI_API_KEY is set, and the package for it is missing: pip install openai" in done.stderr
    assert not (tmp_path / "agent_run_ledger.db").exists()


MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "Count."},
    {"role": "assistant", "content": "", "calls": [{"id": "1", "name": "count", "arguments": {"of": "a"}},
                                                   {"id": "2", "name": "count", "arguments": {"of": "b"}}]},
    {"role": "tool", "call": "1", "name": "count", "content": "3"},
    {"role": "tool", "call": "2", "name": "count", "content": "4"},
]  # fmt: skip
TOOLS = [{"name": "count", "description": "Counts.", "parameters": ["of"]}]
SCHEMA = {"type": "object", "properties": {"of": {"type": "string"}}, "required": ["of"]}


@pytest.fixture
def real_models(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example's module, as its own program imports it."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import importlib

    for name in ("models", "real_models"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    found = importlib.import_module("real_models")
    for name in ("models", "real_models"):
        monkeypatch.delitem(sys.modules, name)
    return found


def test_openai_is_asked_in_its_own_words(real_models: Any) -> None:
    asked: list[dict[str, Any]] = []

    def create(**given: Any) -> Any:
        asked.append(given)
        call = SimpleNamespace(id="3", function=SimpleNamespace(name="count", arguments='{"of": "c"}'))
        message = SimpleNamespace(content=None, tool_calls=[call])
        used = SimpleNamespace(prompt_tokens=7, completion_tokens=2)
        return SimpleNamespace(choices=[SimpleNamespace(message=message)], usage=used)

    client = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))
    model = real_models.OpenAIModel(SimpleNamespace(OpenAI=lambda **_: client), "m")
    assert model.complete(MESSAGES, TOOLS) == {
        "text": "",
        "calls": [{"id": "3", "name": "count", "arguments": {"of": "c"}}],
        "usage": {"model": "m", "input_tokens": 7, "output_tokens": 2},
    }
    (given,) = asked
    assert given["tools"] == [
        {"type": "function", "function": {"name": "count", "description": "Counts.", "parameters": SCHEMA}}
    ]
    assert [message["role"] for message in given["messages"]] == ["system", "user", "assistant", "tool", "tool"]
    first = given["messages"][2]["tool_calls"][0]
    assert first == {"id": "1", "type": "function", "function": {"name": "count", "arguments": '{"of": "a"}'}}
    assert given["messages"][4] == {"role": "tool", "tool_call_id": "2", "content": "4"}


def test_anthropic_is_asked_in_its_own_words(real_models: Any) -> None:
    asked: list[dict[str, Any]] = []

    def create(**given: Any) -> Any:
        asked.append(given)
        blocks = [
            SimpleNamespace(type="text", text="Well: "),
            SimpleNamespace(type="tool_use", id="3", name="count", input={"of": "c"}),
        ]
        return SimpleNamespace(content=blocks, usage=SimpleNamespace(input_tokens=7, output_tokens=2))

    client = SimpleNamespace(messages=SimpleNamespace(create=create))
    model = real_models.AnthropicModel(SimpleNamespace(Anthropic=lambda: client), "m")
    assert model.complete(MESSAGES, TOOLS) == {
        "text": "Well: ",
        "calls": [{"id": "3", "name": "count", "arguments": {"of": "c"}}],
        "usage": {"model": "m", "input_tokens": 7, "output_tokens": 2},
    }
    (given,) = asked
    assert given["system"] == "Be short."
    assert given["tools"] == [{"name": "count", "description": "Counts.", "input_schema": SCHEMA}]
    assert [message["role"] for message in given["messages"]] == ["user", "assistant", "user"]
    assert given["messages"][1]["content"][0] == {"type": "tool_use", "id": "1", "name": "count", "input": {"of": "a"}}
    assert given["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "1", "content": "3"},
        {"type": "tool_result", "tool_use_id": "2", "content": "4"},
    ]
