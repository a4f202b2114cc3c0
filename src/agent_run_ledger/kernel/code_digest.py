"""A digest of what a function's compiled code does, kept beside a record to tell that the code has changed."""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Iterator
from hashlib import sha256
from types import CodeType, FunctionType, MethodType
from typing import Final, cast

DIGEST_BYTES: Final = 8

_DOMAIN: Final = b"agent-run-ledger/code/v1\n"
_MAX_WRAPPERS: Final = 50

# *args, **kwargs, generator, coroutine, asynchronous generator; not "has a docstring", which newer compilers set.
_FLAGS: Final = 0x0004 | 0x0008 | 0x0020 | 0x0080 | 0x0100 | 0x0200
_CONSTANTS: Final = frozenset(dis.hasconst)
_JUMPS: Final = frozenset((*dis.hasjrel, *dis.hasjabs))

# A compiler puts the first two in for measurement of lines, the third to widen an argument.
_SILENT: Final = frozenset(("NOP", "CACHE", "EXTENDED_ARG"))

# What a class body says about its text and not about its work: docstring, first line, attributes seen assigned.
_CLASS_NOTES: Final = frozenset(("__doc__", "__firstlineno__", "__static_attributes__"))

_PLAIN: Final = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis))


def code_digest(code: CodeType, defaults: object, python_version: tuple[int, int]) -> bytes:
    """Return 8 bytes that stay equal while the code does the same by the same means.

    Comments, docstrings, line numbers, file names and the function's own name do not enter. Instructions, the
    constants they load (nested functions and comprehensions among them), the names they use, parameters, exception
    ranges and `defaults` do; so does the interpreter version, because another compiler makes other instructions.
    Values of closures and globals do not enter, nor the code of functions that are called.
    """
    hashed = sha256(_DOMAIN + b"%d.%d\n" % python_version)
    for part in _code_parts(code):
        hashed.update(_framed(part))
    hashed.update(_framed(_constant(defaults)))
    return hashed.digest()[:DIGEST_BYTES]


def digest_of(fn: object) -> bytes:
    """Return the code digest of a callable for the running interpreter, b"" where there is no Python code.

    Looks through functools.wraps (the innermost function counts), functools.partial (its arguments count as
    defaults), bound methods, and objects whose class defines `__call__`.
    """
    frozen: list[object] = []
    for _ in range(_MAX_WRAPPERS):
        if isinstance(fn, functools.partial):
            partial = cast("functools.partial[object]", fn)
            frozen.append((partial.args, partial.keywords))
            fn = partial.func
        elif isinstance(fn, MethodType):
            fn = fn.__func__
        elif hasattr(fn, "__wrapped__"):
            fn = cast("object", fn.__wrapped__)
        elif isinstance(fn, FunctionType):
            frozen.append((fn.__defaults__, fn.__kwdefaults__))
            return code_digest(fn.__code__, tuple(frozen), sys.version_info[:2])
        else:
            # Built-in callables answer with a built-in here again and again, and so end the loop.
            fn = next((vars(owner)["__call__"] for owner in type.mro(type(fn)) if "__call__" in vars(owner)), None)
    return b""


def _code_parts(code: CodeType) -> Iterator[bytes]:
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & _FLAGS)
    parameters = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    yield repr((counts, code.co_varnames[:parameters], code.co_freevars)).encode()
    kept = _instructions(code)
    ordinal_at = _Ordinals([instruction.offset for instruction in kept])
    for instruction in kept:
        yield instruction.opname.encode()
        if instruction.opcode in _CONSTANTS:
            yield _constant(instruction.argval)
        elif instruction.opcode in _JUMPS:
            yield b"to %d" % ordinal_at(instruction.argval)
        else:
            yield (instruction.argrepr or str(instruction.arg)).encode("utf-8", "surrogatepass")
    for start, stop, target, depth in _exception_ranges(code.co_exceptiontable):
        yield b"except %d %d %d %d" % (ordinal_at(start), ordinal_at(stop), ordinal_at(target), depth)


def _instructions(code: CodeType) -> list[dis.Instruction]:
    """Return what is executed, without padding and without a class body's notes about its own text."""
    kept: list[dis.Instruction] = []
    for instruction in dis.get_instructions(code):
        if instruction.opname in _SILENT:
            continue
        if instruction.opname == "STORE_NAME" and instruction.argval in _CLASS_NOTES and kept:
            kept.pop()  # the load of the note
            continue
        kept.append(instruction)
    return kept


class _Ordinals:
    """Says which of the kept instructions a byte offset means, so that padding moves no jump."""

    def __init__(self, offsets: list[int]) -> None:
        self._by_offset: dict[int, int] = {}
        place = 0
        for ordinal, offset in enumerate(offsets):
            while place <= offset:
                self._by_offset[place] = ordinal
                place += 2
        self._end = len(offsets)

    def __call__(self, offset: int) -> int:
        return self._by_offset.get(offset, self._end)


def _exception_ranges(table: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield (start, stop, target, depth and lasti) with byte offsets, from CPython's packed exception table.

    Its entries are four numbers of 6 bits a byte, big end first, with bit 6 set where more bytes follow.
    """
    numbers: list[int] = []
    more = False
    for byte in table:
        if more:
            numbers[-1] = numbers[-1] << 6 | byte & 63
        else:
            numbers.append(byte & 63)
        more = bool(byte & 64)
    for first in range(0, len(numbers) - 3, 4):
        start, length, target, depth = numbers[first : first + 4]
        yield 2 * start, 2 * (start + length), 2 * target, depth


def _constant(constant: object) -> bytes:
    """Return bytes that are equal for equal constants, in every process: no addresses, no order of a set."""
    kind = type(constant)
    if isinstance(constant, CodeType):
        return b"code" + b"".join(_framed(part) for part in _code_parts(constant))
    if kind in _PLAIN:
        return f"{kind.__name__} {constant!r}".encode("utf-8", "surrogatepass")
    if kind is tuple or kind is list:
        items = [_constant(item) for item in cast("tuple[object, ...]", constant)]
    elif kind is frozenset or kind is set:
        items = sorted(_constant(item) for item in cast("frozenset[object]", constant))
    elif kind is dict:
        items = [_constant(pair) for pair in cast("dict[object, object]", constant).items()]
    elif kind is slice:
        items = [_constant(getattr(constant, part)) for part in ("start", "stop", "step")]
    else:
        return f"object {kind.__module__}.{kind.__qualname__}".encode("utf-8", "surrogatepass")
    return kind.__name__.encode() + b"".join(_framed(item) for item in items)


def _framed(part: bytes) -> bytes:
    return len(part).to_bytes(4, "big") + part
