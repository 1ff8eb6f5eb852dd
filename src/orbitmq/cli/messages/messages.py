"""`orbitmq message`: find messages by id, unique key, key, or place in a queue; send; redrive dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.asking.cluster_access import BrokerOption, run
from orbitmq.cli.asking.shared_options import ClusterCommand
from orbitmq.cli.messages import redriving, sending
from orbitmq.cli.shared.chosen import Output, chosen_output
from orbitmq.cli.shared.exit_codes import ExitCode
from orbitmq.cli.shared.output import note, show_record, show_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.client import Client
    from orbitmq.client.stored import StoredMessage

app = typer.Typer(
    help="Messages: show, send, redrive dead letters.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)
app.command(cls=ClusterCommand)(sending.send)
app.command(cls=ClusterCommand)(redriving.redrive)


@app.command(cls=ClusterCommand)
def show(
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="Needed for keys and offsets.", show_default=False)
    ] = None,
    message_id: Annotated[
        str | None, typer.Option("--id", help="Offset message id, as the broker gave it.", show_default=False)
    ] = None,
    unique_key: Annotated[
        str | None, typer.Option("--unique-key", help="Id given by the sending client.", show_default=False)
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="One of its keys.", show_default=False)] = None,
    queue: Annotated[int | None, typer.Option("--queue", min=0, help="Queue id.", show_default=False)] = None,
    offset: Annotated[int | None, typer.Option("--offset", min=0, help="Queue offset.", show_default=False)] = None,
    count: Annotated[int, typer.Option("--count", min=1, max=64, help="Most messages from one broker.")] = 32,
    broker: BrokerOption = None,
) -> None:
    """Show the messages found by exactly one of --id, --unique-key, --key, or --queue with --offset."""
    by_offset = queue is not None or offset is not None
    if sum((message_id is not None, unique_key is not None, key is not None, by_offset)) != 1:
        raise typer.BadParameter("give one of --id, --unique-key, --key, or --queue with --offset")
    if by_offset and (queue is None or offset is None):
        raise typer.BadParameter("--queue and --offset belong together")
    if message_id is not None:
        _check_offset_id(message_id)
    elif topic is None:
        raise typer.BadParameter("name the TOPIC")

    async def work(client: Client) -> Sequence[StoredMessage]:
        if message_id is not None:
            found = await client.admin.message_by_id(message_id)
            return [found] if found is not None else []
        assert topic is not None  # checked above
        if unique_key is not None:
            return await client.admin.messages_by_unique_id(topic, unique_key)
        if key is not None:
            return await client.admin.messages_by_key(topic, key, max_count=count)
        return await _from_offset(client, topic, broker, queue or 0, offset or 0, count)

    _show(run(work))


def _check_offset_id(text: str) -> None:
    from orbitmq.errors import ProtocolError
    from orbitmq.protocol.ids import decode_offset_id

    try:
        decode_offset_id(text)
    except ProtocolError as error:
        raise typer.BadParameter(f"--id: {error}") from error


async def _from_offset(
    client: Client, topic: str, broker: str | None, queue_id: int, offset: int, count: int
) -> list[StoredMessage]:
    from orbitmq.errors import ConfigurationError
    from orbitmq.protocol.remoting.bodies import MessageQueue

    names = sorted(data.broker_name for data in (await client.admin.topic_route(topic)).broker_datas)
    if broker is None and len(names) > 1:
        raise ConfigurationError(
            f"topic {topic!r} has queues {queue_id} on {', '.join(names)}", remedy="choose one with --broker"
        )
    queue = MessageQueue(topic=topic, broker_name=broker or names[0], queue_id=queue_id)
    return (await client.admin.peek(queue, offset, count=count)).messages


def _show(found: Sequence[StoredMessage]) -> None:
    from orbitmq.cli.shared.message_view import COLUMNS, message_view, table_view

    views = [message_view(message.record) for message in found]
    if chosen_output() is Output.JSON:
        show_rows(views, columns=COLUMNS)
    elif len(views) == 1:
        show_record(table_view(views[0]))
    elif views:
        show_rows([table_view(view) for view in views], columns=COLUMNS)
    if not views:
        note("no such message")
        raise typer.Exit(ExitCode.NOT_FOUND)
