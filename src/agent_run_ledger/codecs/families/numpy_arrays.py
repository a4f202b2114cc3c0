"""NumPy arrays and scalars by dtype, shape and C-order bytes; loaded only where the program uses NumPy."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

from agent_run_ledger.codecs.families.scalars import from_base64, to_base64
from agent_run_ledger.codecs.forms import Body, Damaged, Form, Parts, array, class_of
from agent_run_ledger.codecs.refusal import Refusal, type_name, written_name

if TYPE_CHECKING:
    from agent_run_ledger.codecs.tagging import Writer
    from agent_run_ledger.codecs.untagging import Reader

np: Final[Any] = import_module("numpy")
_format: Final[Any] = import_module("numpy.lib.format")

_KINDS: Final = "biufcSUMm"
_TEXTS: Final[dict[Any, Any]] = {np.str_: str, np.bytes_: bytes}
_WIDEST: Final = {"f": 8, "c": 16}
"""Bytes per number; a wider float has padding bytes of any content and another width on the next machine."""


def owns_array(kind: type) -> bool:
    """Return whether `kind` is exactly numpy.ndarray; subclasses (matrix, masked, record arrays) hold more."""
    return kind is np.ndarray


def owns_scalar(kind: type) -> bool:
    """Return whether `kind` is one of NumPy's own scalar types but the structured and the object one."""
    return issubclass(kind, np.generic) and kind.__module__ == "numpy" and kind not in (np.void, np.object_)


def write_dtype(dtype: Any, kind: type) -> Any:
    """Return a dtype as the JSON of NumPy's `.npy` descriptor (numpy.lib.format); raise Refusal for unsafe ones."""
    _check_dtype(dtype, kind)
    return _as_json(_format.dtype_to_descr(dtype))


def read_dtype(stored: Any) -> Any:
    """Return the dtype of a stored descriptor; raise Damaged for one that we would not have written."""
    dtype = _format.descr_to_dtype(_from_json(stored))
    try:
        _check_dtype(dtype, np.ndarray)
    except Refusal as refusal:
        raise Damaged(refusal.reason) from refusal
    return dtype


def _check_dtype(dtype: Any, kind: type) -> None:
    if dtype.fields is not None:
        fields = [dtype.fields[written_name(name, kind)][0] for name in dtype.names]
        for field in fields:
            _check_dtype(field.base, kind)
        if sum(field.itemsize for field in fields) == dtype.itemsize:
            return
    elif _is_plain_dtype(dtype):
        return
    raise Refusal(f"the dtype {dtype} of a {type_name(kind)} has no stored form", kind=kind, hint="convert it first")


def _is_plain_dtype(dtype: Any) -> bool:
    """Return whether this is NumPy's own dtype (others reuse the kinds), without pointers or padding."""
    is_own = type(dtype).__module__ == "numpy.dtypes"
    return is_own and dtype.kind in _KINDS and dtype.itemsize <= _WIDEST.get(dtype.kind, dtype.itemsize)


def _as_json(descr: Any) -> Any:
    if isinstance(descr, str):
        return descr
    return [[name, _as_json(kind), *(list(shape) for shape in rest)] for name, kind, *rest in descr]


def _from_json(stored: Any) -> Any:
    if isinstance(stored, str):
        return stored
    return [(name, _from_json(kind), *(tuple(shape) for shape in rest)) for name, kind, *rest in stored]


def _write_array(value: Any, put: Writer) -> Body:
    dtype = write_dtype(value.dtype, class_of(value))
    return {"d": dtype, "s": list(value.shape), "v": to_base64(value.tobytes())}


def _read_array(body: Body, take: Reader) -> Any:
    dtype, shape = read_dtype(body["d"]), cast("list[int]", array(body, "s"))
    content = from_base64(body)
    if any(type(length) is not int or length < 0 for length in shape):
        raise Damaged("a shape is no list of lengths")
    # A bytearray, so that the restored array is as writable as the one recorded.
    value = np.ndarray(tuple(shape), dtype, buffer=bytearray(content))
    if value.nbytes != len(content):
        raise Damaged("the bytes of an array do not fill its shape")
    return value


def _array_parts(value: Any) -> Parts:
    return (".dtype", repr(value.dtype)), (".shape", value.shape), (".tobytes()", value.tobytes())


def _write_scalar(value: Any, put: Writer) -> Body:
    if type(value) in _TEXTS:  # NumPy drops zeros at the end of these wherever it makes one of an array
        python = _TEXTS[type(value)]
        return {"d": python.__name__, "v": put.node(python.__getitem__(value, slice(None)))}
    dtype = write_dtype(value.dtype, class_of(value))
    if value.dtype.kind in "fc" and not np.isfinite(value):
        put.note_non_finite(value)
    return {"d": dtype, "v": to_base64(value.tobytes())}


def _read_scalar(body: Body, take: Reader) -> Any:
    for kind, python in _TEXTS.items():
        if body["d"] == python.__name__:
            content = take.node(body["v"])
            if type(content) is not python:
                raise Damaged(f"no {python.__name__}")
            return kind(content)
    dtype, content = read_dtype(body["d"]), from_base64(body)
    if len(content) != dtype.itemsize:
        raise Damaged("the bytes of a scalar do not fill its dtype")
    return np.ndarray((), dtype, buffer=content)[()]


def _scalar_parts(value: Any) -> Parts:
    if type(value) in _TEXTS:
        return ((".item()", value[:]),)
    return (".dtype", repr(value.dtype)), (".tobytes()", value.tobytes())


ARRAY: Final = Form(tag="ndarray", write=_write_array, read=_read_array, parts=_array_parts)
SCALAR: Final = Form(tag="npscalar", write=_write_scalar, read=_read_scalar, parts=_scalar_parts)

FAMILIES: Final = ((owns_array, ARRAY), (owns_scalar, SCALAR))
