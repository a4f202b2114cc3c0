"""Tells from a return annotation, before anything is paid for, that the result cannot be stored."""

from __future__ import annotations

import collections.abc
import io
import sys
import threading
import types
import typing
from typing import Any, Final, cast

from agent_run_ledger.codecs.refusal import type_name
from agent_run_ledger.codecs.registry import registered_classes

_REFUSED: Final[tuple[tuple[str, tuple[type, ...]], ...]] = (
    ("an open file", (io.IOBase,)),
    ("a module", (types.ModuleType,)),
    (
        "a function",
        (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType, types.LambdaType),
    ),
    ("a class", (type,)),
    ("a coroutine", (types.CoroutineType,)),
    ("a view of memory", (memoryview,)),
    ("a stack or code object", (types.FrameType, types.TracebackType, types.CodeType)),
    ("an iterator that can be read once", (map, filter, zip, enumerate, reversed)),
)
_REFUSED_ABSTRACT: Final[tuple[tuple[str, tuple[object, ...]], ...]] = (
    ("a function", (cast("object", collections.abc.Callable),)),
    ("a coroutine", (collections.abc.Coroutine,)),
)
# Only what the program has imported can be annotated, so nothing is imported to look at an annotation.
_REFUSED_BY_NAME: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    ("a socket", "socket", ("socket",)),
    ("a lock or thread", "_thread", ("lock", "LockType", "RLock")),
    ("a lock or thread", "threading", ("Thread", "Event", "Condition", "Semaphore", "Barrier", "local")),
    ("a lock or task", "asyncio", ("Future", "Task", "Lock", "Event", "Condition", "Semaphore", "Queue")),
    ("a pending result", "concurrent.futures", ("Future", "Executor")),
    ("a process", "subprocess", ("Popen",)),
    ("a process", "multiprocessing.process", ("BaseProcess",)),
    ("a database connection", "sqlite3", ("Connection", "Cursor", "Blob")),
    ("a database connection", "apsw", ("Connection", "Cursor", "Blob", "Backup")),
    ("a database connection", "psycopg", ("Connection", "AsyncConnection", "Cursor", "AsyncCursor")),
    ("a weak reference", "weakref", ("ref", "ReferenceType", "ProxyType", "CallableProxyType")),
    ("a queue", "queue", ("Queue", "SimpleQueue")),
    ("an open file", "typing", ("IO",)),
)


def refused_annotation(annotation: object) -> str | None:
    """Return why no value of a return annotation can be stored, or None where one may be.

    Certain or silent: Any, protocols, abstract classes, unions, type variables, iterators of generator steps and names
    that do not resolve give None. A class with a registered codec, or with a subclass that has one, gives None.
    """
    try:
        found = _bare(annotation)
        reason = _reason(found)
    except Exception:  # an annotation may be any object at all
        return None
    return None if reason is None else f"{reason} ({_name(found)}) cannot be stored without a codec of its own"


def _bare(annotation: object) -> object:
    """Take off Annotated, Final, NewType, type aliases and type arguments."""
    for _ in range(16):
        origin = typing.get_origin(annotation)
        if origin in (typing.Annotated, typing.Final):
            annotation = typing.get_args(annotation)[0]
        elif isinstance(annotation, typing.NewType):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = cast("Any", annotation).__value__
        elif origin is not None:
            return origin
        else:
            return annotation
    return None


def _reason(found: object) -> str | None:
    for reason, abstract in _REFUSED_ABSTRACT:
        if any(found is kind for kind in abstract):
            return reason
    if found is threading.Lock or found is threading.RLock:  # functions that people write for the type
        return "a lock or thread"
    if not isinstance(found, type) or _has_codec(found):
        return None
    for reason, kinds in _REFUSED:
        if issubclass(found, kinds):
            return reason
    for module, reason, names in ((module, reason, names) for reason, module, names in _REFUSED_BY_NAME):
        kinds = tuple(kind for name in names if isinstance(kind := _loaded(module, name), type))
        if kinds and issubclass(found, kinds):
            return reason
    return "an iterator that can be read once" if found.__module__ == "itertools" else None


def _has_codec(found: type) -> bool:
    return any(issubclass(registered, found) for registered in registered_classes())


def _loaded(module: str, name: str) -> object:
    return vars(sys.modules[module]).get(name) if module in sys.modules else None


def _name(found: object) -> str:
    return type_name(found) if isinstance(found, type) else str(found)
