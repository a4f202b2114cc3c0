"""What the audit reads of a tree: files, what is left out, syntax, numbers, and who imports whom."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent_run_ledger.demo.audit import collect as collecting
from agent_run_ledger.demo.audit.collect import SourceChanged, TreeRefused, collect_tree, read_source
from agent_run_ledger.demo.audit.decode import Undecodable, decode_source
from agent_run_ledger.demo.audit.imports import import_graph
from agent_run_ledger.demo.audit.measure import code_lines, measure_module, measure_tree
from agent_run_ledger.demo.audit.ranking import rank_modules
from agent_run_ledger.demo.audit.shapes import Finding, ImportGraph, SourceTree
from agent_run_ledger.demo.audit.syntax import Module, load_module, parse_module, parse_tree, scopes_of
from agent_run_ledger.errors import Misuse


def _write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def _paths(tree: SourceTree) -> list[str]:
    return [file.path for file in tree.files]


def _graph(root: Path) -> ImportGraph:
    tree = collect_tree([str(root)])
    return import_graph(tree, parse_tree(tree))


def _edges(graph: ImportGraph) -> set[tuple[str, str, bool]]:
    return {(edge.importer, edge.imported, edge.deferred) for edge in graph.edges}


# -- files ----------------------------------------------------------------------------------------------------


def test_python_files_are_found_in_order_and_the_rest_is_left_out(tmp_path: Path) -> None:
    _write(
        tmp_path,
        {
            "b.py": "x = 1\n",
            "a/c.py": "",
            "a/notes.txt": "no",
            ".hidden/x.py": "",
            "__pycache__/x.py": "",
            "node_modules/x.py": "",
            "env/pyvenv.cfg": "",
            "env/lib/x.py": "",
        },
    )
    tree = collect_tree([str(tmp_path)])
    assert _paths(tree) == ["a/c.py", "b.py"]
    assert tree.skipped == ()
    assert [file.blank for file in tree.files] == [True, False]
    assert tree.reviewable == 1


def test_several_roots_show_which_one_a_file_is_from(tmp_path: Path) -> None:
    _write(tmp_path, {"one/a.py": "x = 1\n", "two/a.py": "y = 2\n"})
    tree = collect_tree([str(tmp_path / "one"), str(tmp_path / "two")])
    assert _paths(tree) == ["one/a.py", "two/a.py"]


def test_links_and_special_files_are_listed_and_never_opened(tmp_path: Path) -> None:
    _write(tmp_path, {"tree/a.py": "x = 1\n", "outside.py": "secret = 1\n"})
    (tmp_path / "tree" / "link.py").symlink_to(tmp_path / "outside.py")
    os.mkfifo(tmp_path / "tree" / "pipe.py")  # opening it for reading would wait for ever
    tree = collect_tree([str(tmp_path / "tree")])
    assert _paths(tree) == ["a.py"]
    assert {item.path: item.reason for item in tree.skipped} == {
        "link.py": "a symbolic link",
        "pipe.py": "not a regular file",
    }


def test_a_name_that_is_not_utf8_is_listed_in_a_form_that_is(tmp_path: Path) -> None:
    _write(tmp_path, {"a.py": "x = 1\n"})
    with open(os.fsencode(tmp_path) + b"/\xff.py", "wb") as file:
        file.write(b"x = 1\n")
    tree = collect_tree([str(tmp_path)])
    assert _paths(tree) == ["a.py"]
    (item,) = tree.skipped
    assert item.reason == "its name is not UTF-8"
    assert item.path.encode("utf-8") == b"\\udcff.py"


def test_a_file_above_the_limit_is_listed_in_a_folder_and_refused_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "MAX_FILE_BYTES", 10)
    _write(tmp_path, {"a.py": "x = 1\n", "big.py": "x = 1234567\n"})
    tree = collect_tree([str(tmp_path)])
    assert _paths(tree) == ["a.py"]
    assert [item.path for item in tree.skipped] == ["big.py"]
    with pytest.raises(TreeRefused, match=r"big\.py.*larger than"):
        collect_tree([str(tmp_path / "big.py")])


@pytest.mark.parametrize(("limit", "value"), [("MAX_FILES", 2), ("MAX_TREE_BYTES", 12)])
def test_a_tree_above_the_limits_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(collecting, limit, value)
    _write(tmp_path, {f"{name}.py": "x = 1\n" for name in "abc"})
    with pytest.raises(TreeRefused, match="holds more than"):
        collect_tree([str(tmp_path)])
    (tmp_path / "c.py").unlink()
    assert len(collect_tree([str(tmp_path)]).files) == 2


def test_a_tree_without_python_is_refused_with_the_reason(tmp_path: Path) -> None:
    _write(tmp_path, {"readme.md": "# no"})
    with pytest.raises(TreeRefused, match="no Python file in"):
        collect_tree([str(tmp_path)])
    (tmp_path / "only.py").symlink_to(tmp_path / "readme.md")
    with pytest.raises(TreeRefused, match=r"only\.py: a symbolic link"):
        collect_tree([str(tmp_path)])


@pytest.mark.parametrize("path", ["missing", "a\0b", "\udcff", "pipe"])
def test_a_root_that_cannot_be_one_is_misuse(tmp_path: Path, path: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Misuse) as caught:
        collect_tree([str(tmp_path / path)])
    assert caught.value.code == "bad_path"


def test_a_folder_that_cannot_be_listed_is_an_error_at_the_top_and_a_line_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path, {"a.py": "x = 1\n", "closed/b.py": "x = 1\n"})
    refused: set[str] = {str(tmp_path / "closed")}
    real = os.scandir

    def scandir(path: str) -> object:
        if str(path) in refused:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)  # root may list everything, so the refusal is played
    tree = collect_tree([str(tmp_path)])
    assert _paths(tree) == ["a.py"]
    assert [(item.path, item.reason) for item in tree.skipped] == [("closed", "permission denied")]
    refused.add(str(tmp_path))
    with pytest.raises(Misuse, match="cannot list"):
        collect_tree([str(tmp_path)])


def test_one_file_is_a_tree_and_must_be_python_text(tmp_path: Path) -> None:
    _write(tmp_path, {"a.py": "x = 1\n", "script": "#!/usr/bin/env python3\nx = 1\n", "page.md": "# no\n"})
    (tmp_path / "latin.py").write_bytes(b"# caf\xe9\nx = 1\n")
    assert _paths(collect_tree([str(tmp_path / "a.py")])) == ["a.py"]
    assert _paths(collect_tree([str(tmp_path / "script")])) == ["script"]
    with pytest.raises(TreeRefused, match="not a Python file"):
        collect_tree([str(tmp_path / "page.md")])
    with pytest.raises(TreeRefused, match=r"latin\.py.*not UTF-8"):
        collect_tree([str(tmp_path / "latin.py")])


def test_a_file_that_changed_since_it_was_collected_is_refused(tmp_path: Path) -> None:
    _write(tmp_path, {"a.py": "x = 1\n"})
    (file,) = collect_tree([str(tmp_path)]).files
    assert read_source(file) == b"x = 1\n"
    (tmp_path / "a.py").write_text("x = 2\n")
    with pytest.raises(SourceChanged, match=r"a\.py changed"):
        load_module(file)
    (tmp_path / "a.py").unlink()
    with pytest.raises(SourceChanged, match="cannot be read any more"):
        load_module(file)


# -- syntax ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"x = 1\r\ny = 2\r", "x = 1\ny = 2\n"),
        (b"\xef\xbb\xbfx = 1\n", "x = 1\n"),
        (b"# coding: latin-1\n# caf\xe9\n", "# coding: latin-1\n# café\n"),
    ],
)
def test_bytes_become_text_the_way_python_reads_them(content: bytes, text: str) -> None:
    assert decode_source(content) == text


@pytest.mark.parametrize("content", [b"# caf\xe9\n", b"# coding: no-such\n", b"# coding: rot13\n", b"\xff\xfe"])
def test_bytes_that_are_no_text_are_undecodable(content: bytes) -> None:
    with pytest.raises(Undecodable):
        decode_source(content)


@pytest.mark.parametrize(
    ("content", "rule", "line"),
    [
        (b"x = 1\ndef f(:\n", "syntax-error", 2),
        (b"x = '\0'\n", "syntax-error", 1),
        (b"# \xff\n", "undecodable", 1),
        (b"x = " + b"-" * 100_000 + b"1\n", "syntax-error", 1),
        (b"x = 1" + b" + 1" * 100_000 + b"\n", "syntax-error", 1),
        (b"# coding: raw_unicode_escape\nx = '\\ud800'\n", "syntax-error", 1),
    ],
)
def test_what_cannot_be_parsed_is_a_finding_and_no_crash(content: bytes, rule: str, line: int) -> None:
    found = parse_module("a.py", content)
    assert isinstance(found, Finding)
    assert (found.rule, found.line) == (rule, line)
    assert found.detail.encode("utf-8")


def test_names_of_scopes_are_pythons_own() -> None:
    module = parse_module("a.py", b"class A:\n    def f(self):\n        def g(): ...\n        class B: ...\n")
    assert isinstance(module, Module)
    assert [name for name, _ in scopes_of(module.tree)] == ["A", "A.f", "A.f.<locals>.g", "A.f.<locals>.B"]


# -- numbers --------------------------------------------------------------------------------------------------

MEASURED = '''"""Doc."""
import os


def plain(a, b):
    return a


class Box:
    """Doc."""

    def busy(self, items, *, flag=False):
        for item in items:
            if item and flag or os:
                yield [x for x in item if x]
            elif item:
                try:
                    pass
                except ValueError:
                    pass
        match items:
            case [] if flag:
                pass
            case _:
                pass

    def _hidden(self): ...
'''


def test_a_module_is_measured() -> None:
    module = parse_module("a.py", MEASURED.encode())
    assert isinstance(module, Module)
    measure = measure_module(module)
    assert (measure.lines, measure.functions, measure.classes) == (27, 3, 1)
    # public: the module, plain, Box and Box.busy; the module and Box have docstrings
    assert (measure.documented, measure.documentable) == (2, 4)
    assert measure.worst is not None
    assert measure.worst == measure.longest
    worst = measure.worst
    assert (worst.name, worst.line, worst.lines, worst.arguments) == ("Box.busy", 12, 14, 2)
    # 1 + for, if, and, or, comprehension with its if, elif, except, case [], its guard
    assert worst.complexity == 1 + 1 + 1 + 1 + 1 + 2 + 1 + 1 + 2
    assert worst.nesting == 3  # for > elif > try
    assert measure.complexity == worst.complexity + 2


def test_lines_of_code_leave_out_blank_lines_comments_and_docstrings() -> None:
    text = (
        '"""Doc\n\nstring."""\n# comment\nx = """a\n# no comment\n\nb"""  # note\n\nif x:\n'
        '    "text that does nothing"\n    y = 1\n'
    )
    module = parse_module("a.py", text.encode())
    assert isinstance(module, Module)
    assert code_lines(module) == [5, 6, 7, 8, 10, 12]


def test_an_empty_module_has_no_worst_function() -> None:
    module = parse_module("a.py", b"")
    assert isinstance(module, Module)
    measure = measure_module(module)
    assert (measure.lines, measure.worst, measure.documentable) == (0, None, 0)


def test_ranks_are_the_stated_formula_and_unparsed_files_come_last(tmp_path: Path) -> None:
    heavy = "def f(x):\n" + "".join(f"    if x == {n}:\n        pass\n" for n in range(12))
    _write(tmp_path, {"heavy.py": heavy, "light.py": "import heavy\n", "bad.py": "def (\n", "blank.py": "\n"})
    tree = collect_tree([str(tmp_path)])
    measured, graph = measure_tree(tree), import_graph(tree, parse_tree(tree))
    ranks = rank_modules(tree, measured, graph)
    assert [rank.path for rank in ranks] == ["heavy.py", "light.py", "bad.py"]
    parts = dict(ranks[0].parts)
    assert parts == {
        "complexity of its worst function": 2 * 13,
        "number of complex functions": 4,
        "nesting": 3,
        "modules that depend on it": 3,
        "missing docstrings": 1,
    }
    assert ranks[0].points == sum(parts.values())
    assert ranks[2].points == 0


# -- imports --------------------------------------------------------------------------------------------------


def test_imports_are_resolved_inside_the_tree(tmp_path: Path) -> None:
    _write(
        tmp_path,
        {
            "src/pkg/__init__.py": "from .a import A\n",
            "src/pkg/a.py": "import os.path\nimport pkg.b\nfrom pkg import c, A\n",
            "src/pkg/b.py": "from . import c\nfrom .sub.deep import thing\n",
            "src/pkg/c.py": "import collections\n",
            "src/pkg/sub/__init__.py": "",
            "src/pkg/sub/deep.py": "from ..c import x\nfrom ... import beyond\n",
            "loose/one.py": "from loose import two\n",
            "loose/two.py": "import one\n",
        },
    )
    graph = _graph(tmp_path)
    assert _edges(graph) == {
        ("src/pkg/__init__.py", "src/pkg/a.py", False),
        ("src/pkg/a.py", "src/pkg/__init__.py", False),
        ("src/pkg/a.py", "src/pkg/b.py", False),
        ("src/pkg/a.py", "src/pkg/c.py", False),
        ("src/pkg/b.py", "src/pkg/c.py", False),
        ("src/pkg/b.py", "src/pkg/sub/deep.py", False),
        ("src/pkg/sub/deep.py", "src/pkg/c.py", False),
        ("loose/one.py", "loose/two.py", False),
        ("loose/two.py", "loose/one.py", False),
    }
    assert graph.outside == (("collections", 1), ("os", 1))
    assert graph.fan_in("src/pkg/c.py") == 3
    assert graph.fan_out("src/pkg/a.py") == 3


def test_cycles_at_load_time_are_told_from_those_that_wait(tmp_path: Path) -> None:
    _write(
        tmp_path,
        {
            "a.py": "import b\n",
            "b.py": "import c\nimport d\n",
            "c.py": "import a\n",
            "d.py": "def later():\n    import e\n",
            "e.py": "import d\n",
            "f.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import g\n",
            "g.py": "import f\n",
            "h.py": "import h\n",
        },
    )
    graph = _graph(tmp_path)
    assert graph.cycles == (("a.py", "b.py", "c.py", "a.py"),)
    assert graph.deferred_cycles == (("d.py", "e.py", "d.py"), ("f.py", "g.py", "f.py"))


def test_a_name_that_two_files_claim_belongs_to_neither(tmp_path: Path) -> None:
    _write(tmp_path, {"x/same.py": "", "y/same.py": "", "user.py": "import same\n"})
    assert _edges(_graph(tmp_path)) == set()


def test_a_long_chain_of_imports_needs_no_deep_stack(tmp_path: Path) -> None:
    _write(tmp_path, {f"m{n}.py": f"import m{(n + 1) % 1500}\n" for n in range(1500)})
    (cycle,) = _graph(tmp_path).cycles
    assert len(cycle) == 1501
