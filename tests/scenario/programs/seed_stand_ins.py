"""What a newcomer's pipeline calls: a company register and a writing model, which note that they were asked."""

from __future__ import annotations

import os
import signal
from pathlib import Path

CALLS = Path("calls.log")
DIE_VARIABLE = "SEED_DIES_WHILE_WRITING"


def _asked(what: str) -> None:
    with CALLS.open("a", encoding="utf-8") as calls:
        calls.write(f"{what}\n")


class CompanyRegister:
    """Answers like a web service with the figures of companies."""

    def get(self, path: str) -> dict[str, object]:
        """Return what is known at a path."""
        _asked(f"get {path}")
        return {"path": path, "assets": 1_250, "liabilities": 830, "quarters": ["Q1", "Q2"]}


class WritingModel:
    """Costs tokens; may take its process with it while it writes."""

    def invoke(self, prompt: str) -> str:
        """Return a text about the prompt."""
        _asked(f"invoke {len(prompt)} characters")
        if os.environ.get(DIE_VARIABLE) == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        return f"A report of {len(prompt.split())} words in, one sentence out."


api_client = CompanyRegister()
llm = WritingModel()
