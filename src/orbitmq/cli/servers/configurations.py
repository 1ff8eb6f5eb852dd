"""`orbitmq config`: look at a configuration file before a server reads it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from orbitmq.cli.asking.shared_options import OutputCommand
from orbitmq.cli.shared.exit_codes import ExitCode
from orbitmq.cli.shared.output import note, show_rows

app = typer.Typer(
    help="Configuration files: check what becomes of each key here.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)


class RoleName(StrEnum):
    """Which server would read the file."""

    BOTH = "both"
    BROKER = "broker"
    NAMESERVER = "nameserver"


@app.callback()
def config() -> None:
    """Configuration files: check what becomes of each key here."""


@app.command(cls=OutputCommand)
def check(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="broker.conf, namesrv.conf or a .toml file.", show_default=False)
    ],
    role: Annotated[
        RoleName, typer.Option("--role", help="Who would read it: `orbitmq serve` (both), or one role alone.")
    ] = RoleName.BOTH,
) -> None:
    """Say of each key of a file what becomes of it here, and whether a server would start with it. Nothing is started or written.

    Exit code 0: it would start; 1: it would not.
    """
    from orbitmq.server.configuration.explaining import explain, problem_of
    from orbitmq.server.configuration.settings import Role

    roles = frozenset(Role) if role is RoleName.BOTH else frozenset({Role(role.value)})
    rows = [
        {"key": one.key, "value": one.value, "becomes": one.fate.value, "meaning": one.meaning, "where": one.where}
        for one in explain(file, roles)
    ]
    show_rows(rows, columns=("key", "value", "becomes", "meaning"), empty="the file has no key")
    if (problem := problem_of(file, roles)) is not None:
        note(f"a server would not start: {problem}")
        raise typer.Exit(ExitCode.FAILED)
