"""Why a part of a value cannot be stored or digested, and where in the value it is."""

from __future__ import annotations

from typing import Final

from agent_run_ledger.codecs.plain import is_well_formed
from agent_run_ledger.errors import LedgerError, Misuse, Unstorable
from agent_run_ledger.kernel.canonical import child_path

ROOT: Final = "$"
_KEY_CHARACTERS: Final = 60
_WIDE: Final = 2**128
"""Wider integers are named by type: Python refuses to write very wide ones in decimal."""

_SHOWN_SEGMENTS: Final = 12

CODEC_HINT: Final = "give a plain value, or register_codec() for the type"


class NotFinite(Misuse, ValueError):
    """NaN or an infinity where a digest is needed; `path` says where inside the value."""

    code = "not_finite"

    def __init__(self, message: str, *, path: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.path = path


class Refusal(Exception):
    """A part of a value was refused; every container on the way up adds its segment with `within`.

    `code` is the machine word of the error that people will see; "not_finite" becomes NotFinite, all others Unstorable.
    """

    def __init__(self, reason: str, *, kind: type, code: str = "unstorable", hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind
        self.code = code
        self.hint = hint
        self._trail: list[str | int] = []

    def within(self, segment: str) -> None:
        """Note that the refused part is at `segment` of the container that is being written."""
        self._trail.append(segment)

    def passed(self, container: object) -> None:
        """Note that `container` holds all that was noted so far."""
        self._trail.append(id(container))

    def path(self) -> str:
        """Return where the refused part is, `$` being the whole value; a cycle is followed once."""
        segments: list[str] = []
        seen: set[int] = set()
        for entry in reversed(self._trail):
            if isinstance(entry, str):
                segments.append(entry)
            elif entry in seen:
                break
            else:
                seen.add(entry)
        if len(segments) > _SHOWN_SEGMENTS:
            half = _SHOWN_SEGMENTS // 2
            segments = [*segments[:half], "…", *segments[-half:]]
        return ROOT + "".join(segments)

    def is_cycle(self) -> bool:
        """Return whether some container lies within itself on the way to the refused part."""
        identities = [entry for entry in self._trail if isinstance(entry, int)]
        return len(set(identities)) < len(identities)

    def error(self) -> LedgerError:
        """Return the error of the tree that says this."""
        path = self.path()
        if self.code == "not_finite":
            return NotFinite(f"{path}: {self.reason}", path=path, hint=self.hint)
        code, reason = self.code, self.reason
        if code == "too_deep" and self.is_cycle():
            code, reason = "cyclic", "contains itself"
        return Unstorable(f"{path}: {reason}", path=path, type_name=type_name(self.kind), code=code, hint=self.hint)


def type_name(kind: type) -> str:
    """Return the name of a type for messages: `int`, `decimal.Decimal`."""
    module, name = str(kind.__module__), str(kind.__qualname__)
    return name if module == "builtins" else f"{module}.{name}"


def written_name(name: str, kind: type) -> str:
    """Return a name that stands as it is in the stored form of a `kind`; raise Refusal for a lone surrogate in it."""
    if not is_well_formed(name):
        reason = f"the name {name!a} in a {type_name(kind)} is no well-formed string"
        raise Refusal(reason, kind=kind, hint="use names without lone surrogates")
    return name


def segment_of(key: object) -> str:
    """Return the part of a path that leads to `key`; user objects are named by type, so that no user code runs."""
    if type(key) is str:
        return child_path("", key if len(key) <= _KEY_CHARACTERS else key[:_KEY_CHARACTERS] + "…")
    if type(key) in (float, bool, type(None), bytes) or (type(key) is int and abs(key) < _WIDE):
        return child_path("", key)[: _KEY_CHARACTERS + 2]
    return f"[<{type_name(type(key))}>]"
