"""One call of a step: its bound arguments, its fingerprint, and why it differs from an earlier one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from agent_run_ledger.kernel.digests import fingerprint, short_digest
from agent_run_ledger.runs.abandoned import AFTER
from agent_run_ledger.runs.steps import Step

ROOT_SCOPE = b""


@dataclass(slots=True, kw_only=True)
class CallIdentity:
    """What identifies one call in its run, and what its fingerprint rests on."""

    name: str
    fingerprint: bytes
    arguments: Mapping[str, bytes]
    environment: Mapping[str, bytes]
    version: str
    scope: bytes = ROOT_SCOPE
    occurrence: int = 0

    @property
    def key(self) -> tuple[bytes, str, bytes, int]:
        """The key a record is found by."""
        return (self.scope, self.name, self.fingerprint, self.occurrence)

    def stored_inputs(self, salt: bytes, because: list[str], *, after: int = 0) -> bytes:
        """Return the compact JSON kept beside the record: salted short digests, why it ran again, what was before."""
        kept: dict[str, object] = {
            "a": {name: short_digest(salt, f"a.{name}", digest) for name, digest in self.arguments.items()},
        }
        if self.environment:
            kept["e"] = {key: short_digest(salt, f"e.{key}", digest) for key, digest in self.environment.items()}
        if self.version != "1":
            kept["version"] = self.version
        if because:
            kept["because"] = because
        if after:
            kept[AFTER] = after
        return orjson.dumps(kept)

    def differences(self, stored: bytes, salt: bytes) -> list[str]:
        """Return the paths in which this call differs from a recorded one, most telling first."""
        before: dict[str, Any] = orjson.loads(stored)
        now: dict[str, Any] = orjson.loads(self.stored_inputs(salt, []))
        paths = [f"environment.{key}" for key in _changed(before.get("e", {}), now.get("e", {}))]
        paths += [f"arguments.{name}" for name in _changed(before.get("a", {}), now.get("a", {}))]
        if before.get("version", "1") != self.version:
            paths.append("version")
        return paths


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
    step: Step[..., Any], arguments: Mapping[str, bytes], environment: Mapping[str, bytes], *, scope: bytes
) -> CallIdentity:
    """Return the identity of a call in a dynamic run; its occurrence is the caller's to count."""
    identity = identify(step, arguments, environment)
    identity.scope = scope
    return identity


def _changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [key for key in {**before, **now} if before.get(key) != now.get(key)]
