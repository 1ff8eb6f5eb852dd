"""`orbitmq send`: send messages from the command line, or one per line of standard input."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.asking.cluster_access import TopicArgument, run, target
from orbitmq.cli.asking.shared_options import ClusterCommand
from orbitmq.cli.shared.instants import parse_due_ms, parse_span_ms
from orbitmq.cli.shared.output import show_rows
from orbitmq.cli.shared.pairs import parse_pairs
from orbitmq.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.client import Client, MessageQueue, Producer

COLUMNS = ("status", "queue", "queue_offset", "message_id", "offset_message_id")


app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(cls=ClusterCommand)
def send(
    topic: TopicArgument,
    body: Annotated[
        str | None, typer.Argument(help="Text of the message; without it each line of standard input is one.")
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="One tag.", show_default=False)] = None,
    key: Annotated[list[str] | None, typer.Option("--key", help="A key; may be repeated.", show_default=False)] = None,
    delay_level: Annotated[
        int, typer.Option("--delay-level", min=0, help="Deliver after this level (1 = 1 s ... 18 = 2 h).")
    ] = 0,
    at: Annotated[
        str | None, typer.Option("--at", help="Deliver at 2030-05-01T12:00:00Z, or milliseconds.", show_default=False)
    ] = None,
    after: Annotated[
        str | None,
        typer.Option("--after", help="Deliver so long after it was stored: 30s, 10m, 36h.", show_default=False),
    ] = None,
    priority: Annotated[
        int | None, typer.Option("--priority", min=0, help="Highest first, for consumers that pop.", show_default=False)
    ] = None,
    ordering_key: Annotated[
        str | None, typer.Option("--ordering-key", help="Same key, same queue.", show_default=False)
    ] = None,
    once: Annotated[
        str | None,
        typer.Option("--once", help="Key by which a repeat of this command is recognised.", show_default=False),
    ] = None,
    once_window: Annotated[
        str, typer.Option("--once-window", help="For how long after the first send: 10m, 36h, 2d.")
    ] = "1d",
    properties: Annotated[
        list[str] | None, typer.Option("--property", "-p", metavar="NAME=VALUE", help="A user property.")
    ] = None,
    queue: Annotated[
        int | None, typer.Option("--queue", "-q", min=0, help="To the queue with this id.", show_default=False)
    ] = None,
    broker: Annotated[
        str | None, typer.Option("--broker", "-b", help="Name of the broker of --queue.", show_default=False)
    ] = None,
    group: Annotated[str, typer.Option("--group", help="Producer group.")] = "orbitmq-cli",
) -> None:
    """Send one message, or one for every line of standard input, and print where it was stored."""
    if ordering_key is not None and (queue is not None or broker is not None):
        raise typer.BadParameter("--ordering-key chooses the queue; give no --queue and no --broker")
    if sum((delay_level > 0, at is not None, after is not None)) > 1:
        raise typer.BadParameter("give one of --delay-level, --at and --after")
    at_ms = None if at is None else parse_due_ms("--at", at, SystemClock().now_ms())
    after_s = None if after is None else parse_span_ms("--after", after) / 1_000
    if once is not None and body is None:
        raise typer.BadParameter("--once names one message: give its text as BODY")
    window_s = parse_span_ms("--once-window", once_window) / 1_000
    timeout_ms = target().timeout_ms
    pairs = parse_pairs("--property", properties)
    bodies = [body.encode()] if body is not None else _lines()

    rows: list[dict[str, object]] = []

    async def work(client: Client) -> None:
        from orbitmq.client import OnceWithin

        identity = None if once is None else OnceWithin(once, window_s)
        async with client.producer(group) as producer:
            chosen = await _chosen_queue(producer, topic, queue, broker)
            for data in bodies:
                receipt = await producer.send(
                    topic,
                    data,
                    tag=tag,
                    key=key or None,
                    delay_level=delay_level,
                    at=at_ms,
                    after=after_s,
                    priority=priority,
                    ordering_key=ordering_key,
                    queue=chosen,
                    once=identity,
                    properties=pairs,
                    timeout_ms=timeout_ms,
                )
                rows.append(
                    {
                        "status": receipt.send_status.name,
                        "topic": receipt.queue.topic,
                        "broker": receipt.queue.broker_name,
                        "queue": receipt.queue.queue_id,
                        "queue_offset": receipt.queue_offset,
                        "message_id": receipt.message_id,
                        "offset_message_id": receipt.offset_message_id,
                        "recall_handle": receipt.recall_handle,
                    }
                )

    try:
        run(work)
    except BaseException:
        if rows:  # these are stored, whatever stopped the rest
            show_rows(rows, columns=COLUMNS)
        raise
    show_rows(rows, columns=COLUMNS, empty="nothing to send")


async def _chosen_queue(producer: Producer, topic: str, queue: int | None, broker: str | None) -> MessageQueue | None:
    """The queue that was named; None leaves the choice to the producer. `NotFoundError` unless it is exactly one."""
    from orbitmq.errors import NotFoundError

    if queue is None and broker is None:
        return None
    known = await producer.queues(topic)
    meant = [each for each in known if queue in (None, each.queue_id) and broker in (None, each.broker_name)]
    if len(meant) != 1:
        names = ", ".join(f"{each.broker_name}/{each.queue_id}" for each in known)
        raise NotFoundError(
            f"--queue and --broker name {len(meant)} queues of topic {topic!r}", remedy=f"name one of: {names}"
        )
    return meant[0]


def _lines() -> Iterator[bytes]:
    for line in sys.stdin.buffer:
        data = line.rstrip(b"\r\n")
        if data:
            yield data
