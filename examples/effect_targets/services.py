"""An HTTP service as a target: without idempotency keys, with them, and by a function that sends the request."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from agent_run_ledger.targets import HttpTarget, Opaque, http
from agent_run_ledger.testing.effect_kit import Call, EffectCase, Found, Place, Request

SERVICE = Path(__file__).with_name("service.py")


def serving(keys: str) -> Callable[[Place], AbstractContextManager[str]]:
    """Start the service in a process of its own, and give its URL."""

    @contextmanager
    def start(place: Place) -> Generator[str]:
        command = [sys.executable, str(SERVICE), str(place.folder), keys]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield process.stdout.readline().strip() if process.stdout else ""
            finally:
                process.kill()

    return start


def refund(number: int) -> Request:
    """What is asked."""
    return Request.json("POST", "/refunds", {"n": number})


def count(place: Place, number: int) -> int:
    """Look into the service's own file: how often did it happen?"""
    effects = place.folder / "refunds.txt"
    return effects.read_text().split().count(str(number)) if effects.exists() else 0


def probe(place: Place, number: int) -> Found:
    """Ask the service, as a reconciler would."""
    return {200: Found.EXECUTED, 404: Found.NOTHING}.get(look(place, number), Found.UNKNOWN)


def look(place: Place, number: int) -> int:
    """Return the status by which the service says whether it is there."""
    with closing(HTTPConnection(urlsplit(place.url).netloc, timeout=10)) as connection:
        connection.request("GET", f"/refunds/{number}")
        return connection.getresponse().status


def plain_way(place: Place) -> HttpTarget:
    """Send it without a key."""
    return http(place.url)


def way_with_key(place: Place) -> HttpTarget:
    """Send it with a key, so the receiver may know it again."""
    return http(place.url, "Idempotency-Key")


def refund_call(number: int) -> Call:
    """What is asked of a function."""
    return Call.of("refund", {"n": number})


def called_way(place: Place) -> Opaque:
    """Send it once by a function, which raises where the answer does not say that it was done."""

    def refund(n: int) -> int:
        return must_be_done(post(place.url, n))

    return Opaque().calling("refund", refund)


def post(url: str, number: int) -> int:
    """Send it, and return the answer's status."""
    with closing(HTTPConnection(urlsplit(url).netloc, timeout=2)) as connection:
        connection.request("POST", "/refunds", json.dumps({"n": number}))
        return connection.getresponse().status


def must_be_done(status: int) -> int:
    """Raise for a status that does not say that it was done, so that it is a doubt and no success."""
    if status != 201:
        raise RuntimeError(f"the service answered {status}")
    return status


PLAIN = EffectCase(start=serving("none"), target=plain_way, request=refund, count=count, probe=probe)
WITH_KEYS = EffectCase(start=serving("file"), target=way_with_key, request=refund, count=count, probe=probe)
CALLED = EffectCase(start=serving("none"), target=called_way, request=refund_call, count=count, probe=probe)
