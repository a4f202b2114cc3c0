"""The calls of a dynamic run as a tree for people: nested calls in their call, branches, and runs within."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text
from rich.tree import Tree

from agent_run_ledger.cli.next_steps import resolve_command
from agent_run_ledger.cli.output import ascii_only, text
from agent_run_ledger.cli.parts import Parts
from agent_run_ledger.cli.record_lines import add_reasons, add_value, record_line, record_parts
from agent_run_ledger.cli.runs_list import STATE_STYLES, state_words
from agent_run_ledger.cli.words import counted, first_line, iso
from agent_run_ledger.kernel.scopes import WRAPPED, Branch, ScopeKind, elements
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ledger.call_view import CallStanding, CallView, ChildView, Place, placed

if TYPE_CHECKING:
    from agent_run_ledger.cli.settings import Setting
    from agent_run_ledger.ledger.run_view import RunView
    from agent_run_ledger.ports import Store

MAX_BESIDE = 40
"""So many calls beside one another are shown, the first few and the last, and those that tell most."""

_FIRST = 10
_MAX_VALUE = 60
_DIGEST = 12
"""So many digits of a policy's digest stand for one that the trust file does not know."""
_SIGNS = {
    CallStanding.RECORDED: ("●", "*", "green"),
    CallStanding.FAILED: ("✗", "x", "red"),
    CallStanding.RESCUED: ("!", "!", "yellow"),
    CallStanding.UNCERTAIN: ("?", "?", "magenta"),
    CallStanding.UNKNOWN: ("?", "?", "bold magenta"),
    CallStanding.RUNNING: ("▶", ">", "cyan"),
    CallStanding.WAITS: ("·", "-", "yellow"),
}
_WORD_WIDTH = len(CallStanding.UNCERTAIN)


def add_calls(tree: Tree, view: RunView, store: Store | None, setting: Setting, *, everything: bool) -> None:
    """Add the calls of a dynamic run and the runs that were started within it; with a store, the values too."""
    if view.calls is None:
        return
    root = tree.add(text(calls_words(view), "bold"))
    to_visit = [(root, placed(view.calls, view.children))]
    while to_visit:
        branch, places = to_visit.pop()
        for place in places if everything else _shortened(places):
            if isinstance(place, int):
                branch.add(text(f"{'...' if ascii_only() else '…'} {counted(place, 'line')} more (--all)", "dim"))
                continue
            lines = branch.add(_line(place))
            if place.call is not None:
                _add_details(lines, place.call, view, setting)
                if store is not None and place.call.current is not None and not place.call.is_own:
                    add_value(lines, store, place.call.current, full=True)
            to_visit.append((lines, place.inside))


def calls_tree(calls: Sequence[CallView], view: RunView, store: Store, setting: Setting, *, full: bool) -> Tree:
    """Return the tree of all calls of one step: every record with its times, its reasons and its value."""
    name = calls[0].name
    tree = Tree(Text.assemble(("step ", "bold"), text(name, "bold"), text(f" of run {view.row.run_id}")))
    for call in calls:
        head = call_line(call)
        place = place_words(call.scope)
        branch = tree.add(head.append_text(text(f"  {place}", "blue")) if place else head)
        for record in call.records:
            line = branch.add(record_line(record, current=record is call.current))
            add_reasons(line, record, full=full)
            add_value(line, store, record, full=full)
        _add_findings(branch, call, view, setting)
    return tree


def place_words(scope: bytes) -> str:
    """Return where in its run a call was made, from outside in; empty for a call of the run itself."""
    try:
        found = elements(scope)
    except ValueError:
        return "in a place that is not readable"
    words = [
        _branch_words(branch) if branch is not None else "a call"
        for kind, branch in found
        if kind is not ScopeKind.KEYED
    ]
    return f"in {', '.join(words)}" if words else ""


def _branch_words(branch: Branch) -> str:
    return f"wrap [{branch.number}]" if branch.group == WRAPPED else f"branch {branch.group} [{branch.number}]"


def calls_words(view: RunView) -> str:
    """Return how many calls there are in each state, how many values of the run's own, and how many runs within."""
    if view.calls is None:
        return ""
    calls = [call for call in view.calls.calls if not call.is_own]
    counts = Counter(call.standing for call in calls)
    states = ", ".join(f"{counts[one]} {one}" for one in CallStanding if counts[one])
    parts = [f"{counted(len(calls), 'call')}: {states}" if calls else "no calls"]
    own = len(view.calls.calls) - len(calls)
    parts += [f"{counted(own, 'value')} of the run's own"] if own else []
    parts += [f"{counted(len(view.children), 'run')} within"] if view.children else []
    return "; ".join(parts)


def call_line(call: CallView, *, ident: bool = True) -> Text:
    """Return one call on one line, `ident` says whether with the number of its record."""
    if call.is_own and call.current is not None:
        value = "erased" if call.current.erased else first_line(call.value, limit=_MAX_VALUE)
        return text(f"{'-' if ascii_only() else '·'} {call.name}  {value}", "dim")
    sign, plain, style = _SIGNS[call.standing]
    line = Text(f"{plain if ascii_only() else sign} {call.standing:<{_WORD_WIDTH}}", style=style, overflow="fold")
    line.append_text(text(f"  {call.name}"))
    if call.is_keyed:
        line.append("  keyed", "blue")
    parts: list[str] = []
    if call.mark is not None:
        parts = [f"attempt {call.mark.attempt}", f"started {iso(call.mark.started_at_ms)}"]
        parts += [f"try {call.mark.tries}"] if call.mark.tries > 1 else []
    elif call.current is not None:
        parts = record_parts(call.current)
        parts += [f"#{call.current.record_id}"] if ident else []
    return line.append_text(text(f"  {' · '.join(parts)}", "dim")) if parts else line


def child_line(child: ChildView) -> Text:
    """Return a run that was started within another one on one line."""
    line = Text("» " if not ascii_only() else "> ", style="blue", overflow="fold")
    line.append_text(text(f"run {child.run_id}  "))
    line.append_text(text(state_words(child.state, child.live), STATE_STYLES[child.state]))
    return line.append_text(text(f"  {counted(child.results, 'result')}", "dim"))


def _line(place: Place) -> Text:
    if place.call is not None:
        return call_line(place.call)
    if place.child is not None:
        return child_line(place.child)
    if place.branch is not None:
        return text(_branch_words(place.branch), "blue")
    return text("within a call that is not known any more", "dim")


def _shortened(places: Sequence[Place]) -> Iterator[Place | int]:
    """Yield places, and for those that are left out between them how many."""
    if len(places) <= MAX_BESIDE:
        yield from places
        return
    left_out = 0
    for at, place in enumerate(places):
        if _FIRST <= at < len(places) - (MAX_BESIDE - _FIRST) and not _tells(place):
            left_out += 1
            continue
        if left_out:
            yield left_out
            left_out = 0
        yield place


def _tells(place: Place) -> bool:
    """Return whether a place, or one within it, needs to be seen."""
    within = [place]
    for one in within:
        if one.call is not None and one.call.standing is CallStanding.UNKNOWN:
            return True
        within += one.inside
    return False


def _add_details(branch: Tree, call: CallView, view: RunView, setting: Setting) -> None:
    """Add what the call's line does not say: its errors, its other records, what people found out, what to do."""
    current = call.current
    if current is not None:
        add_reasons(branch, current)
    for record in call.records[:-1]:
        add_reasons(branch.add(record_line(record, current=False)), record)
    if current is not None and call.mark is not None:
        branch.add(record_line(current, current=False))
    _add_effect(branch, call, view)
    _add_findings(branch, call, view, setting)


def _add_effect(branch: Tree, call: CallView, view: RunView) -> None:
    """Add what the effect that the call was about came to, as its action stands now."""
    line = view.effects.get(call.effect)
    if line is None:
        return
    named = f"effect {first_line(line.action_key)} at {first_line(line.audience)}: {line.status}"
    policy = first_line(line.policy) or f"{line.policy_sha256[:_DIGEST]}{'...' if ascii_only() else '…'}"
    counted_of = f"{len(line.approvals)} of {line.approvals_needed} approvals by policy {policy}"
    parts = [named, counted_of, counted(len(line.evidence), "piece") + " of evidence", f"action {line.action_id}"]
    branch.add(Parts(parts, "blue"))
    branch.add(text(line.guarantee, "dim"))


def _add_findings(branch: Tree, call: CallView, view: RunView, setting: Setting) -> None:
    for one in call.resolutions:
        words = f"resolved as {one.outcome.replace('_', ' ')} by {one.actor}: {first_line(one.reason)}"
        branch.add(Parts([words, iso(one.at_ms), f"call #{one.call}"], "green"))
    if call.standing is not CallStanding.UNKNOWN:
        return
    branch.add(text("it may have happened or not, and it is not made again by itself", "magenta"))
    if not call.ident:
        branch.add(text("the run that it is of is another one: what is found out there changes nothing here", "dim"))
        return
    if view.row.state is RunState.COMPLETED:
        branch.add(text("the run is completed: what it returned rests on that", "dim"))
        return
    branch.add(text("look where it would have left a trace, then say what you found:"))
    branch.add(text(resolve_command(setting, view.row.run_id, call.ident, "--reason ..."), "bold"))
    branch.add(text("with --result JSON or --error TEXT where it happened, with --not-done where it did not"))
