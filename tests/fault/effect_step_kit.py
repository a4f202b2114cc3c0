"""Cases of effect steps under fire: an agent's lives, the server that counts, and people who do what each code asks."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from agent_run_ledger.effects import ActionState, ActionView
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.ledger.authority import open_effects
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.store.ledger_place import LEDGER_FILE
from agent_run_ledger.testing import BodyCounter, Exit, KillPoint, Life, check_ledger, run_scenario
from agent_run_ledger.testing.body_counter import LIFE_VARIABLE
from agent_run_ledger.testing.crash import left_by_death
from agent_run_ledger.testing.harness import RunningLife, start_scenario
from tests.contract.effect_run_kit import drain, make_store, sign
from tests.fault import effect_step_lives as lives
from tests.fault.refund_server import RefundServer
from tests.fault.test_dispatch_kills import path_to_tests

CAMPAIGN = int(os.environ.get("ARL_CAMPAIGN", "1"))
"""After a kill, 1 goes on in the test's own process, which is quicker; more than that in processes of their own."""

MOST_LIVES = 8
MEMORY = Path("/dev/shm")
Said = dict[str, Any]


class Case:
    """One store, one order, and everything that happens to it. Nothing in it executes the order twice."""

    def __init__(
        self, folder: Path, server: RefundServer, target_class: str, template: Path | None = None, *, here: bool = False
    ) -> None:
        """A new store, or a copy of `template`'s, or the one that lies there. `here`: its lives are in this process."""
        self.folder, self.server, self.target_class, self.here = folder, server, target_class, here
        self.lives = 0
        self.recorded: Counter[str] = Counter()
        self._ran: Counter[str] = Counter()
        server.forget()
        if template is not None:
            shutil.copytree(template, folder, dirs_exist_ok=True)
        elif not self.path.exists():
            folder.mkdir(exist_ok=True)
            make_store(folder, LEDGER_FILE)

    @property
    def path(self) -> Path:
        return self.folder / LEDGER_FILE

    @property
    def bodies(self) -> BodyCounter:
        return BodyCounter(self.folder / "bodies.log")

    def env(self, **more: str) -> dict[str, str]:
        return {
            **path_to_tests(),
            lives.URL_VARIABLE: self.server.url,
            lives.CLASS_VARIABLE: self.target_class,
            **more,
        }

    def start(self, what: str = "agent", kill_at: KillPoint | None = None, **more: str) -> RunningLife:
        """Start a life in a process of its own."""
        self.lives += 1
        return start_scenario(self._scenario(what), self.folder, kill_at=kill_at, life=self.lives, env=self.env(**more))

    def life(self, what: str = "agent", kill_at: KillPoint | None = None, **more: str) -> Life:
        """Live it to its end; whatever that was, the ledger holds, and the order was executed at most once."""
        self.lives += 1
        env = self.env(**more)
        life = run_scenario(self._scenario(what), self.folder, kill_at=kill_at, life=self.lives, env=env)
        self.check()
        return life

    def dies(self, what: str, kill_at: KillPoint) -> None:
        """Live it until it is killed; what it had recorded never runs again."""
        life = self.life(what, kill_at)
        assert life.exit is Exit.KILLED, life.describe()
        self.after_death()

    def after_death(self) -> None:
        """Note what is on record of bodies: they never run again."""
        recorded, _ = left_by_death(self.path)
        self.recorded = Counter(call.name for call in recorded if call.kind is RecordKind.RESULT)
        self._ran = self.bodies.count()

    def says(self, **more: str) -> Said:
        """What the agent says, in a process of its own."""
        if self.here:
            return self.says_here(**more)
        life = self.life(**more)
        assert life.exit is Exit.OK, life.describe()
        said: Said = life.result
        return said

    def says_here(self, **more: str) -> Said:
        """The same in this process, which is quicker."""
        self.lives += 1
        told = {**self.env(**more), LIFE_VARIABLE: str(self.lives)}
        with patch.dict(os.environ, told):
            said = lives.agent(self.folder)
        self.check()
        return said

    def grant(self) -> None:
        with open_effects(self.path, trust_path=self.folder / lives.TRUST_FILE) as effects:
            sign(effects, lives.KEY)

    def drain(self) -> None:
        with open_effects(self.path, trust_path=self.folder / lives.TRUST_FILE) as effects:
            drain(effects, lives.KEY)

    def members(self) -> list[ActionView]:
        with open_effects(self.path, trust_path=self.folder / lives.TRUST_FILE) as effects:
            return list(effects.inspect(lives.KEY))

    def goes_on(self) -> Said:
        """Start it again and again, with people who do what its code asks of them, until it is completed.

        Asked for approval, they grant. In doubt, the program is started with a probe; still in doubt, a person who
        has seen that the order was not executed says that nothing more of it can arrive.
        """
        probe: dict[str, str] = {}
        for _ in range(MOST_LIVES):
            said = self.says(**probe) if CAMPAIGN > 1 else self.says_here(**probe)
            code = said.get("code")
            if code is None:
                return said
            if code == "approval_pending":
                self.grant()
            elif code == "effect_in_doubt" and not probe:
                assert self.says_here() == said, "a doubt is no better for asking again"
                probe = {lives.PROBE_VARIABLE: "yes"}
            else:
                assert (code, self.server.counts().executed) == ("effect_in_doubt", 0)
                self.drain()
        raise AssertionError(f"not completed after {MOST_LIVES} lives: {said}")

    def ends_well(self) -> Said:
        """Go on to the end: one execution, one request, one result in every life, and no body that was on record."""
        said = self.goes_on()
        assert self.says_here() == said
        counts, members = self.server.counts(), self.members()
        assert (counts.executed, counts.arrived) == (1, 1)
        assert members[-1].state is ActionState.SUCCEEDED
        assert members[-1].action_id.hex() == said["action_id"]
        assert run_state(self.path) == "completed"
        again = {name for name in self.recorded if self.bodies.count()[name] > self._ran[name]}
        assert not again, f"on record and run again: {again}"
        return said

    def check(self) -> None:
        check_ledger(self.path)
        executed = self.server.counts().executed
        assert executed <= 1, f"executed {executed} times"

    def _scenario(self, what: str) -> str:
        return f"{lives.__file__}:{what}"


@contextmanager
def in_memory() -> Iterator[Path]:
    """A folder of its own, in memory where there is such a place: nothing that a kill leaves is on a disk's account."""
    with TemporaryDirectory(prefix="arl-steps-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
        yield Path(folder)


def run_state(path: Path, run_id: str = "ticket-17") -> str:
    """The state of a run."""
    store = open_sqlite(path, create=False)
    try:
        row = store.reader().find_run(run_id)
        return "" if row is None else str(row.state)
    finally:
        store.close()
