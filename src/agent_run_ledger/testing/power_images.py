"""A disk that forgets: from the acts that came before a power cut to the directories that it may leave."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

from agent_run_ledger.testing.power_trace import ActKind, DiskAct

SECTOR_BYTES = 512
"""What a disk writes whole or not at all."""

LOCK_SUFFIX = "-lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerImage:
    """One directory that the cut may leave: the content of its files by name, and in words what was kept."""

    how: str
    files: Mapping[str, bytes]


@dataclass(slots=True, eq=False)
class _File:
    """A file: its bytes as of the last sync, and the acts since then."""

    durable: bytes = b""
    pending: list[DiskAct] = field(default_factory=list[DiskAct])

    def sync(self) -> None:
        layers = _Layers(self)
        self.durable, self.pending = layers.build(layers.sizes[-1], _newest), []


Choice = Callable[[int, int], int]
"""From a sector's number and its newest version to the version that survives; 0 is what the last sync made durable."""


def _newest(_: int, newest: int) -> int:
    return newest


class _Layers:
    """What each sector of a file has held since the last sync, in order, and which sizes the file had.

    The operating system keeps one copy of a page and writes it when it likes: so any sector survives in any of its
    versions, whatever its neighbours do. That covers every order in which whole sectors reach the disk.
    """

    def __init__(self, file: _File) -> None:
        self.durable = file.durable
        self.sizes = [len(file.durable)]
        self.versions: dict[int, list[bytes]] = {}
        self.order: list[int] = []
        self.last: list[int] = []
        now = bytearray(file.durable)
        for act in file.pending:
            self.last = self._write(now, act) if act.kind is ActKind.WRITE else self._truncate(now, act.size)
            self.order += self.last
            self.sizes.append(len(now))
            for sector in self.last:
                start = sector * SECTOR_BYTES
                content = bytes(now[start : start + SECTOR_BYTES]).ljust(SECTOR_BYTES, b"\0")
                self.versions.setdefault(sector, []).append(content)

    def build(self, size: int, choose: Choice, beyond: bytes = b"") -> bytes:
        """Return the file with the chosen version of each sector; where it grew, `beyond` or zeros lie below them."""
        grown = beyond[len(self.durable) : size].ljust(max(0, size - len(self.durable)), b"\0")
        built = bytearray(self.durable[:size] + grown)
        for sector, versions in self.versions.items():
            start, chosen = sector * SECTOR_BYTES, choose(sector, len(versions))
            if chosen and start < size:
                content = versions[chosen - 1][: size - start]
                built[start : start + len(content)] = content
        return bytes(built)

    def _write(self, now: bytearray, act: DiskAct) -> list[int]:
        end = act.offset + len(act.content)
        now.extend(bytes(max(0, end - len(now))))
        now[act.offset : end] = act.content
        return list(range(act.offset // SECTOR_BYTES, -(-end // SECTOR_BYTES)))

    def _truncate(self, now: bytearray, size: int) -> list[int]:
        cut = range(size // SECTOR_BYTES, -(-len(now) // SECTOR_BYTES))
        now[size:] = bytes(max(0, size - len(now)))
        return list(cut)


Survival = Callable[[str, _Layers], bytes]
"""From a file's name and its layers to the bytes that a cut leaves of it."""


class PowerDisk:
    """A directory whose power can be cut: what is durable in it, and what is pending.

    Pending are a write and a truncation until the sync of their file, the creation and the deletion of a name until
    the sync of the directory.
    """

    def __init__(self, before: Mapping[str, bytes]) -> None:
        self._durable = {name: _File(content) for name, content in before.items()}
        self._visible = dict(self._durable)
        self._names: list[tuple[str, _File | None]] = []

    def apply(self, act: DiskAct) -> None:
        """Let one act happen. What happens to a file without a name is no longer of interest."""
        file = self._visible.get(act.name)
        match act.kind:
            case ActKind.CREATE:
                self._visible[act.name] = made = _File()
                self._names.append((act.name, made))
            case ActKind.DELETE:
                self._visible.pop(act.name, None)
                self._names.append((act.name, None))
            case ActKind.SYNC_DIRECTORY:
                self._durable, self._names = dict(self._visible), []
            case ActKind.SYNC:
                if file is not None:
                    file.sync()
            case _:
                if file is not None:
                    file.pending.append(act)

    def images(self, *, torn: int, seed: int) -> Iterator[PowerImage]:
        """Yield what a cut right now may leave, all different: everything kept, everything lost, and up to `torn`
        others in an order that the seed decides.

        Those are: the last write torn in the middle; the later half of the sectors only; every other sector; one
        file's pending bytes kept or lost against those of all others; names without bytes and bytes without names;
        and random ones, in which each sector, size and name survives by chance and a grown file may hold noise.
        """
        random, layers, seen = Random(seed), dict[_File, _Layers](), set[int]()
        ways = self._ways(random, torn)
        random.shuffle(ways)
        certain = [("all kept", self._visible, _kept), ("all lost", self._durable, _lost)]
        for number, (how, names, survival) in enumerate((*certain, *ways)):
            files: dict[str, bytes] = {}
            for name, file in names.items():
                if file not in layers:
                    layers[file] = _Layers(file)
                files[name] = survival(name, layers[file])
            key = hash(frozenset(files.items()))
            if key not in seen:
                seen.add(key)
                torn -= number >= len(certain)
                yield PowerImage(how=how, files=files)
            if torn <= 0 and number >= len(certain) - 1:
                return

    def _ways(self, random: Random, count: int) -> list[tuple[str, Mapping[str, _File], Survival]]:
        """Return what to call an image, which names it has, and what it has of each: `count` of them random."""
        names = self._visible
        ways: list[tuple[str, Mapping[str, _File], Survival]] = [
            ("the last write torn", names, _torn_at_the_end),
            ("the later half only", names, _later_half),
            ("even sectors only", names, _every_other(0)),
            ("odd sectors only", names, _every_other(1)),
            ("names without bytes", names, _lost),
            ("bytes without names", self._durable, _kept),
        ]
        for name in sorted(name for name, file in names.items() if file.pending):
            ways.append((f"of bytes only those of {name}", names, _but(_lost, name, _kept)))
            ways.append((f"all but the bytes of {name}", names, _but(_kept, name, _lost)))
        for number in range(count):
            chance = Random(random.getrandbits(64))
            ways.append((f"random {number}", self._some_names(chance), _by_chance(chance)))
        return ways

    def _some_names(self, chance: Random) -> Mapping[str, _File]:
        """Names survive one by one; the lock file, which nobody syncs, may be missing altogether."""
        names = dict(self._durable)
        for name, file in self._names:
            if chance.random() < 0.5:
                names.pop(name, None)
                if file is not None:
                    names[name] = file
        return {name: file for name, file in names.items() if not name.endswith(LOCK_SUFFIX) or chance.random() < 0.75}


def _kept(_: str, layers: _Layers) -> bytes:
    return layers.build(layers.sizes[-1], _newest)


def _lost(_: str, layers: _Layers) -> bytes:
    return layers.durable


def _but(most: Survival, name: str, other: Survival) -> Survival:
    return lambda file, layers: (other if file == name else most)(file, layers)


def _every_other(parity: int) -> Survival:
    return lambda _, layers: layers.build(
        layers.sizes[-1], lambda sector, newest: newest if sector % 2 == parity else 0
    )


def _torn_at_the_end(_: str, layers: _Layers) -> bytes:
    lost = set(layers.last[len(layers.last) // 2 :])
    return layers.build(layers.sizes[-1], lambda sector, newest: newest - (sector in lost))


def _later_half(_: str, layers: _Layers) -> bytes:
    kept = set(layers.order[len(layers.order) // 2 :])
    return layers.build(layers.sizes[-1], lambda sector, newest: newest if sector in kept else 0)


def _by_chance(chance: Random) -> Survival:
    def survive(name: str, layers: _Layers) -> bytes:
        size = chance.choice((layers.sizes[-1], *layers.sizes))
        noisy = not name.endswith(LOCK_SUFFIX) and chance.random() < 0.5  # noise in a lock file is refused
        noise = chance.randbytes(size) if noisy else b""
        return layers.build(size, lambda _, newest: chance.randint(0, newest), beyond=noise)

    return survive
