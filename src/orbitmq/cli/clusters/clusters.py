"""`orbitmq cluster`: all brokers at a glance, what is missing, rates of topics and groups, round-trip times, a restart one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.asking.cluster_access import ClusterOption, ExpectOption, TopicOption, end_if_missing, expected, run
from orbitmq.cli.asking.shared_options import ClusterCommand
from orbitmq.cli.clusters import cluster_check, cluster_files
from orbitmq.cli.restarting.cluster_restart import restart
from orbitmq.cli.shared.output import show_rows

if TYPE_CHECKING:
    from orbitmq.cli.asking.expected_brokers import MissingBroker
    from orbitmq.client import Client
    from orbitmq.client.admin import Broker

app = typer.Typer(
    help="The cluster: brokers, what is missing, rates, round-trip times, restart, export, import.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)
app.command(cls=ClusterCommand)(cluster_check.check)
app.command(cls=ClusterCommand)(restart)
app.command("export", cls=ClusterCommand)(cluster_files.export_cluster)
app.command("import", cls=ClusterCommand)(cluster_files.import_cluster)


@app.command(cls=ClusterCommand)
def show(cluster: ClusterOption = None, expect: ExpectOption = None) -> None:
    """Show every broker: version, rates, disk, messages of today; one that does not answer is marked.

    Where brokers are expected, those that are missing are shown too, and the command ends with 1.
    """
    names = expected(expect)

    async def work(client: Client) -> tuple[list[dict[str, object]], list[MissingBroker]]:
        from orbitmq.cli.asking.expected_brokers import missing_brokers

        found = [await _broker_row(client, broker) for broker in await client.admin.brokers(cluster)]
        return found, await missing_brokers(client, names)

    columns = (
        "cluster", "broker", "id", "address", "version", "in_per_second", "out_per_second", "in_today", "out_today",
        "disk_used", "active",
    )  # fmt: skip
    rows, missing = run(work)
    shown = {row["broker"] for row in rows}
    rows += [
        {"broker": each.broker, "active": False, "problem": each.text} for each in missing if each.broker not in shown
    ]
    show_rows(rows, columns=columns, empty="no brokers")
    end_if_missing(missing)


@app.command(cls=ClusterCommand)
def stats(
    topic: TopicOption = None,
    active_only: Annotated[bool, typer.Option("--active", help="Only what moved in the last minute.")] = False,
) -> None:
    """Show the rates of every topic and of the groups that consume it, and how far these are behind."""

    async def work(client: Client) -> list[dict[str, object]]:
        from orbitmq.cli.clusters.users_topics import users_topics

        rows: list[dict[str, object]] = []
        admin = client.admin
        for name in [topic] if topic is not None else users_topics(await admin.topics(), await admin.cluster()):
            rows += await _topic_rows(client, name)
        return [row for row in rows if not active_only or row["in_per_second"] or row["out_per_second"]]

    columns = ("topic", "group", "behind", "in_per_second", "out_per_second", "in_day", "out_day")
    show_rows(run(work), columns=columns, empty="no topics")


@app.command("check-rt", cls=ClusterCommand)
def check_round_trips(
    cluster: ClusterOption = None,
    topic: TopicOption = None,
    count: Annotated[int, typer.Option("--count", min=1, max=10_000, help="Messages to each broker.")] = 10,
    size: Annotated[int, typer.Option("--size", min=1, max=1_048_576, help="Bytes of a message.")] = 128,
) -> None:
    """Send small messages one after another and show how long the answers take, by broker.

    Without --topic they go to the topic that bears the broker's name, which every broker has and nobody reads.
    """

    async def work(client: Client) -> list[dict[str, object]]:
        import asyncio

        from orbitmq.cli.shared.latencies import percentiles

        masters = await client.admin.masters(cluster)
        taken: dict[str, list[float]] = {}
        loop = asyncio.get_running_loop()
        for name in [topic] if topic is not None else [broker.name for broker in masters]:
            for _ in range(count):
                begun = loop.time()
                receipt = await client.send(name, bytes(size))
                taken.setdefault(receipt.queue.broker_name, []).append((loop.time() - begun) * 1000)
        return [{"broker": name, "sent": len(times), **percentiles(times)} for name, times in sorted(taken.items())]

    show_rows(run(work), columns=("broker", "sent", "p50_ms", "p99_ms", "max_ms"), empty="no brokers")


async def _broker_row(client: Client, broker: Broker) -> dict[str, object]:
    from orbitmq.errors import ClientError

    row: dict[str, object] = {
        "cluster": broker.cluster, "broker": broker.name, "id": broker.broker_id, "address": broker.address
    }  # fmt: skip
    try:
        figures = await client.admin.broker_runtime(broker.address)
    except ClientError as error:
        return {**row, "active": False, "problem": str(error)}
    return {
        **row,
        "version": figures.get("brokerVersionDesc"),
        "in_per_second": _first_number(figures.get("putTps")),
        "out_per_second": _first_number(figures.get("getTransferredTps")),
        "in_today": _difference(figures, "msgPutTotalTodayNow", "msgPutTotalTodayMorning"),
        "out_today": _difference(figures, "msgGetTotalTodayNow", "msgGetTotalTodayMorning"),
        "disk_used": figures.get("commitLogDiskRatio"),
        "active": figures.get("brokerActive", "true") == "true",
    }


async def _topic_rows(client: Client, topic: str) -> list[dict[str, object]]:
    admin = client.admin
    brokers = (await admin.topic_route(topic)).broker_datas
    masters = [broker.broker_addrs[0] for broker in brokers if 0 in broker.broker_addrs]
    in_rate, in_day = await _count(client, masters, "TOPIC_PUT_NUMS", topic)
    rows: list[dict[str, object]] = []
    groups: list[str | None] = [*await admin.groups_of_topic(topic)]
    for group in groups or [None]:
        row: dict[str, object] = {"topic": topic, "group": group, "in_per_second": in_rate, "in_day": in_day}
        if group is not None:
            out_rate, out_day = await _count(client, masters, "GROUP_GET_NUMS", f"{topic}@{group}")
            progress = (await admin.group_progress(group, topic)).values()
            behind = sum(max(0, at.broker_offset - at.consumer_offset) for at in progress)
            row.update(out_per_second=out_rate, out_day=out_day, behind=behind)
        else:
            row.update(out_per_second=None, out_day=None, behind=None)
        rows.append(row)
    return rows


async def _count(client: Client, masters: list[str], counter: str, key: str) -> tuple[float, int]:
    """Events per second over the last minute, and events of the last day, over all brokers."""
    rate, day = 0.0, 0
    for address in masters:
        data = await client.admin.broker_stats(address, counter, key)
        if data is not None:
            rate += data.stats_minute.tps
            day += data.stats_day.sum
    return round(rate, 2), day


def _first_number(text: str | None) -> float | None:
    first = (text or "").split(" ")[0]
    try:
        return round(float(first), 2)
    except ValueError:
        return None


def _difference(figures: dict[str, str], later: str, earlier: str) -> int | None:
    try:
        return int(figures[later]) - int(figures[earlier])
    except (KeyError, ValueError):
        return None
