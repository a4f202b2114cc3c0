"""What the words of an outcome say about it: an infrastructure error, a plain "done", a small answer, a wait."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

SMALL: Final = 48
"""Characters up to which an answer is a verdict (`False`, `0`, `incorrect`) more than a content."""

_TRANSIENT: Final = re.compile(
    r"\b(?:http|status|code|error)\W{0,3}(?:code\W{0,3})?(?:429|50[0-4]|529)\b"
    r"|\b(?:429|50[0-4]|529)\b\W{1,3}(?:too many|(?:internal )?server|bad gateway|service|gateway)"
    r"|too many requests|rate.?limit|timed? ?out\b|timeout|service (?:is )?(?:temporarily )?unavailable|bad gateway"
    r"|temporarily unavailable|overloaded|connection ?(?:was )?(?:reset|refused|closed|aborted|error)|econnre|etimedout"
    r"|connection attempts failed|server disconnected|broken pipe|network is unreachable|failure in name resolution"
    r"|throttling"
)
_DONE: Final = re.compile(
    r"\b(?:ok|okay|done|success|successful|successfully|succeeded|saved|written|created|updated|edited|inserted|deleted"
    r"|removed|added|sent|stored|accepted|applied|replacements?|true|acknowledged|ack)\b"
)
_UNDONE: Final = re.compile(r"\b(?:not|no|fail\w*|error\w*|unable|cannot|can't|denied|invalid|false|missing)\b|n't\b")
_WRONG: Final = re.compile(
    r"^\W*(?:\w+ ?)?(?:error|exception|failure|failed|fatal|traceback)\b|command not found|no such file"
)
_NO_ERROR: Final = re.compile(
    r"\"(?:\w*error\w*|\w*failures?|\w*failed|\w*exceptions?|\w*missing|\w*invalid)\": (?:null|false|0|\"\"|\[\]|\{\})"
)
"""A field for errors that holds none."""

_EMPTY: Final = re.compile(r"\{(?:\"[^\"]*\": (?:null|true|false|0|\"\"|\[\]|\{\})(?:, )?)+\}")
_WAITING: Final = re.compile(
    r"\b(?:running|queued|pending|in.progress|waiting|processing|building|starting|not (?:yet )?ready|not (?:yet )?done"
    r"|scheduled|in_queue|still)\b|\"(?:ready|done|finished|complete|completed)\": ?false"
)
_WATCHING: Final = re.compile(r"(?:^|[_\W])(?:status|poll|wait|watch|progress|health|heartbeat|sleep)(?:$|[_\W])")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PAUSE: Final = re.compile(r"\bsleep \d|\bwatch -|--wait\b")


def is_transient(error: str) -> bool:
    """Whether an error is one of infrastructure, which a retry may cure: 429, 5xx, a timeout, a lost connection."""
    return _TRANSIENT.search(error) is not None


def is_done(text: str) -> bool:
    """Whether an outcome only says that something was done: it is the same for every input."""
    if len(text) > 160 or _DONE.search(text) is None:
        return False
    return _UNDONE.search(_NO_ERROR.sub("", text)) is None


def is_wrong(text: str) -> bool:
    """Whether an outcome that came back as a value speaks of an error."""
    return _WRONG.search(_NO_ERROR.sub("", text[:200])) is not None


def is_small(text: str) -> bool:
    """Whether an outcome is a verdict more than a content: short, or a value with nothing in it but yes, no and 0."""
    return len(text) <= SMALL or _EMPTY.fullmatch(text) is not None


def is_wait(tool: str, arguments: str, text: str) -> bool:
    """Whether a call looks at something that goes on elsewhere: by its tool's name, a pause in it, or the answer."""
    return (
        _is_watch(tool)
        or _PAUSE.search(arguments) is not None
        or (len(text) <= 160 and _WAITING.search(text) is not None)
    )


@lru_cache(maxsize=1024)
def _is_watch(tool: str) -> bool:
    return _WATCHING.search(_HUMP.sub("_", tool).lower()) is not None
