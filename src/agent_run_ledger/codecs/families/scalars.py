"""Strings, bytes and ranges that JSON cannot say by itself."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Final, cast

from agent_run_ledger.codecs.forms import Body, Damaged, Form, Parts, array, text

if TYPE_CHECKING:
    from agent_run_ledger.codecs.tagging import Writer
    from agent_run_ledger.codecs.untagging import Reader


def to_base64(content: bytes | bytearray | memoryview) -> str:
    """Return RFC 4648 base64 with padding."""
    return b64encode(content).decode("ascii")


def from_base64(body: Body, name: str = "v") -> bytes:
    """Return the bytes of a base64 member; raise ValueError for anything else."""
    return b64decode(text(body, name), validate=True)


def _write_str(value: str, put: Writer) -> Body:
    return {"v": to_base64(value.encode("utf-8", "surrogatepass"))}


def _read_str(body: Body, take: Reader) -> str:
    return from_base64(body).decode("utf-8", "surrogatepass")


def _write_bytes(value: bytes | bytearray, put: Writer) -> Body:
    return {"v": to_base64(value)}


def _read_bytes(body: Body, take: Reader) -> bytes:
    return from_base64(body)


def _read_bytearray(body: Body, take: Reader) -> bytearray:
    return bytearray(from_base64(body))


def _write_range(value: range, put: Writer) -> Body:
    return {"v": put.items([value.start, value.stop, value.step])}


def _read_range(body: Body, take: Reader) -> range:
    numbers = take.items(array(body))
    if [type(number) for number in numbers] != [int, int, int]:
        raise Damaged("a range has three integers")
    start, stop, step = cast("list[int]", numbers)
    return range(start, stop, step)


def _range_parts(value: range) -> Parts:
    return (".start", value.start), (".stop", value.stop), (".step", value.step)


def _no_parts(value: object) -> Parts:
    return ()


EXACT: Final[dict[type, Form]] = {
    str: Form(tag="str", write=_write_str, read=_read_str, parts=_no_parts),
    bytes: Form(tag="bytes", write=_write_bytes, read=_read_bytes, parts=_no_parts),
    bytearray: Form(tag="bytearray", write=_write_bytes, read=_read_bytearray, parts=_no_parts),
    range: Form(tag="range", write=_write_range, read=_read_range, parts=_range_parts),
}
"""str stands here for strings with lone surrogates; equality compares str and bytes as leaves."""
