"""The columns of pandas: NumPy and object columns, and the extension arrays whose parts are public."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from agent_run_ledger.codecs.forms import Body, Form, Parts, class_of, named, text
from agent_run_ledger.codecs.refusal import Refusal, segment_of

if TYPE_CHECKING:
    from agent_run_ledger.codecs.tagging import Writer
    from agent_run_ledger.codecs.untagging import Reader

np: Final[Any] = import_module("numpy")
pd: Final[Any] = import_module("pandas")

_MASKED: Final[dict[type, Any]] = {
    **{getattr(pd, f"Int{bits}Dtype"): pd.arrays.IntegerArray for bits in (8, 16, 32, 64)},
    **{getattr(pd, f"UInt{bits}Dtype"): pd.arrays.IntegerArray for bits in (8, 16, 32, 64)},
    **{getattr(pd, f"Float{bits}Dtype"): pd.arrays.FloatingArray for bits in (32, 64)},
    pd.BooleanDtype: pd.arrays.BooleanArray,
}


def column_members(column: Any) -> dict[str, object]:
    """Return what is in a Series or Index under "objects" or "values": a list, a NumPy or an extension array."""
    if not isinstance(column.dtype, np.dtype):
        return {"values": column.array}
    plain = column.to_numpy()
    return {"objects": list(plain)} if plain.dtype == object else {"values": plain}


def column_values(members: Any) -> Any:
    """Return what pandas makes a column of, from `column_members` as restored."""
    if "objects" not in members:
        return members["values"]
    values = np.empty(len(members["objects"]), dtype=object)
    for place, item in enumerate(members["objects"]):  # assigning all at once would unpack lists
        values[place] = item
    return values


def owns(kind: type) -> bool:
    """Return whether `kind` is an extension array class of pandas itself."""
    return issubclass(kind, pd.api.extensions.ExtensionArray) and kind.__module__.partition(".")[0] == "pandas"


def _apart(values: Any) -> tuple[str, dict[str, object]]:
    """Return what kind of array this is, and values that together are all of it."""
    dtype = values.dtype
    if isinstance(dtype, pd.StringDtype):
        missing = "NA" if dtype.na_value is pd.NA else "nan"
        texts = [None if absent else text for text, absent in zip(values, values.isna(), strict=True)]
        return "string", {"storage": dtype.storage, "missing": missing, "texts": texts}
    if isinstance(dtype, pd.CategoricalDtype):
        return "categorical", {"codes": values.codes, "categories": values.categories, "ordered": values.ordered}
    if isinstance(dtype, pd.DatetimeTZDtype):
        utc = np.asarray(values.astype(f"datetime64[{dtype.unit}, UTC]").tz_localize(None))
        return "datetimetz", {"utc": utc, "tz": dtype.tz}
    if isinstance(dtype, pd.PeriodDtype):
        return "period", {"ordinals": values.view("i8"), "freq": dtype.name.removeprefix("period[").removesuffix("]")}
    if isinstance(dtype, pd.IntervalDtype):
        return "interval", {"left": values.left, "right": values.right, "closed": values.closed}
    if type(dtype) in _MASKED:
        mask = np.asarray(values.isna(), dtype=bool)
        plain = values.to_numpy(dtype=dtype.numpy_dtype, na_value=dtype.numpy_dtype.type(0))
        return "masked", {"mask": mask, "values": plain, "dtype": dtype.name}
    raise Refusal(
        f"a pandas column of dtype {dtype} has no stored form", kind=class_of(values), hint="convert it first"
    )


def _together(kind: str, parts: Any) -> Any:
    if kind == "string":
        missing = pd.NA if parts["missing"] == "NA" else np.nan
        return pd.array(parts["texts"], dtype=pd.StringDtype(parts["storage"], na_value=missing))
    if kind == "categorical":
        return pd.Categorical.from_codes(parts["codes"], parts["categories"], ordered=parts["ordered"])
    if kind == "datetimetz":
        return pd.DatetimeIndex(parts["utc"]).tz_localize("UTC").tz_convert(parts["tz"]).array
    if kind == "period":
        return pd.arrays.PeriodArray(parts["ordinals"], dtype=pd.PeriodDtype(parts["freq"]))
    if kind == "interval":
        return pd.arrays.IntervalArray.from_arrays(parts["left"], parts["right"], closed=parts["closed"])
    if kind == "masked":
        dtypes = {dtype().name: array for dtype, array in _MASKED.items()}
        return dtypes[parts["dtype"]](parts["values"], parts["mask"])
    raise KeyError(kind)


def _write(value: Any, put: Writer) -> Body:
    kind, parts = _apart(value)
    return {"k": kind, "v": put.table_members(parts)}


def _read(body: Body, take: Reader) -> Any:
    return _together(text(body, "k"), take.named(named(body, "v")))


def _parts(value: Any) -> Parts:
    return ((segment_of(name), item) for name, item in _apart(value)[1].items())


def _equal(one: Any, other: Any) -> bool:
    return bool(one.dtype == other.dtype and one.equals(other))


ARRAY: Final = Form(tag="pdarray", write=_write, read=_read, parts=_parts, equal=_equal)
