"""Our contender, the floor, and the driver of the comparison with others, with a handful of steps and no network."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from agent_run_ledger.testing import check_ledger
from bench.peers import __main__ as driver
from bench.peers.environments import NotInstalled, environment_python
from bench.peers.lives import Arena, LifeFailed, Seen, seen
from bench.peers.roster import FLOOR, ROSTER, SCRIPTS, Contender, Side

pytestmark = pytest.mark.fault

HERE = [one for one in ROSTER if one.environment is None]
FEW = ("--rounds", "1", "--steps", "40", "--kills", "0", "--restores", "0")


def arena(contender: Contender, place: Path) -> Arena:
    return Arena(contender=contender, python=sys.executable, folder=place / contender.name).emptied()


@pytest.mark.parametrize("contender", HERE, ids=lambda one: one.name)
def test_a_contender_of_this_environment_goes_on_after_a_kill(contender: Contender, tmp_path: Path) -> None:
    ring, witness = arena(contender, tmp_path), tmp_path / "witness"
    ring.die(6, 3, "--witness", str(witness))
    told = ring.live(6, "--resume", "--witness", str(witness), after_fault=True).answer
    assert (told["bodies"], told["first_body"]) == (3, 3)
    assert seen(witness.read_text(), steps=6, kill_at=3) == Seen(run_again=0, killed_body_ran=2, never_ran=0)
    if contender.side is Side.OURS:
        check_ledger(ring.folder / "runs.db")


def test_a_restart_that_is_timed_ends_with_its_first_body(tmp_path: Path) -> None:
    ring = arena(FLOOR, tmp_path)
    ring.die(6, 4)
    told = ring.live(6, "--resume", "--until-first-body")
    assert (told.answer["first_body"], told.answer["seconds"]) == (4, None)
    assert 0 < told.answer["first_body_s"] < told.process_s


def test_a_life_that_was_to_be_killed_and_was_not_is_seen(tmp_path: Path) -> None:
    with pytest.raises(LifeFailed, match="was not killed"):
        arena(FLOOR, tmp_path).die(3, 3)


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        ("life.end({'i': 1})", "not the result of step 2"),
        ("raise ValueError('odd')", "ValueError: odd"),
        ("", "exit code 0: it said nothing"),
    ],
)
def test_a_life_that_returns_something_else_or_nothing_has_failed(tmp_path: Path, ending: str, said: str) -> None:
    script = tmp_path / "odd.py"
    begin = f"import sys; sys.path.insert(0, {str(SCRIPTS)!r})\nfrom protocol import Life\nlife = Life(sys.argv[1:])"
    script.write_text(f"{begin}\nlife.start()\n{ending}\n", encoding="utf-8")
    odd = Contender(name="odd", title="odd", side=Side.PEER, script=str(script.with_suffix("")))
    with pytest.raises(LifeFailed, match=said):
        arena(odd, tmp_path).live(3)


def test_an_environment_that_cannot_be_made_says_why_and_is_not_taken_for_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    lock = tmp_path / "nobody.txt"
    lock.write_text(f"nobody-made-this==1 \\\n    --hash=sha256:{'0' * 64}\n", encoding="utf-8")
    for _ in range(2):
        with pytest.raises(NotInstalled, match=r"packages of nobody\.txt could not be installed: .*nobody-made-this"):
            environment_python("nobody", lock, tmp_path / "made")


def test_an_environment_is_made_once_for_each_content_of_its_lock_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    lock = tmp_path / "empty.txt"
    lock.write_text("# nothing\n", encoding="utf-8")
    python = environment_python("empty", lock, tmp_path / "made")
    (python.parent / "mark").touch()
    assert environment_python("empty", lock, tmp_path / "made") == python
    assert (python.parent / "mark").exists()
    lock.write_text("# something else\n", encoding="utf-8")
    environment_python("empty", lock, tmp_path / "made")
    assert not (python.parent / "mark").exists()


@pytest.mark.parametrize(("more", "code"), [((), 0), (("--strict",), 1)])
def test_a_peer_that_is_not_there_has_its_reason_in_its_row_and_the_run_goes_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: tuple[str, ...],
    code: int,
) -> None:
    def refuse(*_: object) -> Path:
        raise NotInstalled("no package registry can be reached")

    monkeypatch.setattr(driver, "environment_python", refuse)
    written = ("--json", str(tmp_path / "peers.json"), "--svg", str(tmp_path / "peers.svg"))
    assert driver.main([*FEW, "--only", "dbos", "--dir", str(tmp_path / "disk"), *written, *more]) == code
    report = json.loads((tmp_path / "peers.json").read_text(encoding="utf-8"))
    floor, peer = report["contenders"]
    assert floor["floor_to_it"]["median"] == 1
    assert floor["bytes_per_step"]["median"] > 1_024
    assert peer["trouble"] == "no package registry can be reached"
    printed = capsys.readouterr()
    assert "NOT MEASURED DBOS on SQLite (default): no package registry can be reached" in printed.out
    assert "dbos is left out" in printed.err
    assert (tmp_path / "peers.svg").read_text(encoding="utf-8").count("not measured") == 1
    assert list((tmp_path / "disk").iterdir()) == []


@pytest.mark.parametrize("wrong", [("--only", "dbus"), ("--rounds", "-1"), ("--steps", "39")])
def test_arguments_that_make_no_sense_are_refused_before_anything_is_made(wrong: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as refused:
        driver.main(wrong)
    assert refused.value.code == 2
