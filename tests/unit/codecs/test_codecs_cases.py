"""The serialisation cases of the field, each for its whole kind of fault."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pydantic
import pytest

from agent_run_ledger.codecs import decode, encode, pack, unpack, value_digest
from agent_run_ledger.errors import ClassGone, Unstorable
from tests.unit.codecs.samples import Plain

MODULE = sys.modules[__name__]


@dataclasses.dataclass
class Computed:
    a: int
    b: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.b = self.a * 2


class UserModel(pydantic.BaseModel):
    name: str


class Order(pydantic.BaseModel):
    at: dt.datetime
    price: Decimal
    blob: bytes


def through_storage(value: Any) -> Any:
    packed = pack(value, limit_bytes=1 << 20)
    return unpack(packed.encoding, packed.payload)


def test_every_case_about_values_has_a_test_here(shared: Path) -> None:
    lines = (shared / "cases" / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    cases = {case["id"] for case in map(json.loads, lines) if case["kind"] == "serialization"}
    named = {name.split("_")[1].upper().replace("SER", "SER-") for name in vars(MODULE) if name.startswith("test_ser")}
    assert cases <= named


def test_ser01_a_field_that_init_does_not_take_is_restored() -> None:
    value = Computed(3)
    value.b = 99
    restored = through_storage(value)
    assert (type(restored), restored.a, restored.b) == (Computed, 3, 99)


def test_ser02_a_class_that_is_gone_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = encode({"result": Computed(1)})
    monkeypatch.delattr(MODULE, "Computed")
    with pytest.raises(ClassGone, match=f"{__name__}:Computed"):
        decode(stored)


def test_ser05_every_model_is_restored_as_itself_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    restored = through_storage([UserModel(name="a"), Order(at=dt.datetime.min, price=Decimal(1), blob=b"")])
    assert [type(model) for model in restored] == [UserModel, Order]
    stored = encode(UserModel(name="a"))
    monkeypatch.setattr(MODULE, "UserModel", dict)
    with pytest.raises(ClassGone):
        decode(stored)


def test_ser06_an_argument_without_a_form_is_named_at_once() -> None:
    for refused in (value_digest, encode):
        with pytest.raises(Unstorable) as caught:
            refused({"timeout": Plain()})
        assert caught.value.path == "$.timeout"
        assert caught.value.type_name.endswith("Plain")


def test_ser08_a_model_with_times_decimals_and_bytes_is_equal() -> None:
    order = Order(at=dt.datetime(2024, 1, 1, tzinfo=dt.UTC), price=Decimal("19.90"), blob=b"\x00\xff")
    restored = through_storage(order)
    assert restored == order
    assert [type(getattr(restored, name)) for name in ("at", "price", "blob")] == [dt.datetime, Decimal, bytes]
    assert str(restored.price) == "19.90"
