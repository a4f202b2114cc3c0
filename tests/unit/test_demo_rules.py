"""The audit's rules: each kind of finding on a small snippet that has it and on one that does not."""

from __future__ import annotations

import pytest

from agent_run_ledger.demo.audit.check import check_module
from agent_run_ledger.demo.audit.check_shape import MAX_ARGUMENTS, MAX_LINES, MAX_METHODS
from agent_run_ledger.demo.audit.rules import RULES
from agent_run_ledger.demo.audit.shapes import Finding, Severity
from agent_run_ledger.demo.audit.syntax import Module, parse_module

LONG_BLOCK = "".join(f"    total_{n} = compute_something(argument_{n}, {n}) + offset\n" for n in range(8))
LONG_BODY = "".join(f"    value_{n} = {n}\n" for n in range(MAX_LINES))
PARAMETERS = ", ".join(f"p{n}" for n in range(MAX_ARGUMENTS + 1))
BRANCHES = "".join(f"    if x == {n}:\n        return {n}\n" for n in range(11))

# (rule, snippet, line of the finding)
CASES: list[tuple[str, str, int]] = [
    ("mutable-default", "def f(a, b=[]):\n    return b\n", 1),
    ("mutable-default", "def f(*, b=dict()):\n    return b\n", 1),
    ("mutable-default", "import collections\n\n\ndef f(a=collections.defaultdict(int)):\n    return a\n", 4),
    ("assert-tuple", "def f(x):\n    assert (x, 'must hold')\n", 2),
    ("is-literal", "def f(x):\n    return x is 'abc'\n", 2),
    ("is-literal", "def f(x):\n    return x is not 5\n", 2),
    ("return-in-finally", "def f():\n    try:\n        g()\n    finally:\n        return 1\n", 5),
    (
        "return-in-finally",
        "def f():\n    while g():\n        try:\n            g()\n        finally:\n            break\n",
        6,
    ),
    ("duplicate-key", "X = {'a': 1, 'b': 2, 'a': 3}\n", 1),
    ("redefinition", "def f():\n    return 1\n\n\ndef f():\n    return 2\n", 5),
    ("redefinition", "class C:\n    def m(self): ...\n    def m(self): ...\n", 3),
    ("raise-notimplemented", "def f():\n    raise NotImplemented\n", 2),
    ("raise-notimplemented", "def f():\n    raise NotImplemented('x')\n", 2),
    ("blocking-in-async", "import time\n\n\nasync def f():\n    time.sleep(1)\n", 5),
    ("unreachable-code", "def f():\n    return 1\n    g()\n", 3),
    ("unreachable-code", "def f():\n    for x in g():\n        continue\n        g(x)\n", 4),
    ("unreachable-code", "def f():\n    try:\n        g()\n    except ValueError:\n        raise\n        g()\n", 6),
    ("dangerous-call", "def f(text):\n    return eval(text)\n", 2),
    ("dangerous-call", "import subprocess\n\n\ndef f(c):\n    subprocess.run(c, shell=True)\n", 5),
    ("bare-except", "def f():\n    try:\n        g()\n    except:\n        return None\n", 4),
    ("swallowed-exception", "def f():\n    try:\n        g()\n    except Exception:\n        pass\n", 4),
    ("broad-except", "def f():\n    try:\n        g()\n    except (ValueError, Exception):\n        return 1\n", 4),
    ("none-comparison", "def f(x):\n    return x == None\n", 2),
    ("none-comparison", "def f(x):\n    return None != x\n", 2),
    ("bool-comparison", "def f(x):\n    return x == True\n", 2),
    ("star-import", "from os.path import *\n", 1),
    ("global-state", "STATE = 0\n\n\ndef f():\n    global STATE\n    STATE = 1\n", 5),
    (
        "string-building",
        "def f(parts):\n    text = ''\n    for part in parts:\n        text += part\n    return text\n",
        4,
    ),
    ("unclosed-file", "def f(path):\n    return open(path).read()\n", 2),
    ("shadowed-builtin", "def f(list):\n    return list\n", 1),
    ("shadowed-builtin", "def f():\n    id = 3\n    return id\n", 2),
    ("shadowed-builtin", "def filter(x):\n    return x\n", 1),
    ("unused-import", "import os\nimport sys\n\nprint(sys.path)\n", 1),
    ("unused-import", "from a import (\n    b,\n    c,\n)\n\nprint(c)\n", 2),
    ("empty-fstring", "X = f'nothing'\n", 1),
    ("complex-function", f"def f(x):\n{BRANCHES}", 1),
    ("long-function", f"def f():\n{LONG_BODY}", 1),
    (
        "deep-nesting",
        "def f(a):\n if a:\n  for b in a:\n   while b:\n    with b:\n     try:\n      g()\n     finally:\n      h()\n",
        1,
    ),
    ("many-parameters", f"def f({PARAMETERS}):\n    return 1\n", 1),
    ("large-class", "class C:\n" + "".join(f"    def m{n}(self): ...\n" for n in range(MAX_METHODS + 1)), 1),
    ("missing-docstring", "class C:\n    pass\n", 1),
    ("todo-comment", "X = 1  # TODO: think\n", 1),
    ("todo-comment", "# FIXME\nX = 1\n", 1),
    ("duplicated-block", f"def f(offset):\n{LONG_BLOCK}\n\ndef g(offset):\n{LONG_BLOCK}", 13),
]

CLEAN: list[tuple[str, str]] = [
    ("mutable-default", "def f(a=(), b=None, c=frozenset()):\n    return a\n"),
    ("assert-tuple", "def f(x):\n    assert x, ('must', 'hold')\n"),
    ("is-literal", "def f(x):\n    return x is None or x is True or x is ...\n"),
    (
        "return-in-finally",
        "def f():\n    try:\n        g()\n    finally:\n        for x in g():\n            break\n"
        "        def h():\n            return 1\n",
    ),
    ("duplicate-key", "X = {1: 'a', True: 'b', '1': 'c', **Y, Z: 1, W: 2}\n"),
    ("redefinition", "import t\n\n\n@t.overload\ndef f(a: int): ...\n@t.overload\ndef f(a: str): ...\ndef f(a): ...\n"),
    ("redefinition", "def f():\n    return 1\n\n\nX = f\n\n\ndef f():\n    return X()\n"),
    ("redefinition", "class C:\n    @property\n    def m(self): ...\n    @m.setter\n    def m(self, v): ...\n"),
    ("raise-notimplemented", "def f():\n    raise NotImplementedError\n"),
    (
        "blocking-in-async",
        "import time\n\n\nasync def f():\n    def inner():\n        time.sleep(1)\n    return inner\n",
    ),
    ("unreachable-code", "def f():\n    return\n    yield\n"),
    ("unreachable-code", "def f(x):\n    if x:\n        return 1\n    return 2\n"),
    ("dangerous-call", "def f(model, c):\n    model.eval()\n    run(c, shell=False)\n    exec('x = 1')\n"),
    ("bare-except", "def f():\n    try:\n        g()\n    except:\n        h()\n        raise\n"),
    ("swallowed-exception", "def f():\n    try:\n        g()\n    except ValueError:\n        pass\n"),
    ("broad-except", "def f(log):\n    try:\n        g()\n    except Exception as error:\n        log(error)\n"),
    ("none-comparison", "def f(x):\n    return x is None or x == 0\n"),
    ("global-state", "def f():\n    x = 1\n    def g():\n        nonlocal x\n        x = 2\n    return g\n"),
    (
        "string-building",
        "def f(parts):\n    total = 0\n    for part in parts:\n        total += part\n    return total\n",
    ),
    ("unclosed-file", "def f(path):\n    with open(path) as file:\n        return file.read()\n"),
    ("shadowed-builtin", "class C:\n    id = 1\n    def filter(self):\n        return self.id\n"),
    ("unused-import", "from a import b\n\n__all__ = ['b']\n"),
    ("unused-import", "from a import B\n\n\ndef f(x: 'B | None'):\n    return x\n"),
    ("unused-import", "from a import b as b\nfrom __future__ import annotations\nimport c  # noqa: F401\n"),
    ("unused-import", "try:\n    import fast\nexcept ImportError:\n    fast = None\n"),
    ("empty-fstring", "def f(x):\n    return f'{x:>10}' f'{x!r}'\n"),
    ("complex-function", "def f(x):\n" + "    if x:\n        g()\n" * 9),
    ("deep-nesting", "def f(a):\n if a:\n  pass\n" + " elif a:\n  pass\n" * 9),
    ("many-parameters", f"class C:\n    def f(self, {PARAMETERS.rpartition(',')[0]}):\n        return 1\n"),
    ("missing-docstring", "def short():\n    return 1\n\n\nclass _Private:\n    def method(self): ...\n"),
    ("todo-comment", 'X = "TODO"  # method, TODOS\n'),
    ("duplicated-block", "import a\nimport b\nimport c\nimport d\nimport e\nimport f\nimport g\nimport h\n" * 2),
]

MODEST = '''"""A module without anything to say about."""

from __future__ import annotations

import json
from pathlib import Path


class Shelf:
    """Things in an order."""

    def __init__(self, things: tuple[str, ...] = ()) -> None:
        self._things = list(things)

    def add(self, thing: str) -> int:
        """Add one thing and return how many there are."""
        if thing is None:
            raise ValueError("nothing to add")
        self._things.append(thing)
        return len(self._things)

    def save(self, path: Path) -> None:
        """Write everything; a failure leaves the file as it was."""
        try:
            with path.open("w") as file:
                json.dump(self._things, file)
        except OSError as error:
            raise RuntimeError(f"cannot save {path}") from error
'''


def _check(text: str, path: str = "module.py") -> tuple[Finding, ...]:
    module = parse_module(path, text.encode())
    assert isinstance(module, Module), module
    return check_module(module)


@pytest.mark.parametrize(("rule", "text", "line"), CASES)
def test_a_rule_finds_what_it_is_for(rule: str, text: str, line: int) -> None:
    findings = [finding for finding in _check(text) if finding.rule == rule]
    assert [finding.line for finding in findings] == [line]
    finding = findings[0]
    assert finding.evidence == text.split("\n")[line - 1].strip()
    assert finding.detail
    assert finding.suggestion == RULES[rule].suggestion


@pytest.mark.parametrize(("rule", "text"), CLEAN)
def test_a_rule_leaves_alone_what_is_fine(rule: str, text: str) -> None:
    assert [finding for finding in _check(text) if finding.rule == rule] == []


def test_every_rule_has_a_case_that_it_finds() -> None:
    parsing = {"syntax-error", "undecodable", "too-deep"}
    assert {rule for rule, _, _ in CASES} == set(RULES) - parsing


def test_modest_code_has_no_finding() -> None:
    assert _check(MODEST) == ()


def test_an_init_file_may_import_and_re_export() -> None:
    text = "from a import *\nfrom b import c\n"
    assert _check(text, "pkg/__init__.py") == ()
    assert {finding.rule for finding in _check(text)} == {"star-import", "unused-import"}


def test_findings_come_most_severe_first_then_by_line() -> None:
    findings = _check("import os\n\n\ndef f(a=[]):\n    return a == None\n\n\ndef g(b={}):\n    return b\n")
    assert [(finding.severity, finding.line) for finding in findings] == [
        (Severity.HIGH, 4),
        (Severity.HIGH, 8),
        (Severity.MEDIUM, 5),
        (Severity.LOW, 1),
    ]


@pytest.mark.parametrize(("branches", "severity"), [(11, Severity.LOW), (21, Severity.MEDIUM), (41, Severity.HIGH)])
def test_a_more_complex_function_is_a_more_severe_finding(branches: int, severity: Severity) -> None:
    text = "def f(x):\n" + "".join(f"    if x == {n}:\n        g()\n" for n in range(branches))
    assert [finding.severity for finding in _check(text) if finding.rule == "complex-function"] == [severity]


def test_an_expression_too_deep_for_a_rule_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(module: Module) -> object:
        raise RecursionError

    monkeypatch.setattr("agent_run_ledger.demo.audit.check.CHECKS", (give_up,))
    assert [finding.rule for finding in _check("x = 1\n")] == ["too-deep"]
