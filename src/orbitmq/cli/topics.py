"""`orbitmq topic`: list, show, create, complete, update, delete, route, stats, producers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.asking.cluster_access import BrokerOption, ClusterOption, TopicArgument, YesOption, run
from orbitmq.cli.asking.shared_options import ClusterCommand
from orbitmq.cli.clusters import gap_filling
from orbitmq.cli.shared.output import show_done, show_rows
from orbitmq.cli.shared.pairs import parse_pairs

if TYPE_CHECKING:
    from orbitmq.client import Client
    from orbitmq.protocol.remoting.bodies import TopicConfig

app = typer.Typer(
    help="Topics: list, show, create, complete, update, delete, route, stats, producers.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command("complete", cls=ClusterCommand)(gap_filling.complete_topic)

AttributeOption = Annotated[
    list[str] | None, typer.Option("--attribute", metavar="KEY=VALUE", help="May be repeated.", show_default=False)
]
TypeOption = Annotated[
    str | None,
    typer.Option(
        "--type", metavar="TYPE", help="NORMAL, FIFO, DELAY, TRANSACTION, PRIORITY or MIXED.", show_default=False
    ),
]
SETTINGS = ("broker", "read_queues", "write_queues", "perm", "ordered", "attributes")


@app.command("list", cls=ClusterCommand)
def list_topics(
    all_topics: Annotated[bool, typer.Option("--all", help="Also system, retry and dead-letter topics.")] = False,
) -> None:
    """List the topics that the name server knows."""
    from orbitmq.cli.clusters.users_topics import users_topics

    async def work(client: Client) -> list[str]:
        names = await client.admin.topics()
        return names if all_topics else users_topics(names, await client.admin.cluster())

    rows = [{"topic": name} for name in run(work)]
    show_rows(rows, columns=("topic",), empty="no topics")


@app.command(cls=ClusterCommand)
def show(
    name: TopicArgument,
) -> None:
    """Show a topic's settings on each of its brokers."""

    async def work(client: Client) -> list[dict[str, object]]:
        return [_settings_row(broker, config) for broker, config in (await _settings(client, name)).items()]

    show_rows(run(work), columns=SETTINGS)


@app.command(cls=ClusterCommand)
def create(
    name: TopicArgument,
    queues: Annotated[int, typer.Option("--queues", "-q", min=1, max=65_535, help="Queues on each broker.")] = 8,
    write_queues: Annotated[
        int | None, typer.Option("--write-queues", min=0, max=65_535, help="If fewer.", show_default=False)
    ] = None,
    perm: Annotated[int, typer.Option("--perm", min=0, max=7, help="4 read, 2 write, together 6.")] = 6,
    ordered: Annotated[bool, typer.Option("--ordered", help="Mark as a topic with a fixed list of queues.")] = False,
    message_type: TypeOption = None,
    attribute: AttributeOption = None,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
) -> None:
    """Create a topic on every master meant; one that exists gets these settings."""
    from orbitmq.protocol.names import Perm

    attributes = _attributes(attribute, message_type)

    async def work(client: Client) -> list[str]:
        brokers = await client.admin.create_topic(
            name,
            queues_count=queues,
            write_queues_count=write_queues,
            perm=Perm(perm),
            ordered=ordered,
            attributes=attributes,
            cluster=cluster,
            broker=broker,
        )
        return [target.name for target in brokers]

    brokers = run(work)
    show_done(f"topic {name} is on {', '.join(brokers)}", {"topic": name, "brokers": brokers})


@app.command(cls=ClusterCommand)
def update(
    name: TopicArgument,
    queues: Annotated[
        int | None, typer.Option("--queues", "-q", min=0, max=65_535, help="Read queues.", show_default=False)
    ] = None,
    write_queues: Annotated[
        int | None, typer.Option("--write-queues", min=0, max=65_535, help="Write queues.", show_default=False)
    ] = None,
    perm: Annotated[
        int | None, typer.Option("--perm", min=0, max=7, help="4 read, 2 write, together 6.", show_default=False)
    ] = None,
    message_type: TypeOption = None,
    attribute: AttributeOption = None,
    broker: BrokerOption = None,
) -> None:
    """Change a topic on the brokers that have it; what is not given stays.

    To take queues away, reduce --write-queues first, and --queues when consumers have drained them.
    """
    from orbitmq.protocol.names import Perm

    attributes = _attributes(attribute, message_type)

    async def work(client: Client) -> list[dict[str, object]]:
        from orbitmq.errors import NotFoundError

        addresses = {
            data.broker_name: data.broker_addrs.get(0) for data in (await client.admin.topic_route(name)).broker_datas
        }
        settings = await _settings(client, name)
        meant = [broker_name for broker_name in settings if broker in (None, broker_name, addresses.get(broker_name))]
        if not meant:
            raise NotFoundError(
                f"no master broker {broker!r} has topic {name!r}",
                remedy=f"those that have it are {', '.join(settings)}",
            )
        for broker_name in meant:
            present = settings[broker_name]
            await client.admin.create_topic(
                name,
                queues_count=present.read_queue_nums if queues is None else queues,
                write_queues_count=present.write_queue_nums if write_queues is None else write_queues,
                perm=Perm(present.perm if perm is None else perm),
                ordered=present.order,
                attributes=attributes,
                broker=broker_name,
            )
        return [_settings_row(broker_name, config) for broker_name, config in (await _settings(client, name)).items()]

    show_rows(run(work), columns=SETTINGS)


@app.command(cls=ClusterCommand)
def delete(
    name: TopicArgument,
    yes: YesOption = False,
    cluster: ClusterOption = None,
) -> None:
    """Delete a topic with its messages from every master, and its route."""
    if not yes:
        typer.confirm(f"Delete topic {name} and all its messages?", abort=True, err=True)
    run(lambda client: client.admin.delete_topic(name, cluster=cluster))
    show_done(f"topic {name} is deleted", {"topic": name, "deleted": True})


@app.command(cls=ClusterCommand)
def route(
    name: TopicArgument,
) -> None:
    """Show which brokers serve a topic, as clients see it."""
    data = run(lambda client: client.admin.topic_route(name))
    brokers = {broker.broker_name: broker for broker in data.broker_datas}
    rows: list[dict[str, object]] = []
    for queues in data.queue_datas:
        broker = brokers.get(queues.broker_name)
        rows.append(
            {
                "broker": queues.broker_name,
                "cluster": broker.cluster if broker else None,
                "addresses": {str(number): address for number, address in broker.broker_addrs.items()}
                if broker
                else {},
                "read_queues": queues.read_queue_nums,
                "write_queues": queues.write_queue_nums,
                "perm": queues.perm,
            }
        )
    show_rows(rows, columns=("broker", "cluster", "addresses", "read_queues", "write_queues", "perm"))


@app.command(cls=ClusterCommand)
def stats(
    name: TopicArgument,
) -> None:
    """Show the offsets of every queue of a topic."""
    from orbitmq.cli.shared.instants import instant

    offsets = run(lambda client: client.admin.topic_stats(name))
    rows: list[dict[str, object]] = [
        {
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "min_offset": bounds.min_offset,
            "max_offset": bounds.max_offset,
            "messages": bounds.max_offset - bounds.min_offset,
            "last_update": instant(bounds.last_update_timestamp),
        }
        for queue, bounds in offsets.items()
    ]
    show_rows(rows, columns=("broker", "queue", "min_offset", "max_offset", "messages", "last_update"))


@app.command(cls=ClusterCommand)
def producers(
    name: TopicArgument,
    group: Annotated[str, typer.Option("--group", "-g", help="Producer group.", show_default=False)],
) -> None:
    """Show the connected members of a producer group at the brokers of a topic."""
    from orbitmq.protocol.remoting.versions import version_name

    connections = run(lambda client: client.admin.producer_connections(group, name))
    rows: list[dict[str, object]] = [
        {
            "client_id": member.client_id,
            "address": member.client_addr,
            "language": member.language,
            "version": version_name(member.version),
        }
        for member in connections.connection_set
    ]
    columns = ("client_id", "address", "language", "version")
    show_rows(rows, columns=columns, empty=f"producer group {group} has no members online")


async def _settings(client: Client, name: str) -> dict[str, TopicConfig]:
    """The topic's settings by broker name; NotFoundError when no master has it."""
    from orbitmq.errors import NotFoundError

    found: dict[str, TopicConfig] = {}
    for broker in (await client.admin.topic_route(name)).broker_datas:
        address = broker.broker_addrs.get(0)
        config = (await client.admin.topic_configs(address)).get(name) if address else None
        if config is not None:
            found[broker.broker_name] = config
    if not found:
        raise NotFoundError(f"no master broker has topic {name!r}", remedy="see: orbitmq topic route")
    return dict(sorted(found.items()))


def _settings_row(broker: str, config: TopicConfig) -> dict[str, object]:
    return {
        "broker": broker,
        "topic": config.topic_name,
        "read_queues": config.read_queue_nums,
        "write_queues": config.write_queue_nums,
        "perm": config.perm,
        "ordered": config.order,
        "attributes": dict(config.attributes or {}),
    }


def _attributes(texts: list[str] | None, message_type: str | None) -> dict[str, str]:
    """RocketMQ's tools write a plus before the key; here it may stand and may be left out."""
    attributes = {name.lstrip("+"): value for name, value in parse_pairs("--attribute", texts).items()}
    return attributes if message_type is None else attributes | {"message.type": message_type.upper()}
