"""The shipped modules keep the rules of the house, and each rule bites."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house import rules
from tests.house.tree import ROOT, SRC, name_of, parse, python_files, python_sources

EVERYWHERE: tuple[rules.Rule, ...] = (rules.file_size, rules.function_size, rules.job_sentence)
SHIPPED: tuple[rules.Rule, ...] = (rules.no_assert, rules.no_code_from_bytes, rules.no_sql)

BAD = [
    (rules.file_size, "x = 1\n" * 501),
    (rules.function_size, "def f():\n" + "    pass\n" * 60),
    (rules.function_size, "class C:\n    async def f(self):\n" + "        pass\n" * 60),
    (rules.job_sentence, "x = 1\n"),
    (rules.job_sentence, '"""Does this. And that."""\n'),
    (rules.job_sentence, '"""Does this.\n\nIt also does that."""\n'),
    (rules.job_sentence, '"""No full stop"""\n'),
    (rules.no_assert, "assert True\n"),
    (rules.no_code_from_bytes, "import pickle\n"),
    (rules.no_code_from_bytes, "def f():\n    from marshal import loads\n"),
    (rules.no_code_from_bytes, "import marshal\n"),
    (rules.no_code_from_bytes, "from marshal import dumps, loads\n"),
    (rules.no_code_from_bytes, "from pickle import dumps\n"),
    (rules.no_code_from_bytes, "eval('1')\n"),
    (rules.no_code_from_bytes, "exec('1')\n"),
    (rules.no_sql, "q = 'SELECT 1'\n"),
    (rules.no_sql, "q = b'PRAGMA user_version'\n"),
    (rules.no_sql, "q = f'INSERT INTO {t} VALUES (1)'\n"),
    (rules.no_sql, "q = '''\n  -- why\n  UPDATE t SET a = 1'''\n"),
    (rules.no_sql, "q = 'COMMIT'\n"),
    (rules.no_sql, "q = 'BEGIN IMMEDIATE; SELECT 1'\n"),
    (rules.no_sql, "q = 'ROLLBACK;'\n"),
    (rules.no_sql, "q = 'select a from b'\n"),
    (rules.no_sql, "q = 'begin immediate'\n"),
    (rules.one_opener, "def f():\n    import apsw.ext\n"),
    (rules.one_opener, "from apsw import Connection\n"),
]

GOOD = [
    (rules.file_size, "x = 1\n" * 500),
    (rules.function_size, "def f():\n" + "    pass\n" * 59),
    (rules.job_sentence, '"""Answers "what may I do next?" for v1.2 of a format."""\n'),
    (rules.job_sentence, '"""Says (in brackets.)"""\n'),
    (rules.no_sql, '"""SELECT is what this module avoids."""\n'),
    (
        rules.no_sql,
        "said = 'begin again', 'Update the run', 'select one', 'Commit failed', 'with', 'created'\n",
    ),
    (rules.no_sql, "said = 'SELECT', 'END record', 'COMMIT failed'\n"),
    (rules.no_code_from_bytes, "from marshal import dumps\n"),
    (rules.no_code_from_bytes, "connection.exec('x')\nast.literal_eval('1')\n"),
    (rules.one_opener, "from agent_run_ledger.store import apsw_notes\n"),
]


def _violations(paths: list[Path], checked: tuple[rules.Rule, ...]) -> Iterator[str]:
    for path in paths:
        text, tree = path.read_text(encoding="utf-8"), parse(path)
        for rule in checked:
            for violation in rule(text, tree):
                yield f"{name_of(path)}: {violation}"


@pytest.mark.parametrize(("rule", "text"), BAD)
def test_each_rule_bites(rule: rules.Rule, text: str) -> None:
    assert list(rule(text, ast.parse(text)))


@pytest.mark.parametrize(("rule", "text"), GOOD)
def test_no_rule_bites_what_is_allowed(rule: rules.Rule, text: str) -> None:
    assert list(rule(text, ast.parse(text))) == []


def test_files_and_functions_are_small_and_each_module_says_its_job() -> None:
    assert list(_violations(python_files(SRC, ROOT / "tests", ROOT / "bench", ROOT / "examples"), EVERYWHERE)) == []


def test_shipped_modules_hold_no_assert_no_pickle_and_no_sql() -> None:
    assert python_sources(), "no sources found: the rules would hold for nothing"
    assert list(_violations(python_sources(), SHIPPED)) == []


def _may_import_apsw(path: Path) -> bool:
    """The SQLite store; the testing kit, for its file system; the benchmark, for the bare database it compares with."""
    below = path.relative_to(SRC)
    return below.parts[0] in ("testing", "benchmark") or (below.parts[0] == "store" and path.stem.startswith("sqlite"))


def test_only_the_sqlite_store_opens_a_ledger() -> None:
    assert _may_import_apsw(SRC / "store" / "sqlite_files.py")
    assert not _may_import_apsw(SRC / "store" / "postgres.py")
    others = [path for path in python_sources() if not _may_import_apsw(path)]
    assert list(_violations(others, (rules.one_opener,))) == []


def test_every_module_is_named_after_its_job() -> None:
    assert rules.empty_name("utils")
    assert rules.empty_name("_run_helpers")
    assert not rules.empty_name("database")
    modules = [path for path in python_sources() if rules.empty_name(path.stem) or rules.empty_name(path.parent.name)]
    assert [name_of(path) for path in modules] == []


def test_the_effect_half_has_no_word_for_doing_it_again() -> None:
    again = re.compile(r"retry|retries|requeue|reset", re.IGNORECASE)
    assert again.search("def retry(): ...")
    lines = [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path in python_files(SRC / "effects")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if again.search(line)
    ]
    assert lines == []
