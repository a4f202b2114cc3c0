"""What a model is to the agent, and which one the environment asks for."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypedDict

Message = dict[str, Any]
"""`role` and `content`; an assistant's has `calls`, a tool's the id of its `call` and the tool's `name`."""


class Reply(TypedDict):
    """What a model says: text, and calls of tools, each with `id`, `name` and `arguments`; `usage` is what it used."""

    text: str
    calls: list[dict[str, Any]]
    usage: dict[str, Any]


class Model(Protocol):
    """A language model."""

    environment: Mapping[str, object]
    """What shapes its replies beside the messages: it goes into the steps' fingerprints."""

    def complete(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Reply:
        """Return the next reply."""
        ...

    def stream(self, messages: Sequence[Message]) -> Iterator[str]:
        """Yield the last reply, which is a text, in pieces."""
        ...


def model_from(environ: Mapping[str, str]) -> Model:
    """Return the model of ANTHROPIC_API_KEY or OPENAI_API_KEY (or OPENAI_BASE_URL), else the one that needs none.

    AGENT_MODEL chooses another model of theirs. Ends the program where the package for it is not installed.
    """
    if environ.get("ANTHROPIC_API_KEY"):
        from real_models import AnthropicModel

        return AnthropicModel(_package("anthropic", "ANTHROPIC_API_KEY"), environ.get("AGENT_MODEL"))
    if environ.get("OPENAI_API_KEY") or environ.get("OPENAI_BASE_URL"):
        from real_models import OpenAIModel

        asked_by = "OPENAI_API_KEY" if environ.get("OPENAI_API_KEY") else "OPENAI_BASE_URL"
        return OpenAIModel(_package("openai", asked_by), environ.get("AGENT_MODEL"))
    from fake_model import FakeModel

    return FakeModel()


def _package(name: str, asked_by: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        words = f"{asked_by} is set, and the package for it is missing: pip install {name}\n"
        raise SystemExit(f"{words}Without {asked_by} a model made of rules answers, offline.") from error
