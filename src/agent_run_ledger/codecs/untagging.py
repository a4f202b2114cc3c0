"""Reads stored values back, calling nothing that the stored bytes name except classes of a known family (encode v1)."""

from __future__ import annotations

from typing import Final, cast

import orjson

from agent_run_ledger.codecs.equality import difference
from agent_run_ledger.codecs.forms import Body, Damaged
from agent_run_ledger.codecs.lookup import form_by_tag
from agent_run_ledger.codecs.plain import MAX_DEPTH, TAG
from agent_run_ledger.errors import ClassGone, LedgerError, Misuse, Tampered
from agent_run_ledger.kernel.canonical import Json

_MARK: Final = orjson.dumps(TAG)


def decode(payload: bytes) -> object:
    """Return the value that `encode` wrote, equal in value and type.

    Raises Tampered when the bytes are no stored form, ClassGone when this program lacks a class or codec that the
    value needs, Unstorable for the readable rescue of a value that was never stored exactly.
    """
    try:
        loaded = orjson.loads(payload)
    except ValueError as error:
        raise Tampered(f"a stored value is no JSON: {error}", code="damaged_value") from error
    if _MARK not in payload:
        return cast("object", loaded)
    try:
        return Reader().node(cast("Json", loaded))
    except RecursionError:
        raise Misuse("the calling stack leaves no room to restore a deep value", code="too_deep") from None


class Reader:
    """One pass over one stored value; lists and objects are rebuilt in place."""

    __slots__ = ("depth",)

    def __init__(self) -> None:
        self.depth = 0

    def node(self, stored: Json) -> object:
        """Return the value of one stored form."""
        if type(stored) is dict:
            return self._tagged(stored) if TAG in stored else self.named(stored)
        if type(stored) is list:
            return self.items(stored)
        return stored

    def items(self, stored: list[Json]) -> list[object]:
        """Return the values of an array, in the same list."""
        self._enter()
        values = cast("list[object]", stored)
        for index, item in enumerate(stored):
            if type(item) is dict or type(item) is list:
                values[index] = self.node(item)
        self.depth -= 1
        return values

    def named(self, stored: dict[str, Json]) -> dict[str, object]:
        """Return the values of an object whose keys are the user's, in the same dict."""
        self._enter()
        values = cast("dict[str, object]", stored)
        for key, item in stored.items():
            if type(item) is dict or type(item) is list:
                values[key] = self.node(item)
        self.depth -= 1
        return values

    def pairs(self, stored: list[Json]) -> list[tuple[object, object]]:
        """Return (key, value) pairs in their order."""
        self._enter()
        pairs: list[tuple[object, object]] = []
        for pair in stored:
            if type(pair) is not list or len(pair) != 2:
                raise Damaged("a pair is no array of two")
            pairs.append((self.node(pair[0]), self.node(pair[1])))
        self.depth -= 1
        return pairs

    def is_same(self, one: object, other: object) -> bool:
        """Return whether two values are equal in value and type, deeply."""
        return difference(one, other) is None

    def _tagged(self, stored: Body) -> object:
        self._enter()
        form = form_by_tag(stored[TAG])
        try:
            value = form.read(stored, self)
        except (LedgerError, RecursionError):
            raise
        except ImportError as error:  # pandas asks for pyarrow where a column needs it
            raise ClassGone(f"a stored {form.tag!r} needs a library that is not here: {error}") from error
        except Exception as error:
            raise Tampered(f"a stored {form.tag!r} does not decode: {error}", code="damaged_value") from error
        self.depth -= 1
        return value

    def _enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Tampered(f"a stored value is nested deeper than {MAX_DEPTH} levels", code="damaged_value")
