"""A group of commands of which one is meant where none is named."""

from __future__ import annotations

from typing import Any, ClassVar

from typer.core import TyperGroup


class DefaultGroup(TyperGroup):
    """Passes what begins with no command's name on to the command `default`; `--help` is that of the group."""

    default: ClassVar[str] = "restore"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click.Command.parse_args."""
        first = args[0] if args else ""
        if first not in self.commands and first not in ctx.help_option_names:
            args = [self.default, *args]
        return super().parse_args(ctx, args)
