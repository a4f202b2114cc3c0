"""Sleeping until another process changes a word of shared memory (futex(2)), where the kernel offers it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

# The number of the system call by machine (asm/unistd.h); other machines poll.
_SYSCALL = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
_WAIT, _WAKE = 0, 1
_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Futex:
    """The two calls. `address` is where a 4-byte aligned word of a shared mapping lies in this process."""

    wait: Callable[[int, int, float], None]
    """wait(address, expected, timeout_s): sleep while the word is `expected`; may return early for no reason."""
    wake: Callable[[int], None]
    """wake(address): let the process that has slept longest go on."""


@cache
def futex() -> Futex | None:
    """Return the calls, or None where this platform has none."""
    number = _SYSCALL.get(os.uname().machine) if sys.platform == "linux" and sys.maxsize > 1 << 32 else None
    if number is None:
        return None
    import ctypes  # only a process that met a rival pays for it

    class Timespec(ctypes.Structure):
        _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))

    call = ctypes.CDLL(None).syscall
    call.restype = ctypes.c_long
    call.argtypes = (ctypes.c_long, ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_void_p)

    def wait(address: int, expected: int, timeout_s: float) -> None:
        span = Timespec(*divmod(int(timeout_s * _NS_PER_S), _NS_PER_S))
        call(number, address, _WAIT, expected, ctypes.addressof(span))

    def wake(address: int) -> None:
        call(number, address, _WAKE, 1, None)

    return Futex(wait=wait, wake=wake)


def address_of(word: memoryview) -> int:
    """Return where a writable 4-byte view begins in memory. The view must outlive the use of the address."""
    import ctypes

    return ctypes.addressof(ctypes.c_uint32.from_buffer(word))
