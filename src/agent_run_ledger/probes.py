"""Named points in the code that a crash harness can hook; without a hook they do nothing."""

from __future__ import annotations

from collections.abc import Callable

Hook = Callable[[str], None]

_hook: Hook | None = None


def reach(point: str) -> None:
    """Tell the hook, if there is one, that `point` was reached. What the hook raises passes through."""
    if _hook is not None:
        _hook(point)


def install(hook: Hook | None) -> Hook | None:
    """Make `hook` the only hook of this process (None: no hook) and return the one it replaces."""
    global _hook
    replaced, _hook = _hook, hook
    return replaced
