"""The audit's report: foreign text has no effect in it, its numbers are the findings', and it repeats byte for byte."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.demo.audit.neutral import code, inline, one_line, prose, visible
from agent_run_ledger.demo.audit.report import ReportCase, report_markdown
from agent_run_ledger.demo.audit.shapes import (
    Finding,
    ImportEdge,
    ImportGraph,
    MeasuredTree,
    ModuleMeasure,
    Origin,
    ParsedModule,
    ParsedTree,
    Rank,
    Review,
    Severity,
    Skipped,
    SourceFile,
    SourceTree,
    Synthesis,
)

ESCAPES = "\x1b]8;;http://evil\x07click\x1b]8;;\x07 \x1b[2J \x9b31m \u202eabc \u200b \r\n"
MARKUP = (
    "# head <script>alert(1)</script> [a](javascript:x) ![i](x) **b** `c` |d| ~~e~~ www.x.org https://x.org @team $x$"
)


# -- neutral text ---------------------------------------------------------------------------------------------


def test_control_and_format_characters_become_visible() -> None:
    assert visible("a\x1b[31mb\x9bc\u202e\u200b\x00\ud800\U000e0001") == (
        "a\\x1b[31mb\\x9bc\\u202e\\u200b\\x00\\ud800\\U000e0001"
    )
    assert visible("a\tb ä 漢 é") == "a    b ä 漢 é"
    assert visible("e" + "\u0301" * 50) == "e" + "\u0301" * 4


@given(st.text())
def test_no_text_keeps_a_character_with_an_effect(text: str) -> None:
    for shown in (one_line(text), inline(text), code(text), code(text, cell=True), prose(text)):
        assert shown.isprintable()
        assert shown.encode("utf-8").decode("utf-8") == shown


@given(st.text(alphabet="<>&[]()!*_`|~#\\{}$@:/w.-+=1 ab"))
def test_no_inline_text_holds_markup(text: str) -> None:
    shown = inline(text)
    assert "<" not in shown
    assert "://" not in shown
    assert "@" not in shown
    assert "www." not in shown.lower()
    assert not re.search(r"(?<!\\)(?:\\\\)*[`*_\[\]|~!]", shown)
    assert not re.match(r"\s*(?:[#>+=-]|\d+[.)])", shown)


@given(st.text(alphabet="`|\\ a\n"))
def test_nothing_ends_a_code_span_from_inside(text: str) -> None:
    span = code(text)
    fence = re.match(r"`+", span)
    assert fence is not None
    inside = span[len(fence[0]) : -len(fence[0])]
    assert span.endswith(fence[0])
    assert fence[0] not in re.findall(r"`+", inside)
    assert not re.search(r"(?<!\\)\|", code(text, cell=True))


def test_prose_keeps_code_spans_and_nothing_else() -> None:
    assert prose("`a_b` and <b>_x_</b> `|`", cell=True) == "`a_b` and &lt;b&gt;\\_x\\_&lt;/b&gt; `\\|`"
    assert prose("one ` alone *x*") == "one \\` alone \\*x\\*"
    assert prose("1. no list") == "1\\. no list"
    assert prose("`a` ") == "`a`"


def test_long_text_is_cut_and_says_so() -> None:
    assert one_line("x" * 500, 10) == "x" * 9 + "…"
    assert one_line(" a \n b ") == "a b"


# -- the report -----------------------------------------------------------------------------------------------


def _finding(
    severity: Severity, line: int, *, rule: str = "bare-except", origin: Origin = Origin.RULES, text: str = "detail"
) -> Finding:
    return Finding(
        rule=rule,
        severity=severity,
        line=line,
        subject="f",
        detail=text,
        suggestion="change it",
        evidence=f"line {line}",
        origin=origin,
    )


def _measure(path: str) -> ModuleMeasure:
    return ModuleMeasure(
        path=path,
        lines=10,
        code_lines=8,
        functions=0,
        classes=0,
        complexity=0,
        complex_functions=0,
        nesting=0,
        documented=1,
        documentable=2,
        worst=None,
        longest=None,
    )


def _file(path: str) -> SourceFile:
    return SourceFile(path=path, location=f"/x/{path}", names=(path,), size_bytes=1, sha256_hex="00", blank=False)


def _case(path: str = "a.py", findings: tuple[Finding, ...] = (), words: str = "All is well.") -> ReportCase:
    review = Review(
        path=path,
        rank=1,
        points=9,
        parts=(("size", 9),),
        summary=words,
        findings=findings,
        dropped=0,
        omitted=0,
        reviewer="r",
        tokens_in=1,
        tokens_out=1,
    )
    return ReportCase(
        label=path,
        tree=SourceTree(files=(_file(path), _file("b.py")), skipped=()),
        parsed=ParsedTree(
            modules=(
                ParsedModule(path=path, imports=(), problem=None),
                ParsedModule(path="b.py", imports=(), problem=None),
            )
        ),
        measured=MeasuredTree(modules=(_measure(path), _measure("b.py"))),
        graph=ImportGraph(edges=(), cycles=(), deferred_cycles=(), outside=()),
        ranks=(Rank(path=path, points=9, parts=(("size", 9),)), Rank(path="b.py", points=0, parts=())),
        reviews=(review,),
        synthesis=Synthesis(paragraphs=(words,), actions=(words,), reviewer="rules", tokens_in=1, tokens_out=1),
    )


def test_the_report_has_its_sections_in_order() -> None:
    text = report_markdown(_case(findings=(_finding(Severity.HIGH, 3),)))
    assert re.findall(r"^#+ .*$", text, re.MULTILINE) == [
        "# Audit of a.py",
        "## Summary",
        "## Riskiest modules",
        "## Findings",
        "### High (1)",
        "## Import structure",
        "## Reviews",
        "### 1. a.py",
        "## Method and limits",
    ]
    assert "`a.py:3` **bare except**: detail → change it" in text
    assert "`line 3`" in text
    assert text == report_markdown(_case(findings=(_finding(Severity.HIGH, 3),)))


def test_findings_are_counted_by_severity() -> None:
    findings = (
        _finding(Severity.HIGH, 1),
        _finding(Severity.MEDIUM, 2, origin=Origin.MODEL, rule="model"),
        _finding(Severity.LOW, 3),
        _finding(Severity.LOW, 4),
    )
    text = report_markdown(_case(findings=findings))
    assert "| 1 / 1 / 2 |" in text
    assert "### Low (2)" in text
    assert "| bare except | 2 | 1 | `a.py:3`, `a.py:4` |" in text
    assert "**the model says** (by the model)" in text


def test_a_long_list_says_how_much_it_leaves_out() -> None:
    text = report_markdown(_case(findings=tuple(_finding(Severity.HIGH, n) for n in range(1, 51))))
    assert "- and 10 more, in the reviews below" in text
    assert "- and 25 more of low severity or later lines" in text


def test_files_that_cannot_be_parsed_are_findings_also_without_a_review() -> None:
    case = _case()
    problem = _finding(Severity.HIGH, 7, rule="syntax-error", text="syntax error: bad")
    parsed = ParsedTree(modules=(case.parsed.modules[0], ParsedModule(path="b.py", imports=(), problem=problem)))
    text = report_markdown(replace(case, parsed=parsed))
    assert "`b.py:7` **file does not parse**" in text
    assert "## Not audited\n\n- `b.py`: syntax error: bad" in text


def test_cycles_and_what_was_skipped_are_named() -> None:
    edges = (ImportEdge(importer="a.py", imported="b.py", line=1, deferred=True),)
    graph = ImportGraph(edges=edges, cycles=(("a.py", "b.py", "a.py"),), deferred_cycles=(), outside=(("os", 2),))
    case = _case()
    tree = replace(case.tree, skipped=(Skipped(path="l.py", reason="a symbolic link"),))
    text = report_markdown(replace(case, graph=graph, tree=tree))
    assert "- Cycles at load time: 1\n  - `a.py` → `b.py` → `a.py`" in text
    assert "1 import between modules of this tree, 1 of them inside functions" in text
    assert "`os` (2)" in text
    assert "- `l.py`: a symbolic link" in text


@pytest.mark.parametrize("hostile", [ESCAPES, MARKUP, "a|b`c", "x\n# y\n| z |\n```\n", "<!-- ", "1. [x]: http://e"])
def test_hostile_names_and_words_have_no_effect(hostile: str) -> None:
    harmless = report_markdown(_case("plain", (_finding(Severity.LOW, 1, text="plain"),), "plain"))
    evil = _finding(Severity.LOW, 1, text=hostile)
    text = report_markdown(_case(hostile, (replace(evil, evidence=hostile, suggestion=hostile),), hostile))
    assert all(line.isprintable() for line in text.split("\n"))
    # The same lines with the same roles: no text of the tree made a heading, a row, a list item or a fence.
    roles = r"^\s*(#+ |\|[^\n]*\||- |\d+\. |>|```|<)?"
    assert [re.match(roles, line)[1] is None for line in text.split("\n")] == [
        re.match(roles, line)[1] is None for line in harmless.split("\n")
    ]
    outside_code = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text).replace("<br>", "")
    assert "<" not in outside_code
    assert "://" not in outside_code
    assert not re.search(r"(?<!\\)!\[", outside_code)


def test_every_row_of_a_table_has_as_many_cells_as_its_head() -> None:
    text = report_markdown(_case("a|b\\|c`d", (_finding(Severity.LOW, 1),), "a|b"))
    for table in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1
