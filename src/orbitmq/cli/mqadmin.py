"""`orbitmq mqadmin`: which of RocketMQ's administration commands are understood, and as what."""

from __future__ import annotations

from typing import Annotated, Any

import click
import typer

from orbitmq.cli.asking.shared_options import OutputCommand
from orbitmq.cli.shared.output import show_rows

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class MqadminCommand(OutputCommand):
    """`orbitmq mqadmin topicRoute ...` is `orbitmq topicRoute ...`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from orbitmq.cli.mqadmin_aliases import ALIASES, translate

        if args and args[0] in ALIASES:
            ctx.obj = translate(args[0], args[1:])
            return []
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        from orbitmq.cli.mqadmin_aliases import run_line

        return super().invoke(ctx) if ctx.obj is None else run_line(ctx, ctx.obj)


@app.command(cls=MqadminCommand)
def mqadmin(
    list_all: Annotated[bool, typer.Option("--list", help="List them; that is all this command does.")] = True,
) -> None:
    """List RocketMQ's administration commands that work here, or run one: `orbitmq mqadmin topicRoute -t TOPIC`.

    They may be called without `mqadmin` as well. They take RocketMQ's options, and print what the command of ours prints that they
    stand for.
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
