"""What a run gets of an effect that happened."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectResult:
    """An effect that happened, by evidence on record: the same at every restart, whoever found out.

    `action_id` is 32 hex digits. `status` and `answer` are the target's whole answer (of HTTP, or what a function
    returned as canonical JSON, then without a status); None where the evidence is another one: a look at the target,
    a receipt, a person's decision.
    """

    action_key: str
    action_id: str
    generation: int | None
    status: int | None = None
    answer: bytes | None = None

    def json(self) -> Any:
        """Return the answer read as JSON, None where there is none. ValueError where it is no JSON."""
        return None if not self.answer else json.loads(self.answer)
