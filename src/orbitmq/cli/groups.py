"""`orbitmq group`: list, show, create, delete consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbitmq.cli.cluster_access import (
    DEFAULT_NAMESRV,
    DEFAULT_TIMEOUT_MS,
    BrokerOption,
    ClusterOption,
    NamesrvOption,
    TimeoutOption,
    run,
)
from orbitmq.cli.output import Output, OutputOption, note, show_done, show_record, show_rows

if TYPE_CHECKING:
    from orbitmq.client import Client

app = typer.Typer(help="Consumer groups: list, show, create, delete.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.", show_default=False)]


@app.command("list")
def list_groups(
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    all_groups: Annotated[bool, typer.Option("--all", help="Also the system's own groups.")] = False,
    cluster: ClusterOption = None,
    timeout_ms: TimeoutOption = DEFAULT_TIMEOUT_MS,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the consumer groups that the brokers have."""
    import msgspec

    from orbitmq.protocol.names import is_system_group

    groups = run(lambda client: client.admin.groups(cluster), namesrv, timeout_ms)
    rows = [
        {"group": name, **msgspec.structs.asdict(config)}
        for name, config in groups.items()
        if all_groups or not is_system_group(name)
    ]
    columns = ("group", "consume_enable", "consume_broadcast_enable", "retry_queue_nums", "retry_max_times")
    show_rows(rows, output, columns=columns, empty="no consumer groups")


@app.command()
def show(
    name: NameArgument,
    topic: Annotated[str | None, typer.Option("--topic", help="Only this topic.", show_default=False)] = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    timeout_ms: TimeoutOption = DEFAULT_TIMEOUT_MS,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a group's settings, its members and how far it is behind on every queue."""
    group = run(lambda client: _read_group(client, name, topic), namesrv, timeout_ms)
    if output is Output.JSON:
        show_record(group, output)
        return
    show_record(group["settings"], output)
    note("")
    show_rows(group["members"], output, columns=("client_id", "address", "language"), empty="no members online")
    note("")
    columns = ("topic", "broker", "queue", "broker_offset", "group_offset", "behind", "last_consumed")
    show_rows(group["queues"], output, columns=columns, empty="no offsets")


@app.command()
def create(
    name: NameArgument,
    retry_max_times: Annotated[
        int, typer.Option("--retry-max-times", min=0, help="Redeliveries before the dead-letter topic.")
    ] = 16,
    retry_queues: Annotated[
        int, typer.Option("--retry-queues", min=0, max=65_535, help="Queues of the retry topic.")
    ] = 1,
    broadcast: Annotated[bool, typer.Option("--broadcast/--no-broadcast", help="Allow broadcasting.")] = True,
    consume: Annotated[bool, typer.Option("--consume/--no-consume", help="Allow consuming.")] = True,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    timeout_ms: TimeoutOption = DEFAULT_TIMEOUT_MS,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a group on every master meant; one that exists gets these settings."""
    from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig

    settings = SubscriptionGroupConfig(
        group_name=name,
        consume_enable=consume,
        consume_broadcast_enable=broadcast,
        retry_queue_nums=retry_queues,
        retry_max_times=retry_max_times,
    )

    async def work(client: Client) -> list[str]:
        brokers = await client.admin.create_group(name, settings=settings, cluster=cluster, broker=broker)
        return [target.name for target in brokers]

    brokers = run(work, namesrv, timeout_ms)
    show_done(f"group {name} is on {', '.join(brokers)}", {"group": name, "brokers": brokers}, output)


@app.command()
def delete(
    name: NameArgument,
    keep_offsets: Annotated[bool, typer.Option("--keep-offsets", help="Leave its offsets.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    cluster: ClusterOption = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    timeout_ms: TimeoutOption = DEFAULT_TIMEOUT_MS,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete a group with its retry and dead-letter topics from every master."""
    if not yes:
        typer.confirm(f"Delete group {name} with its retry and dead-letter topics?", abort=True, err=True)

    async def work(client: Client) -> None:
        await client.admin.delete_group(name, clean_offsets=not keep_offsets, cluster=cluster)

    run(work, namesrv, timeout_ms)
    show_done(f"group {name} is deleted", {"group": name, "deleted": True}, output)


async def _read_group(client: Client, name: str, topic: str | None) -> dict[str, Any]:
    import msgspec

    from orbitmq.cli.instants import instant
    from orbitmq.errors import NotFoundError

    settings = (await client.admin.groups()).get(name)
    if settings is None:
        raise NotFoundError(f"no broker has group {name!r}", remedy=f"create it: orbitmq group create {name}")
    connections = await client.admin.group_connections(name)
    progress = await client.admin.group_progress(name, topic)
    return {
        "group": name,
        "settings": msgspec.structs.asdict(settings),
        "members": [
            {"client_id": member.client_id, "address": member.client_addr, "language": member.language}
            for member in (connections.connection_set if connections else [])
        ],
        "queues": [
            {
                "topic": queue.topic,
                "broker": queue.broker_name,
                "queue": queue.queue_id,
                "broker_offset": at.broker_offset,
                "group_offset": at.consumer_offset,
                "behind": at.broker_offset - at.consumer_offset,
                "last_consumed": instant(at.last_timestamp),
            }
            for queue, at in progress.items()
        ],
    }
