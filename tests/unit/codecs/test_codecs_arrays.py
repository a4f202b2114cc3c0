"""NumPy and pandas values come back with exact dtypes and indexes; what would not is refused."""

from __future__ import annotations

import collections
import datetime as dt
import json
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis.extra import numpy as npst

from agent_run_ledger.codecs import NotFinite, decode, encode, lookup, pack, value_digest
from agent_run_ledger.codecs.equality import difference
from agent_run_ledger.errors import ClassGone, Tampered, Unstorable
from tests.unit.codecs.samples import Plain

FRAME = pd.DataFrame(
    {
        "integers": np.array([1, 2], dtype="int8"),
        "floats": [1.5, np.nan],
        "texts": ["x", None],
        "moments": pd.to_datetime(["2024-01-01", "2024-06-01"]).tz_localize("Europe/Paris"),
        "kinds": pd.Categorical(["u", "v"], categories=["v", "u", "w"], ordered=True),
        "nullable": pd.array([1, None], dtype="Int64"),
        "objects": [[1, 2], {"k": (1,)}],
        "flags": pd.array([True, None], dtype="boolean"),
        "months": pd.period_range("2024-01", periods=2, freq="M"),
        "ranges": pd.interval_range(0, 2),
        "spans": pd.to_timedelta([1, 2], unit="s"),
        "reals": pd.array([1.5, None], dtype="Float64"),
        "strings": pd.array(["q", pd.NA], dtype="string"),
    },
    index=pd.Index(["r1", "r2"], name="row"),
)
FRAME.attrs = {"source": "x"}
MULTI = pd.MultiIndex.from_product([["a", "b"], [1, 2]], names=["x", None])

VALUES: list[Any] = [
    np.arange(6).reshape(2, 3), np.array([]), np.zeros((0, 3)), np.array(5), np.array(["a", "bc"]),
    np.array([b"x\0"]), np.array(["2024-01-01", "NaT"], dtype="M8[ns]"), np.array([1, 2], dtype=">i4"),
    np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    np.array([(1, [1, 2])], dtype=[("a", "i4"), ("b", "f8", (2,))]),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(10)[::2], np.array([1, np.nan, -0.0]),
    np.array([True, False]), np.float64(1.5), np.float32(0.1), np.float64("nan"), np.str_("abc"), np.str_(""),
    np.str_("a\0"), np.bytes_(b"a\0"), np.int8(3), np.uint64(2**64 - 1), np.bool_(True), np.datetime64("2024-01-01"),
    np.datetime64("NaT"), np.complex64(1j), np.timedelta64(3, "s"), np.float16(2),
    FRAME, FRAME.iloc[:0], pd.DataFrame(), pd.DataFrame(index=[1, 2]), pd.DataFrame([[1, 2]], columns=["a", "a"]),
    pd.DataFrame([[1, 2, 3, 4]], columns=MULTI), pd.DataFrame({("a", 1): [1]}), pd.DataFrame({1: [1], "b": [2]}),
    pd.Series([1, 2, 3]), pd.Series([1, 2], index=["a", "b"], name="n"), pd.Series([1.0], name=("t", 1)),
    pd.Series([True, 1, 1.0, np.nan, None, pd.NA, pd.NaT], dtype=object), pd.Series([], dtype="float32"),
    pd.Series([1], index=pd.Index([dt.date(2024, 1, 1)])), pd.Series(pd.date_range("2024-01-01", periods=3)),
    pd.Series([1, 2]).set_flags(allows_duplicate_labels=False), pd.Series([[1], [2, 3]]), pd.Series(["a", np.nan]),
    pd.date_range("2024-01-01", periods=3, freq="D"), pd.date_range("2024-01-01", periods=3, freq="h", tz="UTC"),
    pd.DatetimeIndex(["2024-01-01", "2024-01-05"]), pd.timedelta_range("1h", periods=3, freq="h"),
    pd.RangeIndex(0, 10, 2, name="r"), MULTI, pd.Index([1, "a", None]), pd.CategoricalIndex(["a", "b"]),
    pd.period_range("2024-01-01", periods=3, freq="W-SUN"), pd.interval_range(0, 3, closed="both"),
    pd.Index([], dtype="int64"),
    pd.Timestamp("2024-01-01"), pd.Timestamp("2024-01-01 12:00", tz="Europe/Paris"), pd.Timestamp(1, unit="ns"),
    pd.Timestamp("2024-10-27 02:30").tz_localize("Europe/Paris", ambiguous=True),
    pd.Timestamp("2024-10-27 02:30").tz_localize("Europe/Paris", ambiguous=False),
    pd.Timedelta(3, "s"), pd.NaT, pd.NA, pd.array([1, None], dtype="UInt8"), pd.array(["a", None], dtype="str"),
    {"frame": FRAME, (1,): np.arange(3), "pair": (pd.NaT, np.float64(2))},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_comes_back_with_its_dtype(value: Any) -> None:
    packed = pack(value, limit_bytes=1 << 20)
    restored: Any = packed.decoded
    assert type(restored) is type(value)
    assert difference(value, restored) is None
    assert encode(restored) == encode(value)
    if packed.finite:
        assert value_digest(value) == value_digest(restored) == packed.value_sha256


@given(npst.arrays(npst.scalar_dtypes(), npst.array_shapes(min_dims=0, min_side=0, max_side=3)))
def test_any_array_comes_back_byte_for_byte_or_is_refused(value: Any) -> None:
    if value.dtype.kind in "fc" and value.dtype.itemsize not in (2, 4, 8, 16 * (value.dtype.kind == "c")):
        with pytest.raises(Unstorable, match="dtype"):
            encode(value)
        return
    restored: Any = decode(encode(value))
    assert (restored.dtype, restored.shape, restored.tobytes()) == (value.dtype, value.shape, value.tobytes())
    assert restored.dtype.byteorder == value.dtype.byteorder


def test_pandas_itself_finds_a_restored_frame_equal() -> None:
    restored: Any = decode(encode(FRAME))
    pd.testing.assert_frame_equal(restored, FRAME, check_exact=True, check_flags=True)
    assert list(restored.dtypes) == list(FRAME.dtypes)
    assert restored.attrs == {"source": "x"}


def test_a_restored_index_keeps_its_frequency_and_its_class() -> None:
    days: Any = decode(encode(pd.date_range("2024-01-01", periods=3, freq="D")))
    assert days.freqstr == "D"
    assert type(decode(encode(pd.DataFrame({"a": [1]}))).index) is pd.RangeIndex  # type: ignore[attr-defined]


def test_a_restored_array_can_be_written_to() -> None:
    restored: Any = decode(encode(np.arange(3)))
    restored[0] = 9
    assert restored[0] == 9


def test_missing_values_in_tables_have_a_digest_and_loose_ones_do_not() -> None:
    assert pack(FRAME, limit_bytes=1 << 20).finite
    assert value_digest(pd.Series(["a", np.nan], dtype=object)) == value_digest(pd.Series(["a", np.nan], dtype=object))
    assert pack([np.array([np.nan])], limit_bytes=1000).finite
    for loose in (np.float64("nan"), [np.float32("inf")], np.complex128(complex(0, np.inf))):
        with pytest.raises(NotFinite):
            value_digest(loose)
    with pytest.raises(NotFinite):
        value_digest([pd.Series([1.5, np.nan]), float("nan")])


def test_nan_beside_a_table_makes_a_result_not_finite() -> None:
    assert not pack([float("nan"), FRAME], limit_bytes=1 << 20).finite
    assert not pack([FRAME, float("nan")], limit_bytes=1 << 20).finite


@pytest.mark.parametrize(
    "value",
    [
        np.array([object()]), np.array([1, "a"], dtype=object), np.longdouble(1), np.ones(2, np.longdouble),
        np.ones(1, np.clongdouble), np.array(["a"], dtype=np.dtypes.StringDType()), np.arange(2).view(np.matrix),
        np.ma.array([1]),
        np.array([(1, 2)], dtype=np.dtype([("a", "i1"), ("b", "i4")], align=True)), np.rec.array([(1, 2)]),
        np.array([(1, 2)], dtype=[("a", "i1"), ("b", "i4")])[0], np.array([(1, None)], dtype=[("a", "i1"), ("b", "O")]),
        pd.Series(pd.arrays.SparseArray([1, 0])), pd.Series([Plain()]), np.random.default_rng(1), np.dtype("i4"),
        pd.Series([1, 2]).groupby([1, 2]), pd.offsets.Day(), np.lib.stride_tricks.as_strided,
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_has_no_exact_form_is_refused(value: Any) -> None:
    with pytest.raises(Unstorable):
        pack(value, limit_bytes=1 << 20)


def test_a_structure_with_gaps_is_refused_when_it_is_written() -> None:
    gaps = np.dtype([("a", "i1"), ("b", "i4")], align=True)
    with pytest.raises(Unstorable, match="the dtype"):
        encode(np.zeros(1, gaps))


def test_a_restored_table_still_forbids_duplicate_labels() -> None:
    strict = pd.DataFrame({"a": [1]}).set_flags(allows_duplicate_labels=False)
    assert decode(encode(strict)).flags.allows_duplicate_labels is False  # type: ignore[attr-defined]
    assert decode(encode(strict["a"])).flags.allows_duplicate_labels is False  # type: ignore[attr-defined]


def test_a_subclass_of_a_frame_is_refused() -> None:
    class Special(pd.DataFrame):
        pass

    with pytest.raises(Unstorable, match="Special"):
        encode([Special({"a": [1]})])


def test_a_part_of_a_frame_is_named_by_path() -> None:
    with pytest.raises(Unstorable) as caught:
        encode({"f": pd.DataFrame({"a": [1], "b": [Plain()]})})
    assert caught.value.path == "$.f.values[1].objects[0]"


def test_attributes_without_a_stored_form_are_refused() -> None:
    series = pd.Series([1])
    series.attrs["client"] = Plain()
    with pytest.raises(Unstorable) as caught:
        encode(series)
    assert caught.value.path == "$.attrs.client"


@pytest.mark.parametrize(
    "body",
    [
        {"d": "|O", "s": [1], "v": "AAAAAAAAAAA="}, {"d": "<i8", "s": [2], "v": "AAAAAAAAAAA="},
        {"d": "<i8", "s": [1], "v": "AAAAAAAAAAAAAAAAAAAAAA=="}, {"d": "<i8", "s": [-1], "v": ""},
        {"d": "<i8", "s": [10**12], "v": ""}, {"d": "<i8", "s": [1.0], "v": "AAAAAAAAAAA="}, {"d": 5, "s": [], "v": ""},
        {"d": [["a", "|O"]], "s": [1], "v": "AAAAAAAAAAA="}, {"d": "os.system", "s": [1], "v": ""}, {"s": [1], "v": ""},
    ],
)  # fmt: skip
def test_damaged_arrays_are_found(body: dict[str, Any]) -> None:
    with pytest.raises(Tampered):
        decode(json.dumps({"$arl": "ndarray", **body}).encode())
    with pytest.raises(Tampered):
        decode(json.dumps({"$arl": "npscalar", "d": body.get("d"), "v": "AA=="}).encode())


def test_a_library_that_cannot_be_imported_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = encode([np.arange(3)])
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(ClassGone, match="numpy"):
        decode(stored)


def test_a_column_that_needs_another_library_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: Any, **kwargs: Any) -> Any:
        raise ImportError("pyarrow is not here")

    monkeypatch.setattr(pd, "array", missing)
    with pytest.raises(ClassGone, match="pyarrow"):
        decode(b'{"$arl":"pdarray","k":"string","v":{"storage":"pyarrow","missing":"NA","texts":[]}}')


@pytest.mark.parametrize("error", [ImportError, AttributeError])
def test_a_stand_in_for_a_library_does_not_break_other_values(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(module: str) -> Any:
        raise error("a stand-in has no such thing")

    monkeypatch.setattr(lookup, "_load_families", broken)
    assert decode(encode(collections.OrderedDict(a=(1,)))) == {"a": (1,)}
    with pytest.raises(Unstorable):
        encode(np.arange(3))
    with pytest.raises(ClassGone, match="another version of numpy"):
        decode(b'{"$arl":"ndarray","d":"<i8","s":[0],"v":""}')


def test_a_field_name_with_a_lone_surrogate_is_refused() -> None:
    value = np.zeros(1, dtype=[("a\ud800", "<i4")])
    with pytest.raises(Unstorable) as caught:
        encode({"a": [value]})
    assert caught.value.path == "$.a[0]"


def test_whole_floats_and_integers_in_columns_of_objects_are_told_apart() -> None:
    one, other = (pd.Series(["a", number], dtype=object) for number in (1, 1.0))
    assert value_digest(one) != value_digest(other)
    assert value_digest(pd.Series([1], name=1)) != value_digest(pd.Series([1], name=1.0))
    assert value_digest(np.float64(1)) != value_digest(1.0)
