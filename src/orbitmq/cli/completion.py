"""`orbitmq completion`: the script that makes a shell complete commands, options, contexts, topics and groups."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import click
import typer

from orbitmq.cli.asking.shared_options import PlainCommand
from orbitmq.cli.shared.output import write_text

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class Shell(StrEnum):
    """Shells that have a completion script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command(cls=PlainCommand)
def completion(
    ctx: typer.Context, shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.", show_default=False)]
) -> None:
    """Print the completion script of a shell.

    bash: add `eval "$(orbitmq completion bash)"` to ~/.bashrc. zsh: the same with zsh to ~/.zshrc, after compinit.
    fish: orbitmq completion fish > ~/.config/fish/completions/orbitmq.fish
    """
    from click.shell_completion import get_completion_class

    root = ctx.find_root()
    script = get_completion_class(shell.value)
    assert script is not None  # click has all three
    assert isinstance(root.command, click.Command)
    made = script(root.command, {}, "orbitmq", "_ORBITMQ_COMPLETE")
    write_text(made.source_template % made.source_vars())
