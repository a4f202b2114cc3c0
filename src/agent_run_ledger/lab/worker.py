"""One process of the lab: it carries out one order, prints what it did as JSON lines, and ends or dies."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

from agent_run_ledger import probes
from agent_run_ledger.effects.grants import Grant
from agent_run_ledger.errors import LedgerError, Pending, Refused
from agent_run_ledger.kernel.effects import Role as ActorRole
from agent_run_ledger.kernel.effects.commands import Actor
from agent_run_ledger.lab.approval import seed_demo_approval
from agent_run_ledger.lab.order import Order, Role
from agent_run_ledger.lab.request import ACTION_KEY, EXECUTOR, REQUESTER, intent_of, request_bytes
from agent_run_ledger.lab.ticks import Ticks
from agent_run_ledger.ledger.effect_ledger import EffectLedger
from agent_run_ledger.store import is_url, open_store
from agent_run_ledger.store.ledger_place import LedgerPlace

DURABILITY = "extra"

Facts = dict[str, Any]
"""Some of the fields of a Report."""


def seed(order: Order) -> Facts:
    """Make a database that may hold effects, propose the request, and let the lab approve it."""
    open_store(_named(order), create=True, authority=True, durability=_durability(order)).close()
    with _open(order) as ledger:
        requester = Actor(REQUESTER, frozenset({ActorRole.REQUESTER}))
        proposed = ledger.propose(requester, ACTION_KEY, intent_of(request_bytes()))
        seed_demo_approval(ledger, proposed.action_id)
        return _found(ledger)


def claim(order: Order) -> Facts:
    """Claim the action. A refusal is an answer: nothing changed, and it is not this worker's."""
    with _open(order) as ledger:
        if order.wait and not sys.stdin.readline():
            raise SystemExit("the lab is gone")
        _die_at(order.die_at)
        try:
            _claim(order, ledger)
        except (Refused, Pending) as refusal:
            return {"accepted": False, "code": refusal.code, **_found(ledger)}
        return {"accepted": True, **_found(ledger)}


def prepare(order: Order) -> Facts:
    """Claim the action and prepare it: the last thing that is written down before anything may be sent."""
    with _open(order) as ledger:
        grant = _claim(order, ledger)
        _die_at(order.die_at)
        ledger.prepare(_EXECUTOR, grant.view.action_id, claim_id=grant.claim_id, worker=order.worker)
        return {"accepted": True, **_found(ledger)}


def look(order: Order) -> Facts:
    """Read where the action stands."""
    with _open(order) as ledger:
        return _found(ledger)


def copy(order: Order) -> Facts:
    """Copy the file, as any tool could. With a rollback journal one file is all of a database that nobody has open."""
    shutil.copyfile(order.database, order.copy_to)
    return {}


ROLES: dict[Role, Callable[[Order], Facts]] = {
    Role.SEED: seed,
    Role.CLAIM: claim,
    Role.PREPARE: prepare,
    Role.LOOK: look,
    Role.COPY: copy,
}

_EXECUTOR = Actor(EXECUTOR, frozenset({ActorRole.EXECUTOR}))


def _open(order: Order) -> EffectLedger:
    """Open the database, and tell at once what makes its commits durable."""
    named, durability = _named(order), _durability(order)
    ledger = EffectLedger(named, durability=durability, time=Ticks(order.tick))
    # In one process all opens of a store share its connection: this asks the one that the ledger writes through.
    with closing(open_store(named, create=False, durability=durability)) as same:
        journal_mode, synchronous = same.journal()
    _tell({"journal_mode": journal_mode, "synchronous": synchronous})
    return ledger


def _named(order: Order) -> str:
    """Return the path that is ordered, or the URL that this process was told: no order has a password."""
    return LedgerPlace.here(Path(order.database).parent).url or order.database


def _durability(order: Order) -> str:
    return "full" if is_url(order.database) else DURABILITY


def _claim(order: Order, ledger: EffectLedger) -> Grant:
    (action,) = ledger.inspect(ACTION_KEY)
    digest = sha256(request_bytes()).digest()
    return ledger.claim(_EXECUTOR, action.action_id, worker=order.worker, request_sha256=digest)


def _found(ledger: EffectLedger) -> Facts:
    (action,) = ledger.inspect(ACTION_KEY)
    return {"state": action.state, "status": action.status, "not_protected": ledger.status().not_protected}


def _die_at(point: str) -> None:
    """From here on die when `point` is reached: no handler, no `finally`, nothing that is still in a buffer."""

    def die(reached: str) -> None:
        if reached == point:
            os.kill(os.getpid(), signal.SIGKILL)

    if point:
        probes.install(die)


def _tell(facts: Facts) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def main(line: str) -> int:
    """Carry out one order and return the exit code: 0, or 1 with an error on stderr."""
    order = Order.read(line)
    try:
        _tell(ROLES[order.role](order))
    except LedgerError as error:
        sys.stderr.write(f"{error.code}: {error.message}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
