"""`orbitmq message show`: find messages by id, unique key, key, or place in a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.cluster_access import (
    DEFAULT_NAMESRV,
    DEFAULT_TIMEOUT_MS,
    BrokerOption,
    NamesrvOption,
    TimeoutOption,
    run,
)
from orbitmq.cli.exit_codes import ExitCode
from orbitmq.cli.output import Output, OutputOption, note, show_record, show_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.client import Client
    from orbitmq.client.stored import StoredMessage

app = typer.Typer(help="Messages: show by id, unique key, key or offset.", no_args_is_help=True)


@app.callback()
def messages() -> None:
    """Messages: show by id, unique key, key or offset."""  # keeps `show` a subcommand while it is the only one


@app.command()
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
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    broker: BrokerOption = None,
    timeout_ms: TimeoutOption = DEFAULT_TIMEOUT_MS,
    output: OutputOption = Output.TABLE,
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

    _show(run(work, namesrv, timeout_ms), output)


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


def _show(found: Sequence[StoredMessage], output: Output) -> None:
    from orbitmq.cli.message_view import COLUMNS, message_view, table_view

    views = [message_view(message.record) for message in found]
    if output is Output.JSON:
        show_rows(views, output, columns=COLUMNS)
    elif len(views) == 1:
        show_record(table_view(views[0]), output)
    elif views:
        show_rows([table_view(view) for view in views], output, columns=COLUMNS)
    if not views:
        note("no such message")
        raise typer.Exit(ExitCode.NOT_FOUND)
