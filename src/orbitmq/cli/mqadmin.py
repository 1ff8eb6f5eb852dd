"""`orbitmq mqadmin`: which of RocketMQ's administration commands are understood, and as what."""

from __future__ import annotations

from typing import Annotated

import typer

from orbitmq.cli.output import show_rows
from orbitmq.cli.shared_options import OutputCommand

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(cls=OutputCommand)
def mqadmin(
    list_all: Annotated[bool, typer.Option("--list", help="List them; that is all this command does.")] = True,
) -> None:
    """List RocketMQ's administration commands that work here: `orbitmq topicRoute -n HOST:PORT -t TOPIC`.

    They take RocketMQ's options, and print what the command of ours prints that they stand for.
    """
    from orbitmq.cli.mqadmin_aliases import ALIASES, REFUSED

    rows = [
        {
            "mqadmin": name,
            "orbitmq": " ".join(alias.command),
            "options": [
                "-" + names.partition(",")[0] for names, ours in alias.options.items() if ours not in ("", REFUSED)
            ],
            "note": alias.note,
        }
        for name, alias in sorted(ALIASES.items())
    ]
    show_rows(rows if list_all else [], columns=("mqadmin", "orbitmq", "options", "note"))
