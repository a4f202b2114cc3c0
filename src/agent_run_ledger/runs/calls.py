"""One call of a step: what identifies it, and what is kept so that a later one can say how it differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import orjson

from agent_run_ledger import codecs
from agent_run_ledger.errors import LedgerError
from agent_run_ledger.kernel.digests import fingerprint, list_sha256, short_digest
from agent_run_ledger.runs.abandoned import AFTER, CALLED
from agent_run_ledger.runs.children import Tags, tags
from agent_run_ledger.runs.steps import Step

ROOT_SCOPE = b""
CHILDREN: Final = "c"
"""Where a record's inputs keep the tags of an argument's parts."""

_IMMUTABLE: Final = frozenset((str, int, float, bool, type(None), bytes, complex))


@dataclass(slots=True)
class Given:
    """The arguments of a call as they were given, by the names that `bind_arguments` gives them.

    `elements`: of those lists where it was needed, the digest of each element. `changed`: those that the body has
    changed in place, None where nobody has looked.
    """

    values: Mapping[str, object]
    elements: dict[str, Sequence[bytes]] = field(default_factory=dict[str, Sequence[bytes]])
    changed: Sequence[str] | None = None


@dataclass(slots=True, kw_only=True)
class CallIdentity:
    """What identifies one call in its run, and what its fingerprint rests on. `given`: None for a pipeline's call."""

    name: str
    fingerprint: bytes
    arguments: Mapping[str, bytes]
    environment: Mapping[str, bytes]
    version: str
    scope: bytes = ROOT_SCOPE
    occurrence: int = 0
    given: Given | None = None

    @property
    def key(self) -> tuple[bytes, str, bytes, int]:
        """The key a record is found by."""
        return (self.scope, self.name, self.fingerprint, self.occurrence)

    def stored_inputs(
        self,
        salt: bytes,
        because: list[str],
        *,
        after: int = 0,
        called: bool = False,
        more: Mapping[str, object] | None = None,
    ) -> bytes:
        """Return the compact JSON kept beside the record: salted short digests, why it ran again, what was before.

        `more`: what else is kept, under keys of its own.
        """
        kept = self._kept(salt)
        children = self._children(salt)
        if children:
            kept[CHILDREN] = children
        if because:
            kept["because"] = because
        if after:
            kept[AFTER] = after
        if called:
            kept[CALLED] = True
        if more:
            kept |= more
        return orjson.dumps(kept)

    def differences(self, stored: bytes, salt: bytes) -> list[str]:
        """Return the paths in which this call differs from a recorded one, most telling first."""
        before: dict[str, Any] = orjson.loads(stored)
        now: dict[str, Any] = self._kept(salt)
        paths = [f"environment.{key}" for key in _changed(before.get("e", {}), now.get("e", {}))]
        paths += [f"arguments.{name}" for name in _changed(before.get("a", {}), now.get("a", {}))]
        if before.get("version", "1") != self.version:
            paths.append("version")
        return paths

    def _kept(self, salt: bytes) -> dict[str, object]:
        kept: dict[str, object] = {
            "a": {name: short_digest(salt, f"a.{name}", digest) for name, digest in self.arguments.items()},
        }
        if self.environment:
            kept["e"] = {key: short_digest(salt, f"e.{key}", digest) for key, digest in self.environment.items()}
        if self.version != "1":
            kept["version"] = self.version
        return kept

    def _children(self, salt: bytes) -> dict[str, Tags]:
        """Return the tags of the arguments' parts; nothing of what the body has changed, or cannot be read any more."""
        found: dict[str, Tags] = {}
        if self.given is None:
            return found
        for name in self.arguments:
            value = self.given.values.get(name)
            if type(value) is not list and type(value) is not dict:
                continue
            elements = self.given.elements.get(name)
            try:
                if elements is None and self._was_changed(name, cast("object", value)):
                    continue
                made = tags(salt, f"a.{name}", cast("object", value), elements)
            except LedgerError:
                continue
            if made is not None:
                found[name] = made
        return found

    def _was_changed(self, name: str, value: object) -> bool:
        if self.given is not None and self.given.changed is not None:
            return name in self.given.changed
        return codecs.value_digest(value) != self.arguments[name]


def identify(step: Step[..., Any], arguments: Mapping[str, bytes], environment: Mapping[str, bytes]) -> CallIdentity:
    """Return the identity of a call of `step` with these argument digests and environment digests (32 bytes each)."""
    return CallIdentity(
        name=step.name,
        fingerprint=fingerprint(name=step.name, version=step.version, inputs=arguments, environment=environment),
        arguments=arguments,
        environment=environment,
        version=step.version,
    )


def identify_call(
    step: Step[..., Any],
    bound: Mapping[str, object],
    environment: Mapping[str, bytes],
    *,
    cache: codecs.DigestCache,
    scope: bytes = ROOT_SCOPE,
    occurrence: int = 0,
) -> CallIdentity:
    """Return the identity of a call in a dynamic run. `bound`: the arguments as `bind_arguments` returns them.

    Those that the step ignores do not enter. An argument without a digest raises the error of `codecs.value_digest`,
    naming step and argument.
    """
    given = Given(bound)
    arguments: dict[str, bytes] = {}
    for name, value in bound.items():
        if step.ignore and parameter(name) in step.ignore:
            continue
        try:
            if type(value) is list:
                arguments[name], elements = cache.list_digest(cast("list[object]", value))
                if elements is not None:
                    given.elements[name] = elements
            else:
                arguments[name] = _digest(name, value, cache)
        except LedgerError as error:
            error.message = f"step {step.name!r}, argument {name!r}: {error.message}"
            way_out = f"pass an id instead, or name the parameter in ignore=[{parameter(name)!r}]"
            error.hint = f"{error.hint}; {way_out}" if error.hint else way_out
            raise
    identity = identify(step, arguments, environment)
    identity.scope, identity.occurrence, identity.given = scope, occurrence, given
    return identity


def changed_arguments(
    before: Mapping[str, bytes], bound: Mapping[str, object], *, cache: codecs.DigestCache
) -> list[str]:
    """Return the arguments that are no longer what they were when the call was identified, in their order.

    `before`: the digests of then. A body that changes its argument in place does so in a live run and not in a
    restored one. What has no digest any more has changed.
    """
    changed: list[str] = []
    for name, digest in before.items():
        value = bound[name]
        if type(value) in _IMMUTABLE:
            continue
        try:
            if _digest(name, value, cache) == digest:
                continue
        except LedgerError:
            pass
        changed.append(name)
    return changed


def changed_warning(run_id: str, step_name: str, changed: Sequence[str]) -> str:
    """Return what the log says when these arguments of a step were changed in place while its body ran."""
    listed, were = ", ".join(repr(name) for name in changed), "s were" if len(changed) > 1 else " was"
    return (
        f"step {step_name!r} of run {run_id!r}: its argument{were} changed in place while it ran ({listed}); when its "
        "result is restored after a restart, that will not happen: return the changed value instead"
    )


def _digest(name: str, value: object, cache: codecs.DigestCache) -> bytes:
    # `*xs` of two values is another call than `xs` of one tuple of two; a parameter's own name has no asterisk
    if name[0] == "*" and name[1] != "*":
        return list_sha256([cache.digest(one) for one in cast("tuple[object, ...]", value)])
    return cache.digest(value)


def parameter(name: str) -> str:
    """Return the parameter that a bound argument belongs to: itself, that of "*rest" or that of "**options.key"."""
    if name[:1] != "*":
        return name
    return name.removeprefix("**").split(".", 1)[0] if name.startswith("**") else name.removeprefix("*")


def _changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [key for key in {**before, **now} if before.get(key) != now.get(key)]
