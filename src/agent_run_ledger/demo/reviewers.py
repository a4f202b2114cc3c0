"""What a reviewer is, and which one this environment asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from agent_run_ledger.demo.questions import Question
from agent_run_ledger.errors import Misuse

TOKEN_FORMULA = "characters of prompt and answer ÷ 4, each rounded up"
REVIEWER_CHOICES = ("auto", "rules", "endpoint")
DEFAULT_BASE_URL = "https://api.openai.com/v1"
DEFAULT_MODEL = "gpt-4o-mini"
DEFAULT_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer and what it cost. `estimated` tells tokens by TOKEN_FORMULA from tokens the endpoint reported."""

    text: str
    tokens_in: int
    tokens_out: int
    estimated: bool


class Reviewer(Protocol):
    """Answers questions. Every call costs tokens; the same question may get another answer from a model."""

    @property
    def label(self) -> str:
        """What the reviewer is, in words for the terminal and the report."""
        ...

    @property
    def environment(self) -> Mapping[str, object]:
        """What shapes the answers beside the question; it enters the steps' fingerprints and holds no secret."""
        ...

    def answer(self, question: Question) -> Answer:
        """Return the answer. See endpoint.py for what a model's reviewer raises; the rules raise nothing."""
        ...


def estimated_tokens(text: str) -> int:
    """Return a quarter of the characters, rounded up: an estimate that needs no tokenizer."""
    return -(-len(text) // 4)


def estimate(question: Question, text: str) -> Answer:
    """Return an answer metered by TOKEN_FORMULA."""
    return Answer(
        text=text,
        tokens_in=estimated_tokens(question.system + question.prompt),
        tokens_out=estimated_tokens(text),
        estimated=True,
    )


def reviewer_from(environ: Mapping[str, str]) -> Reviewer:
    """Return the reviewer that the environment asks for.

    ARL_DEMO_REVIEWER: `auto` (default) takes the endpoint when OPENAI_API_KEY or OPENAI_BASE_URL is set, else the
    rules; `rules` and `endpoint` force one. ARL_DEMO_MODEL and ARL_DEMO_TIMEOUT_S (seconds per call) go with the
    endpoint. Raises Misuse for values that cannot be meant; the message never holds the key.
    """
    choice = environ.get("ARL_DEMO_REVIEWER") or "auto"
    if choice not in REVIEWER_CHOICES:
        raise Misuse(f"ARL_DEMO_REVIEWER is {choice!r}", hint=f"use one of {', '.join(REVIEWER_CHOICES)}")
    api_key = environ.get("OPENAI_API_KEY", "").strip()
    base_url = environ.get("OPENAI_BASE_URL", "").strip()
    if choice == "rules" or (choice == "auto" and not api_key and not base_url):
        from agent_run_ledger.demo.rule_reviewer import RuleReviewer

        return RuleReviewer()
    from agent_run_ledger.demo.endpoint import EndpointReviewer

    return EndpointReviewer(
        base_url=base_url or DEFAULT_BASE_URL,
        api_key=api_key,
        model=environ.get("ARL_DEMO_MODEL") or DEFAULT_MODEL,
        timeout_s=_timeout_s(environ.get("ARL_DEMO_TIMEOUT_S", "")),
    )


def _timeout_s(text: str) -> float:
    if not text:
        return DEFAULT_TIMEOUT_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise Misuse(f"ARL_DEMO_TIMEOUT_S is {text!r}", hint="give seconds above 0 and up to 3600")
    return seconds
