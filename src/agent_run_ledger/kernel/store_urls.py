"""Tells the URL of a store from a path, and shows it without what nobody may see."""

from __future__ import annotations

_SCHEMES = ("postgresql://", "postgres://")


def is_url(named: object) -> bool:
    """Return whether this names a store at a server, and not one in a file."""
    return isinstance(named, str) and named.startswith(_SCHEMES)


def without_secrets(named: str) -> str:
    """Return the name of a store for people: a path as it is, a URL without its password and its parameters.

    What stands before the last @ is never shown beyond the user's name, however badly the URL is written.
    """
    if not is_url(named):
        return named
    scheme, _, rest = named.partition("://")
    who, at, where = rest.rpartition("@")
    user = who.partition(":")[0] + at if at else ""
    return f"{scheme}://{user}{where.partition('?')[0].partition('#')[0]}"
