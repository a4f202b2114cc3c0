"""An annotation is refused only where it is certain that no value of it can be stored."""

from __future__ import annotations

import abc
import array
import asyncio
import collections.abc as cabc
import concurrent.futures
import csv
import dataclasses
import inspect
import io
import itertools
import pathlib
import queue
import socket
import sqlite3
import subprocess
import sys
import threading
import types
import typing
import weakref
from typing import Annotated, Any, NewType

import numpy as np
import pandas as pd
import pydantic
import pytest

from agent_run_ledger.codecs import refused_annotation, registry
from tests.unit.codecs.samples import Colour, MyDict, Plain, Point

REFUSED: list[tuple[Any, str]] = [
    (io.IOBase, "file"), (io.TextIOWrapper, "file"), (io.BytesIO, "file"), (typing.IO[str], "file"),
    (typing.TextIO, "file"), (typing.BinaryIO, "file"), (socket.socket, "socket"), (threading.Lock, "lock"),
    (type(threading.Lock()), "lock"), (threading.RLock, "lock"), (threading.Event, "lock"),
    (threading.Thread, "thread"),
    (types.ModuleType, "module"), (types.FunctionType, "function"), (types.MethodType, "function"),
    (types.BuiltinFunctionType, "function"), (typing.Callable, "function"), (typing.Callable[[int], str], "function"),
    (cabc.Callable, "function"), (cabc.Callable[..., int], "function"), (type, "class"), (type[int], "class"),
    (cabc.Coroutine, "coroutine"), (typing.Coroutine[None, None, int], "coroutine"), (types.CoroutineType, "coroutine"),
    (asyncio.Task, "task"), (asyncio.Task[int], "task"), (asyncio.Future, "task"), (asyncio.Lock, "lock"),
    (concurrent.futures.Future, "pending"), (sqlite3.Connection, "database"), (sqlite3.Cursor, "database"),
    (memoryview, "memory"), (map, "iterator"), (filter, "iterator"), (zip, "iterator"), (enumerate, "iterator"),
    (reversed, "iterator"), (itertools.chain, "iterator"), (itertools.count, "iterator"), (weakref.ref, "weak"),
    (subprocess.Popen, "process"), (queue.Queue, "queue"), (types.FrameType, "code"), (types.TracebackType, "code"),
    (Annotated[socket.socket, "x"], "socket"), (NewType("Sock", socket.socket), "socket"),
    (Annotated[typing.Callable[[], None], 1], "function"), (typing.Final[socket.socket], "socket"),
]  # fmt: skip

T = typing.TypeVar("T")
Bound = typing.TypeVar("Bound", bound=socket.socket)


class Shape(typing.Protocol):
    def draw(self) -> None: ...


class Base(abc.ABC):
    @abc.abstractmethod
    def made(self) -> None: ...


class Held(pydantic.BaseModel):
    n: int


ALLOWED: list[Any] = [
    None, type(None), inspect.Parameter.empty, int, str, bytes, dict, list[int], dict[str, Any], tuple[int, ...], Any,
    object, typing.Iterator[int], typing.Generator[int, None, None], cabc.AsyncIterator[int],
    cabc.AsyncGenerator[int, None],
    cabc.Iterator, cabc.Generator, types.GeneratorType, types.AsyncGeneratorType, cabc.Iterable[int],
    cabc.Awaitable[int],
    socket.socket | None, socket.socket | threading.Thread, T, Bound,
    "Missing", "socket.socket", typing.ForwardRef("socket.socket"), cabc.Hashable, cabc.Mapping[str, int], Shape,
    typing.Protocol, list[socket.socket], typing.Literal[1], typing.NoReturn, typing.Never, typing.Self, BaseException,
    Base, Point, Colour, Held, Plain, MyDict, pathlib.Path, np.ndarray, pd.DataFrame, 5, ..., [], {}, "",
    Annotated[int, 1],
    NewType("Number", int), dataclasses.InitVar[int], typing.ClassVar[int], array.array, csv.DictReader,
    typing.TypedDict,
    typing.NamedTuple, typing.Generic, typing.Annotated[T, 1], typing.Unpack, typing.LiteralString,
]  # fmt: skip


@pytest.mark.parametrize(("annotation", "reason"), REFUSED, ids=[str(annotation) for annotation, _ in REFUSED])
def test_what_can_never_be_stored_is_refused_with_its_reason(annotation: Any, reason: str) -> None:
    found = refused_annotation(annotation)
    assert found is not None
    assert reason in found
    assert "codec" in found


@pytest.mark.parametrize("annotation", ALLOWED, ids=str)
def test_what_may_be_stored_raises_no_alarm(annotation: Any) -> None:
    assert refused_annotation(annotation) is None


@pytest.mark.skipif(sys.version_info < (3, 12), reason="this platform has no type statement (Python 3.12)")
def test_a_type_alias_is_looked_through() -> None:
    scope: dict[str, Any] = {}
    exec("import socket\ntype A = socket.socket\ntype B = int", scope)
    assert refused_annotation(scope["A"]) is not None
    assert refused_annotation(scope["B"]) is None


def test_a_class_with_a_codec_raises_no_alarm_nor_does_its_base(monkeypatch: pytest.MonkeyPatch) -> None:
    class Special(socket.socket):
        pass

    assert refused_annotation(Special) is not None
    monkeypatch.setattr(registry, "_by_class", {Special: None})
    assert refused_annotation(Special) is None
    assert refused_annotation(socket.socket) is None
    assert refused_annotation(threading.Thread) is not None


def test_an_annotation_that_fails_when_looked_at_raises_no_alarm() -> None:
    class Meta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            raise RuntimeError("no")

        def __subclasscheck__(cls, subclass: type) -> bool:
            raise RuntimeError("no")

        def __getattr__(cls, name: str) -> Any:
            raise RuntimeError("no")

    assert refused_annotation(Meta("Odd", (), {})) is None
    assert refused_annotation(Meta("Odd", (), {})()) is None
