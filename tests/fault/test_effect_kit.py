"""The effect kit itself: what it refuses to judge, what it notices of a case, and what its people must not do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from agent_run_ledger import probes
from agent_run_ledger.effects import ActionState
from agent_run_ledger.errors import Misuse
from agent_run_ledger.ledger.effect_ledger import EffectLedger
from agent_run_ledger.store.ledger_place import LEDGER_FILE, LedgerPlace
from agent_run_ledger.testing import effect_kit
from agent_run_ledger.testing.effect_case import reference_of
from agent_run_ledger.testing.effect_desk import CaseBroken, Desk, Looked, NotForThisTool
from agent_run_ledger.testing.effect_faults import FaultyTarget, JumpingTime, OnSending
from agent_run_ledger.testing.effect_kit import (
    EffectCase,
    Found,
    Guarantee,
    GuaranteeBroken,
    KitReport,
    Place,
    Probe,
    Promise,
    Ran,
    Row,
    assert_guarantee,
    run_kit,
)
from agent_run_ledger.testing.effect_life import EXECUTOR
from agent_run_ledger.testing.effect_path import OnTheWay
from agent_run_ledger.testing.effect_scenarios import SCENE_VARIABLE, _checked, _probe_cut, _refused, _row
from tests.contract.target_servers import answer, serving
from tests.fault import effect_kit_cases as cases

pytestmark = pytest.mark.fault

CASES = cases.__file__
ROW = Row(name="x", title="x", promise=Promise.PLAIN, ran=Ran.YES)


def told(found: pytest.ExceptionInfo[Misuse]) -> str:
    return f"{found.value.code}: {found.value.message}"


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("ALWAYS_ONE", "bad_case", "nothing was sent yet"),
        ("NO_COUNT", "bad_case", "`count` returned None"),
        ("BYPASS", "bad_case", "place.url"),
        ("NO_START", "bad_case", "the service does not start"),
        ("OTHER_REQUEST", "bad_case", "not what this request asks"),
        ("NO_CASE", "bad_case", "no EffectCase"),
        ("NOT_THERE", "bad_case", "no EffectCase"),
        ("FENCES", "class_not_judged", "class f"),
        ("CHECKS", "class_not_judged", "class v"),
    ],
)
def test_what_cannot_be_judged_is_refused_with_the_reason(name: str, code: str, words: str) -> None:
    with pytest.raises(Misuse) as found:
        run_kit(f"{CASES}:{name}", only=["plain"])
    assert told(found).startswith(f"{code}: ")
    assert words in told(found)


def test_a_module_that_runs_the_kit_when_it_is_imported_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SCENE_VARIABLE, "{}")
    with pytest.raises(Misuse) as found:
        run_kit(f"{CASES}:GOOD", only=["plain"])
    assert found.value.code == "kit_in_kit"


def test_two_workers_meet_before_they_dispatch(tmp_path: Path) -> None:
    report = run_kit(f"{CASES}:GOOD", only=["two_workers"], folder=tmp_path / "kept")
    assert report.of("two_workers").times == "once"
    assert len(list((tmp_path / "kept" / "two_workers" / "meeting").iterdir())) == 2


def test_a_scenario_that_is_none_is_refused_before_anything_is_done() -> None:
    for name in ("never", "kill:x#y", "kill:x#0", "kill:x"):
        with pytest.raises(Misuse):
            run_kit("no module:at all", only=[name])


def test_a_tool_is_killed_at_its_own_points_and_everything_can_be_kept(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    names = ["kill:half#1", "kill:never#1"]
    report = run_kit(
        cases.GOOD, only=names, folder=tmp_path / "kept", tell=lambda done, total: told.append((done, total))
    )
    assert [(row.ran, row.times) for row in report.rows] == [(Ran.YES, "once"), (Ran.YES, "once"), (Ran.SKIPPED, "–")]
    assert (report.of("kill:half#1").probe, report.of("kill:half#1").seen) == (Probe.TRUE, 1)
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert report.partial
    assert report.findings[-1] == "only chosen scenarios were played: nothing is said of the others"
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["kill-half-1", "kill-never-1", "plain"]
    numbers = [(tmp_path / "kept" / name / "target" / "lines").read_text() for name in ("plain", "kill-half-1")]
    assert len(set(numbers)) == 2


def test_without_a_probe_a_doubt_waits_for_a_person() -> None:
    report = run_kit(f"{CASES}:SILENT", only=["reply_lost"])
    row = report.of("reply_lost")
    assert (row.state, row.times, row.probe, report.judged(row)) == ("unresolved", "once", Probe.SILENT, "open")
    assert report.ok


def test_a_reply_that_is_lost_behind_the_tool_is_not_met_by_it() -> None:
    report = run_kit(cases.GOOD, only=["reply_lost", "answered_503"])
    row = report.of("reply_lost")
    assert (row.words, row.met, row.shows, report.judged(row)) == (
        *("lost: lost_by_the_kit, probe: executed", False, False, "not met"),
    )
    assert (report.shown, report.ok) == (Guarantee.N, True)
    assert report.findings[0].startswith("not seen: whether it tries again by itself; whether it takes an error for")
    assert report.of("plain").met
    assert run_kit(cases.GOOD, only=["twice"]).of("twice").met


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("NEVER", "it happened never and is not_executed on record (lost: PermissionError"),
        ("NEVER_SILENT", "it happened never and is unresolved on record (lost: PermissionError"),
        ("NEVER_INVENTED", "it happened never and is succeeded on record (lost: PermissionError"),
        ("FALSE", "it happened never and is succeeded on record (returned)"),
        ("ALWAYS_TWICE", "it happened TWICE and is succeeded on record (returned)"),
    ],
)
def test_a_tool_that_does_not_do_it_once_where_nothing_goes_wrong_is_refused(name: str, words: str) -> None:
    with pytest.raises(Misuse) as found:
        run_kit(f"{CASES}:{name}", only=["plain"])
    assert told(found).startswith("bad_case: ")
    assert words in told(found)


def test_a_tool_that_never_does_anything_has_no_guarantee() -> None:
    with pytest.raises(Misuse, match="it happened never") as found:
        assert_guarantee(f"{CASES}:NEVER_SILENT", Guarantee.I, quick=True)
    assert found.value.code == "bad_case"


def test_a_way_that_says_it_remembers_is_not_believed() -> None:
    report = run_kit(f"{CASES}:SAYS_IT_REMEMBERS", only=["twice", "old_copy"])
    assert (report.claimed, report.shown, report.ok) == (Guarantee.I, Guarantee.N, False)
    assert report.findings[0] == "it happened 2 times: delivered twice"


def test_a_case_that_no_module_has_cannot_be_found_again() -> None:
    assert reference_of(cases.GOOD) == f"{CASES}:GOOD"
    with pytest.raises(Misuse, match="not at the top of a module"):
        reference_of(replace(cases.GOOD))


@pytest.mark.parametrize("wrong", [{"target": None}, {"probe": 1}, {"settle_s": -1}, {"settle_s": 61}])
def test_a_case_of_something_else_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        replace(cases.GOOD, **wrong)


def test_a_guarantee_holds_only_where_it_is_shown_and_nothing_else_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    good = [replace(ROW, name=name, effects=1, state="succeeded") for name in ("plain", "twice", "old_copy")]
    seen = KitReport(case="c", claimed=Guarantee.N, rows=tuple(good))
    monkeypatch.setattr(effect_kit, "run_kit", lambda case, **_: seen)
    assert assert_guarantee("c", Guarantee.I) is seen
    seen = replace(seen, rows=tuple(good[:1]))
    assert assert_guarantee("c", Guarantee.N) is seen
    with pytest.raises(GuaranteeBroken, match="wanted I"):
        assert_guarantee("c", Guarantee.I)
    seen = replace(seen, rows=(replace(good[0], probe=Probe.DENIES, seen=1, effects=2),))
    with pytest.raises(GuaranteeBroken, match="the probe lies"):
        assert_guarantee("c", Guarantee.N)


# -- the desk, in this process ----------------------------------------------------------------------------------------


def desk_of(case: EffectCase, folder: Path) -> Desk:
    return Desk("no reference", case, folder, 17)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with desk_of(cases.GOOD, tmp_path) as one:
        one.approve()
        yield one


def dispatch(desk: Desk) -> None:
    with desk.ledger() as ledger:
        view = ledger.inspect(desk.key)[-1]
        way = ledger.dispatcher(desk.case.target(desk._way()), EXECUTOR, worker="one")
        way.dispatch(view.action_id)


def test_a_ledger_that_lets_a_second_worker_send_is_noticed(desk: Desk) -> None:
    with pytest.raises(CaseBroken, match="second worker"):
        desk._must_be_refused()
    assert desk.newest().state is ActionState.SUCCEEDED
    desk._must_be_refused()
    assert desk.count() == 1


def test_a_ledger_that_closes_by_an_early_look_is_noticed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    with desk.ledger() as ledger:
        view = ledger.inspect(desk.key)[-1]
        ledger.claim(EXECUTOR, view.action_id, worker="one", request_sha256=view.request_sha256)
    desk.doubt()
    desk.refused_without_a_drain(Looked(found=Found.NOTHING, effects=0))
    monkeypatch.setattr(EffectLedger, "reconcile_not_executed", lambda *_: None)
    with pytest.raises(CaseBroken, match="before the way was dead"):
        desk.refused_without_a_drain(Looked(found=Found.NOTHING, effects=0))


def test_people_look_again_after_the_drain(tmp_path: Path) -> None:
    answers = iter([Found.NOTHING, Found.EXECUTED])
    with desk_of(replace(cases.GOOD, probe=lambda place, number: next(answers)), tmp_path) as desk:
        desk.approve()
        with desk.ledger() as ledger:
            view = ledger.inspect(desk.key)[-1]
            ledger.claim(EXECUTOR, view.action_id, worker="one", request_sha256=view.request_sha256)
        desk.doubt()
        assert desk.resolve(desk.look()) is ActionState.SUCCEEDED
        assert [look.found for look in desk.looks] == [Found.NOTHING, Found.EXECUTED]


def test_a_probe_is_as_good_as_its_worst_answer(desk: Desk) -> None:
    assert _row(ROW, desk).probe is Probe.NOT_ASKED
    true, denies = Looked(found=Found.NOTHING, effects=0), Looked(found=Found.NOTHING, effects=1)
    desk.looks = [true, denies, Looked(found=Found.NOTHING, effects=2), Looked(found=Found.UNKNOWN, effects=3)]
    row = _row(ROW, desk)
    assert (row.probe, row.seen, row.effects) == (Probe.DENIES, 1, 0)


@pytest.mark.parametrize("fault", [None, OnTheWay.ANSWERED_503])
def test_a_probe_that_is_cut_off_does_not_reach_the_target(tmp_path: Path, fault: OnTheWay | None) -> None:
    def probe(place: Place, number: int) -> Found:
        with urlopen(place.url, timeout=20) as answered:
            return Found.EXECUTED if answered.status == 200 else Found.UNKNOWN

    with serving(answer(200)) as server:
        case = replace(cases.GOOD, probe=probe, start=lambda place: nullcontext(server.url))
        with desk_of(case, tmp_path) as desk:
            for _ in range(2):
                with desk.probe_cut_off(fault):
                    looks = [desk.look(), desk.look()]
                assert {look.found for look in looks} == {Found.UNKNOWN}
                assert server.requests == []
            assert desk.look().found is Found.EXECUTED
            assert [said.startswith("probe cut off: ") for said in desk.happened] == [True] * 4 + [False]
    away = tmp_path / "away"
    away.mkdir()
    nobody = replace(case, start=lambda place: nullcontext("http://127.0.0.1:9"))
    with desk_of(nobody, away) as desk, pytest.raises(OSError, match="refused"):
        desk.look()


def test_a_probe_that_asks_by_another_way_is_not_met(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asking(place: Place, number: int) -> Found:
        with suppress(OSError), urlopen(place.url, timeout=20):
            pass
        return Found.UNKNOWN

    with serving(answer(200)) as server:
        for case, met in [(cases.GOOD, False), (replace(cases.GOOD, probe=asking), True)]:
            folder = tmp_path / str(met)
            folder.mkdir()
            with desk_of(replace(case, start=lambda place: nullcontext(server.url)), folder) as desk:
                desk.approve()
                monkeypatch.setattr(desk, "work", lambda desk=desk, **_: dispatch(desk))
                _probe_cut(desk)
                assert (desk.met, _row(ROW, desk).met) == (met, met)
    none = tmp_path / "none"
    none.mkdir()
    with desk_of(replace(cases.GOOD, probe=None), none) as desk, pytest.raises(NotForThisTool, match="no probe"):
        _probe_cut(desk)


def test_a_fault_that_met_nothing_shows_nothing(desk: Desk) -> None:
    desk.must_have_struck(1)
    with pytest.raises(CaseBroken, match="met no request"):
        desk.must_have_struck(0)


def test_what_a_tool_cannot_have_is_said(desk: Desk) -> None:
    with pytest.raises(NotForThisTool, match="not on the way"):
        desk.the_path()
    with pytest.raises(NotForThisTool, match="how to start"):
        desk.restart()


def test_a_tool_that_reaches_a_target_which_refuses_goes_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with desk_of(cases.BYPASS, tmp_path) as desk:
        desk.approve()
        monkeypatch.setattr(desk, "work", lambda: dispatch(desk))
        with pytest.raises(CaseBroken, match="another way"):
            _refused(desk)


def test_an_older_copy_is_the_one_that_was_kept(desk: Desk) -> None:
    desk.keep_a_copy()
    dispatch(desk)
    assert desk.newest().state is ActionState.SUCCEEDED
    desk.put_the_copy_back()
    assert desk.newest().state is ActionState.AVAILABLE
    dispatch(desk)
    assert desk.count() == 2


def test_a_ledger_that_contradicts_itself_is_what_was_seen(desk: Desk) -> None:
    ledger, place = desk.folder / LEDGER_FILE, LedgerPlace.here(desk.folder)
    assert _checked(ROW, place) == ROW
    ledger.write_bytes(ledger.read_bytes()[:8_192])
    row = _checked(ROW, place)
    assert (row.ran, row.words[:28]) == (Ran.BROKEN, "the ledger contradicts itsel")


# -- faults within a worker -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "effects", "struck"), [(OnSending.NOTHING, 1, 0), (OnSending.TWICE, 2, 1), (OnSending.REPLY_LOST, 1, 1)]
)
def test_a_fault_within_a_worker_is_what_it_says(desk: Desk, fault: OnSending, effects: int, struck: int) -> None:
    target = FaultyTarget(desk.case.target(desk._way()), fault)
    with desk.ledger() as ledger:
        view = ledger.inspect(desk.key)[-1]
        done = ledger.dispatcher(target, EXECUTOR, worker="one").dispatch(view.action_id)
    assert (desk.count(), target.struck) == (effects, struck)
    assert (done.view.state is ActionState.SUCCEEDED) is (fault is not OnSending.REPLY_LOST)


def test_a_clock_jumps_at_its_point_and_the_uptime_does_not() -> None:
    heard: list[str] = []
    before = probes.install(heard.append)
    try:
        clock = JumpingTime(1_800_000, "here")
        clock.install()
        first = clock.sample()
        probes.reach("there")
        assert not clock.jumped
        probes.reach("here")
        second = clock.sample()
    finally:
        probes.install(before)
    assert clock.jumped
    assert second.wall_ms - first.wall_ms >= 1_800_000
    assert second.uptime_ms - first.uptime_ms < 1_800_000
    assert heard == ["there", "here"]


def test_a_case_is_told_where_it_is(tmp_path: Path) -> None:
    seen: list[Place] = []

    def target(place: Place) -> Any:
        seen.append(place)
        return cases.appending(place)

    with desk_of(replace(cases.BYPASS, target=target), tmp_path) as desk:
        desk.approve()
        assert desk.path is not None
        assert seen == [Place(folder=tmp_path / "target", url=desk.path.url)]
