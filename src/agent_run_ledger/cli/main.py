"""The console script: parses the command line, runs one command and turns whatever happens into an exit code."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO, cast

import agent_run_ledger
from agent_run_ledger.cli import failures
from agent_run_ledger.cli.output import note, paint
from agent_run_ledger.cli.words import clean

DEBUG_VARIABLE = "AGENT_RUN_LEDGER_DEBUG"


def run() -> None:
    """Be the command `arl`: never a traceback without --debug, and an exit code that says what may be done next."""
    if cast("TextIO | None", sys.stdout) is None:  # closed: the first file that is opened would take its place
        words, hint = "the standard output is closed", "send it to /dev/null where nobody reads it"
        failures.print_error(code="usage", message=words, hint=hint, as_json="--json" in sys.argv)
        sys.exit(failures.USAGE)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without UTF-8 gets codes, not an exception
            stream.reconfigure(errors="backslashreplace")
    warnings.showwarning = _warn
    called = Path(sys.argv[0])
    code = main(sys.argv[1:], name="arl" if called.suffix == ".py" else called.name)  # python -m: __main__.py
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = failures.BROKEN_PIPE
    if code == failures.BROKEN_PIPE:
        # The interpreter flushes once more at its end and would complain: let it flush into nothing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning of the library as a person reads it, without the line of code it came from."""
    note(f"{paint('warning:', '33', stream_is_tty=sys.stderr.isatty())} {clean(message)}")


def main(arguments: Sequence[str], *, name: str = "arl") -> int:
    """Run one command and return its exit code: 0, or what `failures.conclude` says."""
    options = list(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    if options == ["--version"]:  # answered before anything is imported
        sys.stdout.write(f"agent-run-ledger {agent_run_ledger.__version__}\n")
        return 0
    debug = "--debug" in options or bool(os.environ.get(DEBUG_VARIABLE))
    rest = list(arguments[len(options) :])
    try:
        return _invoke([option for option in options if option != "--debug"] + rest, name)
    except (Exception, KeyboardInterrupt) as error:
        return failures.conclude(error, as_json="--json" in options, debug=debug)


def _invoke(arguments: list[str], name: str) -> int:
    import typer

    from agent_run_ledger.cli.app import build_app

    command = typer.main.get_command(build_app())
    if f"_{name.replace('-', '_').upper()}_COMPLETE" in os.environ:  # a shell asks what may come next
        command.main(arguments, prog_name=name)
    try:
        with command.make_context(name, arguments) as context:
            command.invoke(context)
    except typer.Exit as ended:
        return ended.exit_code
    return 0
