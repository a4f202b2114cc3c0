"""Reads a trust file as people write it, in TOML or JSON: names, dates and durations in place of numbers."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, cast

from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.effects.trust import TRUST_VERSION, TrustFile
from agent_run_ledger.kernel.effects.trust_reader import MAX_TRUST_BYTES, read_trust
from agent_run_ledger.kernel.strict_json import NotStrict, read_strict

_DURATION: Final = re.compile(r"(\d{1,9})(s|min|h|d)")
_UNIT_MS: Final = {"s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

Tree = dict[str, Any]


def read_description(path: Path, *, ledger_id: bytes | None) -> TrustFile:
    """Return the trust file that a description means. Refused("bad_description") for none, BadTrust for a wrong one.

    TOML where the name ends with `.toml`, else JSON. `ledger_id` is that of the store, for a description without one.
    """
    tree = _tree(path)
    try:
        exact = json.dumps(_exact(tree, path.parent, ledger_id))
    except (TypeError, ValueError, OSError, OverflowError, RecursionError) as error:
        raise Refused(f"{path}: {error}", code="bad_description", hint=_HINT) from None
    return read_trust(exact.encode("utf-8"))


def names_ledger(path: Path) -> bool:
    """Return whether a description says of which ledger it is. Refused("bad_description") for none."""
    return "ledger_id" in _tree(path)


def _tree(path: Path) -> Tree:
    try:
        data = path.read_bytes()[: MAX_TRUST_BYTES + 1]
        if path.suffix == ".toml":
            return tomllib.loads(data.decode("utf-8"))
        read = read_strict(data, limit=MAX_TRUST_BYTES)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, NotStrict) as error:
        raise Refused(f"{path} cannot be read: {error}", code="bad_description", hint=_HINT) from None
    if not isinstance(read, dict):
        raise Refused(f"{path} is no description of a trust file", code="bad_description", hint=_HINT)
    return cast(Tree, read)


def _exact(tree: Tree, folder: Path, ledger_id: bytes | None) -> Tree:
    """Return the tree of the format, in which what was not said has its default. Unknown names stay, to be refused."""
    return {
        "v": TRUST_VERSION,
        "ledger_id": "" if ledger_id is None else ledger_id.hex(),
        "serial": 1,
        "officers_needed": 1,
        **tree,
        "principals": [_principal(one, folder) for one in _list(tree, "principals")],
        "policies": [_policy(one) for one in _list(tree, "policies")],
    }


def _principal(one: Tree, folder: Path) -> Tree:
    one = _renamed(one, {})
    said = {"kind": "person", "rules_sha256": None, **one}
    if "rules" in said:
        said["rules_sha256"] = sha256((folder / str(said.pop("rules"))).read_bytes()).hexdigest()
    said["keys"] = [
        _renamed(key, {"not_before": ("not_before_ms", _moment), "not_after": ("not_after_ms", _moment)})
        for key in _list(one, "keys")
    ]
    return said


def _policy(one: Tree) -> Tree:
    held = _renamed(one, {"max_window": ("max_window_ms", _duration)})
    return {"people_needed": 0, "approvals_needed": 1, **held}


def _renamed(tree: Tree, names: dict[str, tuple[str, Callable[[Any], int]]]) -> Tree:
    """Return a tree in which some words stand under other names, as numbers."""
    if not isinstance(cast(object, tree), dict):
        raise TypeError(f"{tree!r:.80} is no table")
    held = dict(tree)
    for name, (exact, convert) in names.items():
        if name in held:
            held[exact] = convert(held.pop(name))
    return held


def _list(tree: Tree, name: str) -> list[Tree]:
    found: object = tree.get(name, [])
    if not isinstance(found, list):
        raise TypeError(f"{name} is no list")
    return cast("list[Tree]", found)


def _moment(said: Any) -> int:
    """Return Unix milliseconds of an ISO date or time, which is UTC unless it says."""
    if isinstance(said, str):
        said = datetime.fromisoformat(said)
    if type(said) is date:
        said = datetime.combine(said, time())
    if not isinstance(said, datetime):
        raise TypeError(f"{said!r:.80} is no date")
    return round((said if said.tzinfo is not None else said.replace(tzinfo=UTC)).timestamp() * 1_000)


def _duration(said: Any) -> int:
    found = _DURATION.fullmatch(said) if isinstance(said, str) else None
    if found is None:
        raise ValueError(f"{said!r:.80} is no duration: give 30min, 24h or 7d")
    return int(found[1]) * _UNIT_MS[found[2]]


_HINT: Final = "docs/guide/approvals.md has one to begin with"
