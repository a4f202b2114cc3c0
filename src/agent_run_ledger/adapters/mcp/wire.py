"""Requests of the proxy to its server: sent, answered, timed out, cancelled, or dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from agent_run_ledger.adapters.mcp.messages import Message, encode, id_key, members
from agent_run_ledger.adapters.mcp.upstream import Upstream
from agent_run_ledger.errors import Unavailable

CANCEL_GRACE_S: Final = 2.0
"""Seconds for which the result of a cancelled call is still waited for, as it may be on its way."""

_CANCELLED: Final = "it was cancelled"


class Dropped(BaseException):
    """A request was sent, and nobody will learn what became of it; says why. No Exception: it is no outcome."""


class NotSent(Unavailable):
    """The server was sent nothing of this call: it may be made again."""

    code = "not_sent"


class ServerError(Exception):
    """The server answered with a JSON-RPC error. `code`, `words` and `detail` are that error's."""

    def __init__(self, code: int, words: str, detail: object = None) -> None:
        super().__init__(code, words, detail)
        self.code = code
        self.words = words
        self.detail = detail

    def __str__(self) -> str:
        """Return the words and the code."""
        return f"{self.words} ({self.code})"


@dataclass(slots=True)
class Sending:
    """One request: what is known of it between its arrival and its answer. `line`: the answer as it came."""

    message_id: Any
    request: bytes
    sent: bool = False
    cancelled: bool = False
    line: bytes | None = None
    answer: asyncio.Future[Message] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Wire:
    """Guarantees: a request is written at most once; what was written and got no answer raises Dropped, and what was
    not written raises NotSent.
    """

    def __init__(self, upstream: Upstream, report: Callable[[str], None]) -> None:
        self._upstream = upstream
        self._report = report
        self._waiting: dict[str, Sending] = {}
        self._late: set[str] = set()
        self._own = 0

    async def ask(self, sending: Sending, *, timeout_s: float | None) -> dict[str, Any]:
        """Send a request and return its result. ServerError, TimeoutError, Dropped, NotSent."""
        key = id_key(sending.message_id)
        if sending.cancelled:
            raise NotSent("the call was cancelled before it was sent")
        self._waiting[key] = sending
        sending.sent = True
        if not self._upstream.write(sending.request):
            del self._waiting[key]
            raise NotSent("the server has ended; the call was not sent")
        try:
            async with asyncio.timeout(timeout_s):
                await self._upstream.drain()
                answer = await sending.answer
        except TimeoutError:
            if sending.answer.done() and not sending.answer.cancelled():
                answer = sending.answer.result()  # it came in the same moment
            else:
                self._late.add(key)
                raise
        finally:
            self._waiting.pop(key, None)
        if "error" not in answer:
            return members(answer.get("result"))
        if sending.cancelled:
            raise Dropped(_CANCELLED)
        error = members(answer["error"])
        code = error.get("code")
        raise ServerError(code if isinstance(code, int) else 0, str(error.get("message", "")), error.get("data"))

    def check_open(self, sending: Sending) -> None:
        """Raise NotSent where a request would not be sent now."""
        if sending.cancelled:
            raise NotSent("the call was cancelled before it was sent")
        if not self._upstream.is_there:
            raise NotSent("the server has ended; the call was not sent")

    async def ask_own(self, method: str, params: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """Send a request of the proxy's own and return its result; see `ask`."""
        self._own += 1
        message_id = f"agent-run-ledger:{self._own}"
        line = encode({"jsonrpc": "2.0", "id": message_id, "method": method, "params": params})
        return await self.ask(Sending(message_id, line), timeout_s=timeout_s)

    def is_open(self, message_id: object) -> bool:
        """Return whether a request with this id was sent and not answered."""
        key = id_key(message_id)
        return key in self._waiting or key in self._late

    def take(self, message: Message, line: bytes) -> bool:
        """Take an answer that is waited for here; False for one of another request."""
        key = id_key(message.get("id"))
        if key in self._late:
            self._late.discard(key)
            self._report(f"the server answered request {key} when nobody waited any more; the answer is not recorded")
            return True
        sending = self._waiting.get(key)
        if sending is None:
            return False
        if not sending.answer.done():
            sending.line = line
            sending.answer.set_result(message)
        return True

    def cancel(self, sending: Sending, notification: bytes) -> None:
        """Pass on that the client waits no more. A result that is on its way is still taken for some seconds."""
        sending.cancelled = True
        if sending.sent and self._upstream.write(notification):
            asyncio.get_running_loop().call_later(CANCEL_GRACE_S, self._drop, sending, _CANCELLED)

    def drop(self, message_id: object, why: str) -> bool:
        """Give up on one request; False where it is none of ours."""
        sending = self._waiting.get(id_key(message_id))
        if sending is not None:
            self._drop(sending, why)
        return sending is not None

    def drop_all(self, why: str) -> None:
        """Give up on every request: nothing more comes."""
        for sending in [*self._waiting.values()]:
            self._drop(sending, why)

    def _drop(self, sending: Sending, why: str) -> None:
        if not sending.answer.done():
            self._late.add(id_key(sending.message_id))
            sending.answer.set_exception(Dropped(why))
