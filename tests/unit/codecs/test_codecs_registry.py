"""Own types are stored by a registered codec, checked like everything else, and missed by name."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest

from agent_run_ledger.codecs import decode, encode, pack, register_codec, registry, value_digest
from agent_run_ledger.errors import ClassGone, Misuse, Unstorable
from tests.unit.codecs.samples import MyDict


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and self.cents == other.cents

    def __hash__(self) -> int:
        return hash(self.cents)


class Child(Money):
    pass


@dataclasses.dataclass
class Client:
    name: str
    ratio: float = 0.5
    lock: Any = dataclasses.field(default_factory=threading.Lock, compare=False)


class Ambiguous:
    def __eq__(self, other: object) -> Any:
        raise ValueError("no truth value")

    __hash__ = None  # type: ignore[assignment]


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry of its own for one test."""
    monkeypatch.setattr(registry, "_by_class", {})
    monkeypatch.setattr(registry, "_by_name", {})


def money(name: str = "money") -> None:
    register_codec(Money, name=name, encode=lambda value: value.cents, decode=Money)


@pytest.mark.usefixtures("fresh")
def test_a_value_is_stored_under_the_name_of_its_codec() -> None:
    money()
    assert encode([Money(5)]) == b'[{"$arl":"codec","n":"money","v":5}]'
    packed = pack({Money(5): (Money(6),)}, limit_bytes=1000)
    assert packed.decoded == {Money(5): (Money(6),)}
    assert value_digest(Money(5)) == value_digest(decode(encode(Money(5)))) != value_digest(Money(6))


@pytest.mark.usefixtures("fresh")
def test_a_codec_may_return_any_storable_value() -> None:
    register_codec(MyDict, name="my", encode=lambda v: tuple(v.items()), decode=MyDict)
    restored = decode(encode(MyDict({1: {2}})))
    assert type(restored) is MyDict
    assert restored == MyDict({1: {2}})


@pytest.mark.usefixtures("fresh")
def test_a_codec_is_for_exactly_one_class() -> None:
    money()
    with pytest.raises(Unstorable, match="Child"):
        encode(Child(1))


@pytest.mark.usefixtures("fresh")
def test_a_second_codec_for_a_class_or_a_name_is_refused() -> None:
    money()
    for cls, name in ((Money, "other"), (Child, "money"), (Money, "money")):
        with pytest.raises(Misuse) as caught:
            register_codec(cls, name=name, encode=lambda value: 0, decode=lambda value: cls(0))
        assert caught.value.code == "codec_exists"
        assert "'money'" in str(caught.value)
    assert decode(encode(Money(5))) == Money(5)


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("cls", [dict, list, str, int, bool, type(None), tuple, "Money", 5, None])
def test_built_in_types_and_what_is_no_class_are_refused(cls: Any) -> None:
    with pytest.raises(Misuse) as caught:
        register_codec(cls, name="n", encode=lambda value: 0, decode=lambda value: value)
    assert caught.value.code == "codec_refused"


@pytest.mark.usefixtures("fresh")
def test_a_codec_needs_a_name() -> None:
    with pytest.raises(Misuse, match="needs a name"):
        money("")


@pytest.mark.usefixtures("fresh")
def test_a_codec_that_is_missing_at_restore_is_named() -> None:
    with pytest.raises(ClassGone, match="'money'") as caught:
        decode(b'[{"$arl":"codec","n":"money","v":5}]')
    assert caught.value.code == "codec_gone"
    assert "register_codec" in caught.value.hint


def failing(value: Any) -> Any:
    raise RuntimeError("on purpose")


@pytest.mark.usefixtures("fresh")
def test_a_codec_that_fails_is_named_with_its_error() -> None:
    register_codec(Money, name="money", encode=failing, decode=failing)
    with pytest.raises(Unstorable, match=r"'money' failed: RuntimeError: on purpose") as caught:
        encode({"a": Money(1)})
    assert caught.value.path == "$.a"
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(ClassGone, match="'money' did not read") as gone:
        decode(b'{"$arl":"codec","n":"money","v":5}')
    assert gone.value.code == "codec_failed"


@pytest.mark.usefixtures("fresh")
def test_a_codec_that_returns_another_class_is_refused() -> None:
    register_codec(Money, name="money", encode=lambda value: 0, decode=lambda value: Child(0))
    with pytest.raises(ClassGone, match="instead of"):
        decode(encode(Money(1)))
    with pytest.raises(Unstorable):
        pack(Money(1), limit_bytes=100)


@pytest.mark.usefixtures("fresh")
def test_a_codec_that_returns_something_unstorable_is_refused_with_the_path() -> None:
    register_codec(Money, name="money", encode=lambda value: [object()], decode=Money)
    with pytest.raises(Unstorable) as caught:
        encode([Money(1)])
    assert caught.value.path == "$[0].<money>[0]"


@pytest.mark.usefixtures("fresh")
def test_a_codec_that_never_ends_is_refused() -> None:
    register_codec(Money, name="money", encode=lambda value: Money(value.cents + 1), decode=lambda value: value)
    with pytest.raises(Unstorable) as caught:
        encode(Money(1))
    assert caught.value.code == "too_deep"


def client(decode: Callable[[Any], Client]) -> None:
    register_codec(Client, name="client", encode=lambda value: [value.name, value.ratio], decode=decode)


@pytest.mark.usefixtures("fresh")
def test_a_dataclass_with_a_codec_is_compared_by_the_fields_it_compares() -> None:
    client(lambda stored: Client(*stored))
    assert pack(Client("a"), limit_bytes=100).decoded == Client("a")
    nan: Any = pack(Client("a", float("nan")), limit_bytes=100).decoded
    assert math.isnan(nan.ratio)


@pytest.mark.usefixtures("fresh")
def test_a_dataclass_codec_that_drops_a_field_is_found_out() -> None:
    register_codec(Client, name="client", encode=lambda value: value.name, decode=Client)
    assert pack(Client("a"), limit_bytes=100).decoded == Client("a")
    with pytest.raises(Unstorable, match="round trip"):
        pack(Client("a", 0.75), limit_bytes=100)


@pytest.mark.usefixtures("fresh")
def test_a_class_whose_equality_has_no_answer_is_compared_by_its_encoded_form() -> None:
    register_codec(Ambiguous, name="ambiguous", encode=lambda value: 1, decode=lambda value: Ambiguous())
    assert type(pack(Ambiguous(), limit_bytes=100).decoded) is Ambiguous


@pytest.mark.usefixtures("fresh")
def test_threads_that_register_at_once_get_one_codec_each_name() -> None:
    classes = [type(f"Kind{number}", (), {}) for number in range(8)]
    refused: list[str] = []
    barrier = threading.Barrier(8)

    def register(cls: type) -> None:
        barrier.wait()
        try:
            register_codec(cls, name="one", encode=lambda value: 0, decode=lambda value: cls())
        except Misuse as error:
            refused.append(error.code)

    threads = [threading.Thread(target=register, args=(cls,)) for cls in classes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == ["codec_exists"] * 7
    assert len(registry.registered_classes()) == 1
