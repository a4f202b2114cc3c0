"""Pandas Series, DataFrame and Index with exact dtypes; loaded only where the program uses pandas."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from agent_run_ledger.codecs.families import pandas_arrays, pandas_scalars
from agent_run_ledger.codecs.families.pandas_arrays import column_members, column_values
from agent_run_ledger.codecs.forms import Body, Damaged, Form, Parts, class_of, named, text
from agent_run_ledger.codecs.refusal import segment_of

if TYPE_CHECKING:
    from agent_run_ledger.codecs.tagging import Writer
    from agent_run_ledger.codecs.untagging import Reader

np: Final[Any] = import_module("numpy")
pd: Final[Any] = import_module("pandas")

_PLAIN_INDEXES: Final[dict[type, str]] = {
    getattr(pd, name): name
    for name in ("Index", "CategoricalIndex", "DatetimeIndex", "TimedeltaIndex", "PeriodIndex", "IntervalIndex")
}
_RANGE: Final = "RangeIndex"
_MULTI: Final = "MultiIndex"


def owns_index(kind: type) -> bool:
    """Return whether `kind` is exactly one of pandas' own index classes."""
    return kind in _PLAIN_INDEXES or kind is pd.RangeIndex or kind is pd.MultiIndex


def _index_members(index: Any) -> tuple[str, dict[str, object]]:
    if type(index) is pd.RangeIndex:
        return _RANGE, {"start": index.start, "stop": index.stop, "step": index.step, "name": index.name}
    if type(index) is pd.MultiIndex:
        codes = [np.asarray(code) for code in index.codes]
        return _MULTI, {"levels": list(index.levels), "codes": codes, "names": list(index.names)}
    members = {**column_members(index), "name": index.name}
    frequency = getattr(index, "freqstr", None) if type(index) in (pd.DatetimeIndex, pd.TimedeltaIndex) else None
    if frequency is not None:
        members["freq"] = frequency
    return _PLAIN_INDEXES[type(index)], members


def _read_index(body: Body, take: Reader) -> Any:
    kind, members = text(body, "k"), take.named(named(body, "v"))
    if kind == _RANGE:
        return pd.RangeIndex(members["start"], members["stop"], members["step"], name=members["name"])
    if kind == _MULTI:
        names: Any = members["names"]
        return pd.MultiIndex(members["levels"], members["codes"], names=names, verify_integrity=True)
    values = column_values(members)
    index = pd.Index(values, dtype=values.dtype, name=members["name"])
    if "freq" in members:
        index = type(index)(index, freq=members["freq"])
    if _PLAIN_INDEXES.get(class_of(index)) != kind:
        raise Damaged(f"a {kind} became a {type(index).__name__}")
    return index


def _write_index(value: Any, put: Writer) -> Body:
    kind, members = _index_members(value)
    return {"k": kind, "v": put.table_members(members)}


def _index_parts(value: Any) -> Parts:
    return _parts(_index_members(value)[1])


def _equal_indexes(one: Any, other: Any) -> bool:
    return bool(one.equals(other) and one.dtype == other.dtype)


def owns_series(kind: type) -> bool:
    """Return whether `kind` is exactly pandas.Series."""
    return kind is pd.Series


def _series_members(value: Any) -> dict[str, object]:
    return {**column_members(value), "index": value.index, "name": value.name, **_labels(value)}


def _write_series(value: Any, put: Writer) -> Body:
    return {"v": put.table_members(_series_members(value))}


def _read_series(body: Body, take: Reader) -> Any:
    members = take.named(named(body, "v"))
    values = column_values(members)
    series = pd.Series(values, index=members["index"], dtype=values.dtype, name=members["name"])
    return _labelled(series, members)


def _series_parts(value: Any) -> Parts:
    return _parts(_series_members(value))


def owns_frame(kind: type) -> bool:
    """Return whether `kind` is exactly pandas.DataFrame."""
    return kind is pd.DataFrame


def _frame_members(value: Any) -> dict[str, object]:
    columns = [column_members(value.iloc[:, place]) for place in range(len(value.columns))]
    return {"columns": value.columns, "index": value.index, "values": columns, **_labels(value)}


def _write_frame(value: Any, put: Writer) -> Body:
    return {"v": put.table_members(_frame_members(value))}


def _read_frame(body: Body, take: Reader) -> Any:
    members = take.named(named(body, "v"))
    stored: Any = members["values"]
    columns = dict(enumerate(map(column_values, stored)))
    frame = pd.DataFrame(columns, index=members["index"])
    frame.columns = members["columns"]
    return _labelled(frame, members)


def _frame_parts(value: Any) -> Parts:
    return _parts(_frame_members(value))


def _equal_values(one: Any, other: Any) -> bool:
    return bool(one.equals(other))


def _labels(value: Any) -> dict[str, object]:
    labels: dict[str, object] = {}
    if value.attrs:
        labels["attrs"] = value.attrs
    if not value.flags.allows_duplicate_labels:
        labels["unique"] = True
    return labels


def _labelled(value: Any, members: dict[str, object]) -> Any:
    if "attrs" in members:
        value.attrs = members["attrs"]
    if "unique" in members:
        value.flags.allows_duplicate_labels = False
    return value


def _parts(members: dict[str, object]) -> Parts:
    return ((segment_of(name), item) for name, item in members.items())


INDEX: Final = Form(tag="pdindex", write=_write_index, read=_read_index, parts=_index_parts, equal=_equal_indexes)
SERIES: Final = Form(tag="series", write=_write_series, read=_read_series, parts=_series_parts, equal=_equal_values)
FRAME: Final = Form(tag="dataframe", write=_write_frame, read=_read_frame, parts=_frame_parts, equal=_equal_values)

FAMILIES: Final = (
    (owns_frame, FRAME),
    (owns_series, SERIES),
    (owns_index, INDEX),
    (pandas_arrays.owns, pandas_arrays.ARRAY),
    (pandas_scalars.owns, pandas_scalars.SCALAR),
)
