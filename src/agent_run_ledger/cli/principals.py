"""`arl principals list|show`: who the trust file knows, as what, and whose keys count."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from agent_run_ledger.cli.options import Db, Json, Trust

if TYPE_CHECKING:
    from agent_run_ledger.kernel.effects.principals import Principal, PublicKey
    from agent_run_ledger.ledger.authority import Authority

Name = Annotated[str, typer.Argument(metavar="NAME", help="The principal's name.")]


def list_command(trust: Trust = None, db: Db = None, as_json: Json = False) -> None:
    """List everybody whom the trust file knows, with roles and keys."""
    from agent_run_ledger.cli.output import new_table, print_json, show, text

    authority = _authority(db, trust)
    if as_json:
        principals = [principal_json(one, authority) for one in _sorted(authority)]
        print_json({"trust": str(authority.path), "principals": principals})
        return
    table = new_table("PRINCIPAL", "KIND", "ROLES", "KEYS")
    for one in _sorted(authority):
        keys = ", ".join(f"{key.key_id[:16]} ({key_words(key)})" for key in one.keys)
        table.add_row(*map(text, (one.name, str(one.kind), ", ".join(sorted(one.roles)), keys or "none")))
    show(table)


def show_command(name: Name, trust: Trust = None, db: Db = None, as_json: Json = False) -> None:
    """Show one principal: roles, keys with the time in which they count, and the policies under which they approve."""
    from agent_run_ledger.cli.output import print_json, show_named
    from agent_run_ledger.cli.words import iso
    from agent_run_ledger.ledger.authority import actor_of

    authority = _authority(db, trust)
    actor_of(authority.trust, name)
    one = next(one for one in authority.trust.principals if one.name == name)
    if as_json:
        print_json(principal_json(one, authority))
        return
    lines = [("name", one.name), ("kind", str(one.kind)), ("roles", ", ".join(sorted(one.roles)))]
    for key in one.keys:
        lines.append(("key", f"{key.key_id} ({key_words(key)})"))
        lines.append(("", f"{key.public.hex()}, {iso(key.not_before_ms)} to {iso(key.not_after_ms)}"))
    if one.rules_sha256 is not None:
        lines.append(("rules", one.rules_sha256.hex()))
    lines.append(("approves", ", ".join(_policies(one, authority)) or "nothing"))
    show_named(lines)


def principal_json(one: Principal, authority: Authority) -> dict[str, object]:
    """Return the documented JSON of a principal."""
    from agent_run_ledger.cli.words import iso

    return {
        "name": one.name,
        "kind": str(one.kind),
        "roles": sorted(one.roles),
        "keys": [
            {
                "key_id": key.key_id,
                "public_key": key.public.hex(),
                "not_before": iso(key.not_before_ms),
                "not_after": iso(key.not_after_ms),
                "counts_now": key_words(key) == "counts now",
            }
            for key in one.keys
        ],
        "rules_sha256": None if one.rules_sha256 is None else one.rules_sha256.hex(),
        "policies": _policies(one, authority),
    }


def key_words(key: PublicKey) -> str:
    """Return whether a key counts by this machine's clock."""
    from agent_run_ledger.kernel.effects import Now

    now_ms = time.time_ns() // 1_000_000
    now = Now(now_ms, now_ms)
    return "counts no more" if key.over(now) else "counts now" if key.begun(now) else "does not count yet"


def _policies(one: Principal, authority: Authority) -> list[str]:
    return sorted(policy.name for policy in authority.trust.policies if one.name in policy.approvers)


def _sorted(authority: Authority) -> list[Principal]:
    return sorted(authority.trust.principals, key=lambda one: one.name)


def _authority(db: str | None, trust: str | None) -> Authority:
    from agent_run_ledger.cli.effect_stores import authority_of

    return authority_of(db, trust)
