"""An agent that dies in a tool which may not be repeated, and a person who settles that, for the crash harness."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from agent_run_ledger import Pending, Refused, RunLedger
from agent_run_ledger.ledger.run_view import view_run
from agent_run_ledger.testing import BodyCounter


class Agent:
    """look_up → send_mail → report. The mail's sender dies in it; nobody but a person says how that went."""

    def __init__(self, workdir: Path) -> None:
        bodies = BodyCounter(workdir / "bodies.log")
        self.ledger = ledger = RunLedger("agent", workdir / "ledger.db")

        @ledger.step
        def look_up(who: str) -> str:
            bodies.ran("look_up")
            return f"{who}@example.org"

        @ledger.tool
        def send_mail(to: str) -> str:
            bodies.ran("send_mail")
            raise KeyboardInterrupt

        @ledger.step
        def report(sent: str) -> str:
            bodies.ran("report")
            return f"reported: {sent}"

        self.look_up, self.send_mail, self.report = look_up, send_mail, report

    def go(self) -> str:
        """Work until something is unknown that a person has to settle."""
        with self.ledger.run(ticket=17):
            sent: object = self.send_mail(self.look_up("ann"))
            if not isinstance(sent, str):
                raise Pending("a person has to look into the outbox")
            return self.report(sent)

    def settle(self) -> None:
        """Be that person: every call with an unknown outcome was found to have happened."""
        store = self.ledger._opened.context().store
        row = store.reader().find_run("agent")
        view = None if row is None else view_run(store, row).calls
        for call in () if view is None else view.unknown:
            self.ledger.bind("agent").resolve(call.ident, result="sent", reason="it is in the outbox", actor="ann")


def settled_by_a_person(workdir: Path) -> str:
    """Die in the tool, be settled, go on. Killed anywhere, the next life goes on where this one was."""
    agent = Agent(workdir)
    with agent.ledger:
        for _ in range(2):
            with suppress(Refused):
                agent.settle()
            with suppress(KeyboardInterrupt, Pending):
                return agent.go()
        agent.settle()
        return agent.go()
