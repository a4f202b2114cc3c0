"""Rows of effects that hold what nobody wrote are no accident: they are named as tampered with."""

from __future__ import annotations

from typing import Any

import pytest

from agent_run_ledger import Tampered
from agent_run_ledger.store.effect_rows import actions_from, row_of_action, row_of_approval, transition_row
from tests.unit.effects.examples import APPROVAL, A, row

PLACES = {
    "state": 2, "epoch": 3, "floor": 4, "target_class": 9, "not_before_ms": 11, "dispatch_before_ms": 12,
    "approvals_needed": 13, "revoked": 14, "prepare_leaf": 19, "handed_out": 23, "rebuilt": 25, "more": 26,
    "proposed_at_ms": 28, "changed_at_ms": 29,
}  # fmt: skip


def _stored(**changes: Any) -> list[Any]:
    """A row as `select_members` gives it, with the columns of one approval."""
    action = row(A.PREPARED)
    *columns, proposed_ms, changed_ms = row_of_action(action, 5)
    approval_id, _, *rest = row_of_approval(APPROVAL, 1)
    stored = [*columns, 1, proposed_ms, changed_ms, 7, approval_id, *rest]
    for name, value in changes.items():
        stored[PLACES[name]] = value
    return stored


def test_a_row_comes_back_as_the_action_that_it_was() -> None:
    (stored,) = actions_from([tuple(_stored())])
    assert stored.action == row(A.PREPARED)
    assert (stored.row_id, stored.proposed_at_ms, stored.changed_at_ms) == (1, 5, 5)


@pytest.mark.parametrize("name", PLACES)
def test_a_row_that_holds_another_type_is_corrupt(name: str) -> None:
    with pytest.raises(Tampered) as refused:
        actions_from([tuple(_stored(**{name: b"1" if name == "more" else "1"}))])
    assert refused.value.code == "corrupt"


@pytest.mark.parametrize("more", [b"{", b"[]", b"{}", None])
def test_a_row_whose_rest_cannot_be_read_is_corrupt(more: object) -> None:
    with pytest.raises(Tampered) as refused:
        actions_from([tuple(_stored(more=more))])
    assert refused.value.code == "corrupt"


@pytest.mark.parametrize("which", ["salt", "payload"])
def test_a_record_that_holds_text_is_corrupt(which: str) -> None:
    values = {"record_id": 65_536, "action_id": b"a" * 16, "salt": b"s" * 32, "payload": b"{}"}
    assert transition_row(tuple(values.values())).leaf_index == 1
    with pytest.raises(Tampered) as refused:
        transition_row(tuple({**values, which: "text"}.values()))
    assert refused.value.code == "corrupt"
    assert "65536" in refused.value.message
