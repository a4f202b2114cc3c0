"""Inputs that are kept with their run: shown, compared to the bottom, bounded, and never a reason to need a class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from agent_run_ledger import InputsChanged, RunLedger, Unstorable, codecs
from agent_run_ledger.errors import ClassGone, Tampered
from agent_run_ledger.kernel.record import KEPT_INPUTS, RecordKind
from agent_run_ledger.ledger.run_view import view_run
from agent_run_ledger.ledger.values import read_kept_inputs
from agent_run_ledger.runs.attempt import first_start, kept_inputs, start_detail
from agent_run_ledger.runs.erase import Act, Selection, erase_run
from agent_run_ledger.testing import check_ledger
from tests.contract.run_kit import LyingStore, report_of, row_of, store_of, stored_of

New = Callable[..., RunLedger]
ORDER = {"lines": [{"sku": "a", "tags": {"x", "y"}}, {"sku": "b", "tags": set[str]()}]}


@dataclass
class Customer:
    name: str


def make(new_ledger: New, *, fails: bool = False, **settings: Any) -> RunLedger:
    ledger = new_ledger(**{"keep_inputs": True, **settings})

    @ledger.step
    def one(order: Any, customer: Any) -> int:
        if fails:
            raise ValueError("no")
        return 1

    return ledger


def run(ledger: RunLedger, order: object = ORDER, customer: object = None) -> object:
    return ledger.execute(order=order, customer=Customer("ann") if customer is None else customer)


def starts_that_keep(ledger: RunLedger) -> list[bool]:
    kept = [
        codecs.unpack_without(s.record.encoding, s.record.payload, KEPT_INPUTS)
        for s in stored_of(ledger, RecordKind.START)
    ]
    return [one[1] is not None for one in kept]


def test_inputs_are_kept_with_their_types_and_come_back(new_ledger: New) -> None:
    ledger = make(new_ledger)
    assert run(ledger) == 1
    assert kept_inputs(first_start(store_of(ledger), row_of(ledger))) == {"order": ORDER, "customer": Customer("ann")}
    view = view_run(store_of(ledger), row_of(ledger))
    assert view.kept_inputs_id == row_of(ledger).start_record_id
    values = read_kept_inputs(store_of(ledger), view.kept_inputs_id or 0)
    assert {name: value.value for name, value in values.items()} == {"order": ORDER, "customer": Customer("ann")}
    assert run(ledger) == 1
    ledger.close()
    check_ledger(ledger.db_path)


def test_without_the_setting_nothing_is_kept(new_ledger: New) -> None:
    ledger = make(new_ledger, keep_inputs=False)
    run(ledger)
    assert kept_inputs(first_start(store_of(ledger), row_of(ledger))) is None
    assert view_run(store_of(ledger), row_of(ledger)).kept_inputs_id is None
    assert b"sku" not in stored_of(ledger, RecordKind.START)[0].record.payload


def test_they_are_kept_once_and_from_the_attempt_on_that_asks_for_it(new_ledger: New) -> None:
    ledger = make(new_ledger, fails=True)
    for _ in range(3):
        with pytest.raises(ValueError, match="no"):
            run(ledger)
    assert starts_that_keep(ledger) == [True, False, False]
    later = new_ledger("r2", keep_inputs=False)
    later.add(ledger.steps[0])
    with pytest.raises(ValueError, match="no"):
        run(later)
    asks = new_ledger("r2", keep_inputs=True)
    asks.add(ledger.steps[0])
    with pytest.raises(ValueError, match="no"):
        run(asks)
    kept = [KEPT_INPUTS.encode() in s.record.payload for s in stored_of(asks, RecordKind.START, run_id="r2")]
    assert kept == [False, True]


def test_a_difference_is_named_to_the_bottom(new_ledger: New) -> None:
    ledger = make(new_ledger)
    run(ledger)
    other = {"lines": [ORDER["lines"][0], {"sku": "c", "tags": set[str]()}]}
    with pytest.raises(InputsChanged, match=r"inputs\.order\.lines\[1\]\.sku differs"):
        run(ledger, other)
    shallow = make(new_ledger, keep_inputs=False)
    shallow.run_id = "r2"
    run(shallow)
    with pytest.raises(InputsChanged, match=r"inputs\.order\.lines differs"):
        run(shallow, other)


def test_a_class_that_is_gone_stops_no_run_and_names_the_input(
    new_ledger: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = make(new_ledger, fails=True)
    with pytest.raises(ValueError, match="no"):
        run(ledger)
    monkeypatch.delitem(globals(), "Customer")
    with pytest.raises(ClassGone):
        kept_inputs(first_start(store_of(ledger), row_of(ledger)))
    assert "inputs" in start_detail(store_of(ledger), row_of(ledger))[0]
    with pytest.raises(InputsChanged, match=r"inputs\.customer differs"):
        run(ledger, customer=5)
    shown = read_kept_inputs(store_of(ledger), row_of(ledger).start_record_id or 0)
    assert (shown["order"].value, shown["customer"].decoded) == (ORDER, False)
    assert "Customer" in shown["customer"].why


def test_the_limit_holds_for_all_of_them_together(new_ledger: New) -> None:
    ledger = make(new_ledger, max_payload_bytes=1000)
    with pytest.raises(Unstorable) as caught:
        ledger.execute(order="x" * 600, customer="y" * 600)
    assert (caught.value.code, caught.value.path) == ("too_large", "inputs")
    assert "the limit is 1,000" in caught.value.message
    assert "keep_inputs" in caught.value.hint
    assert store_of(ledger).reader().find_run("r1") is None
    assert make(new_ledger, max_payload_bytes=1000, keep_inputs=False).execute(order="x" * 600, customer="y" * 600) == 1


def test_they_are_erased_with_the_start(new_ledger: New) -> None:
    ledger = make(new_ledger)
    run(ledger)
    erase_run(ledger._opened.context(), "r1", Selection(), Act(event="erase", reason="x", actor="ann"))
    assert view_run(store_of(ledger), row_of(ledger)).kept_inputs_id is None
    assert stored_of(ledger, RecordKind.START)[0].record.payload == b""
    assert report_of(ledger).ok


def test_kept_inputs_of_a_changed_record_are_shown_as_not_the_ones(new_ledger: New) -> None:
    ledger = make(new_ledger)
    run(ledger)
    (start,) = stored_of(ledger, RecordKind.START)
    start.record.tries = 9
    store: Any = LyingStore(store_of(ledger), record=lambda _: start)
    shown = read_kept_inputs(store, start.record_id)
    assert [(value.intact, value.decoded) for value in shown.values()] == [(False, False)] * 2
    with pytest.raises(Tampered):
        kept_inputs(first_start(store, row_of(ledger)))


def test_an_input_with_the_name_of_the_tag_is_kept_too(new_ledger: New) -> None:
    ledger = new_ledger(keep_inputs=True)
    ledger.step(name="one")(lambda **_: 1)
    ledger.execute(**{"$arl": 5})
    assert kept_inputs(first_start(store_of(ledger), row_of(ledger))) == {"$arl": 5}
    shown = read_kept_inputs(store_of(ledger), row_of(ledger).start_record_id or 0)
    assert [value.value for value in shown.values()] == [{"$arl": 5}]
    assert "inputs" in start_detail(store_of(ledger), row_of(ledger))[0]
