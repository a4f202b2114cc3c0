"""The catalogue of rules: for each kind of finding its title, how much it matters, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent_run_ledger.demo.audit.shapes import Finding, Severity
from agent_run_ledger.demo.audit.syntax import Module

MAX_EVIDENCE = 160
MAX_WORDS = 500


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of finding."""

    title: str
    severity: Severity
    suggestion: str


_HIGH, _MEDIUM, _LOW = Severity.HIGH, Severity.MEDIUM, Severity.LOW

RULES: Mapping[str, Rule] = {
    "syntax-error": Rule("file does not parse", _HIGH, "make the file parse"),
    "undecodable": Rule("file cannot be decoded", _HIGH, "save it as UTF-8"),
    "too-deep": Rule("too deeply nested to analyse", _MEDIUM, "split the expression"),
    # Likely faults.
    "mutable-default": Rule(
        "mutable default argument", _HIGH, "default to None and make the value inside: every call shares this one"
    ),
    "assert-tuple": Rule("assert on a tuple", _HIGH, "remove the parentheses: a non-empty tuple is always true"),
    "is-literal": Rule("identity test with a literal", _HIGH, "use == or !=: identity of literals is an accident"),
    "return-in-finally": Rule("jump out of finally", _HIGH, "move it after the try: here it swallows the exception"),
    "duplicate-key": Rule("duplicate key in a dict display", _HIGH, "remove one: only the last value is kept"),
    "redefinition": Rule("definition replaced before use", _HIGH, "rename or remove one: the first is never reachable"),
    "raise-notimplemented": Rule("raises NotImplemented", _HIGH, "raise NotImplementedError: this is a TypeError"),
    "blocking-in-async": Rule("blocking call in a coroutine", _HIGH, "await the asynchronous form: this stops all"),
    "unreachable-code": Rule("unreachable code", _MEDIUM, "remove it, or move it before the jump"),
    "dangerous-call": Rule("runs text as code or commands", _MEDIUM, "pass plain values, or a list of arguments"),
    # Traps.
    "bare-except": Rule("bare except", _MEDIUM, "name the exceptions: this one also catches KeyboardInterrupt"),
    "swallowed-exception": Rule(
        "broad exception swallowed", _MEDIUM, "catch the narrow type, or at least log it with its traceback"
    ),
    "broad-except": Rule("overbroad except", _LOW, "catch the narrow type, or raise again"),
    "none-comparison": Rule("comparison to None with ==", _MEDIUM, "use `is None` or `is not None`"),
    "bool-comparison": Rule("comparison to True or False with ==", _LOW, "test the value itself"),
    "star-import": Rule("star import", _MEDIUM, "import names: readers and tools cannot see where a name comes from"),
    "global-state": Rule("function rebinds a global", _LOW, "return the value, or keep it in an object"),
    "string-building": Rule("string built with += in a loop", _LOW, "collect the parts in a list and join them once"),
    "unclosed-file": Rule("file opened without closing", _MEDIUM, "use `with open(...)`"),
    # Burdens.
    "complex-function": Rule("complex function", _MEDIUM, "split it along its branches"),
    "long-function": Rule("long function", _LOW, "extract the parts that have a name of their own"),
    "deep-nesting": Rule("deeply nested blocks", _MEDIUM, "return early, or move the inner block to a function"),
    "many-parameters": Rule("many parameters", _LOW, "group the ones that travel together in an object"),
    "large-class": Rule("large class", _LOW, "look for the second responsibility and give it a class"),
    "missing-docstring": Rule("public names without docstring", _LOW, "say what each guarantees, in one line"),
    "todo-comment": Rule("unfinished work noted in a comment", _LOW, "do it, or file it where it is not forgotten"),
    "shadowed-builtin": Rule("shadows a builtin", _LOW, "rename it: the builtin is out of reach from here on"),
    "unused-import": Rule("unused import", _LOW, "remove it, or list it in __all__ if it is re-exported"),
    "duplicated-block": Rule("duplicated code block", _MEDIUM, "move it to one function with two callers"),
    "empty-fstring": Rule("f-string without a placeholder", _LOW, "remove the f, or the missing braces are the fault"),
}


def found(
    module: Module,
    rule: str,
    line: int,
    *,
    subject: str,
    detail: str,
    severity: Severity | None = None,
) -> Finding:
    """Return a finding of `rule` at a line of `module`, with that line as its evidence."""
    known = RULES[rule]
    return Finding(
        rule=rule,
        severity=severity or known.severity,
        line=line,
        subject=subject[:MAX_WORDS],
        detail=detail[:MAX_WORDS],
        suggestion=known.suggestion,
        evidence=module.line(line)[:MAX_EVIDENCE],
    )
