"""Power is cut while a run carries out its effect: the restarted run says the same, and the effect happened once."""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest

from agent_run_ledger.effects import ActionState
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.store.ledger_place import LEDGER_FILE
from agent_run_ledger.testing import PowerDisk
from agent_run_ledger.testing.crash import left_by_death
from agent_run_ledger.testing.power_images import PowerImage
from agent_run_ledger.testing.power_life import RecordedLife, opened, put, record_life
from tests.fault import effect_step_lives as lives
from tests.fault.effect_step_kit import CAMPAIGN, Case, Said, in_memory
from tests.fault.power_lives import forced, small_wal
from tests.fault.refund_server import RefundServer, refund_server

pytestmark = pytest.mark.fault

NORMAL = 1
LIVES_PER_LENGTH = 2
REFUND = json.dumps({"order": lives.ORDER}).encode()


@pytest.fixture(scope="module")
def server() -> Iterator[RefundServer]:
    with refund_server() as serving:
        yield serving


@dataclass(frozen=True, slots=True, kw_only=True)
class Acted:
    """A recorded life that carried out an effect that was granted before, and what its run said."""

    synced: bool
    life: RecordedLife
    said: Said
    handed_out: int
    outcome: int

    def may_have_sent(self, acts: int) -> bool:
        """Whether the request may have been under way: the hand-out was told by then."""
        return self.life.leaves_told(acts) >= self.handed_out

    def told(self, acts: int) -> bool:
        """Whether the run may have gone on from its effect: the outcome was told by then."""
        return self.life.leaves_told(acts) >= self.outcome


def _acted(folder: Path, server: RefundServer, *, synced: bool = True) -> Acted:
    case = Case(folder, server, "N")
    assert case.says_here() == {"code": "approval_pending"}
    case.grant()
    with nullcontext() if synced else forced(NORMAL):
        life = record_life(lambda _: case.says_here(), folder)
    changes = [orjson.loads(leaf.envelope)["changes"] for leaf in life.log]
    ends = [place for place, one in enumerate(changes, 1) if any(each.get("new") == "succeeded" for each in one)]
    assert server.counts().executed == 1
    return Acted(synced=synced, life=life, said=life.result, handed_out=ends[0] - 1, outcome=ends[0])


def _images(acted: Acted) -> Iterator[tuple[int, PowerImage]]:
    disk = PowerDisk(acted.life.trace.before)
    for acts, act in enumerate(acted.life.trace.acts, 1):
        disk.apply(act)
        for image in disk.images(torn=0, seed=acts):
            yield acts, image


def _go_on(acted: Acted, acts: int, image: PowerImage, case: Case) -> bool:
    """Go on from one image, in the worse of the worlds that it may stand in; say whether only the effect knew its end.

    Where the request may have been under way, the target has executed it.
    """
    if acted.may_have_sent(acts):
        urllib.request.urlopen(f"{case.server.url}/plain/refunds", data=REFUND, timeout=30).close()
    recorded, _ = left_by_death(case.path)
    results = {call.name for call in recorded if call.kind is RecordKind.RESULT}
    by_effect_alone = case.members()[-1].state is ActionState.SUCCEEDED and "refund" not in results
    said = case.ends_well()
    if acted.synced and acted.told(acts):
        assert said == acted.said, f"after act {acts}, {image.how}"
    return by_effect_alone


def _all(acted: Acted, server: RefundServer, folder: Path) -> tuple[int, int]:
    """Go on from images of every length and world; return how many there were, and of how many only the effect knew."""
    lived, seen, alone = Counter[tuple[int, bool, bool]](), set[tuple[bool, bool, int]](), 0
    for acts, image in _images(acted):
        world = (acted.may_have_sent(acts), acted.told(acts))
        known = (*world, hash(tuple(sorted(image.files.items()))))
        if known in seen:
            continue
        seen.add(known)
        place = folder / f"{acts}-{image.how}"
        put(image.files, place)
        with opened(place / LEDGER_FILE) as log:
            length = (len(log), *world)
        lived[length] += 1
        if lived[length] <= LIVES_PER_LENGTH * CAMPAIGN:
            alone += _go_on(acted, acts, image, Case(place, server, "N", here=True))
        shutil.rmtree(place)
    return sum(lived.values()), alone


def test_after_any_cut_the_run_goes_on_to_the_same_result_with_one_effect(server: RefundServer) -> None:
    with in_memory() as folder, small_wal():
        images, alone = _all(_acted(folder / "first", server), server, folder)
    assert images > 100
    assert alone > 0, "the result of the step itself is committed without a sync"


def test_the_twin_that_syncs_no_claim_is_executed_twice_and_is_noticed(server: RefundServer) -> None:
    with in_memory() as folder, pytest.raises(AssertionError, match=r"executed 2 times"):
        _all(_acted(folder / "first", server, synced=False), server, folder)
