"""Who asks: the one module that opens the effect ledger for somebody, and says whether anybody checked who that is."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from agent_run_ledger.errors import Misuse
from agent_run_ledger.kernel.effects.states import Role

if TYPE_CHECKING:
    from agent_run_ledger.effects import Actor
    from agent_run_ledger.ledger.effect_ledger import EffectLedger
    from agent_run_ledger.store import SqliteStore

As = Annotated[
    str | None,
    typer.Option("--as", metavar="NAME", help="Who asks [default: the actor of the settings]."),
]
As_role = Annotated[Role | None, typer.Option("--role", help="In which role [default: the one that this is for].")]
With = Annotated[
    list[str] | None, typer.Option("--with", metavar="NAME", help="Who decides together with you; may come again.")
]
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """One open ledger and who asks it. `db` is as it was named, `store` for looking; `checked`: a key says who."""

    db: str
    ledger: EffectLedger
    store: SqliteStore
    actor: Actor
    checked: bool

    @property
    def words(self) -> str:
        """Return who asks, and that nobody checked it where nobody did."""
        from agent_run_ledger.cli.words import clean

        who = f"{clean(self.actor.principal)}, {', '.join(sorted(self.actor.roles))}"
        return who if self.checked else f"{who} (no trust file: the ledger believes it)"

    @property
    def json(self) -> dict[str, object]:
        """Return who asks, for JSON."""
        return {
            "principal": self.actor.principal,
            "roles": sorted(map(str, self.actor.roles)),
            "checked": self.checked,
        }

    def people(self, names: Sequence[str] | None) -> frozenset[str]:
        """Return who decides together with who asks. Nobody checks that they do."""
        return frozenset(names or ())

    def policy(self, named: str) -> bytes:
        """Return the digest of an approval policy, named by it. Misuse("bad_policy") for anything else."""
        if not _DIGEST.fullmatch(named):
            words = f"{named!r} is no digest of an approval policy"
            raise Misuse(words, code="bad_policy", hint="give 64 hex digits: its SHA-256")
        return bytes.fromhex(named)


@contextmanager
def asking(db: str | None, name: str | None, role: Role | None, *, default: Role) -> Generator[Asking, None, None]:
    """Open the configured ledger with the settings that it was used with, for one principal in one role.

    Refused: no_store, no_authority, weaker_settings (it was used with a witness, which the command line has not).
    """
    from agent_run_ledger.cli.copies import log_on_stderr
    from agent_run_ledger.cli.settings import actor_setting, db_setting
    from agent_run_ledger.cli.stores import hints_for
    from agent_run_ledger.effects import Actor
    from agent_run_ledger.ledger.effect_ledger import EffectLedger
    from agent_run_ledger.ledger.effect_standing import settings_on_record
    from agent_run_ledger.store import open_sqlite, stored_durability

    setting, who = db_setting(db), actor_setting(name).value
    with hints_for(setting):
        durability = stored_durability(setting.value)
        store = open_sqlite(setting.value, create=False, readonly=True)
        try:
            with (
                log_on_stderr(),
                EffectLedger(setting.value, durability=durability, settings=settings_on_record(store)) as ledger,
            ):
                actor = Actor(who, frozenset({role or default}))
                yield Asking(db=setting.value, ledger=ledger, store=store, actor=actor, checked=False)
        finally:
            store.close()
