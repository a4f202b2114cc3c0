"""The classes of the golden values; their names and fields are stored in the files beside and never change."""

from __future__ import annotations

import collections
import dataclasses
import enum
from typing import Any, Generic, NamedTuple, TypeVar

import pydantic

T = TypeVar("T")


@dataclasses.dataclass
class Order:
    id: int
    tags: tuple[str, ...] = ()
    total: float = dataclasses.field(init=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    name: str


class Colour(enum.Enum):
    RED = 1
    OTHER = object()


class Mode(enum.StrEnum):
    FAST = "fast"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Access(enum.Flag, boundary=enum.KEEP):
    NONE = 0
    READ = 1
    WRITE = 2
    BOTH = 3
    FAR = 12


class Pair(NamedTuple):
    left: Any
    right: Any


Triple = collections.namedtuple("Triple", "x y z")


class ToolError(Exception):
    def __init__(self, *, tool: str) -> None:
        super().__init__(f"{tool} failed")
        self.tool = tool


class User(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    name: str
    age: int = 0
    _seen: Any = pydantic.PrivateAttr(default=1)


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]


class Names(pydantic.RootModel[list[str]]):
    pass


class Link(pydantic.BaseModel):
    url: pydantic.HttpUrl


def made_order() -> Order:
    order = Order(1, ("a",))
    order.total = 9.5
    return order


def noted(error: Exception) -> Exception:
    error.add_note("n")
    return error
