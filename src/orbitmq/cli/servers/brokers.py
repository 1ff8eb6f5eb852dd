"""`orbitmq broker`: run a broker alone, or show, configure and count one that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from orbitmq.cli.asking.cluster_access import BrokerOption, ClusterOption, YesOption, run
from orbitmq.cli.asking.shared_options import ClusterCommand
from orbitmq.cli.servers.serving import (
    BrokerPortOption,
    ConfigOption,
    DataOption,
    GrpcOption,
    GrpcPortOption,
    HostOption,
    HttpOption,
    HttpPortOption,
    LogFormatOption,
    LogLevelOption,
    ProxyConfigOption,
    SetOption,
    grpc_flags,
    refuse_server_options,
    run_roles,
    watch_flags,
)
from orbitmq.cli.shared.output import note, show_done, show_record, show_rows
from orbitmq.cli.shared.pairs import parse_pairs

if TYPE_CHECKING:
    from orbitmq.client import Client
    from orbitmq.client.admin import Broker

OWN_SETTING: Final = "logFormat"
"""Every broker of orbitmq has it, and none of RocketMQ's."""

app = typer.Typer(invoke_without_command=True, rich_markup_mode=None, add_completion=False)
config_app = typer.Typer(
    help="Settings of a running broker: get, set, unset.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)
app.add_typer(config_app, name="config")

NameArgument = Annotated[str, typer.Argument(metavar="BROKER", help="Its name, or host:port.", show_default=False)]


@app.callback()
def broker(
    ctx: typer.Context,
    data: DataOption = None,
    host: HostOption = None,
    broker_port: BrokerPortOption = None,
    config: ConfigOption = None,
    proxy_config: ProxyConfigOption = None,
    settings: SetOption = None,
    http: HttpOption = None,
    http_port: HttpPortOption = None,
    grpc: GrpcOption = None,
    grpc_port: GrpcPortOption = None,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
    namesrv: Annotated[
        str | None, typer.Option("--namesrv", help="Name servers to register with, `;` between.", show_default=False)
    ] = None,
) -> None:
    """Run a broker alone, in the foreground; with a command: show, configure and count brokers that run.

    It registers with the name servers given by --namesrv or namesrvAddr.
    """
    if ctx.invoked_subcommand is not None:
        refuse_server_options(ctx)
        return
    flags = list(settings or [])
    if namesrv is not None:
        flags.append(f"namesrvAddr={namesrv}")
    flags += watch_flags(http, http_port, log_format, log_level) + grpc_flags(grpc, grpc_port)
    run_roles(("broker",), data, host, None, broker_port, config, flags, proxy_config)


@app.command("list", cls=ClusterCommand)
def list_brokers(cluster: ClusterOption = None) -> None:
    """List the broker processes that are registered."""

    async def work(client: Client) -> list[Broker]:
        return await client.admin.brokers(cluster)

    rows = [
        {"cluster": found.cluster, "broker": found.name, "id": found.broker_id, "address": found.address}
        for found in run(work)
    ]
    show_rows(rows, columns=("cluster", "broker", "id", "address"), empty="no brokers")


@app.command(cls=ClusterCommand)
def show(
    name: NameArgument,
    key: Annotated[list[str] | None, typer.Option("--key", "-k", help="Only this figure; may be repeated.")] = None,
) -> None:
    """Show the figures of a running broker."""

    async def work(client: Client) -> dict[str, str]:
        return await client.admin.broker_runtime((await find_broker(client, name)).address)

    figures = dict(sorted(run(work).items()))
    show_record(_only(figures, key, f"broker {name} has no figure"))


@app.command(cls=ClusterCommand)
def stats(
    counter: Annotated[
        str, typer.Argument(metavar="COUNTER", help="TOPIC_PUT_NUMS, GROUP_GET_NUMS, BROKER_PUT_NUMS ...")
    ],
    key: Annotated[str, typer.Argument(metavar="KEY", help="A topic, topic@group, or the name of the cluster.")],
    broker: BrokerOption = None,
) -> None:
    """Show a counter over the last minute, hour and day."""

    async def work(client: Client) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = []
        for master in await client.admin.masters():
            if broker not in (None, master.name, master.address):
                continue
            data = await client.admin.broker_stats(master.address, counter, key)
            if data is not None:
                for span, item in (("minute", data.stats_minute), ("hour", data.stats_hour), ("day", data.stats_day)):
                    rows.append(
                        {"broker": master.name, "over": span, "sum": item.sum, "per_second": round(item.tps, 2)}
                    )
        return rows

    show_rows(run(work), columns=("broker", "over", "sum", "per_second"), empty=f"no broker counts {counter} of {key}")


@app.command("wipe-write", cls=ClusterCommand)
def wipe_write(name: NameArgument, yes: YesOption = False) -> None:
    """Stop sending to a broker: its topics are not writable any more, until `add-write`. Consumers drain it."""
    if not yes:
        typer.confirm(f"Take write permission from all topics of {name}?", abort=True, err=True)
    count = _known(name, run(lambda client: client.admin.wipe_write_permission(name)))
    show_done(f"{count} topics of {name} are not writable any more", {"broker": name, "topics": count})


@app.command("add-write", cls=ClusterCommand)
def add_write(name: NameArgument) -> None:
    """Undo `wipe-write`."""
    count = _known(name, run(lambda client: client.admin.add_write_permission(name)))
    show_done(f"{count} topics of {name} are writable", {"broker": name, "topics": count})


@config_app.command("get", cls=ClusterCommand)
def get_config(
    name: NameArgument,
    key: Annotated[list[str] | None, typer.Argument(metavar="[KEY]...", help="Only these.", show_default=False)] = None,
) -> None:
    """Show the settings of a running broker. Those that were changed while it ran are named, with what counts without the change."""

    async def work(client: Client) -> tuple[dict[str, str], dict[str, str]]:
        address = (await find_broker(client, name)).address
        return await client.admin.broker_config(address), await client.admin.broker_runtime(address)

    from orbitmq.protocol.remoting.setting_changes import FACT_PREFIX

    values, figures = run(work)
    show_record(_only(dict(sorted(values.items())), key, f"broker {name} has no setting"))
    for figure, beneath in sorted(figures.items()):
        changed = figure.removeprefix(FACT_PREFIX)
        if changed != figure and (not key or changed in key):
            note(f"{changed} = {values.get(changed)} was changed while running; without that it is {beneath}")


@config_app.command("set", cls=ClusterCommand)
def set_config(
    name: NameArgument,
    pairs: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="Settings as in broker.conf.")],
) -> None:
    """Change settings of a running broker; they stay over a restart."""
    changes = parse_pairs("KEY=VALUE", pairs)

    async def work(client: Client) -> None:
        await client.admin.update_broker_config((await find_broker(client, name)).address, changes)

    run(work)
    show_done(f"broker {name} has the new settings", {"broker": name, "changed": changes})


@config_app.command("unset", cls=ClusterCommand)
def unset_config(
    name: NameArgument,
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="Settings that were changed while it ran.")],
) -> None:
    """Forget changes of settings of a running broker: what its file, environment and command line say counts again, at once."""
    from orbitmq.errors import ConfigurationError
    from orbitmq.protocol.remoting.setting_changes import UNSET_KEY, names_text

    async def work(client: Client) -> dict[str, str]:
        address = (await find_broker(client, name)).address
        if OWN_SETTING not in await client.admin.broker_config(address):
            raise ConfigurationError(f"broker {name} is none of orbitmq's: RocketMQ forgets no setting by request")
        await client.admin.update_broker_config(address, {UNSET_KEY: names_text(keys)})
        values = await client.admin.broker_config(address)
        return {key: values[key] for key in keys}

    values = run(work)
    show_done(
        ", ".join(f"{key} = {value}" for key, value in values.items()) + f": counts at broker {name}",
        {"broker": name, "settings": values},
    )


def _known(name: str, topics_count: int) -> int:
    """How many topics of a broker there were. `NotFoundError` for none: every broker brings the system's with it."""
    from orbitmq.errors import NotFoundError

    if not topics_count:
        raise NotFoundError(f"the name servers know no broker {name!r}", remedy="see: orbitmq broker list")
    return topics_count


async def find_broker(client: Client, name: str) -> Broker:
    """A broker by name (then its master) or address. `NotFoundError`."""
    from orbitmq.errors import NotFoundError

    brokers = await client.admin.brokers()
    for found in brokers:
        if found.address == name or (found.name == name and found.is_master):
            return found
    known = ", ".join(f"{found.name} ({found.address})" for found in brokers) or "none"
    raise NotFoundError(f"there is no broker {name!r}", remedy=f"known are: {known}")


def _only(values: dict[str, str], keys: list[str] | None, missing: str) -> dict[str, str]:
    from orbitmq.errors import NotFoundError

    for key in keys or ():
        if key not in values:
            raise NotFoundError(f"{missing} {key!r}")
    return {key: values[key] for key in keys} if keys else values
