"""Secrets that a command is given: never as an argument, which stands in the history of the shell and in the list of processes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

PasswordFileOption = Annotated[
    str | None,
    typer.Option("--password-file", metavar="FILE", help="A file whose first line is it.", show_default=False),
]
PasswordCommandOption = Annotated[
    str | None,
    typer.Option("--password-command", help="A shell command that prints it.", show_default=False),
]


def asked_secret(what: str, *, twice: bool = False) -> str:
    """What the user types, unseen, or the first line of a pipe; empty where there is neither. twice: typed again, so that a slip is
    noticed."""
    if sys.stdin is None:  # closed by who started the command
        return ""
    if sys.stdin.isatty():
        return str(typer.prompt(what, hide_input=True, confirmation_prompt=twice, err=True))
    return sys.stdin.readline().strip()


def given_password(file: str | None, command: str | None) -> str:
    """The password from a file or a command, else asked for."""
    from orbitmq.client.connect_settings import read_secret
    from orbitmq.errors import ConfigurationError

    if file is not None and command is not None:
        raise ConfigurationError("--password-file and --password-command name two passwords", remedy="give one of them")
    password = asked_secret("password", twice=True) if file is command else read_secret("password", file, command)
    if not password:
        raise ConfigurationError("the password is empty", remedy="its first line has to be the password")
    return password
