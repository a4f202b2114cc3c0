"""`arl runs submit`: puts a run on record that a worker is to begin."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from agent_run_ledger.cli.options import Json
from agent_run_ledger.cli.programs import Program, Queue, load_ledger
from agent_run_ledger.errors import Misuse

if TYPE_CHECKING:
    from agent_run_ledger.ledger.run_ledger import RunLedger

Entry = Annotated[
    str | None,
    typer.Option("--entry", metavar="NAME", help="Which entry [default: the only one, else the pipeline]."),
]
AsRun = Annotated[str | None, typer.Option("--as", metavar="RUN", help="The run id [default: a new UUIDv7].")]
Input = Annotated[
    list[str] | None,
    typer.Option("--input", "-i", metavar="NAME=TEXT", help="An input: NAME=TEXT, or NAME:=JSON. May come again."),
]
InputFile = Annotated[
    str | None, typer.Option("--inputs", metavar="FILE", help="A JSON object of inputs; - for standard input.")
]


def submit(
    program: Program,
    given: Input = None,
    inputs: InputFile = None,
    entry: Entry = None,
    run_id: AsRun = None,
    queue: Queue = None,
    as_json: Json = False,
) -> None:
    """Submit a run: it is on record with its inputs, nothing of it has run, and a worker begins it (`arl worker`).

    The same submission again changes nothing. Prints the run id.
    """
    from agent_run_ledger.cli.output import print_json, say
    from agent_run_ledger.cli.words import clean

    held = {**_from_file(inputs), **_from_options(given or [])}
    with load_ledger(program) as ledger:
        if queue is not None:
            ledger.queue = _checked_queue(queue)
        submitted = _submit(ledger, entry, run_id, held)
        where = ledger.queue
    if as_json:
        print_json({"run_id": submitted, "queue": where})
    else:
        say(clean(submitted))


def _submit(ledger: RunLedger, entry: str | None, run_id: str | None, inputs: dict[str, Any]) -> str:
    if entry is None:
        return ledger.submit(run_id, **inputs)
    found = next((one for one in ledger.entries if one.name == entry), None)
    if found is None:
        names = ", ".join(one.name for one in ledger.entries) or "none"
        raise Misuse(f"this program has no entry {entry!r}", code="no_entry", hint=f"it has {names}")
    return found.submit(run_id, **inputs)


def _checked_queue(queue: str) -> str:
    from agent_run_ledger.ledger.run_ledger import check_queue

    return check_queue(queue)


def _from_file(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    if path == "-":
        text = sys.stdin.read()
    else:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    read = _json(text, "the inputs")
    if not isinstance(read, dict):
        raise Misuse("the inputs are no JSON object", code="bad_inputs", hint='{"name": value, ...}')
    return cast("dict[str, Any]", read)


def _from_options(given: list[str]) -> dict[str, Any]:
    held: dict[str, Any] = {}
    for one in given:
        name, sign, value = one.partition("=")
        is_json = name.endswith(":")
        name = name.removesuffix(":")
        if not sign or not name.isidentifier():
            raise Misuse(f"{one!r} is no input", code="bad_inputs", hint="NAME=TEXT, or NAME:=JSON")
        if name in held:
            raise Misuse(f"the input {name!r} is given twice", code="bad_inputs")
        held[name] = _json(value, f"the input {name!r}") if is_json else value
    return held


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise Misuse(f"{what} cannot be read as JSON: {error}", code="bad_inputs") from None
