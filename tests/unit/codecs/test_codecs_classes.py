"""Classes are found again by name without running anything that stored bytes name, or the restore is refused."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger.codecs import decode, encode, value_digest
from agent_run_ledger.codecs.classes import class_path, resolve
from agent_run_ledger.errors import ClassGone, Tampered
from tests.unit.codecs import samples
from tests.unit.codecs.samples import (
    Behaviour,
    Colour,
    Frozen,
    Outer,
    Pair,
    Plain,
    Point,
    Rights,
    ToolError,
    made_point,
)

MODULE = "tests.unit.codecs.samples"


def gone(stored: bytes | dict[str, Any]) -> ClassGone:
    with pytest.raises(ClassGone) as caught:
        decode(stored if isinstance(stored, bytes) else json.dumps(stored).encode())
    return caught.value


def tagged(tag: str, path: str, **members: Any) -> dict[str, Any]:
    return {"$arl": tag, "t": path, **members}


def test_a_class_is_named_by_module_and_qualified_name() -> None:
    assert class_path(Outer.Inner) == f"{MODULE}:Outer.Inner"
    assert resolve(f"{MODULE}:Outer.Inner") is Outer.Inner
    assert resolve("builtins:ValueError") is ValueError


@pytest.mark.parametrize(
    "value", [made_point(), Frozen("a"), Pair(1, 2), Colour.RED, Rights.READ, ToolError(tool="t", status=1)], ids=repr
)
def test_a_class_that_is_gone_is_an_error_that_names_it(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = encode({"deep": [value]})
    name = type(value).__name__
    monkeypatch.delattr(samples, name)
    error = gone(stored)
    assert f"{MODULE}:{name}" in str(error)
    assert error.code == "class_gone"
    assert "nothing was run again" in str(error)


def test_a_module_that_is_gone_is_an_error_that_names_the_class() -> None:
    assert "no_such_package.module:Thing" in str(gone(tagged("dataclass", "no_such_package.module:Thing", f={})))


def test_no_package_is_loaded_that_the_program_has_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "arl_unloaded_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "its package is not loaded" in str(gone(tagged("dataclass", "arl_unloaded_package:Thing", f={})))
    assert "its package is not loaded" in str(gone(tagged("dataclass", "arl_unloaded_package.sub:Thing", f={})))
    assert "arl_unloaded_package" not in sys.modules


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A package whose top level is loaded and whose modules are not."""
    folder = tmp_path / "arl_loaded_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "values.py").write_text("import enum\nclass Kind(enum.Enum):\n    A = 1\n")
    (folder / "broken.py").write_text("raise RuntimeError('broken on purpose')")
    (folder / "leaving.py").write_text("raise SystemExit(3)")
    (folder / "__main__.py").write_text("raise AssertionError('the program ran')")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("arl_loaded_package")
    for name in [name for name in sys.modules if name.startswith("arl_loaded_package")]:
        del sys.modules[name]


def test_a_module_below_a_loaded_package_is_imported(package: Any) -> None:
    restored = decode(json.dumps(tagged("enum", "arl_loaded_package.values:Kind", n="A", v=1)).encode())
    assert repr(restored) == "<Kind.A: 1>"


@pytest.mark.parametrize(
    ("module", "why"), [("broken", "broken on purpose"), ("leaving", "3"), ("nowhere", "No module")]
)
def test_a_module_that_cannot_be_imported_is_a_class_that_is_gone(package: Any, module: str, why: str) -> None:
    assert why in str(gone(tagged("enum", f"arl_loaded_package.{module}:Kind", n="A")))


def test_no_program_is_started_for_a_class(package: Any) -> None:
    assert "not loaded" in str(gone(tagged("enum", "arl_loaded_package.__main__:Kind", n="A")))


@pytest.mark.parametrize(
    "path", ["", ":", "os", "os:", ":x", ".:x", "..os:path", "os:path.join", "os:no", "builtins:print"]
)
@pytest.mark.parametrize("tag", ["dataclass", "enum", "namedtuple", "exception", "pydantic"])
def test_a_name_that_leads_to_no_class_is_refused(tag: str, path: str) -> None:
    pytest.importorskip("pydantic") if tag == "pydantic" else None
    gone(tagged(tag, path, f={}, n="A", a=[], s=[]))


@pytest.mark.parametrize(
    "path", ["subprocess:Popen", f"{MODULE}:Plain", "builtins:type", "builtins:tuple", f"{MODULE}:Colour"]
)
@pytest.mark.parametrize("tag", ["dataclass", "namedtuple", "exception"])
def test_a_class_of_another_family_is_refused_and_never_called(tag: str, path: str) -> None:
    assert gone(tagged(tag, path, f={}, a=["true"])).code == "class_changed"


@pytest.mark.parametrize("path", ["subprocess:Popen", f"{MODULE}:Point", "builtins:int"])
def test_what_is_no_enum_is_refused(path: str) -> None:
    assert gone(tagged("enum", path, n="A")).code == "class_changed"


def test_no_module_getattr_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("arl_lazy_module")

    def lookup(name: str) -> Any:
        raise AssertionError(f"looked up {name}")

    module.__getattr__ = lookup  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "arl_lazy_module", module)
    gone(tagged("enum", "arl_lazy_module:Kind", n="A"))


def swap(monkeypatch: pytest.MonkeyPatch, name: str, kind: type) -> None:
    kind.__module__, kind.__qualname__ = MODULE, name
    monkeypatch.setattr(samples, name, kind)


@pytest.mark.parametrize("fields", [["x", "y", "kept"], ["x", "y", "kept", "late", "new"], ["x", "y", "kept", "later"]])
@pytest.mark.parametrize("value", [made_point(), Point(1)], ids=["all set", "one unset"])
def test_a_dataclass_whose_fields_changed_is_refused(
    value: Point, fields: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = encode(value)
    swap(monkeypatch, "Point", dataclasses.make_dataclass("Point", fields))
    error = gone(stored)
    assert error.code == "class_changed"
    assert "late" in str(error) or "new" in str(error)


def test_a_dataclass_with_the_same_fields_in_another_order_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = encode(made_point())
    swap(monkeypatch, "Point", dataclasses.make_dataclass("Point", ["late", "kept", "y", "x"]))
    assert dataclasses.asdict(decode(stored)) == {"late": 3, "kept": [(1,), {2}], "y": 2, "x": 1}  # type: ignore[call-overload]


def test_a_namedtuple_whose_fields_changed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = encode(Pair(1, 2))
    swap(monkeypatch, "Pair", __import__("collections").namedtuple("Pair", "right left"))
    assert gone(stored).code == "class_changed"


def test_an_enum_whose_member_is_gone_or_means_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = encode(Colour.RED)
    swap(monkeypatch, "Colour", enum.Enum("Colour", {"GREEN": 1}))
    assert "no member RED" in str(gone(stored))
    swap(monkeypatch, "Colour", enum.Enum("Colour", {"RED": 2}))
    assert "value of its member RED changed" in str(gone(stored))
    swap(monkeypatch, "Colour", enum.Enum("Colour", {"RED": True}))
    assert "value of its member RED changed" in str(gone(stored))
    swap(monkeypatch, "Colour", enum.Enum("Colour", {"RED": 1}))
    assert repr(decode(stored)) == "<Colour.RED: 1>"


def test_an_enum_whose_value_changed_has_another_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    before = value_digest(Colour.RED)
    swap(monkeypatch, "Colour", enum.Enum("Colour", {"RED": 2}))
    assert value_digest(samples.Colour.RED) != before


def test_an_enum_whose_values_have_no_stored_form_is_kept_by_name() -> None:
    assert encode(Behaviour.FIRST) == b'{"$arl":"enum","t":"%b:Behaviour","n":"FIRST"}' % MODULE.encode()
    assert decode(encode(Behaviour.FIRST)) is Behaviour.FIRST


def test_a_flag_is_kept_by_its_bits_and_unknown_bits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = encode(Rights.READ | Rights.WRITE)
    assert stored.endswith(b'"b":3,"n":{"READ":1,"WRITE":2}}')
    swap(monkeypatch, "Rights", enum.Flag("Rights", {"READ": 1}))
    assert "no member WRITE" in str(changed(stored))
    swap(monkeypatch, "Rights", enum.Enum("Rights", {"READ": 3}))
    assert "no Flag any more" in str(changed(stored))


class Access(enum.Flag, boundary=enum.KEEP):
    NONE = 0
    READ = 1
    WRITE = 2
    BOTH = 3
    FAR = 12


def changed(stored: bytes | dict[str, Any]) -> ClassGone:
    error = gone(stored)
    assert error.code == "class_changed"
    return error


def of_access(monkeypatch: pytest.MonkeyPatch, members: dict[str, int], boundary: Any = enum.KEEP) -> None:
    kind = enum.Flag("Access", members, boundary=boundary)  # type: ignore[misc]
    kind.__module__, kind.__qualname__ = __name__, "Access"
    monkeypatch.setattr(sys.modules[__name__], "Access", kind)


NOW = {"NONE": 0, "READ": 1, "WRITE": 2, "BOTH": 3, "FAR": 12}


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (0, ["NONE"]), (1, ["READ"]), (2, ["WRITE"]), (3, ["READ", "WRITE"]), (4, []), (5, ["READ"]),
        (12, ["FAR"]), (13, ["READ", "FAR"]), (15, ["READ", "WRITE", "FAR"]), (16, []), (18, ["WRITE"]),
    ],
)  # fmt: skip
def test_a_flag_is_stored_with_the_names_that_its_bits_have(bits: int, names: list[str]) -> None:
    value = Access(bits)
    stored = json.loads(encode(value))
    assert (stored["b"], list(stored.get("n", {}))) == (bits, names)
    assert all(value == Access[name].value for name, value in stored.get("n", {}).items())
    restored = decode(encode(value))
    assert restored is value


@pytest.mark.parametrize(
    ("bits", "members"),
    [
        (1, {**NOW, "READ": 2, "WRITE": 1}),
        (2, {**NOW, "READ": 2, "WRITE": 1}),
        (3, {**NOW, "READ": 2, "WRITE": 1}),
        (2, {"NEW": 1, "READ": 2, "WRITE": 4}),
        (1, {"WRITE": 2}),
        (1, {"LOOK": 1, "WRITE": 2}),
        (0, {"EMPTY": 0, "READ": 1}),
        (0, {"READ": 1}),
        (12, {**NOW, "FAR": 48}),
        (12, {**NOW, "FAR": 4}),
        (5, {**NOW, "READ": 4, "NEW": 16}),
        (5, {"READ": 4, "WRITE": 2}),
        (12, {**NOW, "NEAR": 4}),
        (16, {**NOW, "NEW": 16}),
        (17, {**NOW, "NEW": 16}),
        (4, {**NOW, "NEW": 4}),
        (3, {"BOTH": 3, "READ": 1}),
    ],
)
def test_a_flag_whose_bits_have_other_names_now_is_refused(
    bits: int, members: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = encode(Access(bits))
    of_access(monkeypatch, members)
    changed(stored)


@pytest.mark.parametrize(
    ("bits", "members"),
    [
        (1, {**NOW, "NEW": 16}),
        (3, {"WRITE": 2, "READ": 1}),
        (3, {**NOW, "ALL": 3}),
        (1, {"LOOK": 1, **NOW}),
        (13, {"BOTH_FAR": 15, **NOW}),
        (0, {"EMPTY": 0, **NOW}),
        (16, {"READ": 1}),
    ],
)
def test_a_flag_whose_bits_have_the_same_names_is_restored(
    bits: int, members: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = encode({0: Access.NONE}.get(bits) or Access(bits))
    of_access(monkeypatch, members)
    restored = decode(stored)
    assert type(restored) is Access
    assert restored.value == bits


def test_a_class_may_name_its_zero_later(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = encode(Rights(0))
    assert b'"n"' not in stored
    swap(monkeypatch, "Rights", enum.Flag("Rights", {"NONE": 0, "READ": 1, "WRITE": 2}))
    assert decode(stored) is samples.Rights(0)


@pytest.mark.parametrize("boundary", [enum.STRICT, enum.CONFORM, enum.EJECT])
def test_bits_that_the_class_would_now_drop_or_eject_are_refused(
    boundary: enum.FlagBoundary, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = encode(Access(17))
    of_access(monkeypatch, NOW, boundary)
    assert "no bits 0x11" in str(changed(stored))


@pytest.mark.parametrize(
    "names",
    [{}, {"READ": 1}, {"WRITE": 2}, {"READ": 1, "WRITE": 2, "FAR": 12}, {"NONE": 0, "READ": 1, "WRITE": 2},
     {"READ": True, "WRITE": 2}, {"READ": 1, "FAR": 12}, {"READ": "1", "WRITE": 2}],
)  # fmt: skip
def test_names_that_do_not_make_the_bits_are_refused(names: dict[str, Any]) -> None:
    changed(tagged("enum", f"{__name__}:Access", b=3, n=names))


@pytest.mark.parametrize("names", [[1], "READ", ["READ"]])
def test_names_that_are_no_names_are_damage(names: Any) -> None:
    with pytest.raises(Tampered):
        decode(json.dumps(tagged("enum", f"{__name__}:Access", b=1, n=names)).encode())


def test_an_integer_flag_is_stored_with_its_names_and_its_unnamed_bits() -> None:
    for value in (samples.Bits(9), samples.Bits.ONE | samples.Bits.TWO, ~samples.Bits.ONE, samples.Bits(-9)):
        assert decode(encode(value)) is value
    assert encode(samples.Bits(9)).endswith(b'"b":9,"n":{"ONE":1}}')


def test_no_missing_hook_of_an_enum_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = encode(Rights.READ | Rights.WRITE)

    class Hooked(enum.Flag):
        READ = 1

        @classmethod
        def _missing_(cls, value: object) -> Any:
            raise AssertionError("user code ran")

    swap(monkeypatch, "Rights", Hooked)
    assert gone(stored).code == "class_changed"


def test_a_cache_of_bytes_as_class_name_is_damage_and_not_a_class() -> None:
    with pytest.raises(Tampered):
        decode(b'{"$arl":"dataclass","t":5,"f":{}}')
    assert isinstance(Plain(), Plain)
