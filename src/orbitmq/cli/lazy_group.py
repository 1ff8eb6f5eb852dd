"""A group of commands that imports a command's module only when the command is called for.

Rules of this file
1. What a list of commands needs (name and one line of help) stands in the table; a test holds it against the commands.
2. A name that is in no table is looked for among RocketMQ's names of commands before it is an error.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, MutableMapping
from typing import Any, Final, NamedTuple

import click
import typer
from typer.core import TyperGroup


class CommandEntry(NamedTuple):
    """Where a command is: a module with a `typer.Typer` named `app`, and its line in the list."""

    module: str
    help: str


class LazyGroup(TyperGroup):
    """Commands by name, each imported when asked for."""

    def __init__(self, entries: Mapping[str, CommandEntry], **rest: Any) -> None:
        super().__init__(**rest)
        self.entries: Final = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        command = typer.main.get_command(importlib.import_module(entry.module).app)
        _suggest_once(command)
        command.name = cmd_name
        return command

    def _main_shell_completion(
        self, ctx_args: MutableMapping[str, Any], prog_name: str, complete_var: str | None = None
    ) -> None:
        # click's own: typer's variant asks for a library to find out which shell runs.
        click.Command._main_shell_completion(self, ctx_args, prog_name, complete_var)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self.entries.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in self.entries or name.startswith("-"):
            return super().resolve_command(ctx, args)
        from orbitmq.cli.mqadmin_aliases import ALIASES, alias_command

        if name in ALIASES:
            return name, alias_command(name), args[1:]
        from orbitmq.nearest import nearest

        near = nearest(name, [*self.entries, *ALIASES])
        meant = f" Did you mean {near!r}?" if near else ""
        ctx.fail(f"No such command {name!r}.{meant}")


def _suggest_once(command: click.Command) -> None:
    """From 8.4 on click says itself which command may be meant: typer does not say it again."""
    if isinstance(command, TyperGroup):
        command.suggest_commands = not hasattr(click.exceptions, "NoSuchCommand")
        for below in command.commands.values():
            _suggest_once(below)
