"""The audit as steps of a pipeline: collect, parse, measure, imports, reviews side by side, synthesise, report."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from agent_run_ledger.demo.answers import read_module_answer, read_tree_answer
from agent_run_ledger.demo.audit.check import check_module
from agent_run_ledger.demo.audit.collect import collect_tree, read_source
from agent_run_ledger.demo.audit.decode import Undecodable, decode_source
from agent_run_ledger.demo.audit.imports import import_graph
from agent_run_ledger.demo.audit.measure import measure_tree
from agent_run_ledger.demo.audit.ranking import rank_modules
from agent_run_ledger.demo.audit.report import ReportCase, report_markdown
from agent_run_ledger.demo.audit.shapes import (
    Finding,
    ImportGraph,
    MeasuredTree,
    ParsedTree,
    Rank,
    Review,
    SourceFile,
    SourceTree,
    Synthesis,
)
from agent_run_ledger.demo.audit.syntax import Module, load_module, parse_tree
from agent_run_ledger.demo.endpoint import AnswerLost
from agent_run_ledger.demo.meter import Meter
from agent_run_ledger.demo.questions import (
    MODULE_SYSTEM,
    TREE_SYSTEM,
    ModuleCase,
    Question,
    TreeCase,
    module_question,
    tree_question,
)
from agent_run_ledger.demo.reviewers import Answer, Reviewer
from agent_run_ledger.runs.steps import Step
from agent_run_ledger.runs.usage import report_usage

P = ParamSpec("P")
R = TypeVar("R")

MAX_REVIEWS = 14
RULES = "built-in rules"
"""Stands for a model where there is none; its tokens are estimates, and it costs nothing."""
REVIEW_RETRIES = 3
MAX_FINDINGS = 200
"""A generated file can break a rule on every line; the most severe are enough to judge it."""
FIXED_STEPS = ("collect", "parse", "measure", "imports", "synthesise", "report")


def step_names(reviews: int) -> tuple[str, ...]:
    """Return the names of all steps in their order; with 14 reviews they are 20."""
    return (*FIXED_STEPS[:4], *(review_name(place) for place in range(1, reviews + 1)), *FIXED_STEPS[4:])


def review_name(place: int) -> str:
    """Return the stable name of the review of the module ranked `place` (from 1)."""
    return f"review_{place:02}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The steps of one audit, bound to a reviewer and a meter.

    `before_body` is called with the step's name before its body runs and may refuse by raising; `after_paid` once
    its answer is metered and before anything can record it.
    """

    reviewer: Reviewer
    meter: Meter
    before_body: Callable[[str], None] = lambda step: None
    after_paid: Callable[[str], None] = lambda step: None
    retry_base_s: float = 1.0

    def steps(self, reviews: int) -> list[Step[..., Any]]:
        """Return the steps: 6 and one per review. The reviews depend on each other in nothing and run in parallel."""
        names = [review_name(place) for place in range(1, reviews + 1)]
        base = ("collect", "parse", "measure", "imports")
        tree_prompt = {"prompt": TREE_SYSTEM}
        return [
            self._step(collect),
            self._step(parse, depends_on=("collect",)),
            self._step(measure, depends_on=("collect",)),
            self._step(imports, depends_on=("collect", "parse")),
            *(self._review_step(place, base) for place in range(1, reviews + 1)),
            self._asking(self._synthesise(), "synthesise", ("parse", "measure", "imports", *names), tree_prompt),
            self._step(report, depends_on=(*base, "synthesise", *names)),
        ]

    def ask(self, question: Question) -> Answer:
        """Ask the reviewer; the meter and then the ledger are told of the answer at the moment it is there."""
        model = str(self.reviewer.environment.get("model", RULES))
        try:
            answer = self.reviewer.answer(question)
        except AnswerLost:
            self.meter.lost(question.step)
            report_usage(model=model)
            raise
        self.meter.paid(
            question.step, tokens_in=answer.tokens_in, tokens_out=answer.tokens_out, estimated=answer.estimated
        )
        cost_usd = 0 if model == RULES else None
        report_usage(model=model, input_tokens=answer.tokens_in, output_tokens=answer.tokens_out, cost_usd=cost_usd)
        self.after_paid(question.step)
        return answer

    def _step(self, fn: Callable[P, R], *, depends_on: Sequence[str] = ()) -> Step[P, R]:
        name = fn.__name__
        return Step(self._witnessed(fn, name), name=name, depends_on=depends_on)

    def _asking(
        self, fn: Callable[P, R], name: str, depends_on: Sequence[str], environment: Mapping[str, object]
    ) -> Step[P, R]:
        return Step(
            self._witnessed(fn, name),
            name=name,
            depends_on=depends_on,
            environment={**self.reviewer.environment, **environment},
            retries=REVIEW_RETRIES,
            retry_base_s=self.retry_base_s,
        )

    def _witnessed(self, fn: Callable[P, R], name: str) -> Callable[P, R]:
        """Return `fn`, telling the meter first that its body runs: a witness that does not depend on the ledger."""

        @functools.wraps(fn)
        def body(*args: P.args, **kwargs: P.kwargs) -> R:
            self.before_body(name)
            self.meter.body(name)
            return fn(*args, **kwargs)

        return body

    def _review_step(self, place: int, depends_on: Sequence[str]) -> Step[..., Review]:
        name = review_name(place)

        def review(collect: SourceTree, parse: ParsedTree, measure: MeasuredTree, imports: ImportGraph) -> Review:
            """Ask about the module of one rank."""
            ranks = rank_modules(collect, measure, imports)
            if place > len(ranks):
                return _empty_review(place, self.reviewer.label)
            case, lines = module_case(collect, parse, measure, imports, ranks, place)
            answer = self.ask(module_question(name, case))
            read = read_module_answer(answer.text, lines, case.findings)
            return Review(
                path=case.rank.path,
                rank=place,
                points=case.rank.points,
                parts=case.rank.parts,
                summary=read.summary,
                findings=read.findings,
                dropped=read.dropped,
                omitted=case.omitted,
                reviewer=self.reviewer.label,
                tokens_in=answer.tokens_in,
                tokens_out=answer.tokens_out,
            )

        return self._asking(review, name, depends_on, {"prompt": MODULE_SYSTEM, "place": place})

    def _synthesise(self) -> Callable[..., Synthesis]:
        def synthesise(parse: ParsedTree, measure: MeasuredTree, imports: ImportGraph, *reviews: Review) -> Synthesis:
            """Ask one last time, over all reviews."""
            unparsed = tuple(module.path for module in parse.modules if module.problem is not None)
            done = tuple(review for review in reviews if review.path)
            case = TreeCase(measured=measure, graph=imports, unparsed=unparsed, reviews=done)
            answer = self.ask(tree_question("synthesise", case))
            read = read_tree_answer(answer.text)
            return Synthesis(
                paragraphs=read.paragraphs,
                actions=read.actions,
                reviewer=self.reviewer.label,
                tokens_in=answer.tokens_in,
                tokens_out=answer.tokens_out,
            )

        return synthesise


def collect(roots: list[str]) -> SourceTree:
    """Find the files."""
    return collect_tree(roots)


def parse(collect: SourceTree) -> ParsedTree:
    """Parse every file."""
    return parse_tree(collect)


def measure(collect: SourceTree) -> MeasuredTree:
    """Measure every module."""
    return measure_tree(collect)


def imports(collect: SourceTree, parse: ParsedTree) -> ImportGraph:
    """Build the import graph."""
    return import_graph(collect, parse)


def report(
    label: str,
    report_path: str,
    collect: SourceTree,
    parse: ParsedTree,
    measure: MeasuredTree,
    imports: ImportGraph,
    synthesise: Synthesis,
    *reviews: Review,
) -> str:
    """Write the Markdown to `report_path` and return it; doing so again changes nothing."""
    case = ReportCase(
        label=label,
        tree=collect,
        parsed=parse,
        measured=measure,
        graph=imports,
        ranks=rank_modules(collect, measure, imports),
        reviews=tuple(review for review in reviews if review.path),
        synthesis=synthesise,
    )
    text = report_markdown(case)
    write_text(Path(report_path), text)
    return text


def write_text(path: Path, text: str) -> None:
    """Replace the file as a whole: a reader sees the old text or the new one, never a part."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def module_case(
    tree: SourceTree,
    parsed: ParsedTree,
    measured: MeasuredTree,
    graph: ImportGraph,
    ranks: Sequence[Rank],
    place: int,
) -> tuple[ModuleCase, Sequence[str]]:
    """Return what is known of the module ranked `place`, and its lines. SourceChanged when its file has changed."""
    rank = ranks[place - 1]
    file = next(file for file in tree.files if file.path == rank.path)
    module = load_module(file)
    problem = next((one.problem for one in parsed.modules if one.path == rank.path), None)
    findings: tuple[Finding, ...] = () if problem is None else (problem,)
    if isinstance(module, Module):
        findings += check_module(module)
    kept = findings[:MAX_FINDINGS]
    text = module.text if isinstance(module, Module) else _readable(file)
    case = ModuleCase(
        rank=rank,
        place=place,
        ranked=len(ranks),
        measure=next((one for one in measured.modules if one.path == rank.path), None),
        importers=tuple(edge.importer for edge in graph.edges if edge.imported == rank.path),
        imports=tuple(edge.imported for edge in graph.edges if edge.importer == rank.path),
        in_cycle=any(rank.path in cycle for cycle in graph.cycles),
        findings=kept,
        omitted=len(findings) - len(kept),
        text=text,
    )
    return case, text.split("\n")


def _readable(file: SourceFile) -> str:
    """Return the text of a file that does not parse, empty where it is not even text."""
    try:
        return decode_source(read_source(file))
    except Undecodable:
        return ""


def _empty_review(place: int, reviewer: str) -> Review:
    """Return the review of a rank the tree does not have (a file went away between counting and collecting)."""
    return Review(
        path="",
        rank=place,
        points=0,
        parts=(),
        summary="",
        findings=(),
        dropped=0,
        omitted=0,
        reviewer=reviewer,
        tokens_in=0,
        tokens_out=0,
    )
