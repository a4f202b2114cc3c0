"""One life of a subject of the adapter kit: the function that the harness runs in a child process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent_run_ledger.errors import LedgerError, Misuse
from agent_run_ledger.ledger.run_effects import EffectSettings
from agent_run_ledger.ledger.run_ledger import RunLedger
from agent_run_ledger.store.ledger_place import LedgerPlace
from agent_run_ledger.testing.adapter_evidence import Evidence, What
from agent_run_ledger.testing.adapter_job import TRUST_FILE, Job
from agent_run_ledger.testing.no_network import refuse_network
from agent_run_ledger.testing.scenarios import load_scenario

SUBJECT_VARIABLE = "ARL_ADAPTER_SUBJECT"
BLOCKED_VARIABLE = "ARL_ADAPTER_BLOCKED"
ADAPTER_VARIABLE = "ARL_ADAPTER_MODULE"


def run_subject(folder: Path) -> dict[str, Any]:
    """Run the subject's job in `folder`, and return its answer, or the codes and the text of what it raised.

    `codes`: those of every error of this library in what was raised, its causes and its parts. What reaches for the
    network is refused, and noted as evidence.
    """
    evidence = Evidence(folder)
    refuse_network(lambda words: evidence.note(What.NETWORK, text=words))
    subject: Any = load_scenario(os.environ[SUBJECT_VARIABLE])
    named, effects = LedgerPlace.here(folder).named, EffectSettings(trust=folder / TRUST_FILE)
    with RunLedger(db_path=named, effects=effects) as ledger:
        try:
            answer = subject().run(Job.read(folder, ledger))
        except Exception as error:
            codes = [one.code for one in _all_of(error) if isinstance(one, LedgerError)]
            said = next((str(one) for one in _all_of(error) if isinstance(one, LedgerError)), str(error))
            return {"answer": None, "codes": codes, "error": f"{type(error).__name__}: {said}"}
    return {"answer": str(answer), "codes": [], "error": ""}


def use_without_framework(folder: Path) -> dict[str, Any]:
    """Import the adapter where its framework is missing, and return what each of its public names raises.

    `import`: what the import itself raised, empty as it should be.
    """
    for name in os.environ[BLOCKED_VARIABLE].split():
        sys.modules[name] = None  # type: ignore[assignment]  # the import system takes None for "not there"
    try:
        adapter = __import__(os.environ[ADAPTER_VARIABLE], fromlist=["__all__"])
    except Exception as error:
        return {"import": f"{type(error).__name__}: {error}", "names": {}}
    return {"import": "", "names": {name: _touched(adapter, name) for name in adapter.__all__}}


def _touched(adapter: object, name: str) -> list[str]:
    try:
        found: Any = getattr(adapter, name)
        if not isinstance(found, type):
            found()
    except Misuse as error:
        return [error.code, error.hint]
    except Exception as error:
        return [type(error).__name__, str(error)]
    return ["", ""]


def _all_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, the parts of a group, and what each was raised from."""
    found, seen = [error], set[int]()
    while found:
        one = found.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        found += [*getattr(one, "exceptions", ()), *(e for e in (one.__cause__, one.__context__) if e is not None)]
