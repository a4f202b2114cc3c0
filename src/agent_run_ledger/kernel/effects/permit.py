"""What a permit says: the claims of the token that a worker carries to the receiver (format: permit v1)."""

from __future__ import annotations

from dataclasses import dataclass

from agent_run_ledger.kernel.effects.action import Action, Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """One permit, not signed yet: the bytes of digest `req`, once, under generation `gen` and epoch `ep`.

    `iss` is the ledger's id in hex, `jti` the claim's, `act` the key that a receiver fences by, `pre` pairs of name
    and expected value. `nbf` and `exp` are Unix milliseconds.
    """

    iss: str
    aud: str
    sub: str
    jti: str
    act: str
    gen: int
    ep: int
    req: str
    pre: tuple[tuple[str, str], ...]
    nbf: int
    exp: int


def permit_of(ledger: Standing, action: Action) -> Permit:
    """Return the permit of a prepared action. ValueError for one that is not."""
    if action.generation is None or action.claim_id is None or action.permit_expires_ms is None:
        raise ValueError("an action that was never prepared has no permit")
    terms = action.terms
    return Permit(
        iss=ledger.ledger_id.hex(),
        aud=terms.audience,
        sub=terms.executor,
        jti=action.claim_id.hex(),
        act=action.action_key,
        gen=action.generation,
        ep=action.epoch,
        req=terms.request_sha256.hex(),
        pre=terms.preconditions,
        nbf=terms.not_before_ms,
        exp=action.permit_expires_ms,
    )
