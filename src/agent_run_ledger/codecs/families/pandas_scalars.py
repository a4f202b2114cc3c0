"""The scalars of pandas: Timestamp and Timedelta with their unit, NaT and NA."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from agent_run_ledger.codecs.forms import Body, Damaged, Form, Parts, text

if TYPE_CHECKING:
    from agent_run_ledger.codecs.tagging import Writer
    from agent_run_ledger.codecs.untagging import Reader

pd: Final[Any] = import_module("pandas")

_SINGLES: Final[dict[str, Any]] = {"NaT": pd.NaT, "NA": pd.NA}
_KINDS: Final[dict[type, str]] = {
    pd.Timestamp: "Timestamp",
    pd.Timedelta: "Timedelta",
    **{type(single): name for name, single in _SINGLES.items()},
}


def owns(kind: type) -> bool:
    """Return whether `kind` is exactly Timestamp, Timedelta, or the class of NaT or NA."""
    return kind in _KINDS


def _write(value: Any, put: Writer) -> Body:
    kind = _KINDS[type(value)]
    if kind in _SINGLES:
        return {"k": kind}
    body: Body = {"k": kind, "v": put.node(value.asm8)}
    if getattr(value, "tzinfo", None) is not None:
        body["tz"] = put.attribute("tzinfo", value.tzinfo)
    return body


def _read(body: Body, take: Reader) -> Any:
    kind = text(body, "k")
    if kind in _SINGLES:
        return _SINGLES[kind]
    moment = take.node(body["v"])
    if kind == "Timedelta":
        return pd.Timedelta(moment)
    if kind != "Timestamp":
        raise Damaged(f"no scalar {kind!r}")
    value = pd.Timestamp(moment)
    return value.tz_localize("UTC").tz_convert(take.node(body["tz"])) if "tz" in body else value


def _parts(value: Any) -> Parts:
    yield ".asm8", getattr(value, "asm8", None)
    yield ".tzinfo", getattr(value, "tzinfo", None)
    yield ".fold", getattr(value, "fold", None)


SCALAR: Final = Form(tag="pdscalar", write=_write, read=_read, parts=_parts)
