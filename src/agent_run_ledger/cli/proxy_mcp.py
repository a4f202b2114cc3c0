"""`arl proxy mcp`: stands between an MCP client and its server on stdio."""

from __future__ import annotations

from typing import Annotated

import typer

from agent_run_ledger.cli.options import Db

Run = Annotated[
    str | None,
    typer.Option("--run", metavar="RUN", help="The run to record in, or to go on with [default: a new one]."),
]
PolicyFile = Annotated[
    str | None, typer.Option("--policy", metavar="FILE", help="What is said of each tool, in TOML or JSON.")
]
Complete = Annotated[
    bool, typer.Option("--complete", help="Complete the run when the client ends (as is done without --run).")
]
Limit = Annotated[
    int, typer.Option("--max-line-bytes", metavar="N", help="The longest message that passes, in either direction.")
]
TrustFile = Annotated[
    str | None,
    typer.Option("--trust", metavar="FILE", help="The signed trust file that says who approves effects."),
]
Requester = Annotated[
    str | None, typer.Option("--requester", metavar="NAME", help="The principal that asks for effects.")
]
Executor = Annotated[
    str | None, typer.Option("--executor", metavar="NAME", help="The principal that carries effects out.")
]
Command = Annotated[list[str], typer.Argument(metavar="-- CMD ...", help="The command that starts the server.")]


def mcp(
    command: Command,
    db: Db = None,
    run: Run = None,
    policy: PolicyFile = None,
    trust: TrustFile = None,
    requester: Requester = None,
    executor: Executor = None,
    complete: Complete = False,
    max_line_bytes: Limit = 16 * 1024 * 1024,
) -> None:
    """Start an MCP server and pass on what a client says to it; calls of tools are recorded, and restored in a restart.

    A client starts this command in place of the server's. Notes go to stderr. The policy file has a table per tool,
    [tools.NAME] or [tools."*"], with safe, poll, volatile, deny, trust_hints, timeout_s and effect: a tool whose calls
    are actions of the ledger, made once and only with people's approval. [effects] says as whom.
    """
    import asyncio
    from dataclasses import replace

    from agent_run_ledger.adapters.mcp.policy import Policy, read_policy
    from agent_run_ledger.adapters.mcp.serving import Settings, serve
    from agent_run_ledger.cli.copies import log_on_stderr
    from agent_run_ledger.cli.output import note
    from agent_run_ledger.cli.settings import db_setting
    from agent_run_ledger.cli.stores import hints_for
    from agent_run_ledger.cli.words import clean
    from agent_run_ledger.ledger.run_ledger import DEFAULT_LIMIT_BYTES, RunLedger

    setting = db_setting(db)
    said = Policy() if policy is None else read_policy(policy)
    largest = max(max_line_bytes, DEFAULT_LIMIT_BYTES)  # what passes can be recorded
    parties = replace(
        said.parties,
        trust=trust,
        requester=said.parties.requester if requester is None else requester,
        executor=said.parties.executor if executor is None else executor,
    )
    with (
        hints_for(setting),
        log_on_stderr(),
        RunLedger(run, setting.value, max_payload_bytes=largest, effects=parties) as ledger,
    ):
        note(f"run {clean(ledger.run_id)} in {clean(setting.shown)}")
        settings = Settings(
            command=command,
            run_id=ledger.run_id,
            report=lambda words: note(f"proxy: {clean(words)}"),
            complete=complete or run is None,
            policy=said,
            limit_bytes=max_line_bytes,
        )
        asyncio.run(serve(ledger, settings))
