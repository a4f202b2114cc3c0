"""The conformance kit for adapters: takes a framework's own agent through faults and judges what came of them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

from agent_run_ledger.errors import Misuse
from agent_run_ledger.store.ledger_place import ledger_place
from agent_run_ledger.testing.adapter_bench import Bench
from agent_run_ledger.testing.adapter_evidence import Evidence, What
from agent_run_ledger.testing.adapter_job import Does, Job, KitTool, Mode, Plan, ToolCall, ToolPlan, Turn
from agent_run_ledger.testing.adapter_scenarios import SCENARIOS
from agent_run_ledger.testing.adapter_verdicts import AdapterBroken, Found, ScenarioVerdict, Verdicts
from agent_run_ledger.testing.harness import DEFAULT_TIMEOUT_S
from agent_run_ledger.testing.scenarios import absolute, load_scenario

__all__ = [
    "SCENARIOS",
    "AdapterBroken",
    "Does",
    "Evidence",
    "Found",
    "Job",
    "KitTool",
    "Mode",
    "Plan",
    "ScenarioVerdict",
    "Subject",
    "ToolCall",
    "ToolPlan",
    "Turn",
    "Verdicts",
    "What",
    "run_adapter_kit",
]


class Subject(Protocol):
    """What the author of an adapter gives; the script, the tools, the gate, the kills and the counting are the kit's.

    A class without arguments, found by "module:Class" or "file.py:Class".

    `adapter`: the adapter's module, whose `__all__` names what needs the framework. `framework`: the top-level modules
    to hide for the import without the framework. `unsupported`: a reason for each scenario of SCENARIOS that the
    framework cannot do.
    """

    adapter: str
    framework: tuple[str, ...]
    unsupported: Mapping[str, str]

    def run(self, job: Job) -> str:
        """Run the framework's agent within `job.ledger.run(job.run_id)`, by the adapter, and return its final text.

        The framework's fake model calls `job.asked(results)` each time it is asked and answers as that says, with the
        turn's tokens as usage; where `job.streams` it calls `job.sent` (`await job.asent`) before each chunk, and the
        consumer calls `job.got`. The tools are `job.tools`. What the adapter or the framework raises is let through;
        where the framework waits for an approval, Pending is.
        """
        ...


def run_adapter_kit(
    subject: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    only: Iterable[str] = (),
    timeout_s: float = DEFAULT_TIMEOUT_S,
    server: str | None = None,
) -> Verdicts:
    """Run every scenario, or those of `only`, with this subject and return a verdict for each.

    `subject`: "module:Class" or "file.py:Class", see `Subject`. `folder`: where each scenario gets a directory of its
    own; a temporary one by default. `timeout_s`: for one life, in seconds; what hangs is broken. `server`: the URL of a
    database at a server whose user may make databases, where the ledger of each scenario is then one of its own; it is
    dropped at the end, and by default a file. Raises Misuse for a
    subject that cannot be found or declares what is no scenario, and for an unknown name in `only`.
    """
    kind: Any = load_scenario(subject)
    declared = cast("Mapping[str, str]", kind.unsupported)
    wanted = tuple(only) or tuple(SCENARIOS)
    unknown = [name for name in (*declared, *wanted) if name not in SCENARIOS]
    if unknown:
        raise Misuse(f"there is no scenario {unknown[0]!r}: {', '.join(SCENARIOS)}", code="bad_scenario")
    if not all(why.strip() for why in declared.values()):
        raise Misuse("what a subject does not support needs a reason in words", code="bad_scenario")
    where = Path(tempfile.mkdtemp(prefix="arl-adapter-") if folder is None else folder)
    found: list[ScenarioVerdict] = []
    for name in wanted:
        if name in declared:
            found.append(ScenarioVerdict(scenario=name, found=Found.NOT_SUPPORTED, words=declared[name]))
            continue
        (where / name).mkdir(parents=True)
        with ledger_place(where / name, server) as place:
            bench = Bench(absolute(subject), place, adapter=kind.adapter, framework=kind.framework, timeout_s=timeout_s)
            found.append(bench.judge(name, SCENARIOS[name]))
    return Verdicts(subject=subject, all=tuple(found))
