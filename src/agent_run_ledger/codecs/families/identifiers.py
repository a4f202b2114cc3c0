"""Paths of both flavours, pure and concrete, and UUIDs."""

from __future__ import annotations

from pathlib import Path, PosixPath, PurePath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import TYPE_CHECKING, Final
from uuid import UUID, SafeUUID

from agent_run_ledger.codecs.forms import Body, Damaged, Form, Parts, text, whole
from agent_run_ledger.errors import ClassGone

if TYPE_CHECKING:
    from agent_run_ledger.codecs.tagging import Writer
    from agent_run_ledger.codecs.untagging import Reader

_FLAVOURS: Final[dict[str, type[PurePath]]] = {
    kind.__name__: kind for kind in (PosixPath, WindowsPath, PurePosixPath, PureWindowsPath)
}


def _write_path(value: PurePath, put: Writer) -> Body:
    return {"t": type(value).__name__, "v": put.attribute("__str__()", str(value))}


def _read_path(body: Body, take: Reader) -> PurePath:
    flavour = text(body, "t")
    name = take.node(body["v"])
    if type(name) is not str:
        raise Damaged("a path is no string")
    kind = _FLAVOURS[flavour]
    if issubclass(kind, Path) and type(Path()) is not kind:
        message = f"a stored value is a {flavour}, which this operating system has not"
        raise ClassGone(message, hint="record pure paths to read them anywhere")
    return kind(name)


def _path_parts(value: PurePath) -> Parts:
    return (".drive", value.drive), (".root", value.root), (".parts", value.parts)


def _write_uuid(value: UUID, put: Writer) -> Body:
    if value.is_safe is SafeUUID.unknown:
        return {"v": value.hex}
    return {"v": value.hex, "safe": value.is_safe.value}


def _read_uuid(body: Body, take: Reader) -> UUID:
    safe = SafeUUID(whole(body, "safe")) if "safe" in body else SafeUUID.unknown
    value = UUID(hex=text(body), is_safe=safe)
    if value.hex != body["v"]:
        raise Damaged("no UUID")
    return value


def _uuid_parts(value: UUID) -> Parts:
    return (".int", value.int), (".is_safe", value.is_safe.value)


_PATH: Final = Form(tag="path", write=_write_path, read=_read_path, parts=_path_parts)

EXACT: Final[dict[type, Form]] = {
    **dict.fromkeys(_FLAVOURS.values(), _PATH),
    UUID: Form(tag="uuid", write=_write_uuid, read=_read_uuid, parts=_uuid_parts),
}
