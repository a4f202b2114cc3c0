"""Reads the lines of a stream without ever holding more than a limit of one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

CHUNK_BYTES = 64 * 1024
HEAD_BYTES = 4 * 1024
"""What is kept of a line over the limit: enough to see what it was."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its end. `too_long`: it was over the limit, and `text` is only its beginning."""

    text: bytes
    too_long: bool = False


async def lines(stream: asyncio.StreamReader, *, limit_bytes: int) -> AsyncIterator[Line]:
    """Yield the lines of a stream until it ends; empty ones are left out, and so is a last one without an end.

    Holds at most `limit_bytes` and one chunk. A line over the limit is read to its end and comes as its beginning.
    """
    held = bytearray()
    dropped = False
    while chunk := await stream.read(CHUNK_BYTES):
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            held += chunk[start:end]
            start = end + 1
            text = bytes(held).removesuffix(b"\r")
            too_long = dropped or len(held) > limit_bytes
            held.clear()
            dropped = False
            if too_long:
                yield Line(text[:HEAD_BYTES], too_long=True)
            elif text.strip():
                yield Line(text)
        held += chunk[start:]
        if len(held) > limit_bytes:
            del held[HEAD_BYTES:]
            dropped = True
