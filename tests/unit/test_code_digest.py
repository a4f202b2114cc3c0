"""Code digests: quiet about text, loud about work, the same in every process."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from agent_run_ledger.kernel.code_digest import DIGEST_BYTES, code_digest, digest_of


def compiled(source: str, filename: str = "one.py") -> Callable[..., Any]:
    """The function `f` of the source, compiled as from this file."""
    namespace: dict[str, Any] = {"functools": functools}
    exec(compile(textwrap.dedent(source), filename, "exec"), namespace)
    fn: Callable[..., Any] = namespace["f"]
    return fn


BASE = """
def f(items, limit=10, *, flag=False):
    total = 0
    for item in items:
        try:
            total += [x * 2 for x in item if x not in {"red", "green", "blue"}][0]
        except (KeyError, IndexError):
            continue
    return helper(total, "text", flag) or limit
"""

SAME = {
    "a comment": BASE.replace("    total = 0", "    # counts\n    total = 0  # from zero"),
    "a docstring": BASE.replace("    total = 0", '    """Count.\n\n    Twice."""\n    total = 0'),
    "other lines": "\n\n\n\n" + BASE.replace("\n        try", "\n\n\n        try"),
    "another layout": BASE.replace(
        'helper(total, "text", flag)', 'helper(\n        total,\n        "text",\n        flag,\n    )'
    ),
    "another name": BASE.replace("def f(", "def g(") + "f = g\n",
    "annotations": BASE.replace("items, limit=10", "items: list, limit: int = 10"),
    "a pass": BASE.replace("            continue", "            pass\n            continue"),
}

DIFFERENT = {
    "a constant": BASE.replace("total = 0", "total = 1"),
    "the type of a constant": BASE.replace("total = 0", "total = 0.0"),
    "a text": BASE.replace('"text"', '"texts"'),
    "text to bytes": BASE.replace('"text"', 'b"text"'),
    "a global name": BASE.replace("helper(", "helped("),
    "an operator": BASE.replace("+=", "-="),
    "a nested constant": BASE.replace("x * 2", "x * 3"),
    "a frozenset's member": BASE.replace('"green"', '"grey"'),
    "an exception": BASE.replace("KeyError", "TypeError"),
    "a default": BASE.replace("limit=10", "limit=11"),
    "a keyword default": BASE.replace("flag=False", "flag=True"),
    "a keyword-only parameter": BASE.replace("*, flag", "flag"),
    "a parameter's name": BASE.replace("flag", "flags"),
    "the order of parameters": BASE.replace("items, limit=10", "limit, items=10"),
    "a coroutine": BASE.replace("def f(", "async def f("),
    "a generator": BASE.replace("total = 0", "total = 0; yield"),
    "the end of a loop": BASE.replace("continue", "break"),
    "a string that stands where a docstring does not": BASE.replace("    return", '    note = "text"\n    return'),
}


@pytest.mark.parametrize("source", SAME.values(), ids=SAME)
def test_text_without_work_changes_nothing(source: str) -> None:
    assert source != BASE
    assert digest_of(compiled(source, "elsewhere.py")) == digest_of(compiled(BASE))


@pytest.mark.parametrize("source", DIFFERENT.values(), ids=DIFFERENT)
def test_other_work_is_another_digest(source: str) -> None:
    assert source != BASE
    assert digest_of(compiled(source)) != digest_of(compiled(BASE))


def test_a_statement_moved_out_of_a_try_is_another_digest() -> None:
    inside = "def f():\n    try:\n        a()\n        b()\n    except E:\n        return 1\n"
    outside = "def f():\n    try:\n        a()\n    except E:\n        return 1\n    else:\n        b()\n"
    assert digest_of(compiled(inside)) != digest_of(compiled(outside))


def test_docstrings_of_nested_functions_and_classes_do_not_count() -> None:
    plain = """
    def f():
        class Inner:
            size = 3
            def method(self):
                return 1
        def inner():
            return 2
        return Inner, inner
    """
    told = plain.replace("        size", '        "About Inner."\n\n            size', 1).replace(
        "            return 2", '            "About inner."\n            return 2'
    )
    assert '"About Inner."' in told
    assert '"About inner."' in told
    assert digest_of(compiled(told)) == digest_of(compiled(plain))
    assert digest_of(compiled(told.replace("size = 3", "size = 4"))) != digest_of(compiled(plain))


def test_a_docstring_in_a_long_function_moves_no_jump() -> None:
    body = "".join(f"    x = {number}\n" for number in range(1000, 1300))
    source = f"def f(x):\n    while x:\n{textwrap.indent(body, '    ')}    return x\n"
    told = source.replace("def f(x):\n", 'def f(x):\n    "Long."\n')
    assert digest_of(compiled(told)) == digest_of(compiled(source))


def test_the_interpreter_version_is_part_of_it() -> None:
    code = compiled(BASE).__code__
    assert code_digest(code, None, (3, 11)) != code_digest(code, None, (3, 12))
    assert code_digest(code, None, (3, 11)) == code_digest(code, None, (3, 11))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1,), (True,)),
        ((1,), (1.0,)),
        ((0.0,), (-0.0,)),
        (("a", "b"), ("ab",)),
        (([1],), ((1,),)),
        ({"a": 1}, {"a": 2}),
        (None, ()),
    ],
)
def test_defaults_are_told_apart_by_type_and_value(one: object, other: object) -> None:
    code = compiled(BASE).__code__
    assert code_digest(code, one, (3, 11)) != code_digest(code, other, (3, 11))


def test_a_default_without_a_value_counts_by_its_type() -> None:
    code = compiled(BASE).__code__
    assert code_digest(code, (object(),), (3, 11)) == code_digest(code, (object(),), (3, 11))
    assert code_digest(code, (object(),), (3, 11)) != code_digest(code, (digest_of,), (3, 11))


def test_wrappers_partials_methods_and_callable_objects_are_looked_through() -> None:
    fn = compiled(BASE)

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    class Adder:
        def __call__(self, x: int) -> int:
            return x + 1

    class Inherits(Adder):
        pass

    class Other:
        def __call__(self, x: int) -> int:
            return x + 2

        def method(self, x: int) -> int:
            return x + 2

    assert digest_of(wrapper) == digest_of(functools.cache(fn)) == digest_of(fn)
    assert digest_of(Adder()) == digest_of(Inherits()) == digest_of(Adder.__call__) != b""
    assert digest_of(Other()) != digest_of(Adder())
    assert digest_of(Other().method) == digest_of(Other.method) == digest_of(Other())
    assert digest_of(functools.partial(fn, 1)) != digest_of(functools.partial(fn, 2)) != digest_of(fn)
    assert digest_of(functools.partial(wrapper, 1)) == digest_of(functools.partial(fn, 1))


@pytest.mark.parametrize("fn", [len, int, dict.get, [].append, functools.partial(len), 3, None, object(), str.join])
def test_without_python_code_there_is_no_digest(fn: object) -> None:
    assert digest_of(fn) == b""


def test_a_wrapper_that_wraps_itself_ends() -> None:
    def fn() -> None: ...

    fn.__wrapped__ = fn  # type: ignore[attr-defined]
    assert digest_of(fn) == b""


def test_a_digest_is_the_same_while_the_code_is_traced() -> None:
    fn = compiled(BASE)
    before = digest_of(fn)
    for _ in range(50):  # warm enough for the interpreter to specialise the instructions
        fn.__globals__["helper"] = lambda *_: None
        fn([[4]])
    previous = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        fn([[4]])
        assert digest_of(fn) == before
    finally:
        sys.settrace(previous)


def test_every_process_says_the_same() -> None:
    script = f"""
import sys
from agent_run_ledger.kernel.code_digest import digest_of
namespace = {{}}
exec(compile({BASE!r}, "other.py", "exec"), namespace)
print(digest_of(namespace["f"]).hex())
"""
    here = digest_of(compiled(BASE))
    assert len(here) == DIGEST_BYTES
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        assert run.stdout.strip() == here.hex()
