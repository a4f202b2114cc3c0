"""What is asked for when an action is proposed, as people say it: the exact bytes and the conditions for them."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import cast

from agent_run_ledger.errors import Misuse
from agent_run_ledger.kernel.effects import TargetClass, Terms
from agent_run_ledger.kernel.effects.exact import is_whole
from agent_run_ledger.kernel.effects.request import MAX_REQUEST_BYTES

MAX_TEXT = 1_024
MAX_PRECONDITIONS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """One effect that is wanted: `request`, byte for byte, by `executor`, at `audience`, within the window.

    Times are Unix milliseconds, `not_before_ms <= now < dispatch_before_ms`. `target_class` is what the receiver does
    about a request that comes late or again; `checks_expiry`, whether it refuses a permit that is over. `preconditions`
    are pairs of name and expected value. `policy_sha256` and `display_sha256` are the digests (32 bytes) of the policy
    that counts approvals and of what approvers are shown.
    """

    request: bytes
    executor: str
    audience: str
    target_class: TargetClass
    not_before_ms: int
    dispatch_before_ms: int
    policy_sha256: bytes
    display_sha256: bytes
    approvals_needed: int = 1
    checks_expiry: bool = False
    preconditions: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        """Misuse("bad_intent") for values that no ledger could keep or sign."""
        request = cast(object, self.request)
        if not isinstance(request, bytes) or len(request) > MAX_REQUEST_BYTES:
            raise _bad(f"a request is at most {MAX_REQUEST_BYTES} bytes, as `bytes`")
        for name in ("policy_sha256", "display_sha256"):
            digest = getattr(self, name)
            if not isinstance(digest, bytes) or len(digest) != sha256().digest_size:
                raise _bad(f"{name} is a SHA-256, 32 bytes")
        for name, text in (("executor", self.executor), ("audience", self.audience)):
            check_text(name, text)
        if len(self.preconditions) > MAX_PRECONDITIONS:
            raise _bad(f"an action has at most {MAX_PRECONDITIONS} preconditions")
        for pair in self.preconditions:
            if len(pair) != 2:
                raise _bad("a precondition is a pair of name and expected value")
            check_text("a precondition's name", pair[0])
            check_text("a precondition's value", pair[1], empty=True)
        for name in ("not_before_ms", "dispatch_before_ms", "approvals_needed"):
            number = getattr(self, name)
            if type(number) is not int or abs(number) >= 1 << 53:
                raise _bad(f"{name} is an integer below 2**53")

    def terms(self) -> Terms:
        """Return the terms that the rules decide by."""
        return Terms(
            request_sha256=sha256(self.request).digest(),
            executor=self.executor,
            audience=self.audience,
            target_class=self.target_class,
            not_before_ms=self.not_before_ms,
            dispatch_before_ms=self.dispatch_before_ms,
            policy_sha256=self.policy_sha256,
            display_sha256=self.display_sha256,
            approvals_needed=self.approvals_needed,
            checks_expiry=self.checks_expiry,
            preconditions=self.preconditions,
        )


def check_text(name: str, text: object, *, empty: bool = False) -> None:
    """Misuse("bad_intent") unless this is text that JSON, SQL and people can hold: no lone surrogate, no NUL."""
    if not isinstance(text, str) or not (text or empty) or len(text) > MAX_TEXT:
        raise _bad(f"{name} is text of 1 to {MAX_TEXT} characters")
    if "\0" in text or not (text.isascii() or is_whole(text)):
        raise _bad(f"{name} {text!r} holds a NUL or half a character")


def _bad(said: str) -> Misuse:
    return Misuse(said, code="bad_intent")
