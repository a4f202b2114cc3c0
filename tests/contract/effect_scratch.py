"""A scratch database with the schema of effects, in which statements run without the rules, and triggers alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import apsw

from agent_run_ledger.kernel.effects.action import Action, Approval, Now, Standing
from agent_run_ledger.kernel.effects.commands import Command
from agent_run_ledger.kernel.effects.decision import Accepted, Case, Recorded
from agent_run_ledger.kernel.effects.record import Transition
from agent_run_ledger.kernel.effects.reducer import MOVES, _asked_about
from agent_run_ledger.store.effect_rows import row_of_action, row_of_approval
from agent_run_ledger.store.effect_tx import RowEffects
from agent_run_ledger.store.sqlite_migrations import EFFECTS_FILE
from agent_run_ledger.store.statements import sql_text, statements

ROW_ID = 1
NAMES = tuple(sql_text(EFFECTS_FILE).split("INSERT INTO actions (")[1].split(")")[0].replace(",", " ").split())


def moved(ledger: Standing, members: tuple[Action, ...], command: Command) -> Accepted:
    """What the event makes of the rows when nobody asks its guards: the rules as an attacker would have them."""
    member = _asked_about(members, command)
    done = MOVES[command.event](Case(ledger, members, member, command))
    if isinstance(done, Recorded):  # told again: here it is done again
        return Accepted(event=command.event, old=done.action.state, new=done.action.state, rows=(done.action,))
    return cast(Accepted, done)


class Scratch:
    """One table of actions. `bare`: only CHECKs and indexes hold until `guard` brings the triggers."""

    def __init__(self) -> None:
        self.file = apsw.Connection(":memory:")
        self.file.execute("PRAGMA foreign_keys = ON")
        self.file.execute(sql_text("sqlite_schema.sql"))
        self._triggers = [sql for (sql,) in self.file.execute("SELECT sql FROM sqlite_schema WHERE type = 'trigger'")]
        self._names = [name for (name,) in self.file.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")]

    def bare(self) -> Scratch:
        """Take the triggers away."""
        for name in self._names:
            self.file.execute(f"DROP TRIGGER {name}")
        return self

    def guard(self) -> Scratch:
        """Bring them back."""
        for sql in self._triggers:
            self.file.execute(sql)
        return self

    def put(self, action: Action, approvals: tuple[Approval, ...] = ()) -> None:
        """Write a row as it is."""
        self.insert(**dict(zip(NAMES, row_of_action(action, 5), strict=True)))
        for approval in (*action.approvals, *approvals):
            self.file.execute(statements(EFFECTS_FILE)["insert_approval"], row_of_approval(approval, ROW_ID))

    def insert(self, **columns: Any) -> None:
        """Write a row of columns."""
        marks = ", ".join("?" for _ in columns)
        self.file.execute(f"INSERT INTO actions ({', '.join(columns)}) VALUES ({marks})", tuple(columns.values()))

    def update(self, assignments: str) -> int:
        """Change the row by hand; the number of rows that changed. ConstraintError where the schema does not."""
        self.file.execute(f"UPDATE actions SET {assignments}")
        return self.file.changes()

    def run(self, before: Action, ledger: Standing, command: Command, now: Now) -> int:
        """Run an event's own statement, as the store does, and undo it; the number of rows that it changed."""
        after = moved(ledger, (before,), command).rows[0]
        transition = Transition(command=command, ledger=ledger, old=str(before.state), row=after)
        name, bindings = RowEffects(_FakeTx(ledger.epoch), statements(EFFECTS_FILE))._statement(before, transition, now)  # type: ignore[arg-type]
        self.file.execute("SAVEPOINT one")
        try:
            self.file.execute(statements(EFFECTS_FILE)[name], bindings)
            return self.file.changes()
        finally:
            self.file.execute("ROLLBACK TO one; RELEASE one")

    def clear(self) -> None:
        """Take every row away; only a bare one lets that happen."""
        self.file.execute("DELETE FROM approvals; DELETE FROM actions")


class _FakeTx:
    """What a statement is bound to besides the command."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.now_ms = 7


def sized(action: Action) -> Action:
    """The same member with an id of the size that the schema wants."""
    return replace(action, action_id=action.action_id.ljust(16, b"."))
