"""An HTTP service as a target: without idempotency keys, with them, and with a memory that a restart empties."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from agent_run_ledger.targets import HttpTarget, http
from agent_run_ledger.testing.effect_kit import EffectCase, Found, Place, Request

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
    connection = HTTPConnection(urlsplit(place.url).netloc, timeout=10)
    connection.request("GET", f"/refunds/{number}")
    status = connection.getresponse().status
    connection.close()
    return {200: Found.EXECUTED, 404: Found.NOTHING}.get(status, Found.UNKNOWN)


def plain_way(place: Place) -> HttpTarget:
    """Send it without a key."""
    return http(place.url)


def way_with_key(place: Place) -> HttpTarget:
    """Send it with a key, so the receiver may know it again."""
    return http(place.url, "Idempotency-Key")


PLAIN = EffectCase(start=serving("none"), target=plain_way, request=refund, count=count, probe=probe)
WITH_KEYS = EffectCase(start=serving("file"), target=way_with_key, request=refund, count=count, probe=probe)
