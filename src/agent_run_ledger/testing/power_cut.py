"""Cuts the power of a scenario at every act of the disk, lets it go on from every image, and checks what is left."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from agent_run_ledger.errors import Misuse
from agent_run_ledger.testing.crash import MOST_FAILURES
from agent_run_ledger.testing.power_disk import files_in
from agent_run_ledger.testing.power_images import PowerDisk, PowerImage
from agent_run_ledger.testing.power_life import RecordedLife, put, record_life
from agent_run_ledger.testing.power_second_life import AfterCut, Found, SecondLives
from agent_run_ledger.testing.scenarios import Scenario, load_scenario

TORN_PER_CUT = 4
LIVES_PER_LENGTH = 10
_IN_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerCut:
    """One case: the power goes after `acts` acts of the disk, the last of which is `last`, and leaves this image."""

    acts: int
    last: str
    how: str

    def __str__(self) -> str:
        """Return where, and what was left."""
        return f"cut after act {self.acts} ({self.last}), {self.how}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CutFailure:
    """A case in which something does not hold. `lost` leaves were promised and are gone; `directory` has the image
    as it was left (`image`), and what became of it in the second life (`life`)."""

    cut: PowerCut
    problem: str
    lost: int
    directory: Path


class PowerCheckFailed(AssertionError):
    """What must hold after a power cut did not; the message lists the cases with their directories, which are kept."""

    def __init__(self, failures: tuple[CutFailure, ...]) -> None:
        listed = "\n".join(f"  - {failure.cut} in {failure.directory}: {failure.problem}" for failure in failures)
        super().__init__(f"{len(failures)} case(s) failed\n{listed}")
        self.failures = failures


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerSummary:
    """What was checked: `cuts` places in the life, `images` that they leave, `distinct` ones among them, which are
    those that were opened and gone on with; in `marks_lost` images a start mark that was not synced is gone."""

    cuts: int
    images: int
    distinct: int
    leaves: int
    marks_lost: int


def cut_power_everywhere(
    scenario: str | Scenario,
    workdir_factory: Callable[[], Path] | None = None,
    *,
    torn_per_cut: int = TORN_PER_CUT,
    lives_per_length: int = LIVES_PER_LENGTH,
    seed: int = 0,
    begin_with: Path | None = None,
    check: Callable[[AfterCut], None] | None = None,
    look: Callable[[Path], None] | None = None,
    most_failures: int = MOST_FAILURES,
    progress: Callable[[int, int], None] | None = None,
) -> PowerSummary:
    """Cut the power before and after every write, truncation, creation, deletion and sync of the scenario's ledger.

    One life runs in this process on a disk that records. Then, for each place between two acts: the image in which
    everything pending was kept, the one in which all of it was lost, and `torn_per_cut` others, torn at sectors of
    512 bytes (see `PowerDisk.images`). For each image, in a fresh directory: the store opens, or nothing was promised
    yet and none is there; its log is the beginning of the life's log, with every leaf that was promised by then;
    `check_ledger` holds; one more run is recorded; `check_ledger` holds again and nothing is gone. From the first
    `lives_per_length` images that hold equally many leaves the scenario runs again before that: to its end, it returns
    what the first life returned, and no body runs whose result is in the image (by `bodies.log`, under the names of
    the steps). And `check`, which raises AssertionError for what else must hold of such a life; and `look`, which is
    called for every image that holds a store, with the path of the ledger in a copy that nobody goes on with, and
    raises AssertionError for what must hold of what the cut left.

    Promised is a store that was opened for writing, and every acknowledged transaction but those that hold only
    start marks. Files beside the ledger are not simulated: an image does not have them.

    `begin_with` is a directory whose files are there, durable, when the life begins; its leaves are promised.
    `workdir_factory` makes a new empty directory (default: temporary ones, in memory where possible); what holds is
    removed. `progress` is told (places done, places). Raises PowerCheckFailed after `most_failures` cases; Misuse
    for a scenario that raises even without a cut.
    """
    function = load_scenario(scenario) if isinstance(scenario, str) else scenario
    make = workdir_factory or _temporary
    first = make()
    if begin_with is not None:
        shutil.copytree(begin_with, first, dirs_exist_ok=True)
    durable = files_in(str(first))
    life = _first_life(function, first)
    shutil.rmtree(first, ignore_errors=True)
    lives = SecondLives(first=life, scenario=function, check=check, look=look, most=lives_per_length)
    campaign = _Campaign(life=life, lives=lives, make=make, most_failures=most_failures)
    if begin_with is not None:
        campaign.promised_before = campaign.find(PowerImage(how="before", files=durable))[1].leaves
    for acts, images in _cuts(life, torn_per_cut, seed):
        for image in images:
            campaign.case(acts, image)
        if progress is not None:
            progress(acts, len(life.trace.acts))
    return campaign.summary()


def _first_life(scenario: Scenario, workdir: Path) -> RecordedLife:
    try:
        return record_life(scenario, workdir)
    except Exception as error:
        raise Misuse(f"the scenario does not end well even without a cut: {error}", code="bad_scenario") from error


def _cuts(life: RecordedLife, torn: int, seed: int) -> Iterator[tuple[int, Iterator[PowerImage]]]:
    """Yield every number of acts with the images of a cut right after them."""
    disk = PowerDisk(life.trace.before)
    yield 0, disk.images(torn=torn, seed=seed)
    for acts, act in enumerate(life.trace.acts, 1):
        disk.apply(act)
        yield acts, disk.images(torn=torn, seed=seed + acts)


@dataclass(slots=True, kw_only=True)
class _Campaign:
    """Opens each distinct image once; what it holds is compared with what was promised at each cut that leaves it."""

    life: RecordedLife
    lives: SecondLives
    make: Callable[[], Path]
    most_failures: int
    promised_before: int = 0
    images: int = 0
    marks_lost: int = 0
    acts: set[int] = field(default_factory=set[int])
    failures: list[CutFailure] = field(default_factory=list[CutFailure])
    found: dict[bytes, tuple[Path, Found]] = field(default_factory=dict[bytes, tuple[Path, Found]])

    def case(self, acts: int, image: PowerImage) -> None:
        """Check one image of one cut."""
        self.images += 1
        self.acts.add(acts)
        directory, found = self.find(image)
        lost = max(self.promised_before, self.life.leaves_promised(acts)) - found.leaves
        problem = f"{lost} promised leaves are gone" if lost > 0 and not found.problem else found.problem
        if found.leaves < self.life.leaves_told(acts):
            self.marks_lost += 1
        if not problem:
            return
        last = "nothing yet" if not acts else str(self.life.trace.acts[acts - 1])
        if not directory.exists():
            put(image.files, directory / "image")
        cut = PowerCut(acts=acts, last=last, how=image.how)
        self.failures.append(CutFailure(cut=cut, problem=problem, lost=max(0, lost), directory=directory))
        if len(self.failures) >= self.most_failures:
            raise PowerCheckFailed(tuple(self.failures))

    def find(self, image: PowerImage) -> tuple[Path, Found]:
        """Return what an image holds and how it goes on; the directory is there if something does not hold."""
        key = _digest(image.files)
        if key not in self.found:
            directory = self.make()
            put(image.files, directory / "image")
            found = self.lives.go_on(directory)
            if not found.problem:
                shutil.rmtree(directory, ignore_errors=True)
            self.found[key] = directory, found
        return self.found[key]

    def summary(self) -> PowerSummary:
        """Return the counts, or raise what failed."""
        if self.failures:
            raise PowerCheckFailed(tuple(self.failures))
        return PowerSummary(
            cuts=len(self.acts),
            images=self.images,
            distinct=len(self.found),
            leaves=len(self.life.log),
            marks_lost=self.marks_lost,
        )


def _digest(files: Mapping[str, bytes]) -> bytes:
    digest = sha256()
    for name in sorted(files):
        digest.update(b"%s\0%d\0" % (os.fsencode(name), len(files[name])))
        digest.update(files[name])
    return digest.digest()


def _temporary() -> Path:
    memory = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="arl-power-", dir=memory))
