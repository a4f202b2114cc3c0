"""Who asks: by a key of the trust file, or by name where no key could say it, and whether anything was checked."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated, Final

import typer

from agent_run_ledger.cli.effect_stores import NO_TRUST
from agent_run_ledger.errors import Misuse, Refused
from agent_run_ledger.kernel.effects.principals import PrincipalKind
from agent_run_ledger.kernel.effects.states import Role

if TYPE_CHECKING:
    from agent_run_ledger.cli.effect_stores import Deciding
    from agent_run_ledger.effects import Actor
    from agent_run_ledger.effects.signing import Sign
    from agent_run_ledger.kernel.effects.trust import TrustFile
    from agent_run_ledger.keys import SigningKey
    from agent_run_ledger.ledger.authority import Authority
    from agent_run_ledger.ledger.effect_ledger import EffectLedger
    from agent_run_ledger.store import AnyStore

As = Annotated[
    str | None,
    typer.Option("--as", metavar="NAME", help="Who asks, where there is no trust file [default: as the settings say]."),
]
As_program = Annotated[
    str | None,
    typer.Option(
        "--as", metavar="NAME", help="Who asks, without a trust file; with one, only a program that has no keys in it."
    ),
]
As_role = Annotated[
    Role | None, typer.Option("--role", help="In which role, without a trust file [default: the one that this is for].")
]
With = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="NAME", help="Who decides with you, without a trust file; may come again."),
]
WithKey = Annotated[
    list[str] | None,
    typer.Option("--with-key", metavar="FILE", help="The key of who decides together with you; may come again."),
]
WithPassphraseFile = Annotated[
    list[str] | None,
    typer.Option("--with-passphrase-file", metavar="FILE", help="Where its passphrase stands, in the same order."),
]

_NAME: Final = "NAME"
"""What printed commands have where a person has to be named."""
_NEEDS_KEY: Final = "give --key FILE of somebody with the role; `arl principals list` shows who that is"
_PROGRAM: Final = "give the key file of a principal, or --as NAME for a program that has no keys in the trust file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What the command line said of who asks: a name and a role, or a key file and where its passphrase stands."""

    name: str | None = None
    role: Role | None = None
    key: str | None = None
    passphrase_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """One open ledger and who asks it. `db` is as it was named, `store` for looking; `key`: theirs, which says who.

    `found`: the trust file, None where there is none.
    """

    db: str
    ledger: EffectLedger
    store: AnyStore
    actor: Actor
    key: SigningKey | None
    found: Authority | None

    @property
    def checked(self) -> bool:
        """Return whether a key says who asks."""
        return self.key is not None

    @property
    def sign(self) -> Sign | None:
        """Return what signs what they decide alone; None where no key says who they are."""
        return None if self.key is None else _signing(self.key)

    @property
    def words(self) -> str:
        """Return who asks, and that nobody checked it where nobody did."""
        from agent_run_ledger.cli.words import clean

        who = f"{clean(self.actor.principal)}, {', '.join(sorted(self.actor.roles))}"
        if self.checked:
            return who
        why = "no trust file" if self.found is None else "a program without keys"
        return f"{who} ({why}: the ledger believes it)"

    @property
    def json(self) -> dict[str, object]:
        """Return who asks, for JSON."""
        return {
            "principal": self.actor.principal,
            "roles": sorted(map(str, self.actor.roles)),
            "checked": self.checked,
        }

    def people(
        self, names: Sequence[str] | None, keys: Sequence[str] | None, passphrases: Sequence[str] | None
    ) -> tuple[frozenset[str], Sign | None]:
        """Return who decides together with who asks, and what signs for all of them: by their keys, by name only where
        there is no trust file.

        Whether they may decide so, the ledger says. Refused: "key_needed", "no_trust", "other_key".
        """
        if self.found is None:
            if keys:
                raise no_trust()
            if _NAME in (names or ()):
                said = f"{_NAME} stands for who decides together with you"
                raise Misuse(said, code="usage", hint="give their name in its place")
            return frozenset(names or ()), None
        if names:
            said = "under a trust file a name alone decides nothing"
            raise Refused(said, code="key_needed", hint="give --with-key FILE for each who decides together with you")
        if len(passphrases or ()) > len(keys or ()):
            raise Misuse("there are more passphrases than keys", code="usage", hint="one for each --with-key, in order")
        others = [_holder(self.found, *one) for one in zip_longest(keys or (), passphrases or ())]
        held = {key.key_id: key for key in (self.key, *(key for _, key in others)) if key is not None}
        return frozenset(one.principal for one, _ in others), _signing(*held.values())


@contextmanager
def asking(
    db: str | None, trust: str | None, said: Said, *, role: Role, by_name: bool = False
) -> Generator[Asking, None, None]:
    """Open the configured ledger with the settings that it was used with, for one principal in one role.

    With a trust file a key says who asks, by default the local one of the role; `by_name`: a program that has no keys
    there may be named. Refused: no_store, no_authority, key_needed, other_key, unknown_principal, no_trust,
    weaker_settings (it was used with a witness, which the command line has not).
    """
    from agent_run_ledger.cli.effect_stores import deciding_effects
    from agent_run_ledger.cli.stores import reading

    with reading(db) as store, deciding_effects(db, trust, needs_trust=False) as here:
        actor, key = _actor(here, said, role=role, by_name=by_name)
        yield Asking(db=here.setting.value, ledger=here.ledger, store=store, actor=actor, key=key, found=here.found)


def no_trust() -> Refused:
    """Return the refusal of a key where nothing says whose keys count."""
    return Refused("without a trust file nobody knows whose key this is", code="no_trust", hint=NO_TRUST)


def _signing(*keys: SigningKey) -> Sign:
    from agent_run_ledger.effects.signing import signing

    return signing(*keys)


def _actor(here: Deciding, said: Said, *, role: Role, by_name: bool) -> tuple[Actor, SigningKey | None]:
    """Return who asks, and their key where one said so."""
    from agent_run_ledger.cli.settings import actor_setting
    from agent_run_ledger.effects import Actor

    if here.found is None:
        if said.key is not None:
            raise no_trust()
        return Actor(actor_setting(said.name).value, frozenset({said.role or role})), None
    if said.role is not None:
        words = "the trust file says which roles somebody has"
        raise Refused(words, code="key_needed", hint="leave --role out")
    if said.name is not None and said.key is not None:
        raise Misuse("a key says who asks", code="usage", hint="leave --as out")
    name = said.name
    if name is None and said.key is None and by_name and role is Role.REQUESTER:
        name = _local_requester(here.found)
    if name is None:
        return _holder(here.found, said.key, said.passphrase_file, here.setting.value)
    if not by_name:
        raise Refused("under a trust file a name alone decides nothing", code="key_needed", hint=_NEEDS_KEY)
    return _program(here.found.trust, name), None


def _holder(found: Authority, key: str | None, passphrase_file: str | None, db: str = "") -> tuple[Actor, SigningKey]:
    """Return who holds a key, by default the local operator's, and it. Errors of `signing_key`, `actor_with_key`."""
    from agent_run_ledger.cli.key_files import signing_key
    from agent_run_ledger.ledger.authority import actor_with_key
    from agent_run_ledger.ledger.local_authority import OPERATOR_KEY
    from agent_run_ledger.ledger.local_trust import local_file

    held = signing_key(key, passphrase_file, local=local_file(db, OPERATOR_KEY))
    return actor_with_key(found.trust, held), held


def _program(trust: TrustFile, name: str) -> Actor:
    """Return a program of the trust file that has no key to show. Refused: "unknown_principal", "key_needed"."""
    from agent_run_ledger.ledger.authority import actor_of

    actor, who = actor_of(trust, name), trust.principal(name)
    if who is None or who.kind is not PrincipalKind.AUTOMATIC or who.keys:
        said = f"{name!r} is no program without keys: a key says that it is who asks"
        raise Refused(said, code="key_needed", hint=_PROGRAM)
    return actor


def _local_requester(found: Authority) -> str:
    """Return the one who asks where `arl init --local` made the trust file. Misuse where nobody said who asks."""
    from agent_run_ledger.ledger.local_authority import REQUESTER

    if not found.local or found.trust.principal(REQUESTER) is None:
        raise Misuse("under a trust file it has to be said who asks", code="usage", hint=_PROGRAM)
    return REQUESTER
