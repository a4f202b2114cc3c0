"""The tree of commands: which name leads to which function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from agent_run_ledger.cli.actions_propose import propose, successor
from agent_run_ledger.cli.approvals_decide import grant, reject, revoke
from agent_run_ledger.cli.approvals_look import list_command as list_approvals
from agent_run_ledger.cli.approvals_look import show_command as show_approval
from agent_run_ledger.cli.backup import backup
from agent_run_ledger.cli.bench import bench
from agent_run_ledger.cli.breaker_eval import breaker_eval
from agent_run_ledger.cli.breaker_explain import breaker_explain
from agent_run_ledger.cli.default_group import DefaultGroup
from agent_run_ledger.cli.demo import demo
from agent_run_ledger.cli.demo_effect import demo_effect
from agent_run_ledger.cli.doctor import doctor
from agent_run_ledger.cli.effects_decide import doubt, expire, reconcile
from agent_run_ledger.cli.effects_list import list_effects
from agent_run_ledger.cli.effects_observe import observe
from agent_run_ledger.cli.effects_show import show_effect
from agent_run_ledger.cli.erase import erase
from agent_run_ledger.cli.export import export
from agent_run_ledger.cli.init import init
from agent_run_ledger.cli.keys import new as new_key
from agent_run_ledger.cli.keys import show as show_key
from agent_run_ledger.cli.kit import kit
from agent_run_ledger.cli.lab import lab
from agent_run_ledger.cli.metrics import metrics
from agent_run_ledger.cli.migrate import migrate
from agent_run_ledger.cli.principals import list_command as list_principals
from agent_run_ledger.cli.principals import show_command as show_principal
from agent_run_ledger.cli.proxy_mcp import mcp
from agent_run_ledger.cli.prune import prune
from agent_run_ledger.cli.runs_decide import cancel, quarantine, release, takeover
from agent_run_ledger.cli.runs_explain import explain
from agent_run_ledger.cli.runs_fork import fork
from agent_run_ledger.cli.runs_list import list_command
from agent_run_ledger.cli.runs_resolve import resolve
from agent_run_ledger.cli.runs_show import show
from agent_run_ledger.cli.runs_submit import submit
from agent_run_ledger.cli.runs_watch import watch
from agent_run_ledger.cli.sql import sql
from agent_run_ledger.cli.trust_make import cosign, sign
from agent_run_ledger.cli.trust_make import new as new_trust
from agent_run_ledger.cli.trust_use import follow
from agent_run_ledger.cli.trust_use import show as show_trust
from agent_run_ledger.cli.upgrade import upgrade
from agent_run_ledger.cli.usage import usage
from agent_run_ledger.cli.verify import verify
from agent_run_ledger.cli.version import print_version, version
from agent_run_ledger.cli.worker import worker

_HELP = """Runs of agents that go on where they were, in one provable log.

Results are printed on stdout, everything else on stderr. Exit codes: 0 done, 1 refused, 2 misuse, 3 uncertain,
4 pending, 5 unavailable, 6 tampered, 7 not admitted; 70 a fault of this program, 130 interrupted.
"""
_RUNS_HELP = "Look at runs, and decide about them."
_DEMO_HELP = "See what a crash costs, in real processes."
_EFFECTS_HELP = "Look at actions, and decide what became of them."
_ACTIONS_HELP = "Ask for actions."
_BREAKER_HELP = "Try the loop breaker on recorded runs."
_KEYS_HELP = "Make and show key files."
_PRINCIPALS_HELP = "Look at who may decide."
_TRUST_HELP = "Say whose signatures count."
_APPROVALS_HELP = "Look at what waits for an approval, and decide."
_PROXY_HELP = "Stand between a client and its server, and record what passes."

COMMANDS: tuple[tuple[str, Callable[..., None], str], ...] = (
    ("init", init, "Make a store and give it authority."),
    ("worker", worker, "Begin the runs of a queue, and go on with those left behind."),
    ("usage", usage, "Show tokens and cost: spent, restored, uncertain."),
    ("verify", verify, "Check the whole log, or prove one leaf."),
    ("export", export, "Write the log as CloudEvents, one JSON line per leaf."),
    ("backup", backup, "Copy the store while it is in use."),
    ("migrate", migrate, "Move the ledger between a file and a server."),
    ("upgrade", upgrade, "Bring a store of an older schema forward."),
    ("erase", erase, "Erase what was recorded of a run; proofs stay."),
    ("prune", prune, "Erase old runs that are over; proofs stay."),
    ("sql", sql, "Ask the store in SQL, read-only."),
    ("doctor", doctor, "Examine this machine, the store and its disk."),
    ("metrics", metrics, "Print the store's numbers for Prometheus."),
    ("lab", lab, "See one approval raced for, crashed on and restored."),
    ("kit", kit, "Crash a tool with effects, and say what it is good for."),
    ("bench", bench, "Measure what a step costs."),
    ("version", version, "Print the versions at work."),
)
RUN_COMMANDS: tuple[tuple[str, Callable[..., None], str], ...] = (
    ("list", list_command, "List runs, newest first."),
    ("show", show, "Show a run as a tree, or a step with its values."),
    ("explain", explain, "Say what each attempt restored and ran, and why."),
    ("watch", watch, "Follow a run until it ends."),
    ("submit", submit, "Put a run on record that a worker is to begin."),
    ("fork", fork, "Make a new run that goes on from a step."),
    ("resolve", resolve, "Say what became of a call with an unknown outcome."),
    ("quarantine", quarantine, "Refuse every start until a release."),
    ("release", release, "Let a quarantined run go on."),
    ("takeover", takeover, "Take a stuck run over from its attempt."),
    ("cancel", cancel, "Cancel a run for ever."),
)
EFFECT_COMMANDS: tuple[tuple[str, Callable[..., None], str], ...] = (
    ("list", list_effects, "List open actions, what waits longest first."),
    ("show", show_effect, "Tell the whole story of an action's key."),
    ("observe", observe, "Record a look at the target, or a drain."),
    ("reconcile", reconcile, "Decide what became of an action in doubt."),
    ("doubt", doubt, "Record that nobody knows how it ended."),
    ("expire", expire, "Close what nobody claimed in its window."),
)
ACTION_COMMANDS: tuple[tuple[str, Callable[..., None], str], ...] = (
    ("propose", propose, "Propose an action, with its request from a file."),
    ("successor", successor, "Propose one in the place of one that did not happen."),
)
DEMO_COMMANDS: tuple[tuple[str, Callable[..., None], str], ...] = (
    ("restore", demo, "See a 20-step run killed and finished (where no other is named)."),
    ("effect", demo_effect, "See a refund approved, killed in the middle, and paid once."),
)
BREAKER_COMMANDS: tuple[tuple[str, Callable[..., None], str], ...] = (
    ("eval", breaker_eval, "Replay recorded runs, and score the trips by labels."),
    ("explain", breaker_explain, "Show a run with the verdict at each call."),
)
PROXY_COMMANDS: tuple[tuple[str, Callable[..., None], str], ...] = (
    ("mcp", mcp, "Record and restore the calls of tools of an MCP server."),
)
KEY_COMMANDS: tuple[tuple[str, Callable[..., None], str], ...] = (
    ("new", new_key, "Draw a key and write it to a new file."),
    ("show", show_key, "Show the public half of a key file."),
)
PRINCIPAL_COMMANDS: tuple[tuple[str, Callable[..., None], str], ...] = (
    ("list", list_principals, "List whom the trust file knows."),
    ("show", show_principal, "Show one principal with keys and policies."),
)
TRUST_COMMANDS: tuple[tuple[str, Callable[..., None], str], ...] = (
    ("new", new_trust, "Make a trust file of a description."),
    ("show", show_trust, "Show a trust file, who signed it, who is missing."),
    ("sign", sign, "Sign a trust file as its first officer."),
    ("cosign", cosign, "Add one more officer's signature."),
    ("follow", follow, "Put a signed trust file in use."),
)
APPROVAL_COMMANDS: tuple[tuple[str, Callable[..., None], str], ...] = (
    ("list", list_approvals, "List what waits for an approval, oldest first."),
    ("show", show_approval, "Show exactly what would be approved."),
    ("grant", grant, "Approve an action with a key."),
    ("reject", reject, "Close what was proposed."),
    ("revoke", revoke, "Forbid what has not been sent yet."),
)
"""Name, function and one line for the list of commands; the function's docstring is its help."""

GROUPS = (
    ("demo", _DEMO_HELP, DEMO_COMMANDS),
    ("runs", _RUNS_HELP, RUN_COMMANDS),
    ("effects", _EFFECTS_HELP, EFFECT_COMMANDS),
    ("actions", _ACTIONS_HELP, ACTION_COMMANDS),
    ("approvals", _APPROVALS_HELP, APPROVAL_COMMANDS),
    ("trust", _TRUST_HELP, TRUST_COMMANDS),
    ("principals", _PRINCIPALS_HELP, PRINCIPAL_COMMANDS),
    ("keys", _KEYS_HELP, KEY_COMMANDS),
    ("breaker", _BREAKER_HELP, BREAKER_COMMANDS),
    ("proxy", _PROXY_HELP, PROXY_COMMANDS),
)
"""The groups of commands: name, summary, commands."""

_PASSED_ON: dict[str, Any] = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def build_app() -> typer.Typer:
    """Return the command line. Help is plain text, so that it needs no rich and fits every terminal."""
    app = _group(_HELP)
    app.callback(invoke_without_command=True, help=_HELP)(_root)
    groups = [(app, COMMANDS)]
    for name, summary, commands in GROUPS:
        group = _group(summary, DefaultGroup if name == "demo" else None)
        group.callback(invoke_without_command=True, help=summary)(_help_where_nothing_is_asked)
        app.add_typer(group, name=name)
        groups.append((group, commands))
    for group, commands in groups:
        for name, function, line in commands:
            settings = _PASSED_ON if name == "bench" else {}
            group.command(name, short_help=line, context_settings=settings)(function)
    return app


def _group(summary: str, cls: type[TyperGroup] | None = None) -> typer.Typer:
    return typer.Typer(
        help=summary,
        cls=cls,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )


def _root(
    context: typer.Context,
    version_wanted: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks. May stand anywhere.")] = False,
) -> None:
    """Answer `arl --version` and `arl` alone."""
    if version_wanted:
        print_version()
        raise typer.Exit
    _help_where_nothing_is_asked(context)


def _help_where_nothing_is_asked(context: typer.Context) -> None:
    """Answer a group's name alone, as `arl runs`."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit
