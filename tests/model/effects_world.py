"""One key, its workers, receiver, witness and copies: every step that can be next in the search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from agent_run_ledger.kernel.effects import ActionState, LedgerState, Recorded, Standing, Terms, WitnessPolicy
from agent_run_ledger.kernel.effects.evidence import Covers, DrainKind, Found
from agent_run_ledger.kernel.effects.states import FENCING
from tests.model import effects_receivers as receivers
from tests.model.effects_receivers import Kind, Permit, Receiver
from tests.model.effects_store import BOUND_MS, BYTES, END_MS, PERMIT_MS, Members, Question, Store, fence_mark

FAULTS = frozenset({"backup", "RESTORE", "witness silent"})
FAR_SIDE = frozenset({"deliver", "EFFECT", "outcome stored"})
WORKERS = frozenset({"claim", "prepare", "hand out", "hand out by a restarted process"})
"""Steps that a proof of liveness may not count on."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is searched: the receiver, the witness, the bounds, and what the world does wrong in a twin."""

    kind: Kind
    witness: bool
    restores: int = 1
    generations: int = 2
    members: int = 2
    ends: tuple[str, ...] = ()
    silences: bool = False
    timed: bool | None = None
    observer: bool = True
    delivered_twice: bool = False
    paused_drain: bool = False
    admission_waits: bool = True
    admission_raises: bool = True
    approve_once: bool = False
    receiver_restored: bool = False


class Copy(NamedTuple):
    """A snapshot of the store, and whether the witness has seen more since."""

    ledger: int
    members: int
    cosigned: bool
    behind: bool


class World(NamedTuple):
    """One state of everything. `handed`: the highest (epoch, generation) handed out; `signed`: the epoch
    that people approved in, `epoch`: the highest one that the witness knows."""

    ledger: int
    members: int
    receiver: Receiver = Receiver()
    permits: frozenset[tuple[Permit, bool]] = frozenset()
    cosigned: bool = False
    behind: bool = False
    copy: Copy | None = None
    restores: int = 0
    handed: tuple[int, int] = (-1, -1)
    signed: int = -1
    epoch: int = 0
    receiver_copy: Receiver | None = None


Step = tuple[str, World, str | None]


class Search:
    """The steps of one setting."""

    def __init__(self, setting: Setting) -> None:
        """Begin with an empty ledger and an empty receiver."""
        self.setting = setting
        terms = Terms(
            request_sha256=BYTES,
            executor="exe",
            audience="pay",
            target_class=setting.kind.target_class,
            checks_expiry=setting.kind.checks_expiry,
            not_before_ms=0,
            dispatch_before_ms=END_MS,
            policy_sha256=b"p" * 32,
            display_sha256=b"d" * 32,
        )
        first = Standing(
            ledger_id=b"l" * 16,
            witness=WitnessPolicy.HTTP if setting.witness else WitnessPolicy.NONE,
            bound_ms=BOUND_MS,
            max_permit_ms=PERMIT_MS,
        )
        self.store = Store(terms, first)
        self.timed = setting.kind.checks_expiry if setting.timed is None else setting.timed
        self._plain: dict[tuple[int, int, bool], list[tuple[str, int, int, str | None]]] = {}
        self.fences = setting.kind.target_class in FENCING
        self.first = World(*self.store.first)

    def standing(self, world: World) -> Standing:
        """Where the ledger stands."""
        return self.store.values[world.ledger]

    def rows(self, world: World) -> Members:
        """The members of the key."""
        return self.store.values[world.members]

    def steps(self, world: World) -> Iterator[Step]:
        """Every step that can be next: its name, the world after it, and an invariant that it broke."""
        yield from self._people(world)
        yield from self._worker(world)
        yield from self._evidence(world)
        yield from self._far_side(world)
        yield from self._witness(world)
        yield from self._copies(world)
        if self.timed:
            aged = self._aged(world)
            if aged != world:
                yield "time passes", aged, None

    def _asked(self, world: World, name: str, *question: object) -> Iterator[Step]:
        reply = self.store.ask(world.ledger, world.members, question)
        if reply is not None:
            after = world._replace(ledger=reply.ledger, members=reply.members)
            if (reply.ledger, reply.members) != (world.ledger, world.members):
                after = after._replace(cosigned=False)
            yield name, after, reply.broken

    def _people(self, world: World) -> Iterator[Step]:
        at = (world.ledger, world.members, world.cosigned)
        found = self._plain.get(at)
        if found is None:
            found = self._plain[at] = [
                (name, after.ledger, after.members, broken)
                for name, question in self._plain_questions(world)
                for _, after, broken in self._asked(world, name, *question)
            ]
        for name, ledger, members, broken in found:
            yield name, world._replace(ledger=ledger, members=members, cosigned=False), broken
        yield from self._approve(world)
        if self.standing(world).state is LedgerState.RECOVERY:
            yield from self._admit(world)

    def _plain_questions(self, world: World) -> Iterator[tuple[str, Question]]:
        """What depends on nothing but the ledger's own rows."""
        rows, setting = self.rows(world), self.setting
        for name in ("propose", "doubt", *setting.ends, "close unprepared", "not executed", "prepare"):
            yield name, (name,)
        if len(rows) < setting.members:
            yield "successor", ("successor", world.cosigned)
        if not setting.observer:
            yield "write off", ("write off",)
        if rows and max(row.mark for row in rows) < setting.generations:
            yield "claim", ("claim",)

    def _approve(self, world: World) -> Iterator[Step]:
        """With `approve_once` people sign for a key once, and whoever has that signature brings it again."""
        epoch = self.standing(world).epoch
        if not self.setting.approve_once:
            yield from self._asked(world, "approve", "approve", epoch)
            return
        signed = epoch if world.signed < 0 else world.signed
        for name, after, broken in self._asked(world, "approve", "approve", signed):
            yield name, after._replace(signed=signed), broken

    def _admit(self, world: World) -> Iterator[Step]:
        setting = self.setting
        waited = self._aged(world) if setting.admission_waits else world
        for name, after, broken in self._asked(waited, "admit", "admit", True):
            receiver = after.receiver
            if setting.admission_raises:
                receiver = receivers.raise_epoch(setting.kind, receiver, self.standing(after).epoch)
            yield (
                name,
                after._replace(receiver=receiver, cosigned=True, behind=False, epoch=self.standing(after).epoch),
                broken,
            )

    def _worker(self, world: World) -> Iterator[Step]:
        for again in (False, True):
            question: Question = ("hand out", world.cosigned, again)
            reply = self.store.ask(world.ledger, world.members, question)
            if reply is None:
                continue
            after = world._replace(ledger=reply.ledger, members=reply.members)
            row = self.store.values[reply.members][-1]
            over = self.setting.kind.checks_expiry and row.permit_expires_ms is not None and row.permit_expires_ms <= 0
            pair = (self.standing(world).epoch, row.generation or 0)
            permit = Permit(*pair, over, f"{row.worker}{'+' if again else ''}"), False
            broken = reply.broken
            if not isinstance(reply.decision, Recorded):
                grows = pair > world.handed or not self.setting.witness
                broken = broken or (None if grows else "1: a pair of epoch and generation was handed out again")
                after = after._replace(handed=max(pair, world.handed), cosigned=False)
            name = "hand out by a restarted process" if again else "hand out"
            yield name, after._replace(permits=world.permits | {permit}), broken

    def _evidence(self, world: World) -> Iterator[Step]:
        seen, setting = world.receiver, self.setting
        for _, after, broken in self._asked(world, "drain", "drain", DrainKind.EXPIRY, Covers.WORKER):
            yield "drain by time", after, broken
        for covers in Covers:
            drained = list(self._asked(world, "drain", "drain", DrainKind.PATH_DEAD, covers))
            for _, after, broken in drained:
                yield f"drain: paths dead ({covers})", self._dead(after, covers), broken
            if drained:
                break  # stronger evidence than is asked for leaves less in flight, and nothing new can happen
        if setting.observer:
            found = Found.EXECUTED if seen.effects else Found.NOTHING
            yield from self._asked(world, f"observe {found}", "observe", found)
            if not seen.effects:
                yield from self._asked(world, "observe before the drain that it names", "observe ahead")
            else:
                yield from self._asked(world, "observed success", "observed success")
        if self.fences:
            for generation in seen.executed:
                yield from self._asked(world, f"receipt of {generation}", "receipt", generation)
            mark = fence_mark(self.rows(world))
            fenced, found, generation = receivers.fence(setting.kind, seen, mark)
            for close in (False, True):
                question = ("fence", close, max(fenced.mark, mark), found, generation)
                for _, after, broken in self._asked(world, "fence", *question):
                    told = receivers.settle(fenced) if found is Found.UNKNOWN else fenced
                    name = f"fence: {found}{', close unprepared' if close else ''}"
                    yield name, after._replace(receiver=told), broken

    def _dead(self, world: World, covers: Covers) -> World:
        """The evidence is true: the paths that it names carry nothing any more."""
        if self.setting.paused_drain:
            return world
        gone = self.rows(world)[-1].worker
        kept = (
            frozenset(one for one in world.permits if one[0].worker.rstrip("+") != gone)
            if covers is Covers.WORKER
            else frozenset()
        )
        return world._replace(permits=kept, receiver=receivers.stop(world.receiver))

    def _far_side(self, world: World) -> Iterator[Step]:
        for one in world.permits:
            permit, sent = one
            rest = world.permits - {one}
            if self.setting.delivered_twice and not sent:
                rest |= {(permit, True)}
            received = receivers.receive(self.setting.kind, world.receiver, permit)
            name = "EFFECT" if received.effects > world.receiver.effects else "deliver"
            yield name, world._replace(permits=rest, receiver=received), None
        for name, received in receivers.run_pending(world.receiver):
            yield name, world._replace(receiver=received), None

    def _witness(self, world: World) -> Iterator[Step]:
        if not self.setting.witness:
            return
        standing = self.standing(world)
        if standing.state is LedgerState.OPEN:
            needed = newest_state(self, world) in (ActionState.PREPARED, ActionState.NOT_EXECUTED)
            if needed and not world.cosigned:
                copy = world.copy
                if copy is not None and (copy.ledger, copy.members) != (world.ledger, world.members):
                    copy = copy._replace(behind=True)
                yield "cosign", world._replace(cosigned=True, copy=copy), None
            if self.setting.silences:
                yield "witness silent", self._stands(world, LedgerState.HELD), None
        elif standing.state is LedgerState.HELD:
            yield "witness answers", self._stands(world, self._answer(world)), None

    def _answer(self, world: World) -> LedgerState:
        """What the witness says of the store that asks: its origin was replaced, it is behind, or it is current."""
        if self.standing(world).epoch < world.epoch:
            return LedgerState.FROZEN
        return LedgerState.RECOVERY if world.behind else LedgerState.OPEN

    def _copies(self, world: World) -> Iterator[Step]:
        if world.restores >= self.setting.restores:
            return
        if world.copy is None:
            copy = Copy(world.ledger, world.members, world.cosigned, world.behind)
            kept = world.receiver if self.setting.receiver_restored else None
            yield "backup", world._replace(copy=copy, receiver_copy=kept), None
            return
        copy = world.copy
        opened = replace(self.store.values[copy.ledger], opening=b"opened again, %d" % world.restores)
        restored = world._replace(
            ledger=self.store.number(opened),
            members=copy.members,
            cosigned=copy.cosigned,
            behind=copy.behind,
            copy=None,
            restores=world.restores + 1,
        )
        if world.receiver_copy is not None:
            yield "RESTORE of the receiver", self._receiver_back(world), None
        if self.setting.witness:
            restored = self._stands(restored, LedgerState.HELD if self.setting.silences else self._answer(restored))
        yield "RESTORE", restored, None

    def _receiver_back(self, world: World) -> World:
        if world.receiver_copy is None:
            return world
        back = world.receiver_copy._replace(effects=world.receiver.effects)
        return world._replace(receiver=back, receiver_copy=None, copy=None, restores=world.restores + 1)

    def _stands(self, world: World, state: LedgerState) -> World:
        return world._replace(ledger=self.store.number(replace(self.standing(world), state=state)))

    def _aged(self, world: World) -> World:
        copy = world.copy
        checked = self.setting.kind.checks_expiry
        return world._replace(
            members=self.store.aged(world.members),
            permits=frozenset((permit._replace(over=checked), sent) for permit, sent in world.permits),
            copy=None if copy is None else copy._replace(members=self.store.aged(copy.members)),
        )


def newest_state(search: Search, world: World) -> ActionState | None:
    """The state of the newest member."""
    rows = search.rows(world)
    return rows[-1].state if rows else None
