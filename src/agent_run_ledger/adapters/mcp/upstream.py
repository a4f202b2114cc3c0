"""The server behind the proxy: a child process that is spoken to by lines, and ended cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Sequence
from typing import Final

from agent_run_ledger.adapters.mcp.lines import Line, lines
from agent_run_ledger.errors import Misuse

PATIENCE_S: Final = 1.0
"""Seconds that a server has to end by itself after its stdin was closed, and then after it was asked to."""

_BUFFER_BYTES: Final = 1024 * 1024


class Upstream:
    """A child process in a group of its own; its stderr is ours.

    Guarantees: after `stop` neither it nor what it has started in its group is left.
    """

    def __init__(self, process: asyncio.subprocess.Process, *, limit_bytes: int) -> None:
        if process.stdin is None or process.stdout is None:
            raise Misuse("the server has no pipes", code="bad_command")
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._limit_bytes = limit_bytes
        self.gone = False
        self._stopped = False

    @classmethod
    async def start(cls, command: Sequence[str], *, limit_bytes: int) -> Upstream:
        """Start the command. Misuse("bad_command") where that cannot be done."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_BUFFER_BYTES,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise Misuse(
                f"the server {command[0]!r} could not be started: {reason}",
                code="bad_command",
                hint="what stands behind -- is the server's command, as its documentation gives it",
            ) from error
        return cls(process, limit_bytes=limit_bytes)

    def lines(self) -> AsyncIterator[Line]:
        """Yield what the server says, until it says nothing more."""
        return lines(self._stdout, limit_bytes=self._limit_bytes)

    @property
    def is_there(self) -> bool:
        """Whether the server is not known to be gone."""
        return not self.gone and not self._stdin.is_closing() and self._process.returncode is None

    def write(self, line: bytes) -> bool:
        """Hand a line over. False, and nothing of it reaches the server, where that is known to be gone."""
        if not self.is_there:
            return False
        self._stdin.write(line if line.endswith(b"\n") else line + b"\n")
        return True

    async def drain(self) -> None:
        """Wait while the server takes no more; return at once where it never will again."""
        with contextlib.suppress(ConnectionError):
            await self._stdin.drain()

    def close_stdin(self) -> None:
        """Tell the server that nothing more comes."""
        with contextlib.suppress(OSError):
            self._stdin.close()

    async def stop(self) -> None:
        """End the process: by closing its stdin, then by SIGTERM, then by SIGKILL. A second call does nothing."""
        if self._stopped:
            return
        self._stopped = True
        self.close_stdin()
        if not await self._has_ended(PATIENCE_S):
            self._signal(signal.SIGTERM)
            await self._has_ended(PATIENCE_S)
        self._signal(signal.SIGKILL)  # also what it has started, and left
        await self._has_ended(PATIENCE_S)

    def ended_words(self) -> str:
        """Return how it ended."""
        code = self._process.returncode
        if code is None:
            return "it closed its output"
        return f"exit code {code}" if code >= 0 else f"signal {-code}"

    async def wait_briefly(self) -> None:
        """Wait a moment for the exit code of a process whose output has ended."""
        await self._has_ended(PATIENCE_S)

    async def _has_ended(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                while self._process.returncode is None:  # wait() would also wait for pipes that a grandchild holds
                    await asyncio.sleep(0.005)
        except TimeoutError:
            return False
        return True

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)
