"""Finds the signed trust file that a store's decisions rest on, and who somebody is by it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final

from agent_run_ledger.effects.system_time import CheckedTime, SystemTime
from agent_run_ledger.effects.trusting import MAX_SIGNED_BYTES, SignedTrust, known_trust, open_trust
from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.effects import Now
from agent_run_ledger.kernel.effects.commands import Actor
from agent_run_ledger.kernel.effects.principals import Principal
from agent_run_ledger.kernel.effects.trust import TrustFile
from agent_run_ledger.kernel.effects.trust_change import TrustOnRecord
from agent_run_ledger.keys import SigningKey
from agent_run_ledger.ledger.effect_ledger import EffectLedger
from agent_run_ledger.ledger.local_trust import TRUST_NAME, is_local, local_folder
from agent_run_ledger.ports.effects import TimeSource
from agent_run_ledger.store import is_url, open_store

TRUST_VARIABLE: Final = "AGENT_RUN_LEDGER_TRUST"

OnRecord = Callable[[], TrustOnRecord | None]
"""Asks which trust file is on record in a store."""

_PUT_IN_USE: Final = (
    "`arl trust show` has its digest: compare it, and `arl trust follow` the file; if it is not yours, take it away"
)
_NAME_IT: Final = f"name the file with --trust or {TRUST_VARIABLE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A trust file that enough of its officers signed, where it lies, and whether keys lie beside the store."""

    signed: SignedTrust
    path: Path
    local: bool

    @property
    def trust(self) -> TrustFile:
        """What it says."""
        return self.signed.trust


def trust_path_of(db_path: str | PathLike[str], trust_path: str | PathLike[str] | None = None) -> Path:
    """Return where a store's trust file is looked for: the path that is given, the environment's, or beside it.

    Refused("only_in_file") where none is named and the store is at a server.
    """
    named = trust_path if trust_path is not None else os.environ.get(TRUST_VARIABLE)
    return Path(named) if named else local_folder(db_path) / TRUST_NAME


def find_authority(
    db_path: str | PathLike[str],
    trust_path: str | PathLike[str] | None = None,
    *,
    time: TimeSource | None = None,
    on_record: OnRecord | None = None,
) -> Authority | None:
    """Return the trust file of a store, None where none was named and none lies beside it.

    Looked for as `trust_path_of` says. Refused: "no_trust_file" for one that was named and is not there, "unreadable",
    "trust_not_in_use" for one that only lies beside a store which has none on record: whoever can write the folder is
    not who decides whose signatures count. And as `open_trust` says of one that too few officers signed. The one on
    record counted when it came into use, and is found also after the keys of its officers are over. Whether it is that
    one, its ledger says. `on_record` asks a store that is open already, so that it is not opened once more: the name of
    one at a server may lack its password.
    """
    in_use = on_record or (lambda: trust_in_use(db_path))
    named = trust_path is not None or bool(os.environ.get(TRUST_VARIABLE))
    if not named and is_url(db_path):
        return None
    path = trust_path_of(db_path, trust_path)
    if not named and not os.path.lexists(path):
        return None
    signed = opened_trust(db_path, read_trust_file(path), time=time, on_record=in_use)
    if not named and in_use() is None:
        said = f"{path} lies beside the store, and nobody has put it in use"
        raise Refused(said, code="trust_not_in_use", hint=_PUT_IN_USE)
    return Authority(signed=signed, path=path, local=is_local(db_path))


def opened_trust(
    db_path: str | PathLike[str],
    data: bytes,
    *,
    time: TimeSource | None = None,
    on_record: OnRecord | None = None,
) -> SignedTrust:
    """Return a signed trust file: the one on record in a store by its digest alone, any other as `open_trust` does."""
    try:
        return open_trust(data, now=now_here(time), expected_sha256=None)
    except Refused as few:
        if few.code != "few_officers":
            raise
        in_use = trust_in_use(db_path) if on_record is None else on_record()
        if in_use is None:
            raise
        try:
            return known_trust(data, sha256=in_use.sha256)
        except Refused:
            raise few from None


def trust_in_use(db_path: str | PathLike[str]) -> TrustOnRecord | None:
    """Return which trust file is on record in a store, None where none is. Refused("no_store")."""
    store = open_store(db_path, create=False, readonly=True)
    try:
        return store.reader().effects.trust()
    finally:
        store.close()


def read_trust_file(path: str | PathLike[str]) -> bytes:
    """Return what a file of at most MAX_SIGNED_BYTES holds. Refused: "no_trust_file", "unreadable"."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_SIGNED_BYTES:
                raise Refused(f"{path} is no trust file: it is no file, or far too long", code="unreadable")
            return file.read(MAX_SIGNED_BYTES + 1)
    except FileNotFoundError:
        raise Refused(f"there is no trust file {path}", code="no_trust_file", hint=_NAME_IT) from None
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}", code="unreadable") from None


def open_effects(
    db_path: str | PathLike[str], *, trust_path: str | PathLike[str] | None = None, **settings: Any
) -> EffectLedger:
    """Open the effects of a store under its trust file, where it has one; `settings` are those of `EffectLedger`.

    Errors of `find_authority` and `EffectLedger`.
    """
    found = find_authority(db_path, trust_path, time=settings.get("time"))
    return EffectLedger(db_path, trust=None if found is None else found.signed, **settings)


def actor_of(trust: TrustFile | SignedTrust, name: str) -> Actor:
    """Return somebody of a trust file with the roles that it gives them. Refused("unknown_principal")."""
    who = _file(trust).principal(name)
    if who is None:
        raise Refused(f"{name!r} is nobody of the trust file", code="unknown_principal", hint="`arl principals list`")
    return Actor(who.name, who.roles)


def actor_with_key(trust: TrustFile | SignedTrust, key: SigningKey, *, now: Now | None = None) -> Actor:
    """Return the principal whose key this is and counts now, by this machine's clock or `now`.

    Refused: "other_key" for nobody's, "key_not_yet_valid", "key_expired".
    """
    who, now = holder_of(trust, key.key_id), now or now_here()
    held = None if who is None else who.key(key.key_id)
    if who is None or held is None:
        hint = "`arl principals list` shows whose keys count"
        raise Refused(f"key {key.key_id} is that of nobody in the trust file", code="other_key", hint=hint)
    if not held.begun(now):
        raise Refused(f"key {key.key_id} of {who.name} does not count yet", code="key_not_yet_valid")
    if held.over(now):
        raise Refused(f"key {key.key_id} of {who.name} counts no more", code="key_expired")
    return Actor(who.name, who.roles)


def holder_of(trust: TrustFile | SignedTrust, key_id: str) -> Principal | None:
    """Return the principal who has a key of this id, None for nobody. Whether it counts now, this does not say."""
    return next((one for one in _file(trust).principals if one.key(key_id) is not None), None)


def _file(trust: TrustFile | SignedTrust) -> TrustFile:
    return trust.trust if isinstance(trust, SignedTrust) else trust


def now_here(time: TimeSource | None = None) -> Now:
    """Return the time by this machine's clock, or by `time`, as no transaction knows it."""
    wall_ms = CheckedTime(time or SystemTime()).sample().wall_ms
    return Now(wall_ms, wall_ms)
