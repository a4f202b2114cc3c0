"""The steps that were called in one attempt of a dynamic run: each name is one step, with one environment."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from agent_run_ledger.errors import Misuse
from agent_run_ledger.runs.resolver import environment_digests
from agent_run_ledger.runs.steps import Step


class CalledSteps:
    """`limited`: the steps whose budget the run's START knows; None where nothing new runs."""

    def __init__(self, run_id: str, limited: Collection[str] | None) -> None:
        self._run_id = run_id
        self._limited = limited
        self._steps: dict[str, Step[..., Any]] = {}
        self._environments: dict[str, Mapping[str, bytes]] = {}

    def check(self, step: Step[..., Any]) -> None:
        """Raise Misuse for another step of a known name, and for a budget that the run does not know."""
        known = self._steps.setdefault(step.name, step)
        if known is not step and known.plain is not step.plain:
            raise Misuse(
                f"two steps named {step.name!r} were called in run {self._run_id!r}",
                code="duplicate_step",
                hint="give one of them another name=",
            )
        if step.budget is not None and self._limited is not None and step.name not in self._limited:
            raise Misuse(
                f"run {self._run_id!r} knows nothing of the budget of step {step.name!r}",
                code="bad_budget",
                hint="register the step in the ledger of the run before ledger.run(...)",
            )

    def environment(self, step: Step[..., Any]) -> Mapping[str, bytes]:
        """Return the digests of a step's environment, read once."""
        if step.environment is None:
            return {}
        known = self._environments.get(step.name)
        if known is None:
            known = self._environments[step.name] = environment_digests(step)
        return known
