"""Passes the messages of one MCP session on, in both directions, and gives calls of tools to the run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from agent_run_ledger.adapters.mcp.lines import Line
from agent_run_ledger.adapters.mcp.listing import Listing
from agent_run_ledger.adapters.mcp.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    SERVER_GONE,
    Message,
    NoMessage,
    encode,
    failure,
    head_of,
    id_key,
    is_id,
    members,
    parse,
)
from agent_run_ledger.adapters.mcp.tool_calls import ToolCalls
from agent_run_ledger.adapters.mcp.upstream import Upstream
from agent_run_ledger.adapters.mcp.wire import Sending, Wire
from agent_run_ledger.errors import LedgerError

CALL: Final = "tools/call"
LIST: Final = "tools/list"
CANCELLED: Final = "notifications/cancelled"
MAX_REPORTS: Final = 20
SHOWN: Final = 200

Send = Callable[[bytes], Awaitable[None]]
Report = Callable[[str], None]


class Proxy:
    """Guarantees: what is no call of a tool passes unchanged, byte for byte; a call of a tool never passes but through
    the run. Every request of the client that did not end otherwise gets an answer when the server ends.
    """

    def __init__(
        self,
        upstream: Upstream,
        *,
        wire: Wire,
        calls: ToolCalls,
        listing: Listing,
        send: Send,
        report: Report,
        limit_bytes: int,
    ) -> None:
        self._upstream = upstream
        self._wire = wire
        self._calls = calls
        self._listing = listing
        self._send = send
        self._report = report
        self._limit_bytes = limit_bytes
        self._open: dict[str, tuple[Any, str, object]] = {}
        self._sendings: dict[str, Sending] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._garbage = 0

    # -- from the client --------------------------------------------------------------------------------------

    async def from_client(self, line: Line) -> None:
        """Pass on one line of the client, or begin the call that it asks for."""
        if line.too_long:
            await self._refuse(head_of(line.text).get("id"), INVALID_REQUEST, self._too_long("request"))
            return
        try:
            message = parse(line.text, strict=True)
        except NoMessage as error:
            await self._refuse(None, PARSE_ERROR, f"this line is no message: {error}")
            return
        if not isinstance(message, dict):
            await self._refuse(None, INVALID_REQUEST, "a message is one object; batches are not part of MCP any more")
            return
        await self._routed(cast("Message", message), line.text)

    async def _routed(self, message: Message, line: bytes) -> None:
        method, has_id = message.get("method"), "id" in message
        if method is None:  # an answer to what the server asked
            await self._forward(line)
        elif has_id and (not is_id(message["id"]) or self._is_open(message["id"])):
            words = "an id must be a text or a whole number that no open request has"
            await self._refuse(message["id"] if is_id(message["id"]) else None, INVALID_REQUEST, words)
        elif method == CALL:
            self._begin(message, line, has_id=has_id)
        elif method == CANCELLED and (sending := self._sending_of(message)) is not None:
            self._wire.cancel(sending, line)
        else:
            if method == CANCELLED:  # it will get no answer, from whoever it is
                self._open.pop(id_key(members(message.get("params")).get("requestId")), None)
            if has_id:
                asked_with = members(message.get("params")).get("cursor")
                self._open[id_key(message["id"])] = (message["id"], str(method), asked_with)
            await self._forward(line)

    def _begin(self, message: Message, line: bytes, *, has_id: bool) -> None:
        if not has_id:
            self._report(f"a {CALL} without an id asks for no answer: it was not passed on")
            return
        sending = Sending(message["id"], line)
        self._sendings[id_key(message["id"])] = sending
        self._spawn(self._call(message, sending))

    async def _call(self, message: Message, sending: Sending) -> None:
        answer: Message | bytes | None
        try:
            answer = await self._calls.answer(message, sending)
        except Exception as error:
            words = f"a call ended by a fault of this program: {type(error).__name__}: {error}"
            self._report(words)
            answer = failure(sending.message_id, INTERNAL_ERROR, words)
        finally:
            self._sendings.pop(id_key(sending.message_id), None)
        if answer is not None:
            await self._send(answer + b"\n" if isinstance(answer, bytes) else encode(answer))

    async def _forward(self, line: bytes) -> None:
        if self._upstream.write(line):
            await self._upstream.drain()

    # -- from the server --------------------------------------------------------------------------------------

    async def from_server(self, line: Line) -> None:
        """Pass on one line of the server, or give it to the call that waits for it."""
        if line.too_long:
            await self._server_said_too_much(line)
            return
        try:
            message = parse(line.text, strict=False)
        except NoMessage as error:
            self._note_garbage(line.text, str(error))
            return
        several = cast("list[object]", message) if isinstance(message, list) else [cast("object", message)]
        for one in several:
            if isinstance(one, dict):
                said = cast("Message", one)
                await self._from_server(said, line.text if one is message else encode(said)[:-1])
            else:
                self._note_garbage(line.text, "a message is an object")

    async def _from_server(self, message: Message, line: bytes) -> None:
        if "method" not in message:
            if self._wire.take(message, line):
                return
            _, method, cursor = self._open.pop(id_key(message.get("id")), (None, "", None))
            if method == LIST and self._listing.page(cursor, members(message.get("result"))):
                self._spawn(self._record_listing())
        await self._send(line + b"\n")

    async def _server_said_too_much(self, line: Line) -> None:
        """Answer the request whose answer was too long, if its id can be seen; else give up on all of them."""
        head, words = head_of(line.text), self._too_long("answer of the server")
        self._report(words)
        if "method" in head:
            return
        if "id" not in head:
            self._wire.drop_all(words)
            await self._fail_open(words)
        elif not self._wire.drop(head["id"], words):
            message_id, _, _ = self._open.pop(id_key(head["id"]), (None, "", None))
            await self._send(encode(failure(message_id, SERVER_GONE, words)))

    async def server_ended(self, words: str) -> None:
        """Answer everything that is open: nothing more comes."""
        self._wire.drop_all(words)
        await self._fail_open(words)

    async def settle(self) -> None:
        """Return when every call that was begun has its end."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def closing_report(self) -> None:
        """Say how much of what the server wrote was no message."""
        if self._garbage > MAX_REPORTS:
            self._report(f"the server wrote {self._garbage} lines that are no messages")

    # -- beside -----------------------------------------------------------------------------------------------

    async def _record_listing(self) -> None:
        try:
            place = await self._calls.run.begin()
        except LedgerError:
            return
        ended: LedgerError | None = None
        try:
            place.context.copy().run(self._listing.record, place.run.value)
        except LedgerError as error:
            ended = error
            self._report(f"the list of tools was not recorded: {error}")
        finally:
            self._calls.run.end(ended)

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._report(f"a fault of this program: {type(error).__name__}: {error}")

    def _is_open(self, message_id: object) -> bool:
        key = id_key(message_id)
        return key in self._open or key in self._sendings or self._wire.is_open(message_id)

    def _sending_of(self, message: Message) -> Sending | None:
        return self._sendings.get(id_key(members(message.get("params")).get("requestId")))

    async def _refuse(self, message_id: object, code: int, words: str) -> None:
        self._report(f"a message of the client was not passed on: {words}")
        await self._send(encode(failure(message_id if is_id(message_id) else None, code, words)))

    async def _fail_open(self, words: str) -> None:
        still_open, self._open = [*self._open.values()], {}
        for message_id, _, _ in still_open:
            await self._send(encode(failure(message_id, SERVER_GONE, words)))

    def _note_garbage(self, text: bytes, why: str) -> None:
        self._garbage += 1
        if self._garbage <= MAX_REPORTS:
            shown = text[:SHOWN].decode("utf-8", "replace")
            self._report(f"the server wrote a line that is no message ({why}): {shown!r}")

    def _too_long(self, what: str) -> str:
        return f"the {what} was longer than {self._limit_bytes:,} bytes and was dropped"
