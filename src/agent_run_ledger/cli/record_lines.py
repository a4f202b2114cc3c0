"""One record in the trees of `arl runs show`: its line, why it is there, its error and its value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from agent_run_ledger.cli.account_words import record_tokens
from agent_run_ledger.cli.next_steps import shell_word
from agent_run_ledger.cli.output import text
from agent_run_ledger.cli.parts import Parts
from agent_run_ledger.cli.run_json import HAS_VALUE, duration_ms
from agent_run_ledger.cli.value_text import value_lines, value_note
from agent_run_ledger.cli.words import clean_lines, duration_words, first_line, iso, listed, size_words
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.ledger.values import read_value

if TYPE_CHECKING:
    from rich.tree import Tree

    from agent_run_ledger.ledger.views import RecordView
    from agent_run_ledger.ports import Store


def record_parts(record: RecordView, *, tokens: bool = True) -> list[str]:
    """Return what a line says of a record: where it was recorded, how long it took, how large it is, its tokens."""
    parts = [f"attempt {record.attempt}" if record.origin is None else f"{record.origin}"]
    if record.kind is RecordKind.ABANDONED:  # its end is the next attempt's start: no duration
        parts += [f"started {iso(record.started_at_ms)}", "not known how long"]
    else:
        took_ms = duration_ms(record)
        parts.append("clock changed" if took_ms is None else duration_words(took_ms))
    if record.erased:
        parts.append("erased")
    elif record.kind is RecordKind.RESULT:
        parts.append(size_words(record.stored_bytes))
    if record.tries > 1:
        parts.append(f"try {record.tries}")
    used = record_tokens(record.usage) if tokens else ""
    return [*parts, used] if used else parts


def add_reasons(branch: Tree, record: RecordView, *, full: bool = False) -> None:
    """Add why a record's call ran again and how it failed; with `full` all lines of its error."""
    if record.because:
        branch.add(text(f"ran again because {listed(record.because)} changed", "yellow"))
    if record.error:
        branch.add(_error(record, full=full))
    if record.resolves is not None:
        branch.add(text(f"recorded by a person's decision on call {record.resolves}", "dim"))
    if record.kind is RecordKind.ABANDONED and not record.unknown:
        branch.add(text("nothing says how it ended: its cost is uncertain", "magenta"))


def _error(record: RecordView, *, full: bool) -> Text:
    """Return the error: its first line and where to find the rest, or all of its lines."""
    if full:
        return Text("\n".join(clean_lines(record.error)), "red", overflow="fold")
    shown = first_line(record.error)
    line = text(shown, "red")
    if shown != record.error.strip():
        line.append(f" (all of it: --step {shell_word(record.step)} --payloads)", "dim")
    return line


_KIND_WORDS = {
    RecordKind.RESULT: "result",
    RecordKind.ERROR: "error",
    RecordKind.ABANDONED: "abandoned",
    RecordKind.RESCUED: "rescued",
}


def record_line(record: RecordView, *, current: bool) -> Parts:
    """Return one record on one line; one that is not `current` is dim."""
    kind = "outcome unknown" if record.unknown else _KIND_WORDS.get(record.kind, record.kind.name.lower())
    first, *others = record_parts(record)
    parts = [f"{kind}, {first}", *others]
    if record.kind is not RecordKind.ABANDONED:
        parts.append(f"ended {iso(record.ended_at_ms)}")
    return Parts([*parts, f"leaf {record.leaf_index}"], "" if current else "dim")


def add_value(branch: Tree, store: Store, record: RecordView, *, full: bool) -> None:
    """Add the value of a record, where its kind has one; what cannot be given back is said."""
    if record.kind not in HAS_VALUE:
        return
    value = read_value(store, record.record_id)
    why = value_note(value)
    if why and (record.kind is not RecordKind.RESCUED or not value.intact):  # a rescue said so above
        branch.add(Text(why, style="yellow" if value.intact else "bold red", overflow="fold"))
    lines = value_lines(value, full=full)
    if lines != [""]:
        branch.add(Text("\n".join(lines), overflow="fold"))
