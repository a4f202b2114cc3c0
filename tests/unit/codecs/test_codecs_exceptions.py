"""Exceptions keep what they say and what they carry, are never initialised again, and name what they had to leave."""

from __future__ import annotations

import math
import threading
from typing import Any

import pandas as pd
import pytest

from agent_run_ledger.codecs import NotFinite, decode, encode, pack, value_digest
from agent_run_ledger.errors import ClassGone, Unstorable
from tests.unit.codecs import samples
from tests.unit.codecs.samples import Plain, ToolError

LOCK = threading.Lock()


class Talking(Exception):
    def __str__(self) -> str:
        return f"said by {vars(self).get('speaker')}"


def refused(value: Any) -> Unstorable:
    with pytest.raises(Unstorable) as caught:
        encode(value)
    return caught.value


def carrying(**attributes: Any) -> ValueError:
    error = ValueError("m")
    vars(error).update(attributes)
    return error


def test_an_exception_that_cannot_be_made_without_its_own_init_is_refused() -> None:
    class Odd(UnicodeError):
        pass

    error = UnicodeDecodeError("utf-8", b"a", 0, 1, "bad")
    error.args = (1,)
    assert "without its own __init__" in str(refused(error))
    assert "local" in str(refused(Odd("x")))


def test_an_exception_keeps_what_is_storable_and_names_what_it_left() -> None:
    error = ToolError(tool="search", status=503)
    error.client = LOCK  # type: ignore[attr-defined]
    stored = encode(error)
    assert b'"lost":["client"]' in stored
    restored: Any = decode(stored)
    assert (restored.tool, restored.status, str(restored)) == ("search", 503, "search failed with 503")
    assert not hasattr(restored, "client")
    assert value_digest(error) == value_digest(restored)


def test_an_exception_class_that_takes_other_arguments_now_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = encode(ToolError(tool="t", status=1))
    changed = type("ToolError", (UnicodeDecodeError,), {"__module__": ToolError.__module__})
    monkeypatch.setattr(samples, "ToolError", changed)
    with pytest.raises(ClassGone) as caught:
        decode(stored)
    assert caught.value.code == "class_changed"


def test_a_restored_exception_was_not_initialised_again() -> None:
    restored: Any = decode(encode(ToolError(tool="search", status=503)))
    assert (restored.tool, restored.status, restored.args) == ("search", 503, ("search failed with 503",))


def test_where_an_exception_came_from_is_not_part_of_it() -> None:
    def raised(message: str) -> Exception:
        try:
            try:
                raise KeyError("inner")
            except KeyError as inner:
                raise ValueError(message) from inner
        except ValueError as error:
            return error

    error = raised("m")
    assert value_digest(error) == value_digest(ValueError("m"))
    assert pack(error, limit_bytes=1000).value_sha256 == value_digest(ValueError("m"))
    assert decode(encode(error)).__traceback__ is None  # type: ignore[attr-defined]


def test_a_message_that_would_change_is_refused() -> None:
    error = Talking()
    vars(error)["speaker"] = "someone"
    assert str(pack(error, limit_bytes=1000).decoded) == "said by someone"
    vars(error)["speaker"] = LOCK
    with pytest.raises(Unstorable) as caught:
        pack(error, limit_bytes=1000)
    assert caught.value.path == "$.__str__()"


def test_an_attribute_that_is_left_out_does_not_disturb_the_next() -> None:
    looped: list[Any] = []
    looped.append(looped)
    stored = encode(carrying(a=looped, b=[1], c=LOCK, d=(2,)))
    assert b'"lost":["a","c"]' in stored
    restored = vars(decode(stored))
    assert restored == {"b": [1], "d": (2,)}


def test_a_nan_in_an_attribute_has_no_digest_even_behind_a_table_that_is_left_out() -> None:
    for error in (carrying(n=math.nan), carrying(table=pd.Series([Plain()]), n=math.nan)):
        with pytest.raises(NotFinite) as caught:
            value_digest(error)
        assert caught.value.path == "$.n"
    assert math.isnan(decode(encode(carrying(n=math.nan))).n)  # type: ignore[attr-defined]


def test_an_attribute_that_is_too_large_is_refused_and_not_left_out() -> None:
    value: Any = (1,)
    for _ in range(60):
        value = (value, value)
    with pytest.raises(Unstorable) as caught:
        pack(carrying(big=value), limit_bytes=1000)
    assert caught.value.code == "too_large"


def test_the_object_that_lacked_an_attribute_is_left_out() -> None:
    error = AttributeError("no", name="n", obj=["anything"])
    assert b"anything" not in encode(error)
    restored: Any = pack(error, limit_bytes=1000).decoded
    assert (restored.name, restored.obj) == ("n", None)


def test_arguments_are_kept_as_they_are_now() -> None:
    error = OSError(1, "a")
    error.args = (2, "b", "c")
    restored: Any = pack(error, limit_bytes=1000).decoded
    assert (restored.args, restored.errno, restored.strerror) == ((2, "b", "c"), 1, "a")


def test_what_c_code_keeps_is_restored() -> None:
    restored: Any = decode(encode(OSError(2, "no", "a", None, "b")))
    assert (type(restored), restored.filename, restored.filename2) == (FileNotFoundError, "a", "b")
    restored = decode(encode(ImportError("m", name="n", path="p")))
    assert (restored.name, restored.path, restored.msg) == ("n", "p", "m")
    restored = decode(encode(StopIteration((1, 2))))
    assert restored.value == (1, 2)
    restored = decode(encode(SystemExit(3)))
    assert restored.code == 3


def test_a_group_is_restored_with_its_members() -> None:
    restored: Any = decode(encode(ExceptionGroup("g", [ValueError(1), KeyError("k")])))
    assert [type(member) for member in restored.exceptions] == [ValueError, KeyError]
    with pytest.raises(Unstorable) as caught:
        encode(ExceptionGroup("g", [ValueError(LOCK)]))
    assert caught.value.path == "$.args[1][0].args[0]"
