"""Apply every rule to one module."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agent_run_ledger.demo.audit import check_faults, check_habits, check_shape
from agent_run_ledger.demo.audit.rules import found
from agent_run_ledger.demo.audit.shapes import Finding, Severity
from agent_run_ledger.demo.audit.syntax import Module

Check = Callable[[Module], Iterator[Finding]]

CHECKS: tuple[Check, ...] = (
    check_faults.mutable_defaults,
    check_faults.misleading_tests,
    check_faults.jumps_out_of_finally,
    check_faults.duplicate_keys,
    check_faults.redefinitions,
    check_faults.raises_notimplemented,
    check_faults.blocking_in_async,
    check_faults.unreachable_code,
    check_faults.dangerous_calls,
    check_habits.careless_excepts,
    check_habits.equality_with_singletons,
    check_habits.star_imports,
    check_habits.global_state,
    check_habits.string_building,
    check_habits.unclosed_files,
    check_habits.shadowed_builtins,
    check_habits.unused_imports,
    check_habits.empty_fstrings,
    check_shape.oversized_functions,
    check_shape.large_classes,
    check_shape.missing_docstrings,
    check_shape.todo_comments,
    check_shape.duplicated_blocks,
)

SEVERITY_ORDER = {Severity.HIGH: 0, Severity.MEDIUM: 1, Severity.LOW: 2}


def check_module(module: Module) -> tuple[Finding, ...]:
    """Return all findings of a module, most severe first, then by line. The same text gives the same findings."""
    findings: list[Finding] = []
    for check in CHECKS:
        try:
            findings.extend(check(module))
        except RecursionError:
            detail = "an expression is nested too deeply for one of the rules"
            findings.append(found(module, "too-deep", 1, subject="module", detail=detail))
    return tuple(sorted(set(findings), key=finding_order))


def finding_order(finding: Finding) -> tuple[int, int, str, str]:
    """Return the sort key of findings: severity, line, rule, words."""
    return (SEVERITY_ORDER[finding.severity], finding.line, finding.rule, finding.detail)
