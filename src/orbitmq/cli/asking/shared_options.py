"""Options that many commands share, declared once: the form of the result, and the cluster that is asked.

A command takes them on by its class (`cls=OutputCommand` or `cls=ClusterCommand`); its own function does not list them. What
was chosen is kept with the running command (`chosen`).

Rules of this file
1. An option means the same everywhere: its names, its letter and its environment variable are here and nowhere else.
2. Nothing is resolved here: which cluster wins is decided in `contexts.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
from typer.core import TyperArgument, TyperCommand, TyperOption
from typer.utils import get_params_from_function

from orbitmq.cli.asking.completing import complete_contexts
from orbitmq.cli.shared.chosen import Output, choose, choose_output

_FILE: Final = "FILE"


class PlainCommand(TyperCommand):
    """A command whose arguments say what they are for: click from 8.4 on clears what typer has set."""

    def __init__(self, name: str | None, *, params: list[click.Parameter] | None = None, **rest: Any) -> None:
        function = getattr(rest.get("callback"), "__wrapped__", None)
        declared = get_params_from_function(function) if function is not None else {}
        for parameter in params or ():
            if isinstance(parameter, TyperArgument) and parameter.name in declared:
                parameter.help = declared[parameter.name].default.help
        super().__init__(name, params=params, **rest)

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Nothing: typer writes them together with the options."""


class OutputCommand(PlainCommand):
    """A command whose result is a table, or JSON with `--json`."""

    def __init__(self, name: str | None, *, params: list[click.Parameter] | None = None, **rest: Any) -> None:
        super().__init__(name, params=params, **rest)
        self.params += self.shared_options()

    @classmethod
    def shared_options(cls) -> Sequence[click.Parameter]:
        return output_options()


class ClusterCommand(OutputCommand):
    """A command that asks a cluster."""

    @classmethod
    def shared_options(cls) -> Sequence[click.Parameter]:
        return (*cluster_options(), *output_options())


class TlsCommand(OutputCommand):
    """A command that asks no cluster and is told how one is connected to."""

    @classmethod
    def shared_options(cls) -> Sequence[click.Parameter]:
        return (*tls_options(), *output_options())


def output_options() -> tuple[click.Parameter, ...]:
    return (
        TyperOption(
            param_decls=["--output", "-o"],
            type=click.Choice([form.value for form in Output], case_sensitive=False),
            envvar="ORBITMQ_OUTPUT",
            show_envvar=True,
            default=Output.TABLE.value,
            show_default=True,
            expose_value=False,
            callback=_keep_output,
            help="Form of the result.",
        ),
        TyperOption(
            param_decls=["--json"],
            is_flag=True,
            default=False,
            expose_value=False,
            callback=_keep_json,
            help="Same as --output json.",
        ),
    )


def cluster_options(*, with_timeout: bool = True, with_tls: bool = True) -> tuple[click.Parameter, ...]:
    options = [
        TyperOption(
            param_decls=["--name-server", "--namesrv", "-n"],
            type=str,
            metavar="HOST:PORT",
            expose_value=False,
            callback=_keep("name_servers"),
            help="Name servers, `;` between. Else ORBITMQ_NAMESRV, the context, NAMESRV_ADDR, or 127.0.0.1:9876.",
        ),
        TyperOption(
            param_decls=["--context"],
            type=str,
            metavar="NAME",
            expose_value=False,
            callback=_keep("context"),
            autocompletion=complete_contexts,
            help="A cluster of `orbitmq context list`. Else ORBITMQ_CONTEXT, or the one in use.",
        ),
    ]
    if with_timeout:
        options.append(
            TyperOption(
                param_decls=["--timeout-ms"],
                type=click.IntRange(1, 600_000),
                expose_value=False,
                callback=_keep("timeout_ms"),
                help="Time limit of one call. Else the context's, or 5000.",
            )
        )
    return (*options, *(tls_options() if with_tls else ()))


def tls_options() -> tuple[click.Parameter, ...]:
    """One option for each setting of TLS: `--tls-trusted FILE` is `tls_trusted`, and the variable ORBITMQ_TLS_TRUSTED."""
    from orbitmq.client.connect_settings import MEANINGS, TLS_NAMES

    options: list[click.Parameter] = []
    for name in TLS_NAMES:
        value, meaning = MEANINGS[name]
        word = name.replace("_", "-")
        options.append(
            TyperOption(
                param_decls=[f"--{word}"] if value else [f"--{word}/--no-{word}"],
                type=str if value else bool,
                is_flag=None if value else True,
                default=None,
                metavar=value or None,
                expose_value=False,
                callback=_keep_path(name) if value == _FILE else _keep(name),
                help=meaning,
            )
        )
    return tuple(options)


def _keep(name: str) -> Any:
    def keep(ctx: click.Context, _: click.Parameter, value: object) -> None:
        if value is not None:  # an option of an outer command stays where the inner one is silent
            choose(ctx, name, value)

    return keep


def _keep_path(name: str) -> Any:
    def keep(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
        if value is not None:  # another process, and a context, may be used in another directory
            choose(ctx, name, str(Path(value).absolute()))

    return keep


def _keep_output(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:  # it is while a shell completes half a line
        choose_output(ctx, Output(value.lower()), over=False)  # --json may have been looked at before


def _keep_json(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        choose_output(ctx, Output.JSON)
