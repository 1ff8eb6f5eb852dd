"""What the command line says of the form of the result and of the cluster that is asked, kept with the running command.

Options put it here (`shared_options`); it is asked for where it matters (`output`, `cluster_access`, `completing`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import click

_OUTPUT: Final = "orbitmq.output"
_CLUSTER: Final = "orbitmq.cluster."


class Output(StrEnum):
    """Form of the results."""

    TABLE = "table"
    JSON = "json"


def chosen_output() -> Output:
    """The form of the result of the running command."""
    form = click.get_current_context().meta.get(_OUTPUT, Output.TABLE)
    assert isinstance(form, Output)
    return form


def chosen(name: str, ctx: click.Context | None = None) -> Any:
    """What the command line says about the cluster (`name_servers`, `context`, `timeout_ms`), or None."""
    return (ctx or click.get_current_context()).meta.get(_CLUSTER + name)


def chosen_tls(ctx: click.Context | None = None) -> dict[str, Any]:
    """What the command line says about TLS, by the names of the settings."""
    from orbitmq.client.connect_settings import TLS_NAMES

    return {name: value for name in TLS_NAMES if (value := chosen(name, ctx)) is not None}


def choose(ctx: click.Context, name: str, value: object) -> None:
    """Keep a choice about the cluster that was made otherwise than by an option of ours."""
    ctx.meta[_CLUSTER + name] = value


def choose_output(ctx: click.Context, form: Output, *, over: bool = True) -> None:
    """Keep a form of the result; with `over` also where one was chosen before."""
    if over or _OUTPUT not in ctx.meta:
        ctx.meta[_OUTPUT] = form
