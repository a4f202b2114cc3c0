"""Kills a scenario at every point, lets it go on in a second life, and checks what is left."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent_run_ledger.errors import LedgerError, Misuse
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.store.ledger_place import LEDGER_FILE, LedgerPlace, ledger_place, new_place
from agent_run_ledger.testing.body_counter import FILE_NAME, BodyCounter
from agent_run_ledger.testing.harness import DEFAULT_TIMEOUT_S, Exit, Life, run_scenario
from agent_run_ledger.testing.integrity import is_store
from agent_run_ledger.testing.ledger_check import check_ledger
from agent_run_ledger.testing.points import ALL, KillPoint, spread
from agent_run_ledger.testing.recorded_calls import RecordedCall, calls_in_flight, recorded_calls

SIDE_FILES = ("", "-wal", "-journal")
"""What makes up a SQLite database beside shared memory, which the first opener rebuilds."""

MOST_FAILURES = 5


class CrashCheckFailed(AssertionError):
    """What must hold after a crash did not; the message lists every case with its directory, which is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """One case: a life that was killed, what it had recorded by then, and the life that went on.

    `reference` is the life that nobody killed, in a directory of its own. `recorded` are the calls that had a record
    (of a result, an error, ...) when the first life died, `in_flight` the names of the steps that were started and not
    concluded then; both were read from a copy of the files, so that the second life found them untouched.
    """

    kill_at: KillPoint
    workdir: Path
    first: Life
    recorded: frozenset[RecordedCall]
    in_flight: tuple[str, ...]
    second: Life
    reference: Life
    url: str = ""

    @property
    def ledger(self) -> Path | str:
        """The path of the case's ledger, or its URL."""
        return self.url or self.workdir / LEDGER_FILE

    @property
    def bodies(self) -> BodyCounter:
        """The bodies that ran, if the scenario counted them in `bodies.log` in its directory."""
        return BodyCounter(self.workdir / FILE_NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a campaign did.

    `reached` says how often the unkilled life came to each point, `kills` how often lives were killed there.
    `not_reached` counts chosen points that a life did not come to (threads take turns differently in every life):
    those cases ended without a kill and were checked like the others.
    """

    reached: Mapping[str, int]
    kills: Mapping[str, int]
    not_reached: int
    scenario: str

    @property
    def total(self) -> int:
        """The number of killed lives."""
        return sum(self.kills.values())


Check = Callable[[Lives], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Campaign:
    scenario: str
    workdir_factory: Callable[[], Path]
    check: Check | None
    env: Mapping[str, str] | None
    timeout_s: float
    reference: Life
    server: str | None = None
    failures: list[str] = field(default_factory=list[str])

    def case(self, kill_at: KillPoint) -> bool | None:
        """Run one case and return whether it was killed; None when it was left out because enough has failed."""
        if len(self.failures) >= MOST_FAILURES:
            return None
        workdir = self.workdir_factory()
        place = new_place(workdir, self.server)
        try:
            lives = self._live(kill_at, place)
            _always(lives)
            if self.check is not None:
                self.check(lives)
        except (AssertionError, LedgerError) as error:
            where = f"{workdir} and {place.shown}" if place.url else f"{workdir}"
            self.failures.append(f"{kill_at} in {where}: {type(error).__name__}: {error}")
            return True
        place.remove()
        shutil.rmtree(workdir, ignore_errors=True)
        return lives.first.exit is Exit.KILLED

    def _live(self, kill_at: KillPoint, place: LedgerPlace) -> Lives:
        workdir, env = place.folder, {**place.env(), **(self.env or {})}
        first = run_scenario(self.scenario, workdir, kill_at=kill_at, life=1, env=env, timeout_s=self.timeout_s)
        recorded, in_flight = _left_at_server(place) if place.url else left_by_death(workdir / LEDGER_FILE)
        second = run_scenario(self.scenario, workdir, life=2, env=env, timeout_s=self.timeout_s)
        return Lives(
            kill_at=kill_at,
            workdir=workdir,
            first=first,
            recorded=recorded,
            in_flight=in_flight,
            second=second,
            reference=self.reference,
            url=place.url,
        )


def crash_everywhere(
    scenario: str,
    workdir_factory: Callable[[], Path] | None = None,
    *,
    points: Iterable[str] = ALL,
    most_per_point: int | Mapping[str, int] | None = None,
    check: Check | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    at_once: int = 1,
    progress: Callable[[int, int], None] | None = None,
    server: str | None = None,
) -> Summary:
    """Kill `scenario` at every point that it reaches, let it go on each time, and check what is left.

    First one life without a kill counts how often each of `points` is reached. Then, for each point and each count
    (at most `most_per_point`, evenly spread with the first and the last; a mapping limits the points it names), in a
    fresh directory: a life killed there, a second life to its end, and these checks. The second life ended well and
    returned what the unkilled life returned. `check_ledger` holds on the ledger and, before the second life, on a
    copy of what the kill left. A body whose result was committed did not run in the second life (by `bodies.log`,
    where the scenario counts them under the names of their steps). And `check`, which raises AssertionError for what
    else must hold.

    What is proven: no state that the death of a *process* leaves at these points loses or repeats recorded work. What
    is not: a power cut (the page cache survives a kill), a point that nobody named, an interleaving that did not occur.

    `workdir_factory` makes a new empty directory (default: temporary ones); a case that holds removes its own.
    `at_once` lives run at the same time. `progress` is told (cases done, cases). `server`: the URL of a
    database at a server whose user may make databases: each case then has one of its own as its AGENT_RUN_LEDGER_DB,
    which is dropped when the case holds; points of a file are not reached there. Raises CrashCheckFailed.
    """
    make = workdir_factory or (lambda: Path(tempfile.mkdtemp(prefix="arl-crash-")))
    reference = _unkilled(scenario, make(), env=env, timeout_s=timeout_s, server=server)
    chosen = [
        KillPoint(point=point, nth=nth)
        for point in points
        for nth in spread(reference.points_reached.get(point, 0), _most(most_per_point, point))
    ]
    campaign = _Campaign(
        scenario=scenario,
        workdir_factory=make,
        check=check,
        env=env,
        timeout_s=timeout_s,
        reference=reference,
        server=server,
    )
    return _played(campaign, chosen, at_once=at_once, progress=progress)


def _played(
    campaign: _Campaign, chosen: Sequence[KillPoint], *, at_once: int, progress: Callable[[int, int], None] | None
) -> Summary:
    """Return what became of every case. CrashCheckFailed where one failed."""
    scenario, reached = campaign.scenario, campaign.reference.points_reached
    kills: Counter[str] = Counter()
    ended = 0
    with ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="arl-crash") as pool:
        for done, (kill_at, killed) in enumerate(zip(chosen, pool.map(campaign.case, chosen), strict=True), 1):
            kills[kill_at.point] += killed is True
            ended += killed is False
            if progress is not None:
                progress(done, len(chosen))
    if campaign.failures:
        listed = "\n".join(campaign.failures)
        raise CrashCheckFailed(f"{scenario}: {len(campaign.failures)} case(s) failed\n{listed}")
    return Summary(reached=reached, kills=dict(kills), not_reached=ended, scenario=scenario)


def _unkilled(
    scenario: str, workdir: Path, *, env: Mapping[str, str] | None, timeout_s: float, server: str | None
) -> Life:
    """Return a life that nobody kills. Misuse where it does not end well."""
    with ledger_place(workdir, server) as place:
        life = run_scenario(scenario, workdir, env={**place.env(), **(env or {})}, timeout_s=timeout_s)
        if life.exit is not Exit.OK:
            raise Misuse(f"{scenario} does not end well even without a kill: {life.describe()}", code="bad_scenario")
        check_ledger(place.named)
    shutil.rmtree(workdir, ignore_errors=True)
    return life


def left_by_death(ledger: Path) -> tuple[frozenset[RecordedCall], tuple[str, ...]]:
    """Return what a dead process had recorded and which steps it had in flight, after `check_ledger` on that.

    Looks at a copy: the files stay untouched. No process may have the ledger open. A ledger whose creation was not
    completed holds nothing.
    """
    with tempfile.TemporaryDirectory(prefix="arl-copy-") as folder:
        copy = Path(folder) / ledger.name
        for side in SIDE_FILES:
            if os.path.exists(f"{ledger}{side}"):
                shutil.copyfile(f"{ledger}{side}", f"{copy}{side}")
        return _found(str(copy)) if is_store(copy) else (frozenset(), ())


def _left_at_server(place: LedgerPlace) -> tuple[frozenset[RecordedCall], tuple[str, ...]]:
    """See `left_by_death`. The server copies when the sessions of the dead process have ended, and with them whatever
    they had sent: what the copy holds is what became of it."""
    copy = replace(place, url=place.keep_a_copy())
    return _found(copy.url) if copy.is_there() else (frozenset(), ())


def _found(ledger: str) -> tuple[frozenset[RecordedCall], tuple[str, ...]]:
    check_ledger(ledger)
    return frozenset(recorded_calls(ledger)), tuple(calls_in_flight(ledger))


def nothing_recorded_ran_again(lives: Lives) -> None:
    """Raise AssertionError if a body ran in the second life whose result was committed in the first.

    By the names in `bodies.log`: a body must be counted under its step's name, and be called once per run.
    """
    results = Counter(call.name for call in lives.recorded if call.kind is RecordKind.RESULT)
    again = results & lives.bodies.count(life=2)
    if again:
        raise AssertionError(f"recorded before the kill and run again: {', '.join(sorted(again))}")


def no_body_without_a_start(lives: Lives) -> None:
    """Raise AssertionError if a body ran in the first life that the ledger knows nothing of: what it cost is lost."""
    known = {call.name for call in lives.recorded} | set(lives.in_flight)
    unknown = set(lives.bodies.count(life=1)) - known
    if unknown:
        raise AssertionError(f"ran before the kill without a start in the ledger: {', '.join(sorted(unknown))}")


def what_was_in_flight_is_abandoned(lives: Lives) -> None:
    """Raise AssertionError unless the second life recorded exactly the calls in flight at the kill as abandoned.

    Holds for scenarios whose second life goes on with every run of the first.
    """
    abandoned = sorted(call.name for call in recorded_calls(lives.ledger, kinds=(RecordKind.ABANDONED,)))
    if abandoned != sorted(lives.in_flight):
        raise AssertionError(f"in flight at the kill: {sorted(lives.in_flight)}, recorded as abandoned: {abandoned}")


def _always(lives: Lives) -> None:
    if lives.second.exit is not Exit.OK:
        raise AssertionError(f"the second life did not end well: {lives.second.describe()}")
    if lives.second.result != lives.reference.result:
        raise AssertionError(f"returned {lives.second.result!r}, without a kill {lives.reference.result!r}")
    check_ledger(lives.ledger)
    nothing_recorded_ran_again(lives)


def _most(most_per_point: int | Mapping[str, int] | None, point: str) -> int | None:
    return most_per_point.get(point) if isinstance(most_per_point, Mapping) else most_per_point
