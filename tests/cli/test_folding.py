"""What is long, on terminals of 80 and 120 columns: folded under what it belongs to, whole in a pipe and in JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from agent_run_ledger.cli import folding
from agent_run_ledger.cli.folding import folded
from agent_run_ledger.effects import ActionState, Request, request_bytes
from agent_run_ledger.kernel.effects.display import display
from agent_run_ledger.testing import check_ledger
from tests.cli.conftest import Arl
from tests.cli.effect_states import MADE
from tests.cli.effect_store import HOSTILE_KEY, Effects

WIDTHS = (80, 120)
KEY = HOSTILE_KEY + "x" * 200
BODY: Any = {
    "approved by": "finance" + " " * 300 + "approved by: finance",
    "blob": "z" * 10_240,
    "note": "\u202e rtl \x1b]0;title\x07 " + "long words " * 100 + "漢字" * 90,
    "url": f"https://pay.example/{'a' * 300}",
}
REQUEST = request_bytes(Request.json("POST", f"/refunds/{'p' * 200}?q=1", BODY, headers=[("x-trace", "t" * 180)]))


@pytest.fixture
def effects(db: Path) -> Iterator[Effects]:
    yield Effects(db)
    check_ledger(db)


def terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """Let both streams be those of a terminal of this width."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(folding, "is_terminal", lambda stream: True)


def _too_long(shown: str, width: int) -> list[str]:
    """The lines that do not fit, but for commands, which are copied whole."""
    return [line for line in shown.splitlines() if cell_len(line) > width and "arl " not in line]


def _unprintable(shown: str) -> list[str]:
    return [line for line in shown.splitlines() if not line.isprintable()]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("words", [("effects", "show"), ("approvals", "show")], ids=" ".join)
def test_a_long_request_is_folded_and_nothing_of_it_is_lost(
    effects: Effects, arl: Arl, monkeypatch: pytest.MonkeyPatch, width: int, words: tuple[str, ...]
) -> None:
    view = effects.propose(KEY, request=REQUEST, audience=f"https://pay.example/{'h' * 200}")
    ask = (*words, view.action_id.hex(), "--db", effects.path)
    whole, as_json = arl(*ask), arl(*ask, "--json")
    terminal(monkeypatch, width)
    shown = arl(*ask)
    assert (_too_long(shown.out, width), _unprintable(shown.out)) == ([], [])
    assert _too_long(shown.err, width) == []
    before = "     " if words[0] == "effects" else "  "
    lines = shown.out.splitlines()
    joined: list[str] = []
    for line in lines[lines.index(f"{before}arl/display/v1") :]:
        if not line.startswith(before):
            break
        part = line.removeprefix(before)
        mark = next((mark for mark in ("> ", "|> ") if part.startswith(mark)), None)
        if mark is None:
            joined.append(part)
        else:
            joined[-1] += part.removeprefix(mark)
    exact = display(REQUEST).rstrip("\n").split("\n")
    assert joined[: len(exact)] == exact
    assert [line for line in whole.out.splitlines() if len(line) > 10_000], "a pipe gets whole lines"
    assert display(REQUEST).rstrip("\n") in "\n".join(line.removeprefix(before) for line in whole.out.splitlines())
    for said in (as_json, arl(*ask, "--json")):
        assert len(said.out.splitlines()) == 1
        assert "z" * 10_240 in said.out


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("state", list(ActionState), ids=str)
def test_the_pages_about_effects_fit_in_every_state(
    effects: Effects, arl: Arl, monkeypatch: pytest.MonkeyPatch, width: int, state: ActionState
) -> None:
    view = MADE[state](effects, arl)
    terminal(monkeypatch, width)
    db = ("--db", effects.path)
    for words in (
        ("effects", "show", view.action_id.hex()),
        ("approvals", "show", view.action_id.hex()),
        ("effects", "list", "--state", state),
        ("approvals", "list"),
        ("effects", "list", "--key", KEY),
    ):
        shown = arl(*words, *db)
        assert shown.code == 0, shown.err
        assert (_too_long(shown.out, width), _too_long(shown.err, width)) == ([], []), words
    refused = arl("effects", "show", KEY, *db)
    assert (_too_long(refused.err, width), _unprintable(refused.err)) == ([], [])
    assert all(line.startswith(("error: ", "hint: ", "       ")) for line in refused.err.splitlines())


@pytest.mark.parametrize("width", WIDTHS)
def test_lists_with_long_hostile_content_fit(
    effects: Effects, arl: Arl, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    for number in range(3):
        effects.propose(f"{number} {KEY}", request=REQUEST, audience=f"https://pay.example/{'h' * 200}")
    terminal(monkeypatch, width)
    for words in (("effects", "list"), ("approvals", "list")):
        shown = arl(*words, "--db", effects.path)
        assert (_too_long(shown.out, width), _unprintable(shown.out)) == ([], []), words
        assert shown.out.splitlines().count("class    v" if words[0] == "effects" else "approvals 0/1") <= 3
        assert shown.out.count("\\u202eevil") == 3


@pytest.mark.parametrize("width", WIDTHS)
def test_what_a_laptop_is_told_fits(arl: Arl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, width: int) -> None:
    terminal(monkeypatch, width)
    db = ("--db", tmp_path / "laptop.db")
    made = arl("init", "--local", "--name", "ada", *db)
    assert made.code == 0, made.err
    pages = [made]
    pages += [arl(*words, *db) for words in (("trust", "show"), ("principals", "list"), ("principals", "show", "ada"))]
    pages += [arl(group, "--help") for group in ("effects", "approvals", "trust", "principals", "keys", "actions")]
    pages += [arl("effects", one, "--help") for one in ("list", "show", "observe", "reconcile", "doubt", "expire")]
    for page in pages:
        assert [line for line in _too_long(page.out + page.err, width) if str(tmp_path) not in line] == []


@pytest.mark.parametrize(
    ("line", "width", "lines"),
    [
        ("short", 20, ["short"]),
        ("a few words that go on", None, ["a few words that go on"]),
        ("a few words that go on", 14, ["a few words", "  that go on"]),
        ("x" * 25, 10, ["x" * 10, "  " + "x" * 8, "  " + "x" * 7]),
        ("漢字漢字漢字", 6, ["漢字漢", "  字漢", "  字"]),
        ("", 20, [""]),
    ],
)
def test_words_are_parted_at_spaces_and_by_their_width(line: str, width: int | None, lines: list[str]) -> None:
    assert folded(line, width) == lines


@pytest.mark.parametrize("width", [20, 21, 33, 80])
@pytest.mark.parametrize(
    "line",
    ["a b  c   d " * 20, " " * 100, "x" * 100, "漢 字" * 50, "a" * 60 + " " * 60],
    ids=["words", "spaces", "one", "wide", "end"],
)
def test_exact_parts_make_the_line_again(line: str, width: int) -> None:
    first, *more = folded(line, width, before="  | ", rest="  |> ", exact=True)
    assert first.removeprefix("  | ") + "".join(part.removeprefix("  |> ") for part in more) == line
    assert all(cell_len(part) <= width for part in (first, *more))


def test_what_is_said_into_a_log_is_whole_whatever_the_width(
    arl: Arl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    path = tmp_path / ("a" * 100) / "none.db"
    refused = arl("effects", "list", "--db", path)
    assert refused.code != 0
    assert str(path) in refused.err
