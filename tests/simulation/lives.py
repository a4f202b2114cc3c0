"""Lives are processes: forked from a warm one that never opens a store, killed by themselves, and waited for."""

from __future__ import annotations

import faulthandler
import gc
import importlib
import logging
import os
import pickle
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_run_ledger import probes
from agent_run_ledger.store.ledger_place import LEDGER_FILE
from agent_run_ledger.store.sqlite_migrations import QUERIES_FILE, SCHEMA_VERSION, expected_schema
from agent_run_ledger.store.statements import statements
from agent_run_ledger.testing import WatchedDisk
from agent_run_ledger.testing.tally import Tally
from tests.simulation.acting import Agent
from tests.simulation.generator import Life
from tests.simulation.looking import Left, look
from tests.simulation.syntax import Call, Program, StepSpec, Value
from tests.simulation.trace import Trace, bodies_begun, read_trace

PATIENCE_S = 150
SAID_FILE = "said.txt"


class LifeFailed(AssertionError):
    """A process ended as none should: with a traceback, or not at all."""


Breaks = Callable[[], None]
"""Makes the library wrong, in the process that calls it."""


def live(folder: Path, program: Program, number: int, life: Life, *, twin: Breaks | None = None) -> bool:
    """Live one life in a process of its own. Return whether it was killed."""

    def work() -> None:
        if twin is not None:
            twin()
        if life.point is not None:
            tally = Tally(life.point, lambda _: None)
            probes.install(tally)
            WatchedDisk(tally).install()
        trace = Trace(folder, number, life.line)
        agent = Agent(program=program, path=folder / LEDGER_FILE, trace=trace, begun=bodies_begun(read_trace(folder)))
        trace.write("end", "end", agent.live())

    code = in_a_child(folder, work)
    if code not in (0, -signal.SIGKILL) or (code and life.where is None):
        raise LifeFailed(f"life {number} ended with code {code}: {(folder / SAID_FILE).read_text(errors='replace')}")
    return code != 0


def look_in_a_child(folder: Path, *, complete: bool) -> Left:
    """Look at the store in a process of its own. `complete`: its creation was completed, for a run was entered."""
    answer = folder / "left.pickle"
    code = in_a_child(folder, lambda: answer.write_bytes(pickle.dumps(look(folder, complete=complete))) and None)
    if code:
        raise LifeFailed(f"check_ledger: {(folder / SAID_FILE).read_text(errors='replace')}")
    left: Any = pickle.loads(answer.read_bytes())  # our own child wrote it
    assert isinstance(left, Left)
    return left


def warm() -> None:
    """Bring into this process what every life needs, so that each finds it there. No store is opened in it."""
    with tempfile.TemporaryDirectory(prefix="arl-agents-warm-") as name:
        folder = Path(name)
        step = StepSpec(name="a", takes=0, shape="async")
        program = Program(steps=(step,), block=(Call(step="a"), Value(kind="uuid4")), asynchronous=True)

        def first() -> None:
            Agent(program=program, path=folder / LEDGER_FILE, trace=Trace(folder, 1), begun=Counter()).live()
            look(folder, complete=False)
            (folder / "modules").write_text("\n".join(sys.modules))

        if in_a_child(folder, first):
            raise LifeFailed((folder / SAID_FILE).read_text(errors="replace"))
        for module in (folder / "modules").read_text().split("\n"):
            if module not in sys.modules and not module.startswith("__"):
                importlib.import_module(module)
    statements(QUERIES_FILE)
    expected_schema(SCHEMA_VERSION)
    gc.collect()
    gc.freeze()


def in_a_child(folder: Path, work: Callable[[], None]) -> int:
    """Fork, work, and return the exit code; a child that takes too long is ended by its own alarm."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 3
    try:
        with (folder / SAID_FILE).open("w") as said:
            try:
                faulthandler.dump_traceback_later(PATIENCE_S - 5, file=said)
                signal.alarm(PATIENCE_S)
                logging.disable(logging.WARNING)
                work()
                code = 0
            except BaseException:
                traceback.print_exc(file=said)
    finally:
        os._exit(code)
