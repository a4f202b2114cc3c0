"""What an exception of the PostgreSQL driver means for the caller, in the words of the error tree."""

from __future__ import annotations

import re
from typing import TypeGuard

import psycopg

from agent_run_ledger.errors import LedgerError, Misuse, Refused, Tampered, Unavailable

Rule = tuple[type[LedgerError], str, str, str]

_AGAIN = "try again: nothing happened"

# By SQLSTATE (PostgreSQL, appendix A): the longest beginning that is listed decides.
_RULES: dict[str, Rule] = {
    "08": (Unavailable, "connection_lost", "the connection to {location} was lost", _AGAIN),
    "22": (Refused, "unstorable", "a value cannot be stored in {location}", ""),
    "22021": (Refused, "unstorable", "a text cannot be stored in {location}", "PostgreSQL stores UTF-8, without NUL"),
    "23": (Misuse, "constraint", "a row breaks a rule of the schema of {location}", ""),
    "25006": (Unavailable, "read_only", "{location} cannot be written", "is it a standby? name the primary"),
    "25P03": (Unavailable, "interrupted", "{location} ended a transaction that stood still for too long", _AGAIN),
    "28": (Refused, "login_refused", "{location} does not let this user in", "check user and password"),
    "3D000": (Refused, "no_database", "there is no such database at {location}", "`createdb` makes one"),
    "40": (Unavailable, "store_busy", "{location} undid the transaction because of another one", _AGAIN),
    "42": (Tampered, "schema_changed", "{location} does not have the tables it was created with", ""),
    "42501": (Refused, "no_permission", "this user may not do that in {location}", "ask its owner for the rights"),
    "53": (Unavailable, "no_resources", "{location} has no resources left", ""),
    "53100": (Unavailable, "disk_full", "there is no room left for {location}", "nothing was lost"),
    "53300": (Unavailable, "too_many_connections", "{location} takes no more connections", "raise max_connections"),
    "54": (Refused, "too_big", "a value is too big for {location}", ""),
    "55P03": (Unavailable, "store_busy", "{location} stayed locked by another process", _AGAIN),
    "57": (Unavailable, "connection_lost", "{location} ended the connection", _AGAIN),
    "57014": (Unavailable, "interrupted", "the statement on {location} was broken off", _AGAIN),
    "57P03": (Unavailable, "server_starting", "{location} starts, stops or recovers", "try again in a moment"),
    "XX001": (Tampered, "corrupt", "{location} is not an intact database", "restore it from a backup"),
    "XX002": (Tampered, "corrupt", "{location} has an index that is not intact", "REINDEX it"),
}

# A login that fails has no SQLSTATE in the driver, only the server's words; other languages get the general answer.
_SAID: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"password authentication failed|no password supplied|no pg_hba\.conf entry|role .* does not"), "28"),
    (re.compile(r"database .* does not exist"), "3D000"),
    (re.compile(r"too many (?:clients|connections)|remaining connection slots|connection limit"), "53300"),
    (re.compile(r"starting up|shutting down|recovery mode|not yet accepting"), "57P03"),
    (re.compile(r"session is (?:not )?read-only|server is in hot standby"), "25006"),
)
# What the URL says and neither the driver nor the server takes: nothing that waiting helps against. The name of the
# parameter is told, and not its value.
_WRONG = re.compile(
    r"""connection\ option\ "(\w+)" | invalid\ "?(\w+)"?\ value: | bad\ value\ for\ (\w+)
    | unrecognized\ configuration\ parameter\ "([\w.]+)" | invalid\ value\ for\ parameter\ "([\w.]+)"
    | definition\ of\ (service)\  | server\ does\ not\ support\ (SSL),\ but | (root\ certificate)\ file
    | FATAL:\s+--[^ ]*\ (requires)\ a\ value | invalid\ (command-line)\ argument""",
    re.VERBOSE,
)
_POOLER = re.compile(r"unsupported startup parameter")
_PASSING = frozenset({"unreachable", "connection_lost", "server_starting", "read_only", "too_many_connections"})
_WARNING = "WARNING"
_OF_STANDBYS = "syncrep.c"
_LONGEST = 300
_ERROR = "ERROR"


def translated(error: psycopg.Error, location: str) -> LedgerError:
    """Return the error to raise from `error`. Nothing has been committed. `location` names the store."""
    if error.sqlstate is None:
        if isinstance(error, psycopg.DataError):  # the driver's own: a text with a NUL
            return _by_rule(_RULES["22021"], location, _first_line(error))
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return _by_rule(_RULES["08"], location, _first_line(error))
        return Unavailable(f"{location} could not be used: {_first_line(error)}", code="store_failed")
    rule = rule_of(error.sqlstate)
    said = error.diag.message_primary or _first_line(error)
    if rule is None:
        return Unavailable(f"{location} could not be used: {said}", code="store_failed")
    return _by_rule(rule, location, said)


def is_refusal(error: psycopg.Error) -> bool:
    """Return whether the server refused a statement and the session goes on: nothing of its transaction lands.

    All else says nothing of a COMMIT that was sent. A session that somebody ends (57P01, FATAL) may be ended behind it,
    and the connection need not look closed by then.
    """
    if error.sqlstate is None or error.sqlstate.startswith("08"):
        return False
    return error.diag.severity_nonlocalized == _ERROR


def is_lost(error: psycopg.Error) -> bool:
    """Return whether the session is over with an error. Of values that cannot be sent the server never heard."""
    return not isinstance(error, psycopg.DataError) and not is_refusal(error)


def passes(error: LedgerError) -> TypeGuard[Unavailable]:
    """Return whether a server that was used before may take the same question in a moment, as after a restart."""
    return isinstance(error, Unavailable) and error.code in _PASSING


def unconfirmed(diagnostic: psycopg.errors.Diagnostic) -> bool:
    """Return whether a message that came beside an answer says that a standby did not confirm a commit.

    Its SQLSTATE is that of every warning, and its words are in the server's language: where it comes from tells.
    """
    if diagnostic.severity_nonlocalized != _WARNING:
        return False
    return diagnostic.source_file is None or diagnostic.source_file.endswith(_OF_STANDBYS)


def unsendable(error: Exception) -> psycopg.DataError:
    """Return what is said of a value that the driver cannot put in bytes: half a character, or too big a number."""
    if isinstance(error, UnicodeError):
        return psycopg.DataError("a text has a character that is none in UTF-8")
    return psycopg.errors.NumericValueOutOfRange("a number has no room in 64 bits")


def rule_of(sqlstate: str) -> Rule | None:
    """Return what a SQLSTATE means, None where this program has no word for it."""
    return next((_RULES[sqlstate[:end]] for end in (5, 2) if sqlstate[:end] in _RULES), None)


def unconnected(error: psycopg.Error, location: str) -> LedgerError:
    """Return what to raise when no connection came to be."""
    said = _first_line(error)
    if _POOLER.search(said):
        return Refused(
            f"{location} is a connection pooler: {said}", code="pooled_connection", hint="name the server itself"
        )
    wrong = _WRONG.search(str(error))
    if wrong is not None:
        what = next(filter(None, wrong.groups()))
        return Misuse(
            f"{location} cannot be used as its URL says: {what}", code="bad_url", hint="see what stands behind its ?"
        )
    for pattern, sqlstate in _SAID:
        if pattern.search(str(error)):
            return _by_rule(_RULES[sqlstate], location, said)
    return Unavailable(
        f"{location} cannot be reached: {said}",
        code="unreachable",
        hint="is the server running, and is that its address?",
    )


def breaks_unique(error: BaseException | None) -> bool:
    """Return whether a row was refused because another one has its unique values."""
    return isinstance(error, psycopg.errors.UniqueViolation)


def _by_rule(rule: Rule, location: str, said: str) -> LedgerError:
    kind, code, message, hint = rule
    return kind(f"{message.format(location=location)}: {said}", code=code, hint=hint)


def _first_line(error: BaseException) -> str:
    """Return what the driver says, in one line: what follows may quote values of rows."""
    return str(error).strip().split("\n", 1)[0][:_LONGEST]
