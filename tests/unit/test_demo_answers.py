"""Reviewers' answers and their cost: what is believed of an answer, who is asked, and the meter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_run_ledger.demo.answers import read_module_answer, read_tree_answer
from agent_run_ledger.demo.audit.collect import collect_tree
from agent_run_ledger.demo.audit.imports import import_graph
from agent_run_ledger.demo.audit.measure import measure_tree
from agent_run_ledger.demo.audit.ranking import rank_modules
from agent_run_ledger.demo.audit.shapes import Finding, Origin, Severity
from agent_run_ledger.demo.audit.syntax import parse_tree
from agent_run_ledger.demo.endpoint import EndpointReviewer
from agent_run_ledger.demo.meter import Meter, MeterEvent, MeterLine, read_meter
from agent_run_ledger.demo.pipeline import module_case
from agent_run_ledger.demo.questions import MAX_SOURCE_CHARACTERS, ModuleCase, module_question, numbered
from agent_run_ledger.demo.reviewers import estimated_tokens, reviewer_from
from agent_run_ledger.demo.rule_reviewer import RuleReviewer
from agent_run_ledger.errors import Misuse, Tampered

LINES = ["import os", "", "  x = eval(y)"]
KNOWN = (
    Finding(rule="unused-import", severity=Severity.LOW, line=1, subject="os", detail="`os` …", suggestion="remove it"),
)


def _read(*findings: object, summary: object = "Fine.") -> tuple[list[Finding], int]:
    answer = read_module_answer(json.dumps({"summary": summary, "findings": list(findings)}), LINES, KNOWN)
    return [finding for finding in answer.findings if finding not in KNOWN], answer.dropped


def test_a_models_finding_gets_its_evidence_from_the_file() -> None:
    told = {
        "line": 3,
        "severity": "high",
        "title": "eval",
        "detail": "runs text",
        "suggestion": "parse",
        "evidence": "?",
    }
    (finding,), dropped = _read(told)
    assert (finding.rule, finding.severity, finding.origin) == ("model", Severity.HIGH, Origin.MODEL)
    assert finding.evidence == "x = eval(y)"
    assert finding.detail == "eval: runs text"
    assert dropped == 0


@pytest.mark.parametrize("line", [0, 4, -1, "3", None, True, 3.0])
def test_a_finding_that_names_no_line_of_the_file_is_dropped_and_counted(line: object) -> None:
    assert _read({"line": line, "severity": "high", "title": "t"}) == ([], 1)


@pytest.mark.parametrize("item", ["text", 3, None, []])
def test_what_is_no_finding_at_all_is_dropped_and_counted(item: object) -> None:
    assert _read(item) == ([], 1)


def test_an_unknown_severity_is_low_and_missing_words_are_said_to_be_missing() -> None:
    (finding,), _ = _read({"line": 1, "severity": ["high"], "title": 7})
    assert finding.severity is Severity.LOW
    assert finding.detail == "no detail given"


def test_a_finding_of_the_rules_is_not_repeated() -> None:
    assert _read({"line": 1, "severity": "low", "rule": "unused-import", "title": "again"}) == ([], 0)


def test_an_answer_in_plain_words_becomes_the_summary_and_keeps_what_the_rules_found() -> None:
    answer = read_module_answer("I would not change this.", LINES, KNOWN)
    assert (answer.summary, answer.findings) == ("I would not change this.", KNOWN)


@pytest.mark.parametrize(
    "text", ['{"summary": "ok"}', '```json\n{"summary": "ok"}\n```', ' ```\n{"summary": "ok"}\n``` ']
)
def test_an_answer_may_stand_in_a_code_fence(text: str) -> None:
    assert read_module_answer(text, LINES, ()).summary == "ok"


@pytest.mark.parametrize("text", ["[" * 100_000, "[1, 2]", '"text"', "null", '{"summary": 3}', "{}", ""])
def test_no_answer_is_an_error(text: str) -> None:
    answer = read_module_answer(text, LINES, KNOWN)
    assert answer.findings == KNOWN
    assert len(answer.summary) <= 2_000
    assert read_tree_answer(text).actions == ()


def test_lone_surrogates_of_an_answer_can_be_stored() -> None:
    assert read_module_answer('{"summary": "a\\ud800b"}', LINES, ()).summary == "a\\ud800b"


def test_a_tree_answer_is_paragraphs_and_actions_or_its_own_words() -> None:
    answer = read_tree_answer('{"paragraphs": ["one", 2, ""], "actions": ["first"]}')
    assert (answer.paragraphs, answer.actions) == (("one",), ("first",))
    assert read_tree_answer("one\n\ntwo\n").paragraphs == ("one", "two")


# -- who is asked ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "environ",
    [{}, {"OPENAI_API_KEY": " "}, {"ARL_DEMO_MODEL": "m"}, {"OPENAI_API_KEY": "k", "ARL_DEMO_REVIEWER": "rules"}],
)
def test_without_an_endpoint_the_rules_review_and_say_what_they_are(environ: dict[str, str]) -> None:
    reviewer = reviewer_from(environ)
    assert isinstance(reviewer, RuleReviewer)
    assert "no model" in reviewer.label
    assert "estimated" in reviewer.label


def test_a_key_or_a_base_url_asks_for_the_endpoint() -> None:
    by_key = reviewer_from({"OPENAI_API_KEY": "k"})
    by_url = reviewer_from(
        {"OPENAI_BASE_URL": "http://localhost:1/v1/", "ARL_DEMO_MODEL": "m", "ARL_DEMO_TIMEOUT_S": "5"}
    )
    assert isinstance(by_key, EndpointReviewer)
    assert isinstance(by_url, EndpointReviewer)
    assert by_key.place == "https://api.openai.com/v1"
    assert (by_url.place, by_url.model, by_url.timeout_s, by_url.api_key) == ("http://localhost:1/v1", "m", 5.0, "")
    assert isinstance(reviewer_from({"ARL_DEMO_REVIEWER": "endpoint"}), EndpointReviewer)


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"ARL_DEMO_REVIEWER": "gpt"}, "ARL_DEMO_REVIEWER"),
        ({"OPENAI_API_KEY": "k", "ARL_DEMO_TIMEOUT_S": "soon"}, "ARL_DEMO_TIMEOUT_S"),
        ({"OPENAI_API_KEY": "k", "ARL_DEMO_TIMEOUT_S": "nan"}, "ARL_DEMO_TIMEOUT_S"),
        ({"OPENAI_BASE_URL": "file:///etc"}, "OPENAI_BASE_URL"),
        ({"OPENAI_BASE_URL": "http://"}, "OPENAI_BASE_URL"),
        ({"OPENAI_BASE_URL": "https://me:hunter2@x"}, "OPENAI_BASE_URL"),
        ({"OPENAI_API_KEY": "hunter2\nX-Header: y"}, "OPENAI_API_KEY"),
        ({"OPENAI_API_KEY": "hunter2 ü"}, "OPENAI_API_KEY"),
    ],
)
def test_settings_that_cannot_be_meant_are_misuse_without_the_secret(environ: dict[str, str], words: str) -> None:
    with pytest.raises(Misuse, match=words) as caught:
        reviewer_from(environ)
    assert "hunter2" not in str(caught.value)


# -- the rules' answers ---------------------------------------------------------------------------------------


def _case(tmp_path: Path, text: str) -> ModuleCase:
    (tmp_path / "a.py").write_text(text)
    tree = collect_tree([str(tmp_path)])
    parsed, measured = parse_tree(tree), measure_tree(tree)
    graph = import_graph(tree, parsed)
    case, _ = module_case(tree, parsed, measured, graph, rank_modules(tree, measured, graph), 1)
    return case


def test_the_rules_answer_the_same_each_time_and_estimate_their_tokens(tmp_path: Path) -> None:
    question = module_question("review_01", _case(tmp_path, "def f(a=[]):\n    return a\n"))
    first, second = RuleReviewer().answer(question), RuleReviewer().answer(question)
    assert first == second
    assert first.estimated
    assert first.tokens_in == -(-(len(question.system) + len(question.prompt)) // 4)
    assert first.tokens_out == -(-len(first.text) // 4)
    read = read_module_answer(first.text, ["def f(a=[]):", "    return a", ""], question.case.findings)
    assert read.findings == question.case.findings
    assert read.dropped == 0
    assert "Start with line 1" in read.summary


def test_a_file_that_cannot_be_parsed_is_reviewed_by_its_text(tmp_path: Path) -> None:
    case = _case(tmp_path, "x = 1\ndef f(:\n")
    answer = RuleReviewer().answer(module_question("review_01", case))
    read = read_module_answer(answer.text, case.text.split("\n"), case.findings)
    assert case.measure is None
    assert "cannot be parsed" in read.summary
    assert [(finding.rule, finding.line) for finding in read.findings] == [("syntax-error", 2)]
    assert read.dropped == 0


def test_the_question_holds_numbered_source_without_effects_and_says_where_it_is_cut() -> None:
    assert numbered("a\nb\x1b[0m") == "    1  a\n    2  b\\x1b[0m"
    cut = numbered("x" * 1_000 + "\n" + "y\n" * MAX_SOURCE_CHARACTERS)
    assert len(cut) < MAX_SOURCE_CHARACTERS + 100
    assert cut.endswith("more lines)")


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2)])
def test_an_estimate_is_a_quarter_of_the_characters_rounded_up(text: str, tokens: int) -> None:
    assert estimated_tokens(text) == tokens


# -- the meter ------------------------------------------------------------------------------------------------


def test_the_meter_keeps_every_line_of_every_life(tmp_path: Path) -> None:
    path, echoed = tmp_path / "meter.jsonl", []
    assert read_meter(path) == ()
    first = Meter(path, life=1, echo=echoed.append)
    first.body("a")
    first.paid("a", tokens_in=3, tokens_out=4, estimated=True)
    Meter(path, life=2).lost("a")
    assert read_meter(path) == (
        MeterLine(event=MeterEvent.BODY, life=1, step="a"),
        MeterLine(event=MeterEvent.PAID, life=1, step="a", tokens_in=3, tokens_out=4, estimated=True),
        MeterLine(event=MeterEvent.LOST, life=2, step="a"),
    )
    assert b"".join(echoed) == b"".join(path.read_bytes().splitlines(keepends=True)[:2])
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("line", ["", "{", "[]", "{}", '{"event": "x", "life": 1, "step": "a"}'])
def test_a_meter_that_was_edited_is_not_believed(tmp_path: Path, line: str) -> None:
    path = tmp_path / "meter.jsonl"
    Meter(path, life=1).body("a")
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(Tampered, match="line 2"):
        read_meter(path)
