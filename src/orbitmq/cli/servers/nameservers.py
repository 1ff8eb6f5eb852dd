"""`orbitmq nameserver`: run a name server alone, or read and change one that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.asking.cluster_access import run
from orbitmq.cli.asking.shared_options import ClusterCommand
from orbitmq.cli.servers.serving import (
    ConfigOption,
    DataOption,
    HostOption,
    HttpOption,
    HttpPortOption,
    LogFormatOption,
    LogLevelOption,
    NameserverPortOption,
    SetOption,
    refuse_server_options,
    run_roles,
    watch_flags,
)
from orbitmq.cli.shared.chosen import Output, chosen_output
from orbitmq.cli.shared.output import note, show_done, show_record, show_rows
from orbitmq.cli.shared.pairs import parse_pairs

if TYPE_CHECKING:
    from orbitmq.client import Client

app = typer.Typer(invoke_without_command=True, rich_markup_mode=None, add_completion=False)
config_app = typer.Typer(
    help="Settings of running name servers: get, set, unset.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)
values_app = typer.Typer(
    help="The table of keys and values: get, put, delete, list.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)
app.add_typer(config_app, name="config")
app.add_typer(values_app, name="kv")

NamespaceArgument = Annotated[
    str, typer.Argument(metavar="NAMESPACE", help="Such as ORDER_TOPIC_CONFIG.", show_default=False)
]
KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="Name of the value.", show_default=False)]


@app.callback()
def nameserver(
    ctx: typer.Context,
    data: DataOption = None,
    host: HostOption = None,
    nameserver_port: NameserverPortOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    http: HttpOption = None,
    http_port: HttpPortOption = None,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
) -> None:
    """Run a name server alone, in the foreground; with a command: read and change name servers that run."""
    if ctx.invoked_subcommand is not None:
        refuse_server_options(ctx)
        return
    flags = [*(settings or []), *watch_flags(http, http_port, log_format, log_level)]
    run_roles(("nameserver",), data, host, nameserver_port, None, config, flags)


@config_app.command("get", cls=ClusterCommand)
def get_config() -> None:
    """Show the settings of every name server. Those that were changed while it ran are named, with what counts without the change."""
    from orbitmq.protocol.remoting.setting_changes import CHANGED_KEYS, FACT_PREFIX

    found = run(lambda client: client.admin.name_server_config())
    if chosen_output() is Output.JSON:
        show_record(found)
        return
    rows = [
        {"name_server": address, "key": key, "value": value}
        for address, settings in found.items()
        for key, value in sorted(settings.items())
        if not key.startswith((CHANGED_KEYS, FACT_PREFIX))
    ]
    show_rows(rows, columns=("name_server", "key", "value"))
    for address, settings in found.items():
        for fact, beneath in sorted(settings.items()):
            if (changed := fact.removeprefix(FACT_PREFIX)) != fact:
                note(
                    f"{changed} = {settings.get(changed)} was changed at {address} while running; without that it is {beneath}"
                )


@config_app.command("set", cls=ClusterCommand)
def set_config(
    pairs: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="Settings as in namesrv.conf.")],
) -> None:
    """Change settings of every name server; they stay over a restart."""
    changes = parse_pairs("KEY=VALUE", pairs)

    async def work(client: Client) -> None:
        from orbitmq.errors import ConfigurationError
        from orbitmq.nearest import nearest
        from orbitmq.protocol.remoting.setting_changes import CHANGED_KEYS

        for address, settings in (await client.admin.name_server_config()).items():
            unknown = [key for key in changes if key not in settings]
            # RocketMQ's shows no key that has no value, and passes over unknown ones.
            if unknown and CHANGED_KEYS in settings:
                close = nearest(unknown[0], settings)
                remedy = f"did you mean {close}?" if close else None
                raise ConfigurationError(f"{unknown[0]} has no effect at name server {address}", remedy=remedy)
        await client.admin.update_name_server_config(changes)

    run(work)
    show_done("the name servers have the new settings", {"changed": changes})


@config_app.command("unset", cls=ClusterCommand)
def unset_config(
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="Settings that were changed while they ran.")],
) -> None:
    """Forget changes of settings of every name server: what its file, environment and command line say counts again, at once."""
    from orbitmq.errors import ConfigurationError
    from orbitmq.protocol.remoting.setting_changes import CHANGED_KEYS, UNSET_KEY, names_in, names_text

    async def work(client: Client) -> dict[str, dict[str, str]]:
        found = await client.admin.name_server_config()
        for address, settings in found.items():
            if CHANGED_KEYS not in settings:
                raise ConfigurationError(f"name server {address} cannot forget a setting: it is RocketMQ's, or too old")
        changed = {address: names_in(settings[CHANGED_KEYS]) for address, settings in found.items()}
        for key in keys:
            if not any(key in names for names in changed.values()):
                raise ConfigurationError(
                    f"no name server has {key} changed while running", remedy="its value comes from the start"
                )
        for address, names in changed.items():
            if forgotten := [key for key in keys if key in names]:
                await client.admin.update_name_server_config({UNSET_KEY: names_text(forgotten)}, address)
        now = await client.admin.name_server_config()
        return {address: {key: settings[key] for key in keys} for address, settings in now.items()}

    values = run(work)
    show_done(
        "\n".join(
            f"{key} = {value}: counts at {at}" for at, settings in values.items() for key, value in settings.items()
        ),
        {"settings": values},
    )


@values_app.command("list", cls=ClusterCommand)
def list_values(namespace: NamespaceArgument) -> None:
    """List the values of a namespace."""
    values = run(lambda client: client.admin.values(namespace))
    rows = [{"key": key, "value": value} for key, value in sorted(values.items())]
    show_rows(rows, columns=("key", "value"), empty=f"namespace {namespace} has no values")


@values_app.command("get", cls=ClusterCommand)
def get_value(namespace: NamespaceArgument, key: KeyArgument) -> None:
    """Show one value."""
    from orbitmq.errors import NotFoundError

    value = run(lambda client: client.admin.get_value(namespace, key))
    if value is None:
        raise NotFoundError(f"namespace {namespace!r} has no key {key!r}")
    show_record({"namespace": namespace, "key": key, "value": value})


@values_app.command("put", cls=ClusterCommand)
def put_value(
    namespace: NamespaceArgument,
    key: KeyArgument,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="Any text.", show_default=False)],
) -> None:
    """Write one value to every name server."""
    run(lambda client: client.admin.put_value(namespace, key, value))
    show_done(f"{namespace}/{key} is written", {"namespace": namespace, "key": key, "value": value})


@values_app.command("delete", cls=ClusterCommand)
def delete_value(namespace: NamespaceArgument, key: KeyArgument) -> None:
    """Remove one value from every name server."""
    run(lambda client: client.admin.delete_value(namespace, key))
    show_done(f"{namespace}/{key} is deleted", {"namespace": namespace, "key": key, "deleted": True})
