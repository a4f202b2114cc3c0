"""The page and the picture of the loop breaker are those of the kept results, and say what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.breaker import page, picture


@pytest.fixture
def kept(root: Path) -> dict[str, Any]:
    return json.loads((root / "bench" / "results" / "breaker.json").read_text(encoding="utf-8"))


def test_the_page_and_the_picture_are_those_of_the_kept_results(root: Path, kept: dict[str, Any]) -> None:
    text = (root / "docs" / "guide" / "breaker.md").read_text(encoding="utf-8")
    assert page.rewritten(text, kept) == text
    assert picture.picture(kept) == (root / "bench" / "results" / "breaker.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("broken", ["", page.BEGIN, page.BEGIN + page.END + page.END])
def test_a_page_without_its_marks_is_refused(kept: dict[str, Any], broken: str) -> None:
    with pytest.raises(ValueError, match="exactly once"):
        page.rewritten(broken, kept)


def test_a_point_is_where_its_figure_says(kept: dict[str, Any]) -> None:
    svg = ElementTree.fromstring(picture.picture(kept))
    lines = [one for one in svg.iter() if one.tag.endswith("polyline")]
    settings = {(one["rule"], one["max_repetitions"]) for one in kept["sweep"]}
    assert len(lines) == 2 * len(settings)
    lowest = min(one["threshold"] for one in kept["sweep"])
    assert picture.place(100, lowest, lowest, 0) == (100, picture.PANEL_TOP + picture.PANEL_HEIGHT)
    assert picture.place(100, lowest, 1, 1) == (100 + picture.PANEL_WIDTH, picture.PANEL_TOP)
    for one in svg.iter():
        if one.tag.endswith("text"):
            assert 0 <= float(one.attrib["x"]) < picture.WIDTH
            assert 0 <= float(one.attrib["y"]) < picture.HEIGHT
