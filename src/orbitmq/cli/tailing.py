"""`orbitmq tail`: print messages of a topic as they arrive.

Rules of this file
1. Tail is no member of any group: it takes nothing away from consumers and leaves no offset behind.
2. One held request per queue waits for messages; nothing polls.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.cluster_access import DEFAULT_NAMESRV, DEFAULT_TIMEOUT_MS, NamesrvOption, TimeoutOption, run
from orbitmq.cli.output import Output, OutputOption

if TYPE_CHECKING:
    from orbitmq.client import Client
    from orbitmq.protocol.records import Record
    from orbitmq.protocol.remoting.bodies import MessageQueue

HOLD_MS = 15_000
"""How long the broker may hold a request of ours; what RocketMQ's push consumers use."""

EMPTY_ANSWER_PAUSE_S = 0.1
"""Pause after an answer without messages that came back at once (long polling switched off at the broker)."""


def tail(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.", show_default=False)],
    tags: Annotated[str, typer.Option("--tags", help="Only these tags: `a || b`.")] = "*",
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Start at the oldest message.")] = False,
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="End after so many messages.", show_default=False)
    ] = None,
    stop_at_end: Annotated[bool, typer.Option("--stop-at-end", help="End at what is there now; do not wait.")] = False,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    timeout_ms: TimeoutOption = DEFAULT_TIMEOUT_MS,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print the messages of a topic as they arrive, until Ctrl-C. With JSON output each line is one message."""
    wanted = _Wanted(topic, tags, from_beginning, count, stop_at_end, output)
    run(lambda client: _tail(client, wanted), namesrv, timeout_ms)


class _Wanted:
    """What to print, and how many messages are still to come."""

    def __init__(
        self,
        topic: str,
        tags: str,
        from_beginning: bool,
        count: int | None,
        stop_at_end: bool,
        output: Output,
    ) -> None:
        self.topic = topic
        self.tags = tags
        self.from_beginning = from_beginning
        self.left = count
        self.stop_at_end = stop_at_end
        self.output = output

    @property
    def done(self) -> bool:
        return self.left is not None and self.left <= 0

    def print(self, record: Record) -> None:
        if self.done:
            return
        if self.left is not None:
            self.left -= 1
        print_message(record, self.output)


def print_message(record: Record, output: Output) -> None:
    """One message as one line, written out at once."""
    import msgspec

    from orbitmq.cli.message_view import message_view, table_view

    view = message_view(record)
    if output is Output.JSON:
        line = msgspec.json.encode(view).decode()
    else:
        shown = table_view(view)
        tag = f" [{shown['tag']}]" if shown["tag"] else ""
        body = str(shown["body"]).replace("\r", " ").replace("\n", " ")
        line = f"{shown['store_time']} {shown['topic']}/{shown['queue']}@{shown['queue_offset']}{tag} {body}"
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def _tail(client: Client, wanted: _Wanted) -> None:
    import asyncio

    from orbitmq.errors import RouteNotFoundError

    route = await client.routes.get(wanted.topic)
    followers = [asyncio.create_task(_follow(client, wanted, queue)) for queue in route.subscribe_queues]
    if not followers:
        raise RouteNotFoundError(
            f"topic {wanted.topic!r} has no queue that can be read", remedy="check its permission: orbitmq topic route"
        )
    try:
        if wanted.stop_at_end:
            await asyncio.gather(*followers)
        else:
            # The first follower to end has printed the last message wanted, or failed.
            ended, _ = await asyncio.wait(followers, return_when=asyncio.FIRST_COMPLETED)
            for follower in ended:
                follower.result()
    finally:
        for follower in followers:
            follower.cancel()
        await asyncio.gather(*followers, return_exceptions=True)


async def _follow(client: Client, wanted: _Wanted, queue: MessageQueue) -> None:
    import asyncio

    admin = client.admin
    offset = await (admin.min_offset(queue) if wanted.from_beginning else admin.max_offset(queue))
    hold_ms = 0 if wanted.stop_at_end else HOLD_MS
    loop = asyncio.get_running_loop()
    while not wanted.done:
        asked_at = loop.time()
        read = await admin.read_records(queue, offset, tags=wanted.tags, hold_ms=hold_ms)
        offset = read.next_offset
        for record in read.records:
            wanted.print(record)
        if wanted.stop_at_end and offset >= read.max_offset:
            return
        if not read.records and loop.time() - asked_at < EMPTY_ANSWER_PAUSE_S:
            await asyncio.sleep(EMPTY_ANSWER_PAUSE_S)
