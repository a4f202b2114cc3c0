"""Ask an OpenAI-compatible endpoint (POST {base}/chat/completions) with the standard library's HTTP client."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any, TypeGuard, cast
from urllib.parse import urlsplit, urlunsplit

from agent_run_ledger.demo.audit.neutral import one_line
from agent_run_ledger.demo.questions import Question
from agent_run_ledger.demo.reviewers import Answer, estimate
from agent_run_ledger.errors import Misuse, Refused

MAX_ANSWER_BYTES = 4 * 1024 * 1024
MAX_ERROR_CHARACTERS = 300
CHUNK_BYTES = 64 * 1024
RETRIED_STATUS = frozenset({408, 409, 425, 429})


class EndpointBusy(ConnectionError):
    """The endpoint could not be reached or said to try later; nothing was answered. The step's retries apply."""


class AnswerLost(ConnectionError):
    """The question was sent and no readable answer came back: it may have been paid. The step's retries apply."""


class EndpointRefused(Refused):
    """The endpoint will refuse the same question again: wrong key, unknown model, bad request, a redirect."""

    code = "endpoint_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointReviewer:
    """A model behind HTTP. The key is sent in the Authorization header and appears in no message, repr or record."""

    base_url: str
    api_key: str = field(repr=False)
    model: str
    timeout_s: float

    def __post_init__(self) -> None:
        """Refuse a base URL or a key that cannot be meant, without repeating either."""
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Misuse("OPENAI_BASE_URL must begin with http:// or https:// and name a host", code="bad_base_url")
        if parts.username is not None or parts.password is not None:
            raise Misuse("OPENAI_BASE_URL must not hold a name or password", hint="use OPENAI_API_KEY")
        if not (self.api_key.isascii() and self.api_key.isprintable()) or " " in self.api_key:
            raise Misuse("OPENAI_API_KEY holds characters that no header can carry", code="bad_api_key")

    @property
    def place(self) -> str:
        """Scheme, host, port and path of the endpoint, without its query."""
        parts = urlsplit(self.base_url)
        return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))

    @property
    def label(self) -> str:
        """The model and where it is asked."""
        return f"model {self.model} at {self.place}"

    @property
    def environment(self) -> Mapping[str, object]:
        """Model and endpoint."""
        return {"model": self.model, "endpoint": self.place}

    def answer(self, question: Question) -> Answer:
        """Return the first choice's text, with the usage that the endpoint reports or else an estimate.

        Raises EndpointBusy (unreachable, 408, 409, 425, 429 or 5xx), AnswerLost (sent, and then a timeout, a broken
        connection or an unreadable answer), EndpointRefused (any other status). `timeout_s` bounds the whole call
        once the connection stands.
        """
        deadline = time.monotonic() + self.timeout_s
        opener = urllib.request.build_opener(_NoRedirects)
        try:
            with opener.open(self._request(question), timeout=self.timeout_s) as response:
                body = _read_all(response, deadline)
        except urllib.error.HTTPError as error:
            raise self._refusal(error) from None
        except urllib.error.URLError as error:
            raise EndpointBusy(f"{self.place} cannot be reached: {self._clean(str(error.reason))}") from None
        except (OSError, http.client.HTTPException) as error:
            reason = self._clean(str(error)) or type(error).__name__
            raise AnswerLost(f"{self.place} did not finish its answer: {reason}") from None
        return self._read(question, body)

    def _request(self, question: Question) -> urllib.request.Request:
        messages = [{"role": "system", "content": question.system}, {"role": "user", "content": question.prompt}]
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "agent-run-ledger"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        parts = urlsplit(self.base_url)
        path = parts.path.rstrip("/") + "/chat/completions"
        url = urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))
        body = json.dumps({"model": self.model, "messages": messages}).encode("utf-8")
        return urllib.request.Request(url, data=body, headers=headers, method="POST")

    def _refusal(self, error: urllib.error.HTTPError) -> Exception:
        with error:
            try:
                said = self._clean(error.read(CHUNK_BYTES).decode("utf-8", "replace"))
            except (OSError, http.client.HTTPException):
                said = ""
        words = f"{self.place} answered {error.code}" + (f": {said}" if said else "")
        if error.code >= 500 or error.code in RETRIED_STATUS:
            return EndpointBusy(words)
        hint = "check OPENAI_API_KEY, OPENAI_BASE_URL and ARL_DEMO_MODEL, or set ARL_DEMO_REVIEWER=rules"
        return EndpointRefused(words, hint=hint)

    def _read(self, question: Question, body: bytes) -> Answer:
        try:
            document: Any = json.loads(body)
            text = document["choices"][0]["message"]["content"]
        except (ValueError, LookupError, TypeError, RecursionError):
            text = None
            document = None
        if not isinstance(text, str):
            raise AnswerLost(f"{self.place} sent an answer without choices[0].message.content")
        usage: Any = cast("dict[str, Any]", document).get("usage")
        if isinstance(usage, dict):
            spent = cast("dict[str, Any]", usage)
            tokens_in, tokens_out = spent.get("prompt_tokens"), spent.get("completion_tokens")
            if _is_count(tokens_in) and _is_count(tokens_out):
                return Answer(text=text, tokens_in=tokens_in, tokens_out=tokens_out, estimated=False)
        return estimate(question, text)

    def _clean(self, text: str) -> str:
        """Return foreign words on one harmless line, with the key blotted out should the other side repeat it."""
        without_key = text.replace(self.api_key, "[key]") if self.api_key else text
        return one_line(without_key, MAX_ERROR_CHARACTERS)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """urllib would send the Authorization header on to wherever a redirect points."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> None:
        """Follow nothing: the status arrives as an HTTPError."""
        return


def _read_all(response: http.client.HTTPResponse, deadline: float) -> bytes:
    """Return the whole body; TimeoutError past the deadline, even where bytes keep trickling in."""
    parts: list[bytes] = []
    size = 0
    while chunk := response.read1(CHUNK_BYTES):
        parts.append(chunk)
        size += len(chunk)
        if size > MAX_ANSWER_BYTES:
            raise http.client.HTTPException(f"the answer is larger than {MAX_ANSWER_BYTES >> 20} MiB")
        if time.monotonic() > deadline:
            raise TimeoutError("timed out")
    if response.length:  # bytes that were announced and never came
        raise http.client.IncompleteRead(b"".join(parts), response.length)
    return b"".join(parts)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
