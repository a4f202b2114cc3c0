"""Tools that claim too much, each with one fault that the kit must find."""

from __future__ import annotations

from dataclasses import dataclass, replace
from http.client import HTTPException
from uuid import uuid4

import services

from agent_run_ledger.effects import Sending, TargetClass
from agent_run_ledger.targets import HttpTarget, Opaque
from agent_run_ledger.testing.effect_kit import Call, EffectCase, Found, Place, Report, Request


def stubborn_way(place: Place) -> Opaque:
    """Try up to three times where no answer comes, as many clients do by themselves."""

    def refund(n: int) -> int:
        for _ in range(2):
            try:
                return services.must_be_done(services.post(place.url, n))
            except (OSError, HTTPException):
                pass
        return services.must_be_done(services.post(place.url, n))

    return Opaque().calling("refund", refund)


def repeating_way(place: Place) -> Opaque:
    """Try up to three times where the answer is 5xx, as clients do that are given a list of such."""

    def refund(n: int) -> int:
        for _ in range(2):
            if (status := services.post(place.url, n)) < 500:
                return services.must_be_done(status)
        return services.must_be_done(services.post(place.url, n))

    return Opaque().calling("refund", refund)


def careless_way(place: Place) -> Opaque:
    """Send it, and return whatever the status is, as `requests.post` does without `raise_for_status`."""

    def refund(n: int) -> int:
        return services.post(place.url, n)

    return Opaque().calling("refund", refund)


@dataclass(frozen=True, slots=True)
class FreshKeys:
    """A way that draws a new key for each dispatch, instead of the one that follows from the action."""

    way: HttpTarget

    @property
    def audience(self) -> str:
        """Who gets it."""
        return self.way.audience

    @property
    def target_class(self) -> TargetClass:
        """What it claims."""
        return self.way.target_class

    def check(self, request: Request | Call) -> None:
        """Refuse what the way refuses."""
        self.way.check(request)

    def send(self, sending: Sending) -> Report:
        """Send it under a key that nobody knows again."""
        return self.way.send(replace(sending, idempotency_key=uuid4().hex))


def fresh_keys_way(place: Place) -> FreshKeys:
    """Send it with a key, but a new one."""
    return FreshKeys(services.way_with_key(place))


def lying_probe(place: Place, number: int) -> Found:
    """Answer as a search index does that is always behind."""
    return Found.NOTHING


def trusting_probe(place: Place, number: int) -> Found:
    """Answer as a look into one's own table of sent requests does."""
    return Found.EXECUTED


def deaf_probe(place: Place, number: int) -> Found:
    """Take all that is not 200 for NOTHING, and that nobody is there too."""
    try:
        return Found.EXECUTED if services.look(place, number) == 200 else Found.NOTHING
    except OSError:
        return Found.NOTHING


def half_deaf_probe(place: Place, number: int) -> Found:
    """Take all that is not 200 for NOTHING, where somebody is there."""
    return Found.EXECUTED if services.look(place, number) == 200 else Found.NOTHING


def hopeful_probe(place: Place, number: int) -> Found:
    """Take all that is not 404 for EXECUTED."""
    return Found.NOTHING if services.look(place, number) == 404 else Found.EXECUTED


FORGETS = EffectCase(
    start=services.serving("memory"),
    target=services.way_with_key,
    request=services.refund,
    count=services.count,
    probe=services.probe,
)
"""It says that it remembers keys, and does until its process is another one."""

DENIED = EffectCase(
    start=services.serving("file"),
    target=services.way_with_key,
    request=services.refund,
    count=services.count,
    probe=lying_probe,
)
"""A good tool with a probe that says NOTHING whatever happened."""

INVENTED = EffectCase(
    start=services.serving("file"),
    target=services.way_with_key,
    request=services.refund,
    count=services.count,
    probe=trusting_probe,
)
"""A good tool with a probe that says EXECUTED whatever happened."""

FRESH_KEYS = EffectCase(
    start=services.serving("file"),
    target=fresh_keys_way,
    request=services.refund,
    count=services.count,
    probe=services.probe,
)
"""A good service, and a client that draws a key each time."""

RETRIES = EffectCase(
    start=services.serving("none"),
    target=stubborn_way,
    request=services.refund_call,
    count=services.count,
    probe=services.probe,
)
"""A client that tries again by itself: less than a plain target."""

IGNORES = replace(services.CALLED, target=careless_way)
"""A client that never looks at the status: what was refused is on record as done."""

RETRIES_5XX = replace(services.CALLED, target=repeating_way)
"""A client that tries again where a gateway says 502, which it may say of what was done."""

DEAF = replace(services.WITH_KEYS, probe=deaf_probe)
"""A good tool with a probe that says NOTHING where it hears nothing."""

HALF_DEAF = replace(services.WITH_KEYS, probe=half_deaf_probe)
"""A good tool with a probe that says NOTHING where the service is too busy to tell."""

HOPEFUL = replace(services.WITH_KEYS, probe=hopeful_probe)
"""A good tool with a probe that says EXECUTED where the service is too busy to tell."""
