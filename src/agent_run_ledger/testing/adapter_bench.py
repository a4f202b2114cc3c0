"""Runs the lives of one scenario of the adapter kit and gathers what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.account import Entry
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ledger.run_ledger import RunLedger
from agent_run_ledger.store.ledger_place import LedgerPlace
from agent_run_ledger.testing.adapter_evidence import Evidence, Seen, What
from agent_run_ledger.testing.adapter_job import GATE_FILE, RUN_ID, TRUST_FILE, Plan
from agent_run_ledger.testing.adapter_life import ADAPTER_VARIABLE, BLOCKED_VARIABLE, SUBJECT_VARIABLE
from agent_run_ledger.testing.adapter_verdicts import Found, ScenarioVerdict
from agent_run_ledger.testing.harness import Exit, Life, LifeTimeout, run_scenario
from agent_run_ledger.testing.ledger_check import LedgerBroken, check_ledger
from agent_run_ledger.testing.people import People

LIFE = "agent_run_ledger.testing.adapter_life:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """How one life went. `answer` is None where the subject raised; then `codes` and `error` say what."""

    number: int
    killed: bool
    answer: str | None
    codes: tuple[str, ...]
    error: str


class Bench:
    """The place of one scenario: a directory, a ledger, and a growing list of problems."""

    def __init__(
        self, subject: str, place: LedgerPlace, *, adapter: str, framework: Sequence[str], timeout_s: float
    ) -> None:
        self.folder = folder = place.folder
        self._ledger = place
        self.adapter = adapter
        self.framework = tuple(framework)
        self.seen = Evidence(folder)
        self.problems: list[str] = []
        self._subject = subject
        self._timeout_s = timeout_s
        self._lives = 0

    def judge(self, name: str, scenario: Callable[[Bench], str]) -> ScenarioVerdict:
        """Run a scenario and return its verdict: broken where anything was wrong, a hanging or broken life included."""
        try:
            words = scenario(self)
        except (LifeTimeout, LedgerBroken, Refused) as error:
            self.problems.append(str(error))
            words = ""
        if self.problems:
            return ScenarioVerdict(scenario=name, found=Found.BROKEN, words="; ".join(self.problems))
        return ScenarioVerdict(scenario=name, found=Found.HOLDS, words=words)

    def live(self, plan: Plan) -> Lived:
        """Run the plan in a new process and check the ledger that it left."""
        plan.write(self.folder)
        self._lives += 1
        life = self._run("run_subject", {SUBJECT_VARIABLE: self._subject})
        if self._ledger.is_there():
            check_ledger(self._ledger.named)
        said: dict[str, Any] = life.result or {}
        for line in self.seen.lines(What.NETWORK, life=self._lives):
            self.problems.append(f"life {self._lives} reached for the network: {line.text}")
        if life.exit is Exit.ERROR:
            self.problems.append(f"life {self._lives} ended badly: {life.describe()}")
        return Lived(
            number=self._lives,
            killed=life.exit is Exit.KILLED,
            answer=said.get("answer"),
            codes=tuple(said.get("codes", ())),
            error=str(said.get("error", "")),
        )

    def without_framework(self) -> Mapping[str, Any]:
        """Return what the adapter's public names do in a process without the framework."""
        blocked = {ADAPTER_VARIABLE: self.adapter, BLOCKED_VARIABLE: " ".join(self.framework)}
        life = self._run("use_without_framework", blocked)
        return life.result or {"import": life.describe(), "names": {}}

    def _run(self, function: str, env: Mapping[str, str]) -> Life:
        told = {**self._ledger.env(), **env}
        return run_scenario(LIFE + function, self.folder, life=max(1, self._lives), env=told, timeout_s=self._timeout_s)

    def decide(self, verdict: str) -> None:
        """Let the gate say this from now on."""
        (self.folder / GATE_FILE).write_text(verdict)

    def people(self) -> People:
        """Make the ledger, before the first life, with people who decide about effects, and return them."""
        return People(self._ledger.named, self.folder / TRUST_FILE)

    def expect(self, holds: bool, problem: str) -> None:
        """Note a problem unless this holds."""
        if not holds:
            self.problems.append(problem)

    def expect_answer(self, life: Lived, answer: str) -> None:
        """Note a problem unless the life gave this answer."""
        said = life.error or repr(life.answer)
        self.expect(life.answer == answer, f"life {life.number} should have answered {answer!r} and gave {said}")

    def expect_killed(self, life: Lived) -> None:
        """Note a problem unless the life was killed."""
        self.expect(
            life.killed, f"life {life.number} should have died in the tool and gave {life.error or life.answer!r}"
        )

    def expect_counts(self, life: Lived, *, models: int, tools: int) -> None:
        """Note a problem unless a life asked the model and ran bodies of tools just so often."""
        for what, wanted, words in ((What.MODEL, models, "asked the model"), (What.TOOL, tools, "ran a tool's body")):
            seen = len(self.lines(what, life))
            self.expect(seen == wanted, f"life {life.number} {words} {seen} times instead of {wanted}")

    def lines(self, what: What, life: Lived | None = None) -> list[Seen]:
        """Return what was seen, in one life or in all."""
        return self.seen.lines(what, life=None if life is None else life.number)

    def state(self) -> RunState | None:
        """Return the run's state on record."""
        with RunLedger(db_path=self._ledger.named, create=False) as ledger:
            return ledger.bind(RUN_ID).state

    def usage(self) -> Entry:
        """Return what the run spent and restored, by the ledger's own account."""
        with RunLedger(db_path=self._ledger.named, create=False) as ledger:
            account = ledger.bind(RUN_ID).usage()
            return Entry() if account is None else account.total
