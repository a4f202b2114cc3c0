"""The protocol in TLA+ is the one that the search plays: its configurations, and TLC's verdicts where TLC can run."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

import pytest

from tests.model import tla
from tests.model.tla_cases import FOLDER, TWINS, cases, differing, write

BY_NAME = {case.name: case for case in cases()}
SMALL = (
    "F.none.unrestored",
    "F_minus.witness.unrestored",
    "N.none",
    "N.stuck",
    "twin.back.F",
    "twin.unconfirmed_close.F",
    "twin.late_witness.N",
)
"""A few seconds each: a way on from everywhere, none where it is barred, a copy that repeats, three twins."""


def test_every_configuration_is_what_the_page_and_the_twins_make_of_it(tmp_path: Path) -> None:
    assert differing() == []
    write(tmp_path)
    assert differing(tmp_path) == []
    (tmp_path / "N.none.cfg").write_text("SPECIFICATION Spec\n", encoding="utf-8")
    (tmp_path / "F.none.cfg").unlink()
    (tmp_path / "mine.cfg").touch()
    assert differing(tmp_path) == ["F.none.cfg", "N.none.cfg", "mine.cfg"]


def test_every_rule_that_a_twin_breaks_is_in_the_module_and_the_other_way_round() -> None:
    module = (FOLDER / "Effects.tla").read_text(encoding="utf-8")
    broken = {rule for case in BY_NAME.values() for rule in case.broken}
    assert set(re.findall(r'Breaks\("(\w+)"\)', module)) == broken
    assert {rule for twin in TWINS.values() for rule in twin.broken} == broken - {"no_write_off"}
    assert {case.row for case in BY_NAME.values() if case.name.startswith("twin.")} == set(TWINS)


def test_a_graph_with_a_state_that_has_no_way_on_is_told_from_one_without(tmp_path: Path) -> None:
    graph = tmp_path / "graph.dot"
    begun = '1 [label="/\\\\ flags = {\\"begun\\"}\\n/\\\\ restores = 1"]'
    settled = '2 [label="/\\\\ restores = 2\\n/\\\\ flags = {\\"settled\\"}"]'
    nodes = begun, settled

    def said(*lines: str) -> str | None:
        graph.write_text("\n".join(lines), encoding="utf-8")
        return tla.trapped(graph)

    assert said(*nodes, '1 -> 2 [label="QuietStep"]') is None
    assert said(*nodes, '1 -> 2 [label="WorkStep"]') == "never closed"
    room = nodes[0].replace("begun", "room"), nodes[1].replace("settled", "done")
    assert said(*room, '1 -> 2 [label="FarStep"]') is None
    assert said(*room, '1 -> 2 [label="FaultStep"]') == "never done"
    assert said("") == "failed: the graph is empty"


def test_another_jar_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: "java")
    jar = tmp_path / "tla2tools.jar"
    assert tla.found(jar) is None
    jar.write_bytes(b"another")
    assert tla.found(jar) is None
    monkeypatch.setattr(tla, "JAR_SHA256", hashlib.sha256(b"another").hexdigest())
    assert tla.found(jar) == tla.Tools("java", jar)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert tla.found(jar) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_tlc_says_what_the_search_says(name: str) -> None:
    tools = tla.found()
    if tools is None:
        pytest.skip("this platform has no Java with the tla2tools.jar that is known here")
    verdict = tla.run(tools, BY_NAME[name])
    assert verdict.said == BY_NAME[name].expected, verdict
    assert verdict.states > 50
