"""Serves one MCP session on this process's stdin and stdout, with a server behind it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import IO, Final, TextIO

from agent_run_ledger.adapters.gate import Gate, allow_all
from agent_run_ledger.adapters.mcp.lines import Line, lines
from agent_run_ledger.adapters.mcp.listing import Listing
from agent_run_ledger.adapters.mcp.policy import Policy
from agent_run_ledger.adapters.mcp.proxy import Proxy
from agent_run_ledger.adapters.mcp.tool_calls import ToolCalls
from agent_run_ledger.adapters.mcp.upstream import Upstream
from agent_run_ledger.adapters.mcp.wire import Wire
from agent_run_ledger.errors import Misuse, Unavailable
from agent_run_ledger.ledger.run_ledger import DEFAULT_LIMIT_BYTES, RunLedger

WAIT_S: Final = 10.0
"""Seconds to wait for the proxy of an earlier session to let go of the run."""

MIN_LIMIT_BYTES: Final = 1024
_BUFFER_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a session is served. `command`: the server's. `complete`: the run is completed when the client ends it.

    `limit_bytes`: the longest line that passes. `report`: told what people should know, a sentence at a time.
    """

    command: Sequence[str]
    run_id: str
    report: Callable[[str], None]
    complete: bool = False
    policy: Policy = field(default_factory=Policy)
    gate: Gate = allow_all
    limit_bytes: int = DEFAULT_LIMIT_BYTES


async def serve(ledger: RunLedger, settings: Settings) -> None:
    """Serve until the client ends its input, a SIGINT or a SIGTERM, or the server ends.

    Raises Unavailable("server_ended") for the last, after everything open was answered; Misuse for a server that
    cannot be started and for stdin or stdout that is no pipe; RunBusy and others where the run cannot be entered;
    Refused, before anything is started, where a tool is an effect and the store has no authority or no trust file, or
    that one has no policy of the name that the effect has.
    """
    if settings.limit_bytes < MIN_LIMIT_BYTES:
        raise Misuse(f"a line must be allowed {MIN_LIMIT_BYTES:,} bytes at least", code="bad_setting")
    if settings.policy.effects:
        ledger.check_effects(settings.policy.effects)
    reader, send = await _own_pipes()
    upstream = await Upstream.start(settings.command, limit_bytes=settings.limit_bytes)
    wire, listing = Wire(upstream, settings.report), Listing(settings.report)
    calls = ToolCalls(
        ledger,
        settings.run_id,
        wire=wire,
        listing=listing,
        policy=settings.policy,
        gate=settings.gate,
        wait_s=WAIT_S,
    )
    try:
        await calls.run.open()
        proxy = Proxy(
            upstream,
            wire=wire,
            calls=calls,
            listing=listing,
            send=send,
            report=settings.report,
            limit_bytes=settings.limit_bytes,
        )
        await _session(proxy, upstream, reader, settings)
    finally:
        await upstream.stop()
        await calls.run.close(complete=settings.complete)


async def _session(proxy: Proxy, upstream: Upstream, reader: asyncio.StreamReader, settings: Settings) -> None:
    from_client = asyncio.create_task(_pump(lines(reader, limit_bytes=settings.limit_bytes), proxy.from_client))
    from_server = asyncio.create_task(_pump(upstream.lines(), proxy.from_server))
    with _signals(from_client.cancel):
        await asyncio.wait((from_client, from_server), return_when=asyncio.FIRST_COMPLETED)
    died = not from_client.done()
    from_client.cancel()
    if died:
        await upstream.wait_briefly()
    stopping = asyncio.create_task(upstream.stop())
    await asyncio.wait((from_server, stopping), return_when=asyncio.ALL_COMPLETED if died else asyncio.FIRST_COMPLETED)
    if not from_server.done():  # a process that it left behind holds the pipe
        from_server.cancel()
    upstream.gone = True
    words = f"the server ended ({upstream.ended_words()})"
    await proxy.server_ended(words)
    await proxy.settle()
    await stopping
    proxy.closing_report()
    for pump in (from_client, from_server):
        with contextlib.suppress(asyncio.CancelledError):
            await pump
    if died:
        raise Unavailable(words, code="server_ended", hint="see what it wrote on stderr; start the proxy again")


async def _pump(source: AsyncIterator[Line], take: Callable[[Line], Awaitable[None]]) -> None:
    async for line in source:
        await take(line)


async def _own_pipes() -> tuple[asyncio.StreamReader, Callable[[bytes], Awaitable[None]]]:
    """Return what reads our stdin, and a function that writes to our stdout and waits while nobody takes it."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_BUFFER_BYTES)
    sink = asyncio.StreamReaderProtocol(asyncio.StreamReader())
    try:
        source = _copy_of(sys.stdin)
        with selectors.DefaultSelector() as probe:  # the loop would find out too late, and wait for ever
            probe.register(source, selectors.EVENT_READ)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
        transport, _ = await loop.connect_write_pipe(lambda: sink, _copy_of(sys.stdout))
    except (ValueError, OSError) as error:
        raise Misuse(
            "stdin and stdout must be pipes: a client of MCP starts this command and speaks to it", code="no_pipes"
        ) from error
    writer = asyncio.StreamWriter(transport, sink, None, loop)

    async def send(line: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # the client is gone, which its end of input says too
            writer.write(line)
            await writer.drain()

    return reader, send


def _copy_of(stream: TextIO | None) -> IO[bytes]:
    """Return the stream under another number: what an event loop was given it closes at its end."""
    if stream is None:
        raise ValueError("closed")
    return os.fdopen(os.dup(stream.fileno()), "rb" if stream is sys.stdin else "wb", buffering=0)


@contextlib.contextmanager
def _signals(end: Callable[[], object]) -> Generator[None]:
    """Call `end` at a SIGINT or SIGTERM instead of dying by it."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
