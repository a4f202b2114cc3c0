"""What a program says of the tools that a framework calls: which are safe, which poll, which are forbidden."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, cast

from agent_run_ledger.errors import Misuse

ANY_TOOL: Final = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRules:
    """The rules of one tool; see `Tool` for `safe`, `poll` and `volatile`. `deny`: why it is never called."""

    safe: bool = False
    poll: bool = False
    volatile: tuple[str, ...] = ()
    deny: str = ""


class RulesByTool:
    """Rules by tool name; those of "*" hold for every tool that has none of its own.

    `given`: a mapping from names to ToolRules or to mappings with their fields. Misuse("bad_rules") for anything else.
    """

    def __init__(self, given: Mapping[str, ToolRules | Mapping[str, Any]] | None = None) -> None:
        self._rules = {name: _checked(name, rules) for name, rules in (given or {}).items()}
        self._default = self._rules.get(ANY_TOOL, ToolRules())

    def __eq__(self, other: object) -> bool:
        """Whether the same was given for every tool."""
        return isinstance(other, RulesByTool) and self._rules == other._rules

    __hash__ = None  # type: ignore[assignment]  # they are compared, not looked up

    def of(self, tool: str) -> ToolRules:
        """Return the rules of a tool."""
        return self._rules.get(tool, self._default)


def _checked(name: str, rules: object) -> ToolRules:
    if isinstance(rules, ToolRules):
        return rules
    known = {field.name for field in fields(ToolRules)}
    if not isinstance(rules, Mapping) or not known.issuperset(cast("Mapping[str, Any]", rules)):
        raise Misuse(
            f"the rules of tool {name!r} must have the fields {', '.join(sorted(known))} and no others",
            code="bad_rules",
        )
    said = dict(cast("Mapping[str, Any]", rules))
    volatile = said.pop("volatile", ())
    deny = said.pop("deny", "")
    if isinstance(volatile, str) or not all(isinstance(key, str) and key for key in volatile):
        raise Misuse(f"volatile of tool {name!r} must be a list of keys", code="bad_rules")
    if not all(isinstance(value, bool) for value in said.values()):
        raise Misuse(f"safe and poll of tool {name!r} must be true or false", code="bad_rules")
    if deny is True:
        deny = "the rules forbid it"
    if not isinstance(deny, str) and deny is not False:
        raise Misuse(f"deny of tool {name!r} must be true, false or a text that says why", code="bad_rules")
    return ToolRules(**said, volatile=tuple(volatile), deny=deny or "")
