"""Pydantic models come back exactly: fields, fields set, extras, private attributes and nested types, unvalidated."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from decimal import Decimal
from functools import cached_property
from typing import Any, Generic, TypeVar

import pydantic
import pytest

from agent_run_ledger.codecs import decode, encode, pack, value_digest
from agent_run_ledger.codecs.equality import difference
from agent_run_ledger.errors import ClassGone, Unstorable
from tests.unit.codecs.samples import Colour, Plain, Point

T = TypeVar("T")
MODULE = sys.modules[__name__]


class Line(pydantic.BaseModel):
    name: str
    price: Decimal


class Order(pydantic.BaseModel):
    at: dt.datetime
    lines: tuple[Line, ...]
    blob: bytes = b""
    colour: Colour = Colour.RED
    note: str | None = None


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    a: int
    _secret: Any = pydantic.PrivateAttr(default=3)


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    n: int

    def __init__(self, **values: Any) -> None:
        if type(self).armed:
            raise AssertionError("__init__ ran")
        super().__init__(**values)

    @pydantic.field_validator("n")
    @classmethod
    def _check(cls, n: int) -> int:
        if cls.armed:
            raise AssertionError("a validator ran")
        return n

    def model_post_init(self, context: Any, /) -> None:
        if type(self).armed:
            raise AssertionError("model_post_init ran")


Strict.armed = False  # type: ignore[attr-defined]


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]


class Caching(pydantic.BaseModel):
    n: int

    @cached_property
    def double(self) -> int:
        return 2 * self.n


class Root(pydantic.RootModel[list[int]]):
    pass


class Linked(pydantic.BaseModel):
    url: pydantic.HttpUrl
    store: pydantic.PostgresDsn


class Credentials(pydantic.BaseModel):
    key: pydantic.SecretStr


class Anything(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    held: Any


@pydantic.dataclasses.dataclass
class Checked:
    n: int


ORDER = Order(at=dt.datetime(2024, 1, 1, tzinfo=dt.UTC), lines=(Line(name="a", price=Decimal("1.10")),), blob=b"\xff")
EXTRA = Open.model_validate({"a": 1, "more": (1, 2), "$arl": 5})
VALUES = [
    ORDER,
    EXTRA,
    Strict(n=1),
    Page[int](items=[1]),
    Page[Line](items=[Line(name="b", price=Decimal(2))]),
    Page[Page[int]](items=[Page[int](items=[3])]),
    Page(items=[1]),
    Root([1, 2]),
    Linked(url="https://example.org/a?b=c", store="postgresql://u:p@h1:1,h2:2/d"),  # type: ignore[arg-type]
    Checked(4),
    Order.model_construct(note="n"),
    Line.model_construct(_fields_set={"name"}, name=5),
    {"a": [ORDER], (1,): EXTRA},
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_model_comes_back_exactly(value: Any) -> None:
    packed = pack(value, limit_bytes=1 << 20)
    assert difference(value, packed.decoded) is None
    assert type(packed.decoded) is type(value)
    assert packed.decoded == value
    assert encode(packed.decoded) == encode(value)
    assert value_digest(value) == value_digest(packed.decoded)


def test_nested_types_are_kept() -> None:
    restored: Any = decode(encode(ORDER))
    assert type(restored.lines[0]) is Line
    assert type(restored.lines[0].price) is Decimal
    assert restored.colour is Colour.RED
    assert restored.model_fields_set == {"at", "lines", "blob"}
    assert restored.at.tzinfo is dt.UTC


def test_extras_and_private_attributes_are_kept() -> None:
    value = Open.model_validate({"a": 1, "more": (1, 2)})
    value._secret = {4}
    restored: Any = decode(encode(value))
    assert restored.model_extra == {"more": (1, 2)}
    assert restored._secret == {4}
    assert restored.model_fields_set == {"a", "more"}


def test_attributes_besides_the_fields_are_kept() -> None:
    value = Line(name="a", price=Decimal(1))
    vars(value)["_request_id"] = "r"
    restored: Any = decode(encode(value))
    assert vars(restored)["_request_id"] == "r"
    assert difference(value, restored) is None


def test_values_that_no_validation_would_pass_are_kept() -> None:
    value = Line.model_construct(name=5, price="free")
    restored: Any = decode(encode(value))
    assert (restored.name, restored.price) == (5, "free")


def test_no_validator_runs_and_no_init(monkeypatch: pytest.MonkeyPatch) -> None:
    value = Strict(n=1)
    monkeypatch.setattr(Strict, "armed", True)
    packed = pack(value, limit_bytes=1000)
    monkeypatch.setattr(Strict, "armed", False)
    assert packed.decoded == value


def test_a_cached_property_is_derived() -> None:
    value = Caching(n=2)
    before = encode(value)
    assert value.double == 4
    assert encode(value) == before


def test_a_secret_is_refused_and_not_written_down() -> None:
    with pytest.raises(Unstorable, match="SecretStr") as caught:
        encode(Credentials(key="hunter2"))  # type: ignore[arg-type]
    assert caught.value.path == "$.key"
    assert "hunter2" not in str(caught.value)


def test_a_part_without_a_stored_form_is_named_by_path() -> None:
    with pytest.raises(Unstorable) as caught:
        encode([Anything(held={"a": Plain()})])
    assert caught.value.path == "$[0].held.a"


def test_a_model_local_to_a_function_is_refused() -> None:
    class Local(pydantic.BaseModel):
        n: int

    with pytest.raises(Unstorable, match="local to a function"):
        encode(Local(n=1))
    with pytest.raises(Unstorable, match="local to a function"):
        encode(Page[Local](items=[]))


def test_a_generic_of_something_without_a_name_is_refused() -> None:
    with pytest.raises(Unstorable, match="type argument"):
        encode(Page[list[int]](items=[]))
    with pytest.raises(Unstorable, match="type argument"):
        encode(Page[int | str](items=[]))


def test_a_model_class_that_is_gone_is_an_error_and_never_a_dict(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = encode({"order": ORDER})
    monkeypatch.delattr(MODULE, "Order")
    with pytest.raises(ClassGone, match="Order"):
        decode(stored)


def test_a_model_whose_fields_changed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = encode(Line(name="a", price=Decimal(1)))
    for fields in ({"name": str}, {"name": str, "price": int, "tax": int}):
        changed = pydantic.create_model(
            "Line", __module__=__name__, **{name: (kind, ...) for name, kind in fields.items()}
        )
        monkeypatch.setattr(MODULE, "Line", changed)
        with pytest.raises(ClassGone, match="fields changed") as caught:
            decode(stored)
        assert caught.value.code == "class_changed"


def test_what_is_no_model_any_more_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = encode(Line(name="a", price=Decimal(1)))
    monkeypatch.setattr(MODULE, "Line", Point)
    with pytest.raises(ClassGone) as caught:
        decode(stored)
    assert caught.value.code == "class_changed"


def test_a_type_argument_from_bytes_is_never_called() -> None:
    stored = (
        b'{"$arl":"pydantic","t":"%b:Page","g":[{"t":"subprocess:Popen"}],"f":{"items":[]},"s":[]}' % __name__.encode()
    )
    with pytest.raises(Exception, match="no type argument"):
        decode(stored)


def test_a_half_made_model_is_refused() -> None:
    with pytest.raises(Unstorable, match="half made"):
        encode(object.__new__(Line))


def test_the_codecs_do_not_load_pydantic_numpy_or_pandas() -> None:
    program = (
        "import sys, dataclasses, agent_run_ledger.codecs as c\n"
        "c.decode(c.encode({1: (2, {3})})); c.readable(object(), limit_bytes=99); c.refused_annotation(int)\n"
        "print(sorted({'pydantic', 'numpy', 'pandas', 'asyncio', 'zoneinfo.common'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("[]", "['zoneinfo.common']")
