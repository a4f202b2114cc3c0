"""The meter: an append-only file that says what was paid and which bodies ran, independent of any ledger."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from agent_run_ledger.errors import Tampered


class MeterEvent(StrEnum):
    """What one line of the meter says. `lost`: a question was sent and no answer came, so its cost is unknown."""

    BODY = "body"
    PAID = "paid"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterLine:
    """One line. Tokens are None where nobody knows them."""

    event: MeterEvent
    life: int
    step: str
    tokens_in: int | None = None
    tokens_out: int | None = None
    estimated: bool = False

    @property
    def tokens(self) -> int:
        """Return the known tokens of this line."""
        return (self.tokens_in or 0) + (self.tokens_out or 0)


class Meter:
    """Appends lines for one life. Each line is one write to a file opened with O_APPEND, so it survives kill -9."""

    def __init__(self, path: Path, *, life: int, echo: Callable[[bytes], None] | None = None) -> None:
        """Write to `path`; `echo` gets each line too, once it is in the file, for a display of progress."""
        self._path = path
        self._life = life
        self._echo = echo

    def body(self, step: str) -> None:
        """Note that the body of a step begins."""
        self._append({"event": "body", "life": self._life, "step": step})

    def paid(self, step: str, *, tokens_in: int, tokens_out: int, estimated: bool) -> None:
        """Note one paid call at the moment its answer is there."""
        line = {"event": "paid", "life": self._life, "step": step, "tokens_in": tokens_in, "tokens_out": tokens_out}
        self._append({**line, "estimated": estimated})

    def lost(self, step: str) -> None:
        """Note a call that was sent and never answered: nobody here knows what it cost."""
        self._append({"event": "lost", "life": self._life, "step": step})

    def _append(self, line: dict[str, object]) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        written = json.dumps(line).encode("utf-8") + b"\n"
        try:
            os.write(descriptor, written)
        finally:
            os.close(descriptor)
        if self._echo is not None:
            self._echo(written)


def read_meter(path: Path) -> Sequence[MeterLine]:
    """Return all lines in the order written, none when there is no file yet; a line that is none is Tampered."""
    if not path.exists():
        return ()
    lines: list[MeterLine] = []
    for number, text in enumerate(path.read_text("utf-8").splitlines(), start=1):
        try:
            parts: dict[str, Any] = json.loads(text)
            lines.append(
                MeterLine(
                    event=MeterEvent(parts["event"]),
                    life=int(parts["life"]),
                    step=str(parts["step"]),
                    tokens_in=parts.get("tokens_in"),
                    tokens_out=parts.get("tokens_out"),
                    estimated=bool(parts.get("estimated", False)),
                )
            )
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise Tampered(f"line {number} of the meter {path} is not a meter line", code="meter") from error
    return tuple(lines)
