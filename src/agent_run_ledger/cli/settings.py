"""Which store and which person a command works with: flag before environment before agent_run_ledger.toml."""

from __future__ import annotations

import getpass
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent_run_ledger.errors import Misuse

DB_VARIABLE = "AGENT_RUN_LEDGER_DB"
ACTOR_VARIABLE = "AGENT_RUN_LEDGER_ACTOR"
CONFIG_VARIABLE = "AGENT_RUN_LEDGER_CONFIG"
CONFIG_NAME = "agent_run_ledger.toml"
DEFAULT_DB = "agent_run_ledger.db"
KEYS = ("actor", "db")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting and where it came from, as a person would say it."""

    value: str = field(repr=False)
    source: str

    @property
    def shown(self) -> str:
        """The value as people may see it: the URL of a store without its password."""
        from agent_run_ledger.kernel.store_urls import without_secrets

        return without_secrets(self.value)


def db_setting(flag: str | None = None) -> Setting:
    """Return the path or the URL of the store; a path in the TOML file is relative to that file."""
    from agent_run_ledger.kernel.store_urls import is_url

    if flag is not None:
        return Setting(value=flag, source="--db")
    if from_environment := os.environ.get(DB_VARIABLE):
        return Setting(value=from_environment, source=DB_VARIABLE)
    path, table = _configuration()
    if "db" in table:
        named = table["db"]
        return Setting(value=named if is_url(named) else str(path.parent / named), source=str(path))
    return Setting(value=DEFAULT_DB, source="default")


def actor_setting(flag: str | None = None) -> Setting:
    """Return who acts: the flag, the environment, the TOML file, or the name of the operating system's user."""
    if flag is not None:
        return Setting(value=_filled(flag, "--actor"), source="--actor")
    if from_environment := os.environ.get(ACTOR_VARIABLE):
        return Setting(value=from_environment, source=ACTOR_VARIABLE)
    path, table = _configuration()
    if "actor" in table:
        return Setting(value=_filled(table["actor"], str(path)), source=str(path))
    try:
        return Setting(value=getpass.getuser(), source="user of the operating system")
    except (OSError, KeyError) as error:
        raise Misuse("this user has no name", code="no_actor", hint="give --actor NAME") from error


def _configuration() -> tuple[Path, Mapping[str, str]]:
    """Return the TOML file's path and its settings; a missing file is empty unless AGENT_RUN_LEDGER_CONFIG names it."""
    named = os.environ.get(CONFIG_VARIABLE)
    path = Path(named or CONFIG_NAME)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        if named is None:
            return path, {}
        raise Misuse(f"{CONFIG_VARIABLE} names {path}, which does not exist", code="bad_config") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Misuse(f"{path} cannot be read: {error}", code="bad_config") from error
    for key, value in table.items():
        if key not in KEYS:
            raise Misuse(f"{path} has the unknown key {key!r}", code="bad_config", hint=f"known: {', '.join(KEYS)}")
        if not isinstance(value, str) or not value:
            raise Misuse(f"{path}: {key} must be a text that is not empty", code="bad_config")
    return path, table


def _filled(value: str, source: str) -> str:
    if not value.strip():
        raise Misuse(f"{source} names nobody", code="no_actor")
    return value
