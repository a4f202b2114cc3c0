"""Moves a whole ledger to another store, so that at no moment both can grant."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, Final

from agent_run_ledger import probes
from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.errors import LedgerError, Misuse, NotAdmitted, Refused, Tampered, Unavailable
from agent_run_ledger.kernel.merkle import root
from agent_run_ledger.kernel.store_urls import check_wait, is_url
from agent_run_ledger.ports import Entropy, Reader
from agent_run_ledger.store.move_sides import (
    LOG_TABLES,
    TABLES,
    FillingSide,
    MovingStore,
    MovingTx,
    Side,
    Spot,
    same_rows,
)
from agent_run_ledger.store.moves import (
    MOVE_ID_BYTES,
    MOVING_STATE,
    RETIRED_STATE,
    Move,
    Mover,
    Standing,
    change,
    is_arriving,
    is_filled_by,
    lines_of,
    live_state,
    move_of,
    move_over,
    refusal,
)

Named = str | PathLike[str]
Progress = Callable[[str, int, int], None]
"""Told (what is counted: "rows" or "tables compared", how many are done, of how many)."""

Check = Callable[[Reader], None]

WAIT_S: Final = 30.0
_LOCK: Final = "arl migrate"
"""Who holds the lock of a run of this name on the source is the one that moves it."""

_LOCK_WAIT_S: Final = 5.0
_NAP_S: Final = 0.05
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What was moved: the log of `size` leaves under `root` (32 bytes) that both stores have in common, and `rows`.

    The target's log has one leaf more. `resumed`: a move that was begun before went on. `already`: it had ended, too.
    """

    source: str
    target: str
    log_id: bytes
    size: int
    root: bytes
    rows: int
    resumed: bool
    already: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """What was given up: whether the source had stopped and is live again, and whether a target was taken away."""

    source: str
    target: str
    log_id: bytes
    live_again: bool
    discarded: bool


def move(
    source: Named,
    target: Named,
    *,
    check: Check,
    progress: Progress | None = None,
    wait_s: float = WAIT_S,
    entropy: Entropy | None = None,
) -> Moved:
    """Move the ledger of one store into another that is made for it, or go on with a move that was begun.

    `check` reads the whole target before the source is retired; what it raises stops the move there.

    The order is what keeps the two apart. The source stops (a leaf: moving). The target is filled, and may be used for
    nothing. It is compared and checked. The source retires (a leaf: retired), for ever. The target gets that leaf, and
    only then, with a leaf of its own, it is live. A process that dies anywhere leaves at most one that can be written;
    the same call goes on. One that lost its lock is refused by what stands in both stores, with move_over: the target
    is filled by whoever took it over last, and the source takes a step only from where its mover saw it.

    Refused: no_store, runs_live, retired, other_target, target_not_empty, same_store, target_gone, destination_exists,
    move_over. NotAdmitted("is_copy"). Unavailable("store_busy") while another process moves it.
    Tampered("moved_wrong") where the target is not what the source is. Else as open_sqlite and open_postgres.
    """
    with _at_work(source, target, wait_s, entropy or SystemEntropy()) as work:
        return work.move(check, progress or _tell_nobody)


def abandon(source: Named, target: Named, *, wait_s: float = WAIT_S, entropy: Entropy | None = None) -> Abandoned:
    """Give a move up: the source is live again, and what was filled of the target is taken away.

    Refused("retired") where the source has retired: then nothing leads back, and `move` brings it to its end.
    Other errors as `move`. A target that cannot be reached is left, and can never become live.
    """
    with _at_work(source, target, wait_s, entropy or SystemEntropy()) as work:
        return work.abandon()


@contextmanager
def _at_work(source: Named, target: Named, wait_s: float, entropy: Entropy) -> Generator[_Work, None, None]:
    check_wait(wait_s)
    one, other = _spot(source, wait_s, entropy), _spot(target, wait_s, entropy)
    if one.location == other.location:
        raise Refused(f"{one.location} is both source and target", code="same_store", hint="name two stores")
    with closing(one.open()) as store:
        deadline_s = time.monotonic() + min(wait_s, _LOCK_WAIT_S)
        while (lock := store.lock_run(_LOCK)) is None:  # a server needs a moment to notice that a process died
            if time.monotonic() > deadline_s:
                raise Unavailable(f"another process moves {one.location}", code="store_busy", hint="is it at work?")
            time.sleep(_NAP_S)
        try:
            yield _Work(store, one, other, entropy)
        finally:
            lock.release()


def _spot(named: Named, wait_s: float, entropy: Entropy) -> Spot:
    if not is_url(named):
        from agent_run_ledger.store.sqlite_move import SqliteSpot

        return SqliteSpot(named, wait_s=wait_s, entropy=entropy)
    try:
        from agent_run_ledger.store.postgres_move import PostgresSpot
    except ImportError as error:
        raise Misuse(
            f"a store at a server needs a driver that is not there: {error}",
            code="extra_missing",
            hint='pip install "agent-run-ledger[postgres]"',
        ) from error
    return PostgresSpot(str(named), wait_s=wait_s, entropy=entropy)


class _Work:
    """One move, by the one process that has the source's lock for it.

    The lock spares others the attempt. It can be lost, and is not what keeps two apart.
    """

    def __init__(self, store: MovingStore, source: Spot, target: Spot, entropy: Entropy) -> None:
        self._store = store
        self._source = source
        self._target = target
        self._entropy = entropy
        self._token = entropy.token(MOVE_ID_BYTES)
        self._size: int | None = None
        """How many leaves the source had when this process took the target over, and with its own steps since."""

    def move(self, check: Check, progress: Progress) -> Moved:
        """See move."""
        meta, here = self._look()
        found = self._target.meta()
        there = None if found is None else move_of(found, self._target.location)
        resumed = here.standing is not Standing.LIVE
        if here.standing is Standing.RETIRED:
            if there is None or there.move_id != here.move_id:
                raise self._retired(here, there)
            if there.standing is Standing.LIVE:
                return self._moved(resumed=True, already=True)
            if there.standing is not Standing.ARRIVING:
                raise self._retired(here, there)
            mover = self._take_over(here)
        else:
            mover, here = self._begin(meta, here, found)
            self._fill(mover, check, progress)
        self._retire(here)
        self._catch_up(mover)
        self._live(mover)
        return self._moved(resumed=resumed, already=False)

    def abandon(self) -> Abandoned:
        """See abandon."""
        meta, here = self._look()
        if here.standing is Standing.RETIRED:
            raise refusal(here, self._source.location)
        mover = self._take_to_discard(meta)
        if self._look()[1] != here:
            raise move_over(self._source.location)
        live_again = here.standing is Standing.MOVING
        if live_again:
            self._store.transact_moving(self._entropy.uuid7(), lambda tx: self._step(tx, here, Standing.LIVE))
            probes.reach("migrate.abandoned")
        discarded = False
        with suppress(LedgerError):
            discarded = mover is not None and self._target.discard(mover)
        return Abandoned(
            source=self._source.location,
            target=self._target.location,
            log_id=self._store.log_id,
            live_again=live_again,
            discarded=discarded,
        )

    def _look(self) -> tuple[Mapping[str, Any], Move]:
        location = self._source.location
        meta = self._source.meta() or {}
        here = move_of(meta, location)
        if here.standing is Standing.ARRIVING:
            raise refusal(here, location)
        if meta["is_copy"]:
            raise NotAdmitted(f"{location} is a copy", code="is_copy", hint="only what it was made of can be moved")
        return meta, here

    def _take_over(self, here: Move) -> Mover:
        """Have the target filled by this process and none before it, and note where the source stands then."""
        mover = Mover(move_id=here.move_id, token=self._token)
        with closing(self._target.filling(mover)) as side:
            side.take_over()
        with closing(self._source.reading()) as side:
            self._size = side.head().size
        return mover

    def _begin(self, meta: Mapping[str, Any], here: Move, found: Mapping[str, Any] | None) -> tuple[Mover, Move]:
        """Have a target that is ours, and a source that has stopped; return who moves, and where the source stands."""
        location, peer = self._source.location, self._target.location
        if here.standing is Standing.MOVING and here.peer != peer:
            raise Refused(
                f"{location} is being moved to {here.peer}, not to {peer}",
                code="other_target",
                hint="name that one; or give up first, with --abandon and that one",
            )
        move_id = here.move_id
        if here.standing is Standing.LIVE:
            self._check_no_run_lives()
            move_id = self._adopted(found) or self._entropy.token(MOVE_ID_BYTES)
        if found is None:
            self._target.make(meta, Move(standing=Standing.ARRIVING, move_id=move_id, peer=location))
            probes.reach("migrate.target")
        elif not is_arriving(move_of(found, peer), move_id):
            raise self._taken(found)
        began = Move(standing=Standing.MOVING, move_id=move_id, peer=peer)
        mover = self._take_over(began)
        if here.standing is Standing.LIVE:
            self._size = self._store.transact_moving(self._entropy.uuid7(), lambda tx: self._stop(tx, began))
            probes.reach("migrate.begun")
        try:
            self._check_no_run_lives()  # nothing begins any more: each begins with a transaction
        except LedgerError:
            if here.standing is Standing.LIVE:
                self._store.transact_moving(self._entropy.uuid7(), lambda tx: self._step(tx, began, Standing.LIVE))
            raise
        return mover, began

    def _adopted(self, found: Mapping[str, Any] | None) -> bytes | None:
        """Return the id that a process gave the target before it died; None where there is no target yet."""
        if found is None:
            return None
        there = move_of(found, self._target.location)
        ours = found["log_id"] == self._store.log_id and there.peer == self._source.location
        if there.standing is not Standing.ARRIVING or not ours:
            raise self._taken(found)
        with closing(self._target.reading()) as side:
            if side.count():  # of a move that was given up: the source may have changed since
                raise self._taken(found)
        return there.move_id

    def _check_no_run_lives(self) -> None:
        with closing(self._source.reading()) as side:
            live = [run_id for run_id in side.running() if self._store.is_run_live(run_id)]
        if live:
            named = ", ".join(map(repr, live[:_MOST_NAMED])) + (", …" if len(live) > _MOST_NAMED else "")
            raise Refused(
                f"{len(live)} run(s) of {self._source.location} are at work: {named}",
                code="runs_live",
                hint="let them end, or stop their processes; nothing was moved",
            )

    def _fill(self, mover: Mover, check: Check, progress: Progress) -> None:
        with closing(self._source.reading()) as source, closing(self._target.filling(mover)) as target:
            total, done = source.count(), target.count()
            progress("rows", done, total)
            for table in TABLES:
                for rows in source.pages(table, after=target.last(table)):
                    target.put(table, rows)
                    probes.reach("migrate.chunk")
                    done += len(rows)
                    progress("rows", done, total)
            target.put_head(source.head())
            probes.reach("migrate.copied")
            for at, table in enumerate(TABLES, 1):
                _compare(source, target, table)
                progress("tables compared", at, len(TABLES))
        with closing(self._target.open()) as store:
            if store.log_id != self._store.log_id:
                raise Tampered(f"{self._target.location} is of another log", code="moved_wrong")
            check(store.reader())
        probes.reach("migrate.verified")

    def _retire(self, here: Move) -> None:
        """Retire the source; once more where it has, for what a dead process saw may be on no disk yet."""
        self._store.transact_moving(self._entropy.uuid7(), lambda tx: self._step(tx, here, Standing.RETIRED))
        probes.reach("migrate.retired")

    def _catch_up(self, mover: Mover) -> None:
        """Bring the target what the source's log got since: that it retired."""
        with closing(self._source.reading()) as source, closing(self._target.filling(mover)) as target:
            for table in LOG_TABLES:
                for rows in source.pages(table, after=target.last(table)):
                    target.put(table, rows)
            target.put_head(source.head())
            _check_head(source, target)
        probes.reach("migrate.caught_up")

    def _live(self, mover: Mover) -> None:
        with closing(self._target.open()) as store:

            def arrive(tx: MovingTx) -> None:
                meta = tx.metas()
                if not is_filled_by(meta, mover, self._target.location):
                    raise move_over(self._target.location)
                _note(tx, Move(standing=Standing.LIVE, move_id=mover.move_id, peer=self._source.location))
                tx.add_change(change(store.log_id, RETIRED_STATE, live_state(meta)))

            store.transact_moving(self._entropy.uuid7(), arrive)
        probes.reach("migrate.live")

    def _stop(self, tx: MovingTx, began: Move) -> int:
        meta = tx.metas()
        now = move_of(meta, self._source.location)
        if now.standing is not Standing.LIVE:
            raise refusal(now, self._source.location)
        _note(tx, began)
        tx.add_change(change(self._store.log_id, live_state(meta), MOVING_STATE))
        return tx.size + 1

    def _step(self, tx: MovingTx, was: Move, new: Standing) -> None:
        """Bring a source that stopped for this move to its end, or back; `was` is what it said when it was looked at.

        The log's size is as much a part of that: one that has retired says the same when it retires once more.
        """
        meta = tx.metas()
        now = move_of(meta, self._source.location)
        if now != was or tx.size != self._size:  # its log grows by nothing but the steps of movers
            raise move_over(self._source.location)
        _note(tx, replace(was, standing=new))
        old = RETIRED_STATE if was.standing is Standing.RETIRED else MOVING_STATE
        tx.add_change(change(self._store.log_id, old, RETIRED_STATE if new is Standing.RETIRED else live_state(meta)))

    def _take_to_discard(self, meta: Mapping[str, Any]) -> Mover | None:
        """Take over a target that was being filled from this source, where there is one that can be reached.

        Whoever fills it is refused from here on, and can not retire a source whose target is about to be taken away.
        """
        with closing(self._source.reading()) as side:
            self._size = side.head().size
        with suppress(LedgerError):
            found = self._target.meta()
            there = None if found is None else move_of(found, self._target.location)
            if (
                found is not None
                and there is not None
                and (there.standing, there.peer) == (Standing.ARRIVING, self._source.location)
                and found["log_id"] == meta["log_id"]
            ):
                return self._take_over(there)
        return None

    def _moved(self, *, resumed: bool, already: bool) -> Moved:
        with closing(self._source.reading()) as source:
            head = source.head()
            return Moved(
                source=self._source.location,
                target=self._target.location,
                log_id=self._store.log_id,
                size=head.size,
                root=root(head.size, head.frontier),
                rows=source.count(),
                resumed=resumed,
                already=already,
            )

    def _taken(self, found: Mapping[str, Any]) -> LedgerError:
        location, there = self._target.location, move_of(found, self._target.location)
        if there.standing is Standing.ARRIVING:
            return Refused(
                f"{location} holds a part of another move, from {there.peer}",
                code="target_not_empty",
                hint="`arl migrate --abandon` with both names takes it away; or choose another target",
            )
        if found["log_id"] == self._store.log_id:
            return Refused(
                f"{location} holds this ledger, or a copy of it", code="same_store", hint="choose another target"
            )
        return Refused(
            f"{location} holds a ledger of its own", code="target_not_empty", hint="choose a place where nothing is"
        )

    def _retired(self, here: Move, there: Move | None) -> LedgerError:
        location = self._source.location
        if here.peer == self._target.location and there is None:
            return Refused(
                f"{location} is retired, and its ledger is not at {here.peer} any more",
                code="target_gone",
                hint="nothing leads back: restore that store from a backup of its own",
            )
        return refusal(here, location)


def _note(tx: MovingTx, move: Move) -> None:
    for key, value in lines_of(move):
        tx.put_meta(key, value)


def _compare(source: Side, target: FillingSide, table: str) -> None:
    differs = same_rows(source, target, table)
    if differs is not None:
        target.check_mine()
        raise Tampered(
            f"{target.location}: row {differs} of {table} is not what {source.location} has",
            code="moved_wrong",
            hint="give up with --abandon; the source is as it was",
        )
    _check_head(source, target)


def _check_head(source: Side, target: FillingSide) -> None:
    if source.head() != target.head():
        target.check_mine()
        raise Tampered(f"{target.location}: its log is not that of {source.location}", code="moved_wrong")


def _tell_nobody(_what: str, _done: int, _total: int) -> None:
    return None
