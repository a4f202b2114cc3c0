"""The options and arguments that several commands have in common."""

from __future__ import annotations

from typing import Annotated

import typer

Db = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="PATH",
        help="The store: a file, or postgresql://… [default: AGENT_RUN_LEDGER_DB, or ./agent_run_ledger.db].",
    ),
]
Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="postgresql://…, as a user who may make databases: each ledger is a new one there, dropped at the end.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and errors as JSON on stderr.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run id.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept in the log.")]
Actor = Annotated[str | None, typer.Option("--actor", metavar="NAME", help="Who decides [default: your user name].")]
Trust = Annotated[
    str | None,
    typer.Option(
        "--trust", metavar="PATH", help="The trust file [default: AGENT_RUN_LEDGER_TRUST, or the one beside the store]."
    ),
]
Key = Annotated[
    str | None, typer.Option("--key", metavar="FILE", help="The key file [default: the local one, where there is one].")
]
PassphraseFile = Annotated[
    str | None,
    typer.Option("--passphrase-file", metavar="FILE", help="Where the key's passphrase stands [default: it is asked]."),
]
ActionId = Annotated[
    str, typer.Argument(metavar="ACTION", help="The action's id, its first digits, or its key (the newest member).")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
