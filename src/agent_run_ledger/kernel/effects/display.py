"""What approvers are shown of a request, made from its exact bytes and harmless as text (format: display v1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any, Final, cast

import orjson

from agent_run_ledger.kernel.canonical import canonical
from agent_run_ledger.kernel.effects.request import Call, request_from

DISPLAY_V1: Final = "arl/display/v1"
MAX_SHOWN_BYTES: Final = 64 << 10
"""How much of a body is shown. Of a longer one the display says how much it leaves out."""

_ROW_BYTES: Final = 32
_LETTERS: Final = (
    (0x20, 0x7E), (0xC0, 0xD6), (0xD8, 0xF6), (0xF8, 0x17F), (0x391, 0x3A1), (0x3A3, 0x3C9), (0x410, 0x44F),
    (0x3041, 0x3096), (0x30A1, 0x30FA), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3),
)  # fmt: skip
"""What stands for itself: ASCII, letters of Latin, Greek, Cyrillic, Kana, Han and Hangul that combine with nothing.

A table and not the interpreter's, which changes from version to version: the same bytes are the same text for ever.
"""


def display(stored: bytes) -> str:
    """Return the text of a request's bytes; the lines of its body begin with `| `. BadRequest for no request.

    Every character but the letters of this format is written `\\u{hex}`, a backslash `\\\\`. Letters beyond ASCII are
    named once more in a line of their own, as some look like others.
    """
    request, digest = request_from(stored), sha256(stored).hexdigest()
    lines = [DISPLAY_V1, f"request {digest}, {len(stored)} bytes"]
    if isinstance(request, Call):
        lines.append(f"call {request.name}")
    else:
        lines.append(f"{request.method} {request.path}")
        lines += [f"{name}: {shown(value)}" for name, value in request.headers]
    lines += _body(request.body)
    beyond = letters_beyond(lines)
    if beyond:
        lines.append(beyond)
    return "\n".join(lines) + "\n"


def letters_beyond(lines: Sequence[str]) -> str:
    """Return one line that names the letters beyond ASCII of some lines, as some look like others; "" without any."""
    beyond = sorted({char for line in lines for char in line if char > "~"})
    if not beyond:
        return ""
    return "letters beyond ASCII: " + " ".join(f"{char}=U+{ord(char):04X}" for char in beyond)


def display_sha256(stored: bytes) -> bytes:
    """Return the digest of what approvers are shown: SHA-256 of the UTF-8 of `display(stored)`."""
    return sha256(display(stored).encode("utf-8")).digest()


def shown(text: str) -> str:
    """Return text in which only letters stand for themselves."""
    return "".join("\\\\" if char == "\\" else char if _is_letter(char) else f"\\u{{{ord(char):x}}}" for char in text)


def _is_letter(char: str) -> bool:
    return any(first <= ord(char) <= last for first, last in _LETTERS)


def _body(body: bytes) -> Iterator[str]:
    if not body:
        yield "no body"
        return
    part, tree, text = body[:MAX_SHOWN_BYTES], _tree(body), _text(body)
    if tree is not None:
        form, rows = "JSON", _json(tree[0], "", "")
    elif text is not None:
        form, rows = "text", iter(_text_rows(text, part))
    else:
        form, rows = "hexadecimal", (part[at : at + _ROW_BYTES].hex(" ") for at in range(0, len(part), _ROW_BYTES))
    yield f"body, {len(body)} bytes, {form}"
    yield from (f"| {row}" for row in rows)
    if len(part) < len(body):
        yield f"NOT SHOWN: the last {len(body) - len(part)} bytes of the body"


def _text(body: bytes) -> str | None:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _text_rows(text: str, part: bytes) -> list[str]:
    """Return the lines of what is shown of a text; a letter that the cut went through is left out with the rest."""
    return [shown(line) for line in text[: len(part.decode("utf-8", "ignore"))].split("\n")]


def _tree(body: bytes) -> tuple[Any] | None:
    """Return the value of a body that is canonical JSON and short enough to be shown whole; None for any other.

    What is no canonical JSON is shown as the text that it is: a name that comes twice would be read in two ways.
    """
    if not body or len(body) > MAX_SHOWN_BYTES:
        return None
    try:
        tree = orjson.loads(body)
        return (tree,) if canonical(tree) == body else None
    except (ValueError, RecursionError):
        return None


def _json(tree: object, before: str, after: str, depth: int = 0) -> Iterator[str]:
    """Yield the lines of a value, one member each, members of an object in the order of the bytes."""
    space = "  " * depth
    parts: list[tuple[str, object]]
    whole: object = tree
    if isinstance(tree, dict) and tree:
        members = cast("dict[str, object]", tree).items()
        parts, brackets = [(f"{_string(name)}: ", value) for name, value in members], "{}"
    elif isinstance(tree, list) and tree:
        parts, brackets = [("", value) for value in cast("list[object]", tree)], "[]"
    else:
        scalar = _string(tree) if isinstance(tree, str) else canonical(whole).decode("ascii")
        yield f"{space}{before}{scalar}{after}"
        return
    yield f"{space}{before}{brackets[0]}"
    for number, (name, value) in enumerate(parts, 1):
        yield from _json(value, name, "," if number < len(parts) else "", depth + 1)
    yield f"{space}{brackets[1]}{after}"


def _string(text: str) -> str:
    quoted = shown(text).replace('"', '\\"')
    return f'"{quoted}"'
