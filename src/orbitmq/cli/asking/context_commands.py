"""`orbitmq context`: names for clusters, and which one commands ask when they are not told."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from orbitmq.cli.asking.completing import complete_contexts
from orbitmq.cli.asking.shared_options import OutputCommand, TlsCommand
from orbitmq.cli.shared.chosen import chosen_tls
from orbitmq.cli.shared.output import show_done, show_record, show_rows
from orbitmq.cli.shared.secret_input import asked_secret

app = typer.Typer(
    help="Contexts: names for clusters, and the one that is asked.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)

NameArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Name of the context.", show_default=False, autocompletion=complete_contexts),
]


@app.command(cls=TlsCommand)
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits, - and _.", show_default=False)],
    name_servers: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Name servers, `;` between.")],
    timeout_ms: Annotated[
        int | None, typer.Option("--timeout-ms", min=1, max=600_000, help="Time limit of a call.", show_default=False)
    ] = None,
    description: Annotated[str, typer.Option("--description", help="For people.", show_default=False)] = "",
    access_key: Annotated[
        str | None,
        typer.Option(
            "--access-key", help="Who asks; the secret is asked for, or read from a pipe.", show_default=False
        ),
    ] = None,
    secret_file: Annotated[
        str | None,
        typer.Option("--secret-file", metavar="FILE", help="A file with the secret.", show_default=False),
    ] = None,
    secret_command: Annotated[
        str | None,
        typer.Option("--secret-command", help="A shell command that prints the secret.", show_default=False),
    ] = None,
    expect: Annotated[
        str,
        typer.Option(
            "--expect", metavar="BROKERS", help="Brokers that have to be there, `;` between.", show_default=False
        ),
    ] = "",
    use: Annotated[bool, typer.Option("--use", help="Use it from now on; the first one always is.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace one of this name.")] = False,
) -> None:
    """Add a cluster. No server is contacted."""
    from orbitmq.cli.asking import contexts
    from orbitmq.errors import ConfigurationError

    path = contexts.contexts_path(os.environ)
    stored = contexts.load(path)
    if name in stored.contexts and not replace:
        raise ConfigurationError(f"there is a context {name!r} already", remedy="replace it with --replace")
    asks = access_key is not None and secret_file is None and secret_command is None
    context = contexts.Context(
        name_servers=name_servers,
        timeout_ms=timeout_ms,
        description=description,
        expected_brokers=expect,
        access_key=access_key,
        secret_key=asked_secret("secret key") if asks else None,
        secret_file=None if secret_file is None else str(Path(secret_file).absolute()),
        secret_command=secret_command,
        **chosen_tls(),
    )
    changed = stored.with_context(name, context, use=use)
    contexts.save(path, changed)
    in_use = changed.current == name
    show_done(
        f"context {name} is {name_servers}" + (", and in use" if in_use else ""),
        {"context": name, "name_servers": name_servers, "in_use": in_use},
    )


@app.command("list", cls=OutputCommand)
def list_contexts() -> None:
    """List the contexts."""
    from orbitmq.cli.asking import contexts

    stored = contexts.load(contexts.contexts_path(os.environ))
    rows: list[dict[str, object]] = [
        {
            "in_use": name == stored.current,
            "context": name,
            "name_servers": context.name_servers,
            "timeout_ms": context.timeout_ms,
            "access_key": context.access_key,
            "tls": context.tls,
            "description": context.description,
        }
        for name, context in sorted(stored.contexts.items())
    ]
    columns = ("in_use", "context", "name_servers", "timeout_ms", "access_key", "tls", "description")
    show_rows(rows, columns=columns, empty="no contexts; add one with: orbitmq context add NAME HOST:PORT")


@app.command(cls=OutputCommand)
def use(name: NameArgument) -> None:
    """Use a context from now on."""
    from orbitmq.cli.asking import contexts

    path = contexts.contexts_path(os.environ)
    stored = contexts.load(path).using(name)
    contexts.save(path, stored)
    servers = stored.contexts[name].name_servers
    show_done(f"context {name} ({servers}) is in use", {"context": name, "name_servers": servers, "in_use": True})


@app.command(cls=OutputCommand)
def expect(
    name: NameArgument,
    brokers: Annotated[
        list[str] | None,
        typer.Argument(metavar="[BROKER]...", help="Their names; none: nothing is expected.", show_default=False),
    ] = None,
) -> None:
    """Name the brokers that have to be there. `cluster show`, `cluster check` and `group lag` say which are missing, and end with 1."""
    from orbitmq.cli.asking import contexts
    from orbitmq.cli.asking.expected_brokers import expected_names

    path = contexts.contexts_path(os.environ)
    stored = contexts.load(path)
    names = expected_names(";".join(brokers or ()))
    context = msgspec.structs.replace(stored.get(name), expected_brokers=";".join(names))
    contexts.save(path, stored.with_context(name, context, use=stored.current == name))
    show_done(f"context {name} expects {', '.join(names) or 'no broker'}", {"context": name, "expected_brokers": names})


@app.command(cls=OutputCommand)
def show(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="A context.", show_default=False, autocompletion=complete_contexts),
    ] = None,
) -> None:
    """Show which cluster a command without options would ask, and why; or what a context says."""
    from orbitmq.cli.asking import contexts

    path = contexts.contexts_path(os.environ)
    target = contexts.resolve(None, name, None, os.environ, path)
    record: dict[str, object] = {
        "name_servers": target.name_servers,
        "timeout_ms": target.timeout_ms,
        "decided_by": target.source,
    }
    if target.access_key is not None:
        record["access_key"] = target.access_key
    if target.expected_brokers:
        record["expected_brokers"] = target.expected_brokers
    settings = msgspec.to_builtins(target.settings)  # names of files and commands; secrets stand nowhere in it
    show_record({**record, **settings, "file": str(path)})


@app.command(cls=OutputCommand)
def remove(name: NameArgument) -> None:
    """Remove a context. If it was in use, none is."""
    from orbitmq.cli.asking import contexts

    path = contexts.contexts_path(os.environ)
    contexts.save(path, contexts.load(path).without(name))
    show_done(f"context {name} is removed", {"context": name, "removed": True})
