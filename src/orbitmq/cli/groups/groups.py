"""`orbitmq group`: list, show, create, update, delete consumer groups; what more there is comes from modules of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbitmq.cli.asking.cluster_access import BrokerOption, ClusterOption, GroupArgument, TopicOption, YesOption, run
from orbitmq.cli.asking.shared_options import ClusterCommand
from orbitmq.cli.clusters import gap_filling
from orbitmq.cli.groups import group_lag, group_members, group_offsets
from orbitmq.cli.shared.chosen import Output, chosen_output
from orbitmq.cli.shared.output import note, show_done, show_record, show_rows

if TYPE_CHECKING:
    from orbitmq.client import Client

app = typer.Typer(
    help="Consumer groups: list, settings, lag, members, offsets.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)
app.command(cls=ClusterCommand)(group_lag.lag)
app.command(cls=ClusterCommand)(group_members.members)
app.command(cls=ClusterCommand)(group_members.subscriptions)
app.command(cls=ClusterCommand)(group_offsets.reset)
app.command("complete", cls=ClusterCommand)(gap_filling.complete_group)


@app.command("list", cls=ClusterCommand)
def list_groups(
    all_groups: Annotated[bool, typer.Option("--all", help="Also the system's own groups.")] = False,
    cluster: ClusterOption = None,
) -> None:
    """List the consumer groups that the brokers have."""
    import msgspec

    from orbitmq.protocol.names import is_users_group

    groups = run(lambda client: client.admin.groups(cluster))
    rows = [
        {"group": name, **msgspec.structs.asdict(config)}
        for name, config in groups.items()
        if all_groups or is_users_group(name)
    ]
    columns = ("group", "consume_enable", "consume_broadcast_enable", "retry_queue_nums", "retry_max_times")
    show_rows(rows, columns=columns, empty="no consumer groups")


@app.command(cls=ClusterCommand)
def show(
    name: GroupArgument,
    topic: TopicOption = None,
) -> None:
    """Show a group's settings, its members and how far it is behind on every queue."""
    group = run(lambda client: _read_group(client, name, topic))
    if chosen_output() is Output.JSON:
        show_record(group)
        return
    show_record(group["settings"])
    note("")
    show_rows(group["members"], columns=("client_id", "address", "language"), empty="no members online")
    note("")
    columns = ("topic", "broker", "queue", "broker_offset", "group_offset", "behind", "last_consumed")
    show_rows(group["queues"], columns=columns, empty="no offsets")


@app.command(cls=ClusterCommand)
def create(
    name: GroupArgument,
    retry_max_times: Annotated[
        int, typer.Option("--retry-max-times", min=0, help="Redeliveries before the dead-letter topic.")
    ] = 16,
    retry_queues: Annotated[
        int, typer.Option("--retry-queues", min=0, max=65_535, help="Queues of the retry topic.")
    ] = 1,
    broadcast: Annotated[bool, typer.Option("--broadcast/--no-broadcast", help="Allow broadcasting.")] = True,
    consume: Annotated[bool, typer.Option("--consume/--no-consume", help="Allow consuming.")] = True,
    orderly: Annotated[
        bool, typer.Option("--orderly/--no-orderly", help="Clients of RocketMQ 5 consume in order (FIFO).")
    ] = False,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
) -> None:
    """Create a group on every master meant; one that exists gets these settings."""
    from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig

    settings = SubscriptionGroupConfig(
        group_name=name,
        consume_enable=consume,
        consume_broadcast_enable=broadcast,
        consume_message_orderly=orderly,
        retry_queue_nums=retry_queues,
        retry_max_times=retry_max_times,
    )

    async def work(client: Client) -> list[str]:
        brokers = await client.admin.create_group(name, settings=settings, cluster=cluster, broker=broker)
        return [target.name for target in brokers]

    brokers = run(work)
    show_done(f"group {name} is on {', '.join(brokers)}", {"group": name, "brokers": brokers})


@app.command(cls=ClusterCommand)
def update(
    name: GroupArgument,
    retry_max_times: Annotated[
        int | None,
        typer.Option("--retry-max-times", min=0, help="Redeliveries before the dead-letter topic.", show_default=False),
    ] = None,
    retry_queues: Annotated[
        int | None,
        typer.Option("--retry-queues", min=0, max=65_535, help="Queues of the retry topic.", show_default=False),
    ] = None,
    broadcast: Annotated[
        bool | None, typer.Option("--broadcast/--no-broadcast", help="Allow broadcasting.", show_default=False)
    ] = None,
    consume: Annotated[
        bool | None, typer.Option("--consume/--no-consume", help="Allow consuming.", show_default=False)
    ] = None,
    orderly: Annotated[
        bool | None,
        typer.Option(
            "--orderly/--no-orderly", help="Clients of RocketMQ 5 consume in order (FIFO).", show_default=False
        ),
    ] = None,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
) -> None:
    """Change a group's settings; what is not given stays."""
    changes = {
        "retry_max_times": retry_max_times,
        "retry_queue_nums": retry_queues,
        "consume_broadcast_enable": broadcast,
        "consume_enable": consume,
        "consume_message_orderly": orderly,
    }

    async def work(client: Client) -> list[str]:
        import msgspec

        from orbitmq.errors import NotFoundError

        present = (await client.admin.groups(cluster)).get(name)
        if present is None:
            raise NotFoundError(f"no broker has group {name!r}", remedy=f"create it: orbitmq group create {name}")
        given = {field: value for field, value in changes.items() if value is not None}
        settings = msgspec.structs.replace(present, **given)
        brokers = await client.admin.create_group(name, settings=settings, cluster=cluster, broker=broker)
        return [target.name for target in brokers]

    brokers = run(work)
    show_done(f"group {name} has the new settings on {', '.join(brokers)}", {"group": name, "brokers": brokers})


@app.command(cls=ClusterCommand)
def delete(
    name: GroupArgument,
    keep_offsets: Annotated[bool, typer.Option("--keep-offsets", help="Leave its offsets.")] = False,
    yes: YesOption = False,
    cluster: ClusterOption = None,
) -> None:
    """Delete a group with its retry and dead-letter topics from every master."""
    if not yes:
        typer.confirm(f"Delete group {name} with its retry and dead-letter topics?", abort=True, err=True)

    async def work(client: Client) -> None:
        await client.admin.delete_group(name, clean_offsets=not keep_offsets, cluster=cluster)

    run(work)
    show_done(f"group {name} is deleted", {"group": name, "deleted": True})


async def _read_group(client: Client, name: str, topic: str | None) -> dict[str, Any]:
    import msgspec

    from orbitmq.cli.shared.instants import instant
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
