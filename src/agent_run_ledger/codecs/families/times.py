"""The datetime family with fold and time zone: none, a fixed offset, or a zone of the IANA database by key."""

from __future__ import annotations

import sys
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from agent_run_ledger.codecs.forms import Body, Damaged, Form, Parts, array, class_of, text, whole
from agent_run_ledger.codecs.refusal import Refusal
from agent_run_ledger.errors import ClassGone

if TYPE_CHECKING:
    from agent_run_ledger.codecs.tagging import Writer
    from agent_run_ledger.codecs.untagging import Reader

_T = TypeVar("_T")
_MICROSECONDS: Final = "microseconds"


def _write_moment(value: datetime | time, put: Writer) -> Body:
    body: Body = {"v": value.replace(tzinfo=None, fold=0).isoformat(timespec=_MICROSECONDS)}
    if value.fold:
        body["fold"] = value.fold
    if value.tzinfo is not None:
        body["tz"] = put.attribute("tzinfo", value.tzinfo)
    return body


def _moment_changes(body: Body, take: Reader) -> dict[str, Any]:
    zone = take.node(body["tz"]) if "tz" in body else None
    if zone is not None and not isinstance(zone, tzinfo):
        raise Damaged("a time zone is no time zone")
    return {"fold": whole(body, "fold") if "fold" in body else 0, "tzinfo": zone}


def _read_datetime(body: Body, take: Reader) -> datetime:
    naive = datetime.fromisoformat(text(body)).replace(tzinfo=None)
    return _exactly(naive, body, naive.isoformat(timespec=_MICROSECONDS)).replace(**_moment_changes(body, take))


def _read_time(body: Body, take: Reader) -> time:
    naive = time.fromisoformat(text(body)).replace(tzinfo=None)
    return _exactly(naive, body, naive.isoformat(timespec=_MICROSECONDS)).replace(**_moment_changes(body, take))


def _moment_parts(value: datetime | time) -> Parts:
    naive = value.replace(tzinfo=None, fold=0).isoformat(timespec=_MICROSECONDS)
    return (".isoformat()", naive), (".fold", value.fold), (".tzinfo", value.tzinfo)


def _write_date(value: date, put: Writer) -> Body:
    return {"v": value.isoformat()}


def _read_date(body: Body, take: Reader) -> date:
    value = date.fromisoformat(text(body))
    return _exactly(value, body, value.isoformat())


def _exactly(value: _T, body: Body, written: str) -> _T:
    """Return `value` where the stored text is the one way to write it; the library reads more forms than we write."""
    if body["v"] != written:
        raise Damaged("not in the form it is written in")
    return value


def _date_parts(value: date) -> Parts:
    return ((".toordinal()", value.toordinal()),)


def _write_timedelta(value: timedelta, put: Writer) -> Body:
    return {"v": [value.days, value.seconds, value.microseconds]}


def _read_timedelta(body: Body, take: Reader) -> timedelta:
    parts = array(body)
    if [type(part) for part in parts] != [int, int, int]:
        raise Damaged("a timedelta has three integers")
    days, seconds, microseconds = cast("list[int]", parts)
    return timedelta(days, seconds, microseconds)


def _timedelta_parts(value: timedelta) -> Parts:
    return (".days", value.days), (".seconds", value.seconds), (".microseconds", value.microseconds)


def _write_offset(value: timezone, put: Writer) -> Body:
    offset, *name = _offset_and_name(value)
    body = _write_timedelta(cast("timedelta", offset), put)
    return {**body, "n": put.attribute("tzname()", name[0])} if name else body


def _read_offset(body: Body, take: Reader) -> timezone:
    offset = _read_timedelta(body, take)
    return timezone(offset, cast("str", take.node(body["n"]))) if "n" in body else timezone(offset)


def _offset_and_name(value: timezone) -> tuple[object, ...]:
    # The only public way to tell a given name from the one that is made up from the offset.
    return cast("Any", value).__getinitargs__()  # type: ignore[no-any-return]


def _offset_parts(value: timezone) -> Parts:
    return ((f"[{index}]", part) for index, part in enumerate(_offset_and_name(value)))


def is_zone(kind: type) -> bool:
    """Return whether `kind` is exactly zoneinfo.ZoneInfo; a module that nobody loaded made no value."""
    return kind is getattr(sys.modules.get("zoneinfo"), "ZoneInfo", None)


def _write_zone(value: Any, put: Writer) -> Body:
    if type(value.key) is not str:
        raise Refusal(
            "a ZoneInfo without a key has no stored form", kind=class_of(value), hint="make it by its IANA name"
        )
    return {"v": value.key}


def _read_zone(body: Body, take: Reader) -> tzinfo:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    key = text(body)
    try:
        return ZoneInfo(key)
    except ZoneInfoNotFoundError as error:
        message = f"a stored value needs the time zone {key!r}, which this machine lacks"
        raise ClassGone(message, code="zone_gone", hint="install tzdata") from error


def _zone_parts(value: Any) -> Parts:
    return ((".key", value.key),)


EXACT: Final[dict[type, Form]] = {
    datetime: Form(tag="datetime", write=_write_moment, read=_read_datetime, parts=_moment_parts),
    date: Form(tag="date", write=_write_date, read=_read_date, parts=_date_parts),
    time: Form(tag="time", write=_write_moment, read=_read_time, parts=_moment_parts),
    timedelta: Form(tag="timedelta", write=_write_timedelta, read=_read_timedelta, parts=_timedelta_parts),
    timezone: Form(tag="timezone", write=_write_offset, read=_read_offset, parts=_offset_parts),
}

ZONE: Final = Form(tag="zoneinfo", write=_write_zone, read=_read_zone, parts=_zone_parts)
