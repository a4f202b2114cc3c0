"""Cases for the effect kit that do not fit, each in one respect, and one that is killed between two halves."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from agent_run_ledger import probes
from agent_run_ledger.effects import Sending, Target, TargetClass
from agent_run_ledger.kernel.effects.report import Report
from agent_run_ledger.targets import Opaque
from agent_run_ledger.testing.effect_kit import Call, EffectCase, Found, Place, Request


def appending(place: Place) -> Opaque:
    """A line in a file, in two halves."""

    def append(n: int) -> None:
        with (place.folder / "lines").open("a", encoding="utf-8") as lines:
            lines.write(f"{n}\n")
        probes.reach("half")

    return Opaque().calling("append", append)


def request(number: int) -> Call:
    return Call.of("append", {"n": number})


def count(place: Place, number: int) -> int:
    lines = place.folder / "lines"
    return lines.read_text(encoding="utf-8").split().count(str(number)) if lines.exists() else 0


def probe(place: Place, number: int) -> Found:
    return Found.EXECUTED if count(place, number) else Found.NOTHING


def returning(value: object) -> Callable[[Place, int], int]:
    """A count that is always the same."""
    return lambda place, number: value  # type: ignore[return-value]


@contextmanager
def elsewhere(place: Place) -> Generator[str]:
    """A URL at which nobody is."""
    yield "http://127.0.0.1:9"


@contextmanager
def broken(place: Place) -> Generator[str]:
    raise OSError("the service does not start")
    yield ""


@dataclass(frozen=True, slots=True)
class Claims:
    """A way that says it is of another class."""

    way: Opaque
    target_class: TargetClass

    @property
    def audience(self) -> str:
        return self.way.audience

    def check(self, request: Request | Call) -> None:
        self.way.check(request)

    def send(self, sending: Sending) -> Report:
        return self.way.send(sending)


def claiming(target_class: TargetClass) -> Callable[[Place], Target]:
    return lambda place: Claims(appending(place), target_class)


def false_way(place: Place) -> Opaque:
    """It says that it did it, and does nothing."""
    return Opaque().calling("append", lambda n: "done")


def no_credential(n: int) -> None:
    raise PermissionError("the credential is wrong")


def never_way(place: Place) -> Opaque:
    """It never does anything."""
    return Opaque().calling("append", no_credential)


def twice_way(place: Place) -> Opaque:
    """It always does it twice."""

    def append(n: int) -> None:
        with (place.folder / "lines").open("a", encoding="utf-8") as lines:
            lines.write(f"{n}\n{n}\n")

    return Opaque().calling("append", append)


GOOD = EffectCase(target=appending, request=request, count=count, probe=probe, points=("half", "never"))
SILENT = replace(GOOD, probe=None)
FALSE = replace(GOOD, target=false_way)
NEVER = replace(GOOD, target=never_way)
NEVER_SILENT = replace(NEVER, probe=None)
NEVER_INVENTED = replace(NEVER, probe=lambda place, number: Found.EXECUTED)
ALWAYS_TWICE = replace(GOOD, target=twice_way)
ALWAYS_ONE = replace(GOOD, count=returning(1))
NO_COUNT = replace(GOOD, count=returning(None))
BYPASS = replace(GOOD, start=elsewhere)
NO_START = replace(GOOD, start=broken)
OTHER_REQUEST = replace(GOOD, request=lambda number: Request.json("POST", "/", {"n": number}))
FENCES = replace(GOOD, target=claiming(TargetClass.F))
CHECKS = replace(GOOD, target=claiming(TargetClass.V))
SAYS_IT_REMEMBERS = replace(GOOD, target=claiming(TargetClass.I))
NO_CASE = "text"
