"""Classes and values that the tests of the codecs store, importable by name as a program's own classes are."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import math
import pathlib
import uuid
import zoneinfo
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mode(enum.StrEnum):
    FAST = "fast"
    SLOW = "slow"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Bits(enum.IntFlag):
    ONE = 1
    TWO = 2


class Behaviour(enum.Enum):
    """Its values have no stored form: the name alone must do."""

    FIRST = object()
    SECOND = iter(())


class Pair(NamedTuple):
    left: object
    right: object = None


Triple = collections.namedtuple("Triple", "x y z")


class Greedy(Pair):
    """A namedtuple that lies about its items."""

    def __iter__(self) -> Any:
        raise AssertionError("user code ran")

    def __len__(self) -> int:
        raise AssertionError("user code ran")


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0
    kept: list[Any] = dataclasses.field(default_factory=list)
    late: int = dataclasses.field(init=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    name: str
    size: int = dataclasses.field(init=False, default=7)


@dataclasses.dataclass(slots=True)
class SlottedChild(Point):
    more: str = "m"


@dataclasses.dataclass(eq=False)
class ByIdentity:
    n: int


@dataclasses.dataclass
class Guarded:
    """Everything that could run while a value is restored refuses to."""

    n: int
    armed = False

    def __new__(cls, *args: object, **kwargs: object) -> Guarded:
        if cls.armed:
            raise AssertionError("__new__ ran")
        return object.__new__(cls)

    def __post_init__(self) -> None:
        if self.armed:
            raise AssertionError("__post_init__ ran")

    def __setattr__(self, name: str, value: object) -> None:
        if self.armed:
            raise AssertionError("__setattr__ ran")
        object.__setattr__(self, name, value)

    def __getattribute__(self, name: str) -> Any:
        if type(self).armed and not name.startswith("__"):
            raise AssertionError("__getattribute__ ran")
        return object.__getattribute__(self, name)


@dataclasses.dataclass
class Caching:
    n: int

    @cached_property
    def double(self) -> int:
        return 2 * self.n


@dataclasses.dataclass
class Boxed(Generic[T]):
    content: T


@dataclasses.dataclass
class DictWithFields(dict):  # type: ignore[type-arg]
    n: int = 0


class ToolError(Exception):
    """An exception with a constructor that cannot be guessed."""

    def __init__(self, *, tool: str, status: int) -> None:
        super().__init__(f"{tool} failed with {status}")
        self.tool = tool
        self.status = status


class StatusError(OSError):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(status, reason)
        self.status = status


class SlottedError(ValueError):
    __slots__ = ("where",)

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self.where = where


class Plain:
    """A class without a stored form."""

    def __init__(self, **attributes: object) -> None:
        vars(self).update(attributes)


class Outer:
    @dataclasses.dataclass
    class Inner:
        n: int


class MyDict(dict):  # type: ignore[type-arg]
    pass


class MyList(list):  # type: ignore[type-arg]
    pass


class MyStr(str):
    __slots__ = ()


class MyInt(int):
    pass


def made_point() -> Point:
    point = Point(1, y=2, kept=[(1,), {2}])
    point.late = 3
    return point


def noted(error: BaseException, *notes: str) -> BaseException:
    for note in notes:
        error.add_note(note)
    return error


PARIS = zoneinfo.ZoneInfo("Europe/Paris")
UTC = dt.UTC

PLAIN: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2**53 - 1,
    -(2**53) + 1,
    0.0,
    1.0,
    1e308,
    5e-324,
    0.1,
    "",
    "text",
    "é€😀\u2028\x00\x7f",
    [],
    {},
    [[], {}, [None]],
    {"b": 1, "a": [1, 1.0, True, None, "1"], "é": {"": 0}},
]

TAGGED: list[Any] = [
    2**53,
    -(2**53),
    10**5000,
    -0.0,
    math.nan,
    math.inf,
    -math.inf,
    "lone \ud800 surrogate",
    "\udfff",
    [2**64, -0.0],
    {"$arl": "dict"},
    {"a": {"$arl": 1, "b": 2}},
    {"\ud800": 1, "a": 2},
    {1: "a", None: "b", (1, 2): "c", "d": "e"},
    {True: 1, 2: 2, 3.5: 3, b"x": 4, Colour.RED: 5, frozenset({1}): 6},
    {1: {2: {3: {}}}},
    {math.nan: 1},
    {10**5000: {10**5000: {1}}},
    (),
    (1, (2, [3, (4,)])),
    set(),
    {1, "1", None, (1, 2), 2.5},
    {"b", "a", "c"},
    {math.nan},
    frozenset({1, frozenset({2})}),
    {ByIdentity(1)},
    b"",
    bytes(range(256)),
    bytearray(b"abc"),
    1 + 2j,
    complex(-0.0, math.inf),
    complex(math.nan, -0.0),
    dt.datetime(1, 1, 1),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
    dt.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=PARIS),
    dt.datetime(2024, 10, 27, 2, 30, tzinfo=UTC),
    dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=-5, microseconds=1), "odd")),
    dt.date(2024, 2, 29),
    dt.time(1, 2, 3, 4),
    dt.time(23, 59, fold=1, tzinfo=UTC),
    dt.timedelta(days=-1, seconds=1, microseconds=-1),
    dt.timedelta.max,
    UTC,
    dt.timezone(dt.timedelta(0), "zero"),
    PARIS,
    decimal.Decimal("1.10"),
    decimal.Decimal("-0E+7"),
    decimal.Decimal("NaN"),
    decimal.Decimal("-sNaN42"),
    decimal.Decimal("-Infinity"),
    decimal.Decimal("1." + "3" * 60),
    fractions.Fraction(-1, 3),
    fractions.Fraction(2**70, 3),
    uuid.UUID(int=5),
    uuid.UUID(int=6, is_safe=uuid.SafeUUID.safe),
    Colour.RED,
    Colour.BLUE,
    Level.HIGH,
    Mode.FAST,
    Rights.READ | Rights.WRITE,
    Rights(0),
    Bits.ONE | Bits.TWO,
    Behaviour.FIRST,
    pathlib.Path("/a/b"),
    pathlib.PurePosixPath("a/../b"),
    pathlib.PureWindowsPath("C:\\x\\y"),
    pathlib.Path("a\udc80b"),
    range(5),
    range(10, 0, -3),
    range(0, 2**70, 2**65),
    collections.OrderedDict([("b", 1), ("a", 2)]),
    collections.Counter("abca"),
    collections.Counter({"a": -1, (1,): 2}),
    collections.defaultdict(list, {1: [2]}),
    collections.defaultdict(None, {"a": 1}),
    collections.deque([1, (2,)]),
    collections.deque([1, 2], maxlen=2),
    Pair(1, (2,)),
    Triple(1, 2, [3]),
    Greedy(1, 2),
    made_point(),
    Point(1),
    Frozen("n"),
    SlottedChild(1, 2),
    ByIdentity(4),
    Guarded(5),
    Boxed((1, 2)),
    Outer.Inner(3),
    [Point(1), {"p": Frozen("x")}],
    ValueError("message", 1, (2,)),
    KeyError("k"),
    StopIteration(3),
    SystemExit(2),
    KeyboardInterrupt(),
    FileNotFoundError(2, "no such file", "name"),
    OSError(2, "renamed", "a", None, "b"),
    UnicodeDecodeError("utf-8", b"abc", 0, 1, "bad"),
    SyntaxError("bad", ("file", 1, 2, "text", 1, 3)),
    ImportError("no", name="n", path="p"),
    ExceptionGroup("group", [ValueError(1), ExceptionGroup("inner", [KeyError("x")])]),
    noted(RuntimeError("noted"), "first", "second"),
    ToolError(tool="search", status=503),
    StatusError(404, "not found"),
    SlottedError("here"),
]
"""Every kind of value that the standard library and a program's own classes bring."""


def label(value: object) -> str:
    """A short name for a parametrised test."""
    return type(value).__name__
