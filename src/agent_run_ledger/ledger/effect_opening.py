"""What an effect ledger checks of a store when it is opened, and of a request when it is read."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from agent_run_ledger.effects.engine import LIMITS, Settings
from agent_run_ledger.effects.refusals import unknown_action
from agent_run_ledger.effects.sizes import check_id
from agent_run_ledger.effects.trusting import SignedTrust
from agent_run_ledger.errors import Refused, Tampered
from agent_run_ledger.kernel.effects import Standing
from agent_run_ledger.kernel.effects.record import transition_from
from agent_run_ledger.kernel.effects.strength import weaker
from agent_run_ledger.ports import Store

_INIT = "`arl init` gives a store authority, once, by people's decision"


def refuse_unfit(store: Store, trust: SignedTrust | None, *, is_copy: bool) -> None:
    """Refuse a store that has no authority for effects, and the trust file of another ledger."""
    if not is_copy and not store.authority:
        raise Refused(f"{store.location} has no authority for effects", code="no_authority", hint=_INIT)
    if trust is not None and trust.trust.ledger_id != store.log_id:
        said = f"the trust file is that of ledger {trust.trust.ledger_id.hex()}, and {store.location} is of another"
        raise Refused(said, code="other_trust", hint="name the trust file that was made for this store")


def settings_on_record(store: Store) -> Settings:
    """Return the settings by which the latest transition was decided, those of a new ledger before the first."""
    before = standing_on_record(store)
    if before is None:
        return Settings()
    return Settings(**{name: getattr(before, name) for name in LIMITS})


def standing_on_record(store: Store) -> Standing | None:
    """Return where the ledger stood at the latest transition, None before the first."""
    latest = store.reader().effects.latest()
    if latest is None:
        return None
    try:
        return transition_from(latest.payload).ledger
    except (ValueError, KeyError, TypeError) as error:
        raise Tampered(f"the record of the latest transition cannot be read: {error}", code="corrupt") from error


def refuse_weaker(store: Store, now: Callable[[], Standing]) -> None:
    """Refuse to open with less than the latest transition was decided by."""
    before = standing_on_record(store)
    if before is not None and (less := weaker(now(), before)):
        raise Refused(
            f"{store.location} was used with stronger settings: {', '.join(less)}",
            code="weaker_settings",
            hint="open it with the settings and the witness that it had, or stronger ones",
        )


def stored_request(store: Store, action_id: bytes) -> bytes:
    """Return the exact bytes of an action. Refused("no_request"); Tampered where they are not those of its digest."""
    check_id(action_id)
    reader = store.reader().effects
    found, body = reader.action(action_id), reader.request(action_id)
    if found is None:
        raise unknown_action(action_id)
    if body is None:
        raise Refused(f"action {action_id.hex()} was rebuilt from a receipt: its bytes are lost", code="no_request")
    if sha256(body).digest() != found.action.terms.request_sha256:
        raise Tampered(f"the stored bytes of action {action_id.hex()} are not those of its digest", code="corrupt")
    return body
