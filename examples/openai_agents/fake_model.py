"""A model made of rules: it pays what is open, looks where an outcome is unknown, and has letters written."""

from __future__ import annotations

import ast
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from agents import Model, ModelResponse, Usage
from agents.testing import assistant_message, function_call


class FakeModel(Model):
    """Decides by what the conversation holds. `note` is called for each question."""

    model = "rules"

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    async def get_response(self, system_instructions: str | None, input: Any, *_: Any, **__: Any) -> ModelResponse:
        """Answer one question."""
        self._note("model")
        writes = "sentence" in (system_instructions or "")
        output = [assistant_message(f"Dear friend: {_text(input)}.")] if writes else _next(_results(input))
        usage = Usage(requests=1, input_tokens=len(str(input)), output_tokens=20, total_tokens=len(str(input)) + 20)
        return ModelResponse(output=output, usage=usage, response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """Refuse: the example does not stream."""
        raise NotImplementedError


def _next(told: dict[str, str]) -> list[Any]:
    """Return the next calls, or the end: `told` has the results of tools by call id."""
    if "invoices" not in told:
        return [function_call("list_invoices", {}, call_id="invoices")]
    invoices: dict[str, int] = ast.literal_eval(told["invoices"])
    unpaid = [to for to in invoices if f"pay-{to}" not in told]
    if unpaid:
        return [function_call("pay", {"to": to, "amount": invoices[to]}, call_id=f"pay-{to}") for to in unpaid]
    unknown = [to for to in invoices if '"outcome": "unknown"' in told[f"pay-{to}"]]
    if unknown and "payments" not in told:
        return [function_call("list_payments", {}, call_id="payments")]
    made = {json.loads(line)["to"] for line in ast.literal_eval(told.get("payments", "[]"))}
    again = [to for to in unknown if to not in made and f"again-{to}" not in told]
    if again:
        return [function_call("pay", {"to": to, "amount": invoices[to]}, call_id=f"again-{to}") for to in again]
    paid = [to for to in invoices if "refused" not in told[f"pay-{to}"]]
    letters = [to for to in paid if f"letter-{to}" not in told]
    if letters:
        return [
            function_call("write_letter", {"input": f"{to} got {invoices[to]}"}, call_id=f"letter-{to}")
            for to in letters
        ]
    return [assistant_message("\n".join(told[f"letter-{to}"] for to in paid) or "Nothing was paid.")]


def _results(items: Any) -> dict[str, str]:
    given = [] if isinstance(items, str) else items
    return {item["call_id"]: str(item["output"]) for item in given if item.get("type") == "function_call_output"}


def _text(items: Any) -> str:
    return items if isinstance(items, str) else str(items[-1]["content"])
