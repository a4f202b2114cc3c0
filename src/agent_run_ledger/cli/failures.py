"""From an exception to an exit code and to what a person, or a program that asked for JSON, reads on stderr."""

from __future__ import annotations

import os
import sys

from agent_run_ledger.cli.folding import folded, stderr_width
from agent_run_ledger.cli.output import note, paint, to_json
from agent_run_ledger.cli.words import clean, clean_lines
from agent_run_ledger.errors import LedgerError

USAGE = 2
UNAVAILABLE = 5
UNEXPECTED = 70
"""EX_SOFTWARE of sysexits.h: no meaning of the error tree, so nobody takes a fault of ours for one of them."""
INTERRUPTED = 130
BROKEN_PIPE = 141


def conclude(error: BaseException, *, as_json: bool, debug: bool) -> int:
    """Say on stderr what happened and return the exit code: that of the error's class, 2, 5, 70, 130 or 141.

    The traceback is shown for `debug` only. A reader of stdout that went away is no news: nothing is said.
    """
    if isinstance(error, BrokenPipeError):
        return BROKEN_PIPE
    if isinstance(error, KeyboardInterrupt):
        if not as_json:
            note("interrupted")
        return INTERRUPTED
    if debug:
        _print_traceback(error)
    if isinstance(error, LedgerError):
        print_error(code=error.code, message=error.message, hint=error.hint, as_json=as_json)
        return error.exit_code
    usage = _usage_message(error)
    if usage is not None:
        print_error(code="usage", message=usage[0], hint=usage[1], as_json=as_json)
        return USAGE
    if isinstance(error, OSError) and error.filename is not None:
        where = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else str(error.filename)
        print_error(code="os_error", message=f"{where}: {error.strerror}", hint="", as_json=as_json)
        return UNAVAILABLE
    message = f"unexpected {type(error).__name__}: {error}"
    hint = "this is a fault of agent-run-ledger: please report it, with what `arl --debug ...` prints"
    print_error(code="unexpected", message=message, hint=hint, as_json=as_json)
    return UNEXPECTED


def print_error(*, code: str, message: str, hint: str, as_json: bool) -> None:
    """Print {"error": {"code", "message", "hint"}}, or two lines for people, on stderr."""
    if as_json:
        note(to_json({"error": {"code": code, "message": message, "hint": hint}}))
        return
    tty = sys.stderr.isatty()
    first, *more = folded(f"error: {clean(message)}", stderr_width(), rest="       ")
    note(f"{paint('error:', '1;31', stream_is_tty=tty)}{first.removeprefix('error:')}")
    for line in more:
        note(line)
    if hint:
        note(f"{paint('hint:', '36', stream_is_tty=tty)}  {clean(hint)}")


def _usage_message(error: BaseException) -> tuple[str, str] | None:
    """Return message and hint of a wrong command line, None for other exceptions.

    typer brings its own copy of click or uses the installed one, depending on its version: so it is asked by shape.
    """
    if isinstance(error, UnicodeEncodeError):  # what is on record is UTF-8: only what was given can be anything else
        return "what was given has bytes that are no UTF-8", "type the name or the text anew"
    format_message = getattr(error, "format_message", None)
    if format_message is None:
        return None
    context = getattr(error, "ctx", None)
    path = "arl" if context is None else str(context.command_path)
    return str(format_message()), f"`{path} --help` shows what it takes"


def _print_traceback(error: BaseException) -> None:
    import traceback

    for line in clean_lines("".join(traceback.format_exception(error)).rstrip()):
        note(line)
