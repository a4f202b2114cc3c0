"""Writes any storable value as tagged JSON, type-exact (format: encode v1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, cast

import orjson

from agent_run_ledger.codecs.equality import difference
from agent_run_ledger.codecs.forms import Form
from agent_run_ledger.codecs.lookup import form_of, why_not
from agent_run_ledger.codecs.plain import MAX_DEPTH, MAX_NODES, TAG, is_plain, is_plain_leaf, is_well_formed
from agent_run_ledger.codecs.refusal import CODEC_HINT, Refusal, segment_of, type_name
from agent_run_ledger.errors import LedgerError
from agent_run_ledger.kernel.canonical import Json, canonical

STRICT: Final = (
    orjson.OPT_STRICT_INTEGER
    | orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
)
"""orjson must refuse what is_plain and Writer should have kept from it."""


def encode(value: object) -> bytes:
    """Return the stored form of `value` (encode v1, docs/formats/encode.md); `decode` restores value and type.

    Raises Unstorable with the path of the first part that has no stored form, that contains itself ("cyclic"), or that
    lies deeper than 200 levels ("too_deep"). Calls no user code but registered codecs and the `str()` of exceptions.
    """
    return plain_bytes(value) or tagged_bytes(value)


def plain_bytes(value: object, *, max_nodes: int = MAX_NODES) -> bytes | None:
    """Return the stored form where `value` needs no tags, else None."""
    if not is_plain(value, max_nodes=max_nodes):
        return None
    try:
        return orjson.dumps(value, option=STRICT)
    except TypeError:  # a lone surrogate, or a value that another thread changes while we look
        return None


def tagged_bytes(value: object, *, max_nodes: int = MAX_NODES) -> bytes:
    """Return the stored form, written part by part. See encode."""
    return orjson.dumps(write(value, Writer(max_nodes=max_nodes)), option=STRICT)


def tree(value: object, *, finite: bool = True) -> Json:
    """Return the tagged JSON tree that digests are taken over: equal for a value and for what its stored form restores.

    As `encode` writes it, with the members of dicts in canonical key order where they are pairs, and with a tag on
    every float that is a whole number, since canonical JSON writes 1.0 as it writes 1. With `finite`, NaN and
    infinities raise NotFinite with their path; otherwise they are tagged. Raises Unstorable as `encode` does.
    """
    return write(value, Writer(digest=True, finite=finite))


def write(value: object, writer: Writer) -> Json:
    """Run `writer` over `value` and turn every refusal into an error of the tree."""
    try:
        return writer.node(value)
    except Refusal as refusal:
        raise refusal.error() from refusal.__cause__
    except RecursionError:
        hint = "the calling stack leaves no room"
        raise Refusal("nested too deep", kind=type(value), code="too_deep", hint=hint).error() from None
    except RuntimeError as error:
        hint = "do not change a value while it is being recorded"
        raise Refusal(f"changed while it was read: {error}", kind=type(value), hint=hint).error() from error
    except LedgerError:
        raise
    except Exception as error:  # a metaclass may raise anything at all
        raise Refusal(f"could not be read: {error!r}", kind=object, hint=CODEC_HINT).error() from error


class Writer:
    """One pass over one value. `depth` counts levels of JSON containers, `nodes_left` how many more values may come.

    `non_finite` tells afterwards whether a NaN or an infinity was met.
    """

    __slots__ = ("depth", "digest", "finite", "max_nodes", "nodes_left", "non_finite")

    def __init__(self, *, digest: bool = False, finite: bool = False, max_nodes: int = MAX_NODES) -> None:
        self.digest = digest
        self.finite = finite
        self.non_finite = False
        self.depth = 0
        self.max_nodes = max_nodes
        self.nodes_left = max_nodes

    def node(self, value: object) -> Json:
        """Return the stored form of one value; raise Refusal."""
        kind: type = type(value)
        if is_plain_leaf(value) and (kind is not str or is_well_formed(value)):
            if kind is float and self.digest and cast("float", value).is_integer():
                # Not a level of depth: what can be stored always has a digest.
                return {TAG: "float", "v": repr(value)}
            return cast("Json", value)
        try:
            if kind is list:
                return self.items(cast("list[object]", value))
            if kind is dict and has_plain_keys(cast("dict[object, object]", value)):
                return self.named(cast("dict[str, object]", value))
            form = form_of(kind)
            if form is None:
                reason, hint = why_not(kind)
                raise Refusal(reason, kind=kind, hint=hint)
            return self.tagged(form, value)
        except Refusal as refusal:
            refusal.passed(value)
            raise

    def tagged(self, form: Form, value: object) -> Json:
        """Return the tagged object of a value whose form is known."""
        self._enter(value, 1)
        written: dict[str, Json] = {TAG: form.tag}
        written.update(form.write(value, self))
        self.depth -= 1
        return written

    def items(self, values: Iterable[object]) -> list[Json]:
        """Return the stored forms of `values` in their order."""
        self._enter(values, 1)
        written: list[Json] = []
        try:
            for value in values:
                written.append(self.node(value))
        except Refusal as refusal:
            refusal.within(f"[{len(written)}]")
            raise
        self._leave(len(written))
        return written

    def named(self, values: Mapping[str, object], *, attributes: bool = False) -> dict[str, Json]:
        """Return an object with the stored form of each value; the keys are well-formed strings."""
        self._enter(values, 1)
        written: dict[str, Json] = {}
        key = ""
        try:
            for key, value in values.items():
                if type(key) is not str or not is_well_formed(key):
                    raise Refusal("a name that is no well-formed string", kind=type(key))
                written[key] = self.node(value)
        except Refusal as refusal:
            refusal.within(f".{key}" if attributes else segment_of(key))
            raise
        self._leave(len(written))
        return written

    def pairs(self, items: Iterable[tuple[object, object]], *, ordered: bool = False) -> list[Json]:
        """Return [key, value] pairs; in a digest in canonical key order, unless the order is part of the value."""
        self._enter(items, 2)
        written: list[list[Json]] = []
        segment = ""
        try:
            for key, value in items:
                segment = f".keys()[{len(written)}]"
                pair = [self.node(key)]
                segment = segment_of(key)
                pair.append(self.node(value))
                written.append(pair)
        except Refusal as refusal:
            refusal.within(segment)
            raise
        self._leave(2 * len(written), levels=2)
        if self.digest and not ordered:
            written.sort(key=lambda pair: canonical(pair[0]))
        return cast("list[Json]", written)

    def unordered(self, values: Iterable[object]) -> list[Json]:
        """Return the stored forms of the elements of a set, sorted by their canonical bytes."""
        self._enter(values, 1)
        written: list[Json] = []
        value: object = None
        try:
            for value in values:
                written.append(self.node(value))
        except Refusal as refusal:
            refusal.within(f"{{{type_name(type(value))}}}")
            raise
        self._leave(len(written))
        written.sort(key=canonical)
        return written

    def attribute(self, name: str, value: object) -> Json:
        """Return the stored form of one attribute of the value being written."""
        try:
            return self.node(value)
        except Refusal as refusal:
            refusal.within(f".{name}")
            raise

    def attempt(self, name: str, value: object) -> tuple[Json] | None:
        """Return the stored form of an attribute in a tuple, or None where it has none.

        What is too large, or not finite where only finite numbers are allowed, is still refused.
        """
        depth, nodes_left, finite = self.depth, self.nodes_left, self.finite
        try:
            return (self.node(value),)
        except Refusal as refusal:
            if refusal.code in ("too_large", "not_finite"):
                refusal.within(f".{name}")
                raise
        self.depth, self.nodes_left, self.finite = depth, nodes_left, finite
        return None

    def is_same(self, one: object, other: object) -> bool:
        """Return whether two values are equal in value and type, deeply."""
        return difference(one, other) is None

    def table_members(self, values: Mapping[str, object]) -> dict[str, Json]:
        """Write the members of a table or column, in which NaN is how a missing value is said and has a digest."""
        finite, non_finite = self.finite, self.non_finite
        self.finite = False
        written = self.named(values, attributes=True)
        self.finite, self.non_finite = finite, non_finite
        return written

    def note_non_finite(self, value: object) -> None:
        """Remember that a NaN or an infinity was met; raise Refusal where only finite numbers are allowed."""
        self.non_finite = True
        if self.finite:
            text = str(value)
            why = "NaN differs from itself" if "nan" in text.lower() else "an infinity is no JSON number"
            hint = f"{why}: pass None or a string"
            raise Refusal(f"{text} has no digest", kind=type(value), code="not_finite", hint=hint)

    def _enter(self, value: object, levels: int) -> None:
        self.depth += levels
        if self.depth > MAX_DEPTH:
            raise Refusal(f"nested deeper than {MAX_DEPTH} levels", kind=type(value), code="too_deep")

    def _leave(self, nodes: int, *, levels: int = 1) -> None:
        self.depth -= levels
        self.nodes_left -= nodes
        if self.nodes_left < 0:
            reason = f"it has more than {self.max_nodes:,} parts, each use of a shared part counted"
            raise Refusal(reason, kind=object, code="too_large")


def has_plain_keys(keys: Iterable[object]) -> bool:
    """Return whether a JSON object can hold these keys as they are: well-formed strings that are not the tag key."""
    return all(type(key) is str and key != TAG and is_well_formed(key) for key in keys)
