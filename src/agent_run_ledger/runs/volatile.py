"""What in a value looks as if it were another at every start: a time, an id made at random, an address, a counter."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import PurePath
from typing import Any, Final, TypeAlias, cast
from uuid import UUID

from agent_run_ledger.runs.differences import entry_path

QUOTED_CHARACTERS: Final = 40
QUOTED_OF_AN_ID: Final = 8
"""So many of an id: it may be a secret, such as a key or a token of a session."""

MAX_PARTS: Final = 10_000
MAX_CHARACTERS: Final = 1_000_000

_NEAR: Final = timedelta(days=1, hours=14)
"""A day, and the widest offset from UTC: who wrote a time without a zone did not say which."""

_DAYS_AROUND: Final = (0, -1, 1)
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_CLOCK: Final = re.compile(r"(?<![\d:.])([01]?\d|2[0-3]):([0-5]\d)(?::[0-5]\d(?:[.,]\d+)?)?(?![\d:])")
_CLOCK_MINUTES: Final = 2
_EPOCH: Final = re.compile(r"(?<![\w.])(\d{10}|\d{13}|\d{16}|\d{19})(?:\.\d+)?(?!\w)")
_ADDRESS: Final = re.compile(r"<[^<>]{1,200} at 0x[0-9a-fA-F]{4,}>")
_UUID: Final = re.compile(r"(?<![0-9a-fA-F])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![0-9a-fA-F])")
_HEX: Final = re.compile(r"(?<![0-9a-zA-Z])(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,128}(?![0-9a-zA-Z])")
_TEMPORARY: Final = re.compile(r"(?<![0-9a-zA-Z])tmp[a-z0-9_]{8}(?![0-9a-zA-Z])")
_PID: Final = re.compile(r"\bpid\W{0,3}\d+\b", re.IGNORECASE)
_COUNTER: Final = re.compile(
    r"\b(?:attempt|try|retry|retries|restart|iteration|start|launch)"
    r"[ _]?(?:no\.? ?|nr\.? ?|number ?)?[#:=]? ?\d{1,9}\b",
    re.IGNORECASE,
)
_COUNTER_NAME: Final = re.compile(
    r"(?:^|_)(?:attempts?|try|tries|retry|retries|restarts?|iteration|counter|nonce|seed|pid)$", re.IGNORECASE
)
_RANDOM_DIGITS: Final = 14
_WIDE: Final = 2**64

Span: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Volatile:
    """Something that looks volatile. `looks_like` and `advice` are words for a message.

    `path`: the deepest part that holds it. `quote`: at most 40 characters of that part, as Python writes a string; of
    an id the first 8.
    """

    path: str
    looks_like: str
    quote: str
    advice: str


@dataclass(frozen=True, slots=True)
class _Kind:
    looks_like: str
    advice: str


_TIME: Final = _Kind("a time", "use run.now(), which is recorded")
_OBJECT: Final = _Kind("the address of an object", "pass an id instead")
_ID: Final = _Kind("a UUID", "use run.uuid4(), which is recorded")
_RANDOM_ID: Final = _Kind(
    "an id made at random", "use run.uuid4(), or make it in run.value(name, fn), which is recorded"
)
_FILE: Final = _Kind("the name of a temporary file", "pass its content, or make the name in run.value(name, fn)")
_PROCESS: Final = _Kind("a process id", "leave it out, or read it in run.value(name, fn), which is recorded")
_NUMBER: Final = _Kind("a random number", "use run.random(), or make it in run.value(name, fn), which is recorded")
_COUNT: Final = _Kind("a counter", "count within the run, or read it in run.value(name, fn), which is recorded")
_IDS: Final = (_ID, _RANDOM_ID)
_ORDER: Final = (_TIME, _OBJECT, _ID, _FILE, _RANDOM_ID, _PROCESS, _NUMBER, _COUNT)
"""Where a value holds several, the one that says most comes first."""


def find_volatile(value: object, path: str, now: datetime) -> Volatile | None:
    """Return what looks volatile in a value that stands at `path`, or None; of several things the most telling one.

    `now` is aware: a time counts when it is near. Of a value with more than 10,000 parts or a million characters the
    first ones are looked at. Runs no code of a value but `str` of a path and what a dataclass does for an attribute.
    """
    look = _Look(now)
    found: tuple[int, Volatile] | None = None
    characters = 0
    for place, part in _parts(value, path):
        for kind, quote in look.at(part, place):
            rank = _ORDER.index(kind)
            if found is None or rank < found[0]:
                found = rank, Volatile(path=place, looks_like=kind.looks_like, quote=quote, advice=kind.advice)
        characters += len(part) if isinstance(part, str) else 0
        if (found is not None and found[0] == 0) or characters > MAX_CHARACTERS:
            break
    return None if found is None else found[1]


class _Look:
    """The look at one part at a time, with the texts that say a day near `now`."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._day = _day_pattern(now.astimezone(UTC).date())
        self._texts: tuple[tuple[_Kind, Callable[[str], Span | None]], ...] = (
            (_TIME, self._day_or_epoch),
            (_OBJECT, _search(_ADDRESS)),
            (_ID, _search(_UUID)),
            (_FILE, _search(_TEMPORARY)),
            (_TIME, self._clock),
            (_RANDOM_ID, _search(_HEX)),
            (_PROCESS, _search(_PID)),
            (_COUNT, _search(_COUNTER)),
        )

    def at(self, part: object, place: str) -> Iterator[tuple[_Kind, str]]:
        """Yield what a part looks like, with what to quote of it."""
        if isinstance(part, str):
            text = part[:MAX_CHARACTERS]
            for kind, search in self._texts:
                span = search(text)
                if span is not None:
                    yield kind, _quote_id(text[slice(*span)]) if kind in _IDS else _quote(text, *span)
                    return
            return
        seen = self._of_value(part, place)
        if seen is not None:
            yield seen, _quote_id(str(part)) if seen in _IDS else repr(str(part)[:QUOTED_CHARACTERS])

    def _of_value(self, part: object, place: str) -> _Kind | None:
        if isinstance(part, datetime):
            moment = part if part.tzinfo is not None else part.replace(tzinfo=UTC)
            return _TIME if abs(moment - self._now) <= _NEAR else None
        if isinstance(part, date):
            return _TIME if abs((part - self._now.astimezone(UTC).date()).days) <= 1 else None
        if isinstance(part, UUID):
            return _ID
        if isinstance(part, bool) or not isinstance(part, int | float) or not abs(part) < _WIDE:
            return None  # NaN neither
        if self._is_epoch(part):
            return _TIME
        if isinstance(part, float):
            return _NUMBER if 0 < part < 1 and len(repr(part)) > _RANDOM_DIGITS else None
        if part == os.getpid():
            return _PROCESS
        return _COUNT if _COUNTER_NAME.search(place.rsplit(".", 1)[-1]) else None

    def _is_epoch(self, number: float) -> bool:
        """Return whether a number of seconds, milli-, micro- or nanoseconds since 1970 is near now."""
        now_s = self._now.timestamp()
        return any(abs(number / unit - now_s) <= _NEAR.total_seconds() for unit in (1, 10**3, 10**6, 10**9))

    def _day_or_epoch(self, text: str) -> Span | None:
        day = self._day.search(text)
        if day is not None:
            return day.span()
        return next((one.span() for one in _EPOCH.finditer(text) if self._is_epoch(float(one[0]))), None)

    def _clock(self, text: str) -> Span | None:
        """Find a time of day that is now, in a zone that is a whole or half number of hours away."""
        for one in _CLOCK.finditer(text):
            apart = (int(one[2]) - self._now.minute) % 30
            if min(apart, 30 - apart) <= _CLOCK_MINUTES:
                return one.span()
        return None


def _day_pattern(today: date) -> re.Pattern[str]:
    """Return the pattern of today, yesterday and tomorrow as they are commonly written, with a time of day after it."""
    texts: list[str] = []
    for days in _DAYS_AROUND:
        day = today + timedelta(days=days)
        y, m, d = day.year, day.month, day.day
        name = rf"{_MONTHS[m - 1][:3]}(?:{_MONTHS[m - 1][3:]}|\.)?"
        texts += [rf"{y}-{m:02}-{d:02}", rf"{y}/{m:02}/{d:02}", rf"{y}{m:02}{d:02}(?:T\d{{6}})?"]
        texts += [rf"0?{d}[./-]0?{m}[./-]{y}", rf"0?{m}[./-]0?{d}[./-]{y}"]
        texts += [rf"{name} 0?{d}(?:st|nd|rd|th)?,? {y}", rf"0?{d}(?:st|nd|rd|th)?[ -]{name}[ -],?{y}"]
        texts += [rf"{name} [ 0]?{d} \d\d:\d\d:\d\d"]
    clock = r"(?:[T ,]{1,3}(?:at )?\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?)?"
    return re.compile(rf"(?<![\w.])(?:{'|'.join(texts)}){clock}(?!\d)", re.IGNORECASE)


def _search(pattern: re.Pattern[str]) -> Callable[[str], Span | None]:
    def search(text: str) -> Span | None:
        found = pattern.search(text)
        return None if found is None else found.span()

    return search


def _quote(text: str, start: int, end: int) -> str:
    """Return at most 40 characters around a span."""
    spare = max(0, QUOTED_CHARACTERS - (end - start))
    first = max(0, min(start - spare // 2, len(text) - QUOTED_CHARACTERS))
    return repr(text[min(first, start) :][:QUOTED_CHARACTERS])


def _quote_id(text: str) -> str:
    return repr(text if len(text) <= QUOTED_OF_AN_ID else f"{text[:QUOTED_OF_AN_ID]}…")


def _parts(value: object, path: str) -> Iterator[tuple[str, object]]:
    """Yield the leaves of a value with their paths, in order; the attributes of an instance are parts of it."""
    stack: list[tuple[str, object]] = [(path, value)]
    for _ in range(MAX_PARTS):
        if not stack:
            return
        place, part = stack.pop()
        below = list(_children(part, place))
        if not below:
            yield place, str(part) if isinstance(part, PurePath) else part
        if isinstance(part, Mapping):
            yield from ((place, key) for key in list(cast("Mapping[object, object]", part))[:MAX_PARTS])
        stack.extend(reversed(below))


def _children(part: object, place: str) -> Iterator[tuple[str, object]]:
    if isinstance(part, Mapping):
        entries = cast("Mapping[object, object]", part)
        yield from ((entry_path(place, key), entries[key]) for key in entries)
    elif isinstance(part, list | tuple):
        yield from ((f"{place}[{at}]", one) for at, one in enumerate(cast("Sequence[object]", part)))
    elif isinstance(part, set | frozenset):
        yield from ((place, one) for one in cast("set[object]", part))
    elif dataclasses.is_dataclass(part) and not isinstance(part, type):
        yield from ((f"{place}.{field.name}", getattr(part, field.name, None)) for field in dataclasses.fields(part))
    elif not isinstance(part, str | bytes | int | float | date | UUID | PurePath | type):
        attributes: Any = getattr(part, "__dict__", None)
        if type(attributes) is dict:
            yield from ((entry_path(place, name), one) for name, one in cast("dict[str, object]", attributes).items())
