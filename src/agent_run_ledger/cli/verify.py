"""`arl verify`: reads the whole log, or proves one leaf, or checks that the log extends one that was noted earlier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from agent_run_ledger.cli.copies import copied_words, copy_json, move_json, moved_words
from agent_run_ledger.cli.next_steps import next_command
from agent_run_ledger.cli.options import Db, Json
from agent_run_ledger.cli.output import print_json, progress, say
from agent_run_ledger.cli.words import clean, counted, leaves_words
from agent_run_ledger.errors import Misuse, Tampered

if TYPE_CHECKING:
    from agent_run_ledger.cli.settings import Setting
    from agent_run_ledger.ledger.verify import Report
    from agent_run_ledger.ports import Reader
    from agent_run_ledger.store import AnyStore

Since = Annotated[
    str | None,
    typer.Option("--since", metavar="SIZE:ROOT", help="Also check that the log extends this one, noted earlier."),
]
Inclusion = Annotated[
    int | None, typer.Option("--inclusion", metavar="INDEX", min=0, help="Only prove that this leaf is in the log.")
]
_HASH_HEX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """A size and a root that somebody kept outside the store."""

    size: int
    root: bytes


def verify(since: Since = None, inclusion: Inclusion = None, db: Db = None, as_json: Json = False) -> None:
    """Check every leaf, record, tile and row against the log; contradictions are listed, with exit code 6."""
    from agent_run_ledger.cli.settings import db_setting
    from agent_run_ledger.cli.stores import reading

    noted = None if since is None else parse_noted(since)
    with reading(db) as store:
        if inclusion is not None:
            if noted is not None:
                raise Misuse("--since and --inclusion are two different checks", code="usage", hint="give one of them")
            _prove(store, inclusion, as_json=as_json)
        else:
            _verify(store, noted, as_json=as_json, setting=db_setting(db))


def parse_noted(text: str) -> Noted:
    """Return what SIZE:ROOT says; Misuse where it is not a number, a colon and 64 hex digits."""
    size, _, root_hex = text.strip().partition(":")
    if size.isascii() and size.isdigit() and len(root_hex) == _HASH_HEX:
        try:
            return Noted(size=int(size), root=bytes.fromhex(root_hex))
        except ValueError:
            pass
    raise Misuse(f"{text!r} is no SIZE:ROOT", code="usage", hint="take the line that `arl verify` printed")


def _verify(store: AnyStore, noted: Noted | None, *, as_json: bool, setting: Setting) -> None:
    from agent_run_ledger.ledger.verify import verify_extends, verify_log
    from agent_run_ledger.store import Standing

    reader = store.reader()
    with progress("leaves", quiet=as_json) as show:
        report = verify_log(
            reader,
            log_id=store.log_id,
            is_copy=store.is_copy,
            is_retired=store.move.standing is Standing.RETIRED,
            progress=show,
        )
    extends = None if noted is None else verify_extends(reader, noted.size, noted.root)
    if as_json:
        print_json(_report_json(report, noted, extends) | {"copy": copy_json(store), "move": move_json(store)})
    else:
        _print_report(report, noted, extends, store)
        if report.ok and extends is not False:
            _print_next(report, setting)
    if not report.ok:
        places = counted(report.problem_count, "place")
        raise Tampered(f"{store.location} contradicts its log in {places}", code="problems")
    if noted is not None and noted.size > report.leaves:
        raise Tampered(
            f"{store.location} has {leaves_words(report.leaves)}, fewer than the {noted.size:,} that were noted",
            code="log_shorter",
            hint="this log is shorter than the noted size: it may be an older copy, or the end was cut off",
        )
    if extends is False:
        raise Tampered(
            f"{store.location} does not extend the log that was noted",
            code="not_extended",
            hint="what was noted is not the beginning of this log: it was changed, or it is another log",
        )


def _report_json(report: Report, noted: Noted | None, extends: bool | None) -> dict[str, object]:
    return {
        "ok": report.ok and extends is not False,
        "leaves": report.leaves,
        "records": report.records,
        "erased": report.erased,
        "runs": report.runs,
        "actions": report.actions,
        "witness": report.witness,
        "log_id": report.log_id_hex,
        "root_hex": report.root_hex,
        "noted": None if noted is None else {"size": noted.size, "root_hex": noted.root.hex()},
        "extends_noted": extends,
        "problem_count": report.problem_count,
        "problems": [{"leaf_index": one.leaf_index, "text": one.text} for one in report.problems],
    }


def _print_report(report: Report, noted: Noted | None, extends: bool | None, store: AnyStore) -> None:
    say(f"store    {clean(store.location)}")
    if store.copied is not None:
        say(f"copy     {copied_words(store.copied)}")
    if moved := moved_words(store):
        say(f"move     it {moved}")
    say(f"log id   {report.log_id_hex}")
    say(f"leaves   {report.leaves:,}")
    say(f"records  {report.records:,}{f', of which {report.erased:,} are erased' if report.erased else ''}")
    say(f"runs     {report.runs:,}")
    say(f"actions  {report.actions:,}")
    if report.witness is not None:
        from agent_run_ledger.effects.views import unprotected

        say(f"witness  {'; '.join(unprotected(report.witness)) or report.witness}")
    say(f"root     {report.root_hex or 'none: leaves are missing'}")
    if noted is not None:
        verdict = "is extended by this log" if extends else "is NOT extended by this log"
        if noted.size > report.leaves:
            verdict = "is longer than this log, which may be an older copy"
        say(f"since    {noted.size}:{noted.root.hex()}")
        say(f"         {verdict}")
    for problem in report.problems:
        place = "store" if problem.leaf_index is None else f"leaf {problem.leaf_index}"
        say(f"problem  {place}: {clean(problem.text)}")
    if report.problem_count > len(report.problems):
        say(f"problem  and {report.problem_count - len(report.problems):,} more")
    say(f"result   {counted(report.problem_count, 'problem')}" if report.problem_count else "result   ok, no problems")


def _print_next(report: Report, setting: Setting) -> None:
    say("")
    say("Note this outside the store; run later, it shows whether anything was changed:")
    say(next_command(setting, "verify", "--since", f"{report.leaves}:{report.root_hex}"))


def _prove(store: AnyStore, index: int, *, as_json: bool) -> None:
    """Print an inclusion proof with everything a stranger needs to check it, after checking it here."""
    from agent_run_ledger.kernel.merkle import leaf_hash, root, verify_inclusion
    from agent_run_ledger.ledger.proofs import inclusion_proof

    reader = store.reader()
    head = reader.head()
    siblings = inclusion_proof(reader, index, head.size)
    envelope = _envelope(reader, index)
    root_hash = root(head.size, head.frontier)
    valid = verify_inclusion(leaf_hash(envelope), index, head.size, siblings, root_hash)
    proof: dict[str, object] = {
        "log_id": store.log_id.hex(),
        "leaf_index": index,
        "size": head.size,
        "root_hex": root_hash.hex(),
        "leaf_hash_hex": leaf_hash(envelope).hex(),
        "envelope": envelope.decode("utf-8", "backslashreplace"),
        "proof_hex": [sibling.hex() for sibling in siblings],
        "valid": valid,
    }
    if as_json:
        print_json(proof)
    else:
        for name, value in proof.items():
            if name != "proof_hex":
                say(f"{name:<14} {clean(value)}")
        for sibling in siblings:
            say(f"{'proof_hex':<14} {sibling.hex()}")
        say("")
        say("How to check it: RFC 9162, 2.1.3.2; a leaf is SHA-256(0x00 || envelope).")
    if not valid:
        raise Tampered(f"leaf {index} does not lead to the root of the log", hint="run `arl verify`")


def _envelope(reader: Reader, index: int) -> bytes:
    for event in reader.events(first=index, stop=index + 1):
        return event.envelope
    raise Tampered(f"leaf {index} is not in the store", hint="run `arl verify`")
