"""One run, or one step of it, as a tree for people: every state has a sign and a word, colour only repeats them."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text
from rich.tree import Tree

from agent_run_ledger.cli.account_words import account_words
from agent_run_ledger.cli.budgets import budgets_words
from agent_run_ledger.cli.call_tree import add_calls, child_line
from agent_run_ledger.cli.output import ascii_only, console, text
from agent_run_ledger.cli.parts import Parts
from agent_run_ledger.cli.record_lines import add_reasons, add_value, record_line, record_parts
from agent_run_ledger.cli.runs_list import STATE_STYLES, state_words
from agent_run_ledger.cli.value_text import value_lines, value_note
from agent_run_ledger.cli.words import (
    MAX_REASON,
    ago_words,
    clean,
    counted,
    duration_words,
    first_line,
    iso,
    listed,
)
from agent_run_ledger.ledger.run_view import AttemptView, DecisionView, RunView, StepView
from agent_run_ledger.ledger.step_states import StepState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_run_ledger.cli.settings import Setting
    from agent_run_ledger.ledger.account import Account
    from agent_run_ledger.ledger.budget_use import BudgetUse
    from agent_run_ledger.ledger.values import ReadValue
    from agent_run_ledger.ports import InFlight, Store

_SIGNS: dict[StepState, tuple[str, str, str]] = {
    StepState.LIVE: ("●", "*", "green"),
    StepState.RESTORED: ("○", "o", "blue"),
    StepState.KEPT: ("◌", "~", "dim"),
    StepState.RUNNING: ("▶", ">", "cyan"),
    StepState.FAILED: ("✗", "x", "red"),
    StepState.RESCUED: ("!", "!", "yellow"),
    StepState.UNCERTAIN: ("?", "?", "magenta"),
    StepState.WAITING: ("·", "-", "dim"),
    StepState.REMOVED: ("⊖", "%", "yellow"),
}
_WORD_WIDTH = max(len(state) for state in StepState)
_NAME_WIDTH = 28
_DEPENDENCIES_WIDTH = 16
_GUIDES = 8
"""Columns that the lines of a tree take at the depth of the steps."""


def run_tree(
    view: RunView,
    store: Store | None,
    account: Account,
    setting: Setting,
    kept: Mapping[str, ReadValue] | None = None,
    *,
    budgets: Mapping[str, BudgetUse] | None = None,
    everything: bool = False,
) -> Tree:
    """Return the tree of a run with its account, budgets and kept inputs; with a store, its values too.

    Of many calls beside one another only the first and the last are shown, and those that tell most, unless
    `everything` is wanted. `setting` is the store's name for command lines.
    """
    row = view.row
    head = Text.assemble(
        ("run ", "bold"),
        text(row.run_id, "bold"),
        "  ",
        text(state_words(row.state, view.live, taken_over=view.taken_over), STATE_STYLES[row.state]),
        text(f" · {first_line(row.reason)}") if row.reason else "",
    )
    tree = Tree(head, guide_style="dim")
    tree.add(text(f"created {iso(row.created_at_ms)}, last change {_ago(row.updated_at_ms)}"))
    if view.prefix is not None:
        count = counted(len(view.prefix.record_ids), "result")
        tree.add(text(f"forked from run {view.prefix.run_id} at step {view.prefix.from_step}: {count} referenced"))
    if view.parent is not None:
        tree.add(text(f"started within run {view.parent}"))
    if view.forks:
        forks = [f"{fork.run_id} at {fork.from_step or 'a step that is erased'} ({fork.state})" for fork in view.forks]
        tree.add(text(f"forks: {listed(forks)}"))
    if view.erased:
        tree.add(text(f"{counted(view.erased, 'record')} erased: see the decisions", "yellow"))
    if kept is not None:
        _add_inputs(tree, kept, full=store is not None)
    elif view.input_names:
        tree.add(text(f"inputs: {listed(view.input_names)}"))
    if view.policy:
        tree.add(text(f"policy: {', '.join(f'{name} {value}' for name, value in view.policy.items())}"))
    spent = account_words(account.total)
    if spent:
        tree.add(Parts(["usage", *spent]))
    for parts in budgets_words(budgets or {}):
        tree.add(Parts(parts))
    _add_attempts(tree, view)
    if view.calls is not None:
        add_calls(tree, view, store, setting, everything=everything)
    else:
        _add_steps(tree, view, store)
    if view.decisions:
        decisions = tree.add(text("decisions", "bold"))
        for decision in view.decisions:
            decisions.add(_decision_line(decision))
    return tree


def _add_steps(tree: Tree, view: RunView, store: Store | None) -> None:
    for child in view.children:
        tree.add(child_line(child))
    steps = tree.add(text(steps_words(view), "bold"))
    width = min(_NAME_WIDTH, max((cell_len(clean(step.definition.name)) for step in view.steps), default=0))
    tokens = all(step_line(step, width, tokens=True).cell_len + _GUIDES <= console().width for step in view.steps)
    for step in view.steps:
        branch = steps.add(step_line(step, width, tokens=tokens))
        _add_history(branch, step)
        if store is not None and step.current is not None:
            add_value(branch, store, step.current, full=True)


def step_tree(step: StepView, view: RunView, store: Store, *, full: bool) -> Tree:
    """Return the tree of one step: every record with its times, its reasons and its value."""
    definition = step.definition
    tree = Tree(Text.assemble(("step ", "bold"), text(definition.name, "bold"), text(f" of run {view.row.run_id}")))
    tree.add(_state_text(step.state, padded=False))
    if definition.depends_on:
        tree.add(text(f"depends on {listed(definition.depends_on)}"))
    if definition.version not in ("", "1"):
        tree.add(text(f"version {definition.version}"))
    if definition.code_hex:
        tree.add(text(f"code digest {definition.code_hex}"))
    for record in step.records:
        current = step.current is not None and step.current.record_id == record.record_id
        branch = tree.add(record_line(record, current=current))
        add_reasons(branch, record, full=full)
        add_value(branch, store, record, full=full)
    for mark in step.in_flight:
        tree.add(_mark_line(mark, step.state))
    return tree


def _add_attempts(tree: Tree, view: RunView) -> None:
    branch = tree.add(text(f"{counted(len(view.attempts), 'attempt')}, generation {view.row.generation}", "bold"))
    for attempt in view.attempts:
        branch.add(_attempt_line(attempt))


def _attempt_line(attempt: AttemptView) -> Parts:
    parts = [f"{attempt.number}  {attempt.end}: started {iso(attempt.started_at_ms)}"]
    if attempt.is_fork:
        parts = [f"{attempt.number}  the fork: made {iso(attempt.started_at_ms)}"]
    elif attempt.is_submission:
        parts = [f"{attempt.number}  submitted {iso(attempt.started_at_ms)}"]
    elif attempt.ended_at_ms is not None:
        parts.append(attempt_duration(attempt))
    if attempt.holder.pid is not None:
        parts.append(f"process {attempt.holder.pid} on {attempt.holder.host}")
    if attempt.reason:
        parts.append(first_line(attempt.reason, limit=MAX_REASON))
    return Parts(parts)


def attempt_duration(attempt: AttemptView) -> str:
    """Return how long an attempt took in words; "?" without an end, "clock changed" where nobody can say."""
    if attempt.clock_changed:
        return "clock changed"
    return "?" if attempt.ended_at_ms is None else duration_words(attempt.ended_at_ms - attempt.started_at_ms)


def steps_words(view: RunView) -> str:
    """Return how many steps there are in each state."""
    present = [step for step in view.steps if step.defined]
    counts = Counter(step.state for step in present)
    parts = [f"{counts[state]} {state}" for state in StepState if counts[state]]
    words = f"{counted(len(present), 'step')}: {', '.join(parts)}" if parts else "no steps"
    removed = len(view.steps) - len(present)
    return f"{words}; and {removed} removed from the pipeline" if removed else words


def step_line(step: StepView, width: int, *, tokens: bool = False) -> Text:
    """Return one step on one line; `width` is that of the column of names, `tokens` says whether to show them."""
    name = clean(step.definition.name)
    line = _state_text(step.state)
    line.append(f"  {name}{' ' * max(0, width - cell_len(name))}")
    if step.in_flight:
        line.append(f"  attempt {step.in_flight[-1].attempt}", "dim")
    elif step.current is not None:
        line.append(f"  {' · '.join(record_parts(step.current, tokens=tokens))}", "dim")
    needs = step.definition.depends_on
    if needs:
        line.append_text(text(f"  {'<-' if ascii_only() else '←'} {_shortened(needs)}", "dim"))
    if not step.defined:
        line.append("  (not part of the pipeline any more)", "yellow")
    return line


def _shortened(names: tuple[str, ...]) -> str:
    """Return as many names as fit into a few columns, at least one, and how many more there are."""
    for shown in range(len(names), 0, -1):
        more = f", +{len(names) - shown}" if shown < len(names) else ""
        words = ", ".join(names[:shown]) + more
        if len(words) <= _DEPENDENCIES_WIDTH or shown == 1:
            return words
    return ""


def _state_text(state: StepState, *, padded: bool = True) -> Text:
    sign, plain, style = _SIGNS[state]
    word = f"{state:<{_WORD_WIDTH}}" if padded else str(state)
    return Text(f"{plain if ascii_only() else sign} {word}", style=style, overflow="fold")


def _add_history(branch: Tree, step: StepView) -> None:
    """Add what the step's line does not say: why it ran, how it failed, and its other records."""
    if step.current is not None:
        add_reasons(branch, step.current)
    for record in step.records:
        if step.current is None or record.record_id != step.current.record_id:
            add_reasons(branch.add(record_line(record, current=False)), record)
    for mark in step.in_flight:
        branch.add(_mark_line(mark, step.state))


def _mark_line(mark: InFlight, state: StepState) -> Parts:
    began = f"started {_ago(mark.started_at_ms)} in attempt {mark.attempt}, try {mark.tries}"
    if state is StepState.RUNNING:
        return Parts([began], "cyan")
    return Parts([began, "no attempt is left that could record its end: its cost is uncertain"], "magenta")


def _add_inputs(tree: Tree, kept: Mapping[str, ReadValue], *, full: bool) -> None:
    inputs = tree.add(text("inputs, kept", "bold"))
    for name, value in kept.items():
        branch = inputs.add(text(name))
        if why := value_note(value):
            branch.add(Text(why, style="yellow" if value.intact else "bold red", overflow="fold"))
        branch.add(Text("\n".join(value_lines(value, full=full)), overflow="fold"))


def _decision_line(decision: DecisionView) -> Text:
    words = f"{iso(decision.at_ms)}  {decision.event} by {decision.actor}: {decision.reason}"
    if decision.records is not None:
        words += f" ({counted(decision.records, 'record')})"
    return text(f"{words} (attempt {decision.attempt})")


def _ago(time_ms: int) -> str:
    return ago_words(time_ms, time.time_ns() // 1_000_000)
