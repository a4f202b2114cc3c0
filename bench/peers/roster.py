"""Who is measured: one line per contender, in the order of the table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPTS = Path(__file__).resolve().parent / "contenders"
LOCKS = ROOT / "requirements" / "peers"


class Side(StrEnum):
    """What a contender stands for in the comparison."""

    FLOOR = "floor"
    OURS = "ours"
    PEER = "peer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One row of the table.

    `script` is a file of contenders/ that obeys contenders/protocol.py; `option` is the setting that it runs with.
    `environment` names a lock file of requirements/peers and the environment made of it; None is the one that runs the
    driver. `packages` are those whose versions the row names. A life after a kill begins `rest_s` seconds later, and
    `fault_option` replaces `option` in both lives, for a contender that lets the claim of a dead process expire.
    """

    name: str
    title: str
    side: Side
    script: str
    option: str | None = None
    environment: str | None = None
    packages: tuple[str, ...] = ()
    rest_s: float = 0.0
    fault_option: str | None = None

    @property
    def path(self) -> Path:
        """The script."""
        return SCRIPTS / f"{self.script}.py"


FLOOR = Contender(
    name="floor",
    title="bare SQLite, WAL + FULL",
    side=Side.FLOOR,
    script="bare_sqlite",
    option="wal",
    packages=("apsw",),
)

ROSTER = (
    FLOOR,
    Contender(
        name="floor-delete",
        title="bare SQLite, DELETE + FULL",
        side=Side.FLOOR,
        script="bare_sqlite",
        option="delete",
        packages=("apsw",),
    ),
    Contender(
        name="arl",
        title="agent-run-ledger (default)",
        side=Side.OURS,
        script="arl_pipeline",
        option="full",
        packages=("agent-run-ledger",),
    ),
    Contender(
        name="arl-extra",
        title="agent-run-ledger, extra",
        side=Side.OURS,
        script="arl_pipeline",
        option="extra",
        packages=("agent-run-ledger",),
    ),
    Contender(
        name="unhinged",
        title="unhinged (default)",
        side=Side.PEER,
        script="unhinged_task",
        environment="unhinged",
        packages=("unhinged",),
        rest_s=1.5,
        fault_option="1",
    ),
    Contender(
        name="langgraph-graph-async",
        title="LangGraph graph, async (default)",
        side=Side.PEER,
        script="langgraph_graph",
        option="async",
        environment="langgraph",
        packages=("langgraph", "langgraph-checkpoint-sqlite"),
    ),
    Contender(
        name="langgraph-graph-sync",
        title="LangGraph graph, sync",
        side=Side.PEER,
        script="langgraph_graph",
        option="sync",
        environment="langgraph",
        packages=("langgraph", "langgraph-checkpoint-sqlite"),
    ),
    Contender(
        name="langgraph-tasks-async",
        title="LangGraph tasks, async (default)",
        side=Side.PEER,
        script="langgraph_tasks",
        option="async",
        environment="langgraph",
        packages=("langgraph", "langgraph-checkpoint-sqlite"),
    ),
    Contender(
        name="langgraph-tasks-sync",
        title="LangGraph tasks, sync",
        side=Side.PEER,
        script="langgraph_tasks",
        option="sync",
        environment="langgraph",
        packages=("langgraph", "langgraph-checkpoint-sqlite"),
    ),
    Contender(
        name="dbos",
        title="DBOS on SQLite (default)",
        side=Side.PEER,
        script="dbos_workflow",
        environment="dbos",
        packages=("dbos",),
    ),
)


def chosen(names: list[str]) -> tuple[Contender, ...]:
    """Return the contenders with these names or environments in the order of the table; all of them for none.

    The floor is always among them: without it no ratio can be told. An unknown name is a ValueError.
    """
    known = {one.name for one in ROSTER} | {one.environment for one in ROSTER if one.environment}
    if unknown := sorted(set(names) - known):
        raise ValueError(f"no contender {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    return tuple(one for one in ROSTER if not names or one is FLOOR or {one.name, one.environment}.intersection(names))
