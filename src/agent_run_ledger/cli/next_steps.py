"""What to type next: command lines that a shell takes as they are, with the store they are about."""

from __future__ import annotations

import os
import re
import shlex

from agent_run_ledger.cli.settings import DB_VARIABLE, DEFAULT_DB, Setting
from agent_run_ledger.kernel.store_urls import is_url

MAX_CANDIDATES = 3
_COMMAND = re.compile(
    r"`arl ((?:init|verify|export|backup|upgrade|erase|prune|sql|doctor|runs|approvals|trust|principals|effects"
    r"|actions)\b[^`]*)`"
)
_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\a": "\\a", "\b": "\\b"}


def next_command(store: Setting, *words: str, operand: str = "") -> str:
    """Return `arl WORDS`, with `--db` unless the store is the default, and last the operand (a run id).

    The words are written as they are given; the path and the operand are quoted, and an operand that begins with
    "-" stands behind "--".
    """
    parts = ["arl", *words, *_db_option(store)]
    if operand:
        parts += ["--"] if operand.startswith("-") else []
        parts.append(shell_word(operand))
    return " ".join(parts)


def run_command(store: Setting, name: str, run_id: str, *options: str) -> str:
    """Return `arl runs NAME RUN OPTIONS`, with the run id behind everything where it looks like an option."""
    if run_id.startswith("-"):
        return next_command(store, "runs", name, *options, operand=run_id)
    return next_command(store, "runs", name, shell_word(run_id), *options)


def resolve_command(store: Setting, run_id: str, call: str, *options: str) -> str:
    """Return `arl runs resolve RUN CALL OPTIONS`."""
    if run_id.startswith("-"):
        return f"{next_command(store, 'runs', 'resolve', *options, operand=run_id)} {call}"
    return next_command(store, "runs", "resolve", shell_word(run_id), call, *options)


def with_store(words: str, store: Setting) -> str:
    """Return the words with `--db` added to every `arl` command in backticks that lacks it."""
    option = " ".join(_db_option(store))
    if not option:
        return words
    return _COMMAND.sub(lambda found: found[0] if "--db" in found[1] else f"`arl {found[1]} {option}`", words)


def no_store_hint(store: Setting) -> str:
    """Return what to do where no store lies: name another path, with those that lie in the same folder."""
    hint = f"give --db PATH or set {DB_VARIABLE}: the db_path that your program uses"
    if is_url(store.value):
        return f"`{next_command(store, 'init')}` makes one there; or {hint}, or the url"
    found = candidates(store.value)
    return f"{hint}; in that folder: {', '.join(map(shell_word, found))}" if found else hint


def candidates(location: str) -> list[str]:
    """Return paths of up to three files beside `location` that may be a store, the likeliest first.

    Judged by names alone: to open and close a store that this process uses would take its locks away.
    """
    folder = os.path.dirname(location)
    try:
        names = set(os.listdir(folder or "."))
    except OSError:
        return []
    written_to = sorted(name for name in names if f"{name}-lock" in names)
    others = sorted(name for name in names if name.endswith(".db") and name not in written_to)
    return [os.path.join(folder, name) for name in (*written_to, *others)][:MAX_CANDIDATES]


def shell_word(word: str) -> str:
    """Return a word as a shell takes it; what is not printable is written as $'...' with codes (bash, zsh, ksh)."""
    if word.isprintable():
        return shlex.quote(word)
    return f"$'{''.join(_escaped(character) for character in word)}'"


def _db_option(store: Setting) -> list[str]:
    return [] if store.value == DEFAULT_DB else ["--db", shell_word(store.shown)]


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:  # how Python holds a byte of a file name that is no UTF-8
        return f"\\x{number - 0xDC00:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
