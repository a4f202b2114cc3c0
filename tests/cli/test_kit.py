"""`arl kit`: what it prints at each width and as JSON, and how it ends."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger.testing import effect_kit
from agent_run_ledger.testing.effect_kit import Guarantee, KitReport, Probe, Promise, Ran, Row
from tests.cli.conftest import Arl

ROW = Row(name="plain", title="nothing goes wrong", promise=Promise.PLAIN, ran=Ran.YES, effects=1, state="succeeded")
TWICE = replace(ROW, name="twice", title="delivered twice", promise=Promise.REMEMBERS, effects=2, words="answered 201")
COPY = replace(ROW, name="old_copy", title="old copy put back", promise=Promise.REMEMBERS)
LIES = replace(ROW, name="kill:dispatch.sent#1", title="killed after the answer", effects=2, seen=1, probe=Probe.DENIES)
OFF = replace(ROW, name="refused", title="connection refused", ran=Ran.SKIPPED, effects=None, state="")
BEHIND = replace(ROW, name="reply_lost", title="the reply is lost", met=False, words="lost: lost_by_the_kit")
GOOD = KitReport(case="my_kit:case", claimed=Guarantee.N, rows=(ROW, TWICE, COPY, OFF))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the kit was asked; `report` is what it gives."""
    seen: dict[str, Any] = {"report": GOOD}

    def run_kit(
        case: str, *, quick: bool, only: tuple[str, ...], folder: Path | None, tell: Any, server: str | None
    ) -> KitReport:
        tell(1, 1)
        seen.update(case=case, quick=quick, only=tuple(only), folder=folder, server=server)
        report: KitReport = seen["report"]
        return report

    monkeypatch.setattr(effect_kit, "run_kit", run_kit)
    return seen


def test_it_hands_on_what_was_asked(arl: Arl, asked: dict[str, Any]) -> None:
    assert arl("kit", "my_kit:case", "--quick", "--only", "twice", "--only", "refused").code == 0
    assert (asked["case"], asked["quick"], asked["only"]) == ("my_kit:case", True, ("twice", "refused"))
    assert arl("kit", "my_kit:case", "--output", "kept").code == 0
    assert (asked["quick"], asked["only"], asked["folder"], asked["server"]) == (False, (), Path("kept"), None)
    assert arl("kit", "my_kit:case", "--server", "postgresql://h/d").code == 0
    assert asked["server"] == "postgresql://h/d"


@pytest.mark.parametrize("columns", ["80", "140"])
def test_the_table_fits_the_terminal(
    monkeypatch: pytest.MonkeyPatch, arl: Arl, asked: dict[str, Any], columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    told = arl("kit", "my_kit:case")
    lines = told.out.splitlines()
    assert max(map(len, lines)) <= int(columns)
    assert lines[-1] == "claimed: N (a plain target); shown: N (a plain target)"
    (row,) = [line for line in lines if line.startswith("delivered twice ")]
    assert row.split()[:6] == ["delivered", "twice", "TWICE", "succeeded", "UNSAFE,", "expected"]
    assert row.endswith("answered 201") is (columns == "140")
    assert ("delivered twice: answered 201" in lines) is (columns == "80")


def test_what_is_unsafe_is_never_green(monkeypatch: pytest.MonkeyPatch, arl: Arl, asked: dict[str, Any]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    asked["report"] = replace(GOOD, rows=(*GOOD.rows, LIES, BEHIND))
    green = [line for line in arl("kit", "my_kit:case").out.splitlines() if "\x1b[32m" in line or "\x1b[1;32m" in line]
    assert [line.split("  ")[0] for line in green] == ["nothing goes wrong", "old copy put back"]


def test_what_the_fault_did_not_meet_is_said_and_no_news(
    monkeypatch: pytest.MonkeyPatch, arl: Arl, asked: dict[str, Any]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    asked["report"] = replace(GOOD, rows=(*GOOD.rows, BEHIND))
    told = arl("kit", "my_kit:case")
    assert told.code == 0
    assert [line.split()[-2:] for line in told.out.splitlines() if line.startswith("the reply")] == [["not", "met"]]
    assert "not seen: whether it tries again by itself" in told.out
    assert arl("kit", "my_kit:case", "--json").json["scenarios"][-1]["met"] is False


@pytest.mark.parametrize(
    ("report", "code"),
    [
        (GOOD, 0),
        (replace(GOOD, claimed=Guarantee.I), 1),
        (replace(GOOD, rows=(*GOOD.rows, LIES)), 1),
        (replace(GOOD, rows=(*GOOD.rows, replace(OFF, ran=Ran.BROKEN))), 1),
    ],
)
def test_it_ends_with_one_where_less_is_shown_or_something_is_wrong(
    arl: Arl, asked: dict[str, Any], report: KitReport, code: int
) -> None:
    asked["report"] = report
    assert arl("kit", "my_kit:case").code == code
    told = arl("kit", "my_kit:case", "--json")
    assert (told.code, told.json["ok"], told.err) == (code, code == 0, "")


@pytest.mark.parametrize("columns", ["80", "140"])
def test_text_of_others_is_cleaned(
    monkeypatch: pytest.MonkeyPatch, arl: Arl, asked: dict[str, Any], columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    hostile = replace(LIES, words="answered \x1b[2J\nholds")
    asked["report"] = replace(GOOD, rows=(ROW, hostile))
    out = arl("kit", "my_kit:case").out
    assert "\x1b" not in out
    assert "\\x1b[2J\\nholds" in out


def test_every_json_key_is_documented(arl: Arl, asked: dict[str, Any], root: Path) -> None:
    said = arl("kit", "my_kit:case", "--json").json
    page = (root / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    section = page.split("### kit\n")[1].split("###", maxsplit=1)[0]
    assert {*said, *said["scenarios"][0]} - set(re.findall(r"`([a-z]+)`", section)) == set()


def test_a_case_that_does_not_work_ends_with_two(arl: Arl) -> None:
    told = arl("kit", "no_such_module_anywhere:case", "--quick")
    assert (told.code, told.out) == (2, "")
    assert "there is no module" in told.err
    assert arl("kit", "x:y", "--only", "never").code == 2
    Path("there").mkdir()
    assert arl("kit", "x:y", "--output", "there", "--json").error["code"] == "output_exists"
    assert arl("kit").code == 2
