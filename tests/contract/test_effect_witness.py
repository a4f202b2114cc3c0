"""Who asks the witness when: between others who write and ask meanwhile, and where it fails to answer."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from agent_run_ledger import EffectLedger, Pending
from agent_run_ledger.effects import DoubtBy, Seen
from tests.contract.effect_kit import CAT, OPS, A, E, FakeWitness, Kit, effects


class Hooked(FakeWitness):
    """A witness during whose answer something else happens, once."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], object] | None = None

    def extend(self, size: int, root: bytes) -> Seen:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            beside = threading.Thread(target=meanwhile)
            beside.start()
            beside.join()
        return super().extend(size, root)


def _beside(kit: Kit, witness: FakeWitness) -> EffectLedger:
    """The same store, opened once more."""
    return EffectLedger(kit.path, witness=witness, time=kit.ticks, settings=kit.settings)


def test_a_preparation_that_lands_while_the_witness_is_asked_is_not_one_that_it_has_seen() -> None:
    witness = Hooked()
    with effects(witness=witness) as kit:
        view = kit.reach(A.CLAIMED)
        witness.meanwhile = lambda: kit.do(E.PREPARE, view)
        with_claim = kit.ledger._store.reader().head().size
        with pytest.raises(Pending) as early:
            kit.do(E.HAND_OUT, view)
        assert early.value.code == "not_cosigned"
        assert witness.size == with_claim, "all but the preparation"
        assert kit.look(view).state is A.PREPARED
        assert not kit.look(view).handed_out
        assert kit.do(E.HAND_OUT, view).handed_now
        assert witness.size == with_claim + 1


def test_a_close_that_lands_while_the_witness_is_asked_lets_no_successor_follow() -> None:
    witness, nobody = Hooked(), FakeWitness()
    with effects(witness=witness) as kit, _beside(kit, nobody) as other:
        view = kit.reach(A.CLAIMED)
        kit.ledger.doubt(OPS, view.action_id, by=DoubtBy.OPERATOR)
        told: list[str] = []

        def close() -> None:
            nobody.silent()
            try:
                other.close_unprepared(CAT, view.action_id)
            except Pending as error:
                told.append(error.code)

        witness.meanwhile = close
        with pytest.raises(Pending) as early:
            kit.do(E.SUCCESSOR, view)
        assert told == ["not_witnessed"]
        assert early.value.code == "close_not_cosigned"
        assert kit.look(view).state is A.NOT_EXECUTED
        assert kit.do(E.SUCCESSOR, view).state is A.PROPOSED


def test_who_asks_for_a_successor_shows_the_close_to_the_witness() -> None:
    witness = FakeWitness()
    with effects(witness=witness) as kit:
        view = kit.ready(E.NOT_EXECUTED, kit.reach(A.UNRESOLVED))
        witness.says = [Seen.SILENT]
        with pytest.raises(Pending):
            kit.do(E.NOT_EXECUTED, view)
        assert kit.do(E.SUCCESSOR, view).state is A.PROPOSED
