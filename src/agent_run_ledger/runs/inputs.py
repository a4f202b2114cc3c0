"""A run's inputs: snapshots handed out fresh to every step, and salted digests that tell which path changed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, cast

from agent_run_ledger import codecs
from agent_run_ledger.errors import InputsChanged, LedgerError, Unstorable
from agent_run_ledger.kernel.digests import short_digest
from agent_run_ledger.runs.differences import deep_difference, is_text

CHILDREN_KEPT = 64
"""How many list elements (the last ones) or dict keys get a digest of their own."""


class Inputs:
    """The keyword arguments of `execute`, encoded once.

    Guarantees: a step that changes its argument in place changes nothing for other steps or for a restart. Values
    without a stored form raise Unstorable, NaN and infinity Misuse, both naming the path; nothing has run by then.
    """

    def __init__(self, values: Mapping[str, object], *, limit_bytes: int) -> None:
        self._packed: dict[str, codecs.Packed] = {}
        self.digests: dict[str, bytes] = {}
        self._children: dict[str, dict[str, bytes]] = {}
        for name, value in values.items():
            try:
                packed = codecs.pack(value, limit_bytes=limit_bytes)
                self.digests[name] = packed.value_sha256 if packed.finite else codecs.value_digest(value)
                self._packed[name] = packed
            except LedgerError as error:
                error.add_note(f"while reading run input {name!r}")
                error.message = f"run input {name!r}: {error.message}"
                raise
            self._children[name] = _child_digests(value)

    @property
    def names(self) -> frozenset[str]:
        """The names of all inputs."""
        return frozenset(self._packed)

    def take(self, name: str) -> Any:
        """Return a fresh copy of one input."""
        packed = self._packed[name]
        return codecs.unpack(packed.encoding, packed.payload)

    def stored(self, salt: bytes) -> dict[str, dict[str, Any]]:
        """Return the detail kept in a START record: per input a salted digest and those of its children."""
        return {
            name: {
                "sha256": hashlib.sha256(salt + digest).hexdigest(),
                "children": {
                    path: short_digest(salt, f"{name}{path}", child) for path, child in self._children[name].items()
                },
            }
            for name, digest in self.digests.items()
        }

    def kept(self, *, limit_bytes: int) -> dict[str, Any]:
        """Return a fresh copy of every input, to be kept in a START record.

        Unstorable("too_large") where all of them together have more than `limit_bytes` when encoded.
        """
        values = {name: self.take(name) for name in self._packed}
        size = len(codecs.encode(values))
        if size > limit_bytes:
            raise Unstorable(
                f"the inputs have {size:,} bytes together when encoded, the limit is {limit_bytes:,}",
                path="inputs",
                type_name="dict",
                code="too_large",
                hint="raise max_payload_bytes, or do without keep_inputs",
            )
        return values

    def first_difference(
        self, stored: Mapping[str, Any], salt: bytes, *, kept: Callable[[], Mapping[str, Any]] = dict
    ) -> str | None:
        """Return the path of the first input that differs from a START record's detail, or None.

        `kept` is asked for the values themselves where an input differs: with them the path goes to the bottom.
        """
        now = self.stored(salt)
        for name in sorted({*now, *stored}):
            if name not in stored:
                return f"inputs.{name} (new)"
            if name not in now:
                return f"inputs.{name} (missing)"
            if stored[name]["sha256"] != now[name]["sha256"]:
                child = _first_child(stored[name]["children"], now[name]["children"])
                return f"inputs.{name}{self._deep(name, kept) or child}"
        return None

    def refuse_changed(
        self,
        run_id: str,
        stored: Mapping[str, Any],
        salt: bytes,
        *,
        kept: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        """Raise InputsChanged, naming the path, unless these are the inputs the run was started with."""
        path = self.first_difference(stored, salt, kept=kept)
        if path is not None:
            raise InputsChanged(
                f"run {run_id!r} was started with other inputs: {path} differs",
                hint="use a new run_id for other inputs",
            )

    def _deep(self, name: str, kept: Callable[[], Mapping[str, Any]]) -> str:
        try:
            before = kept()
            return (deep_difference(before[name], self.take(name)) or "") if name in before else ""
        except LedgerError:  # a class of a kept value is gone: the digests have to do
            return ""


def _child_digests(value: object) -> dict[str, bytes]:
    if type(value) is list:
        elements = cast("list[object]", value)
        first = max(0, len(elements) - CHILDREN_KEPT)
        return {f"[{first + at}]": codecs.value_digest(item) for at, item in enumerate(elements[first:])}
    if type(value) is dict:
        entries = cast("dict[object, object]", value)
        kept = [key for key in entries if isinstance(key, str) and is_text(key)][:CHILDREN_KEPT]
        return {f".{key}": codecs.value_digest(entries[key]) for key in kept}
    return {}


def _first_child(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    changed = [path for path in {**before, **after} if before.get(path) != after.get(path)]
    return changed[0] if changed else ""
