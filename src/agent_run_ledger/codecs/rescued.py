"""The tags of what was kept readable only: reading one is always refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from agent_run_ledger.codecs.forms import Body, Form, Parts
from agent_run_ledger.errors import Unstorable

if TYPE_CHECKING:
    from agent_run_ledger.codecs.tagging import Writer
    from agent_run_ledger.codecs.untagging import Reader

RESCUED: Final = "rescued"
UNSTORABLE: Final = "unstorable"
TRUNCATED: Final = "truncated"


def _write(value: object, put: Writer) -> Body:
    raise TypeError("no value is written under this tag")


def _read(body: Body, take: Reader) -> NoReturn:
    kind = str(body.get("t", "value"))
    message = f"a {kind} was kept readable because it had no exact stored form: it cannot be restored"
    raise Unstorable(message, path="$", type_name=kind, hint="read it with the export; nothing was run again")


def _parts(value: object) -> Parts:
    return ()


FORMS: Final = tuple(Form(tag=tag, write=_write, read=_read, parts=_parts) for tag in (RESCUED, UNSTORABLE, TRUNCATED))
