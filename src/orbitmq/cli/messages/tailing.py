"""`orbitmq tail`: print messages of a topic as they arrive.

Rules of this file
1. Tail is no member of any group: it takes nothing away from consumers and leaves no offset behind.
2. One held request per queue waits for messages; nothing polls.
3. A queue that appears while tail runs is read from its beginning: everything in it is new.
4. A broker that stops answering is told once on standard error and asked again until it is back; with --stop-at-end it is
   an error instead, because then nobody waits for more.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from orbitmq.cli.asking.cluster_access import BrokerOption, TopicArgument, run
from orbitmq.cli.asking.shared_options import ClusterCommand
from orbitmq.cli.messages.tail_filter import TailFilter
from orbitmq.cli.messages.tail_format import TailFormat, check_template, print_message
from orbitmq.cli.shared.chosen import Output, chosen_output
from orbitmq.cli.shared.output import note
from orbitmq.cli.shared.pairs import parse_pairs
from orbitmq.limits.cli import TAIL_EMPTY_ANSWER_PAUSE_S, TAIL_HOLD_MS, TAIL_RETRY_PAUSE_S, TAIL_ROUTE_PAUSE_S

if TYPE_CHECKING:
    from orbitmq.client import Client
    from orbitmq.protocol.records import Record
    from orbitmq.protocol.remoting.bodies import MessageQueue


app = typer.Typer(rich_markup_mode=None, add_completion=False)


class TailSelection(NamedTuple):
    """What to print, and from where on. queues: these ids, or all when empty."""

    topic: str
    tags: str
    sql: str | None
    condition: TailFilter
    broker: str | None
    queues: frozenset[int]
    from_beginning: bool
    since_ms: int | None
    offset: int | None
    stop_at_end: bool
    form: TailFormat
    template: str | None

    def chosen(self, queue: MessageQueue) -> bool:
        return self.broker in (None, queue.broker_name) and (not self.queues or queue.queue_id in self.queues)


@app.command(cls=ClusterCommand)
def tail(
    topic: TopicArgument,
    tags: Annotated[str, typer.Option("--tags", help="Only these tags: `a || b`. The broker filters.")] = "*",
    sql: Annotated[
        str | None,
        typer.Option(
            "--sql", help="Only messages for which this is true: `price > 10`. The broker filters.", show_default=False
        ),
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option("--key", "-k", help="Only with this key; several are alternatives.")
    ] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", "-p", metavar="NAME=VALUE", help="Only with this property.")
    ] = None,
    contains: Annotated[
        str | None, typer.Option("--contains", help="Only bodies that hold this text.", show_default=False)
    ] = None,
    regex: Annotated[
        str | None, typer.Option("--regex", help="Only bodies in which this is found.", show_default=False)
    ] = None,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Start at the oldest message.")] = False,
    since: Annotated[
        str | None,
        typer.Option("--since", help="Start at an instant (2024-05-01T12:00:00Z, ms) or so long ago (10m)."),
    ] = None,
    offset: Annotated[
        int | None, typer.Option("--offset", min=0, help="Start at this offset of each queue.", show_default=False)
    ] = None,
    queue: Annotated[
        list[int] | None, typer.Option("--queue", "-q", min=0, help="Only this queue id; may be repeated.")
    ] = None,
    broker: BrokerOption = None,
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="End after so many messages.", show_default=False)
    ] = None,
    stop_at_end: Annotated[bool, typer.Option("--stop-at-end", help="End at what is there now; do not wait.")] = False,
    form: Annotated[
        TailFormat | None, typer.Option("--format", "-f", help="text, a JSON document a line, or the bare body.")
    ] = None,
    template: Annotated[
        str | None,
        typer.Option("--template", help="A line of your own: '{queue}@{queue_offset} {properties[city]} {body}'."),
    ] = None,
) -> None:
    """Print the messages of a topic as they arrive, until Ctrl-C. It joins no group and leaves no trace."""
    from orbitmq.cli.shared.instants import parse_instant_ms
    from orbitmq.clock import SystemClock

    if sum((from_beginning, since is not None, offset is not None)) > 1:
        raise typer.BadParameter("give one of --from-beginning, --since and --offset")
    if sql is not None and tags != "*":
        raise typer.BadParameter("give one of --tags and --sql")
    if template is not None:
        if form is not None:
            raise typer.BadParameter("give one of --format and --template")
        check_template(template)
    wanted = TailSelection(
        topic=topic,
        tags=tags,
        sql=sql,
        condition=TailFilter(
            keys=tuple(key or ()),
            properties=parse_pairs("--property", properties),
            contains=None if contains is None else contains.encode(),
            pattern=_pattern(regex),
        ),
        broker=broker,
        queues=frozenset(queue or ()),
        from_beginning=from_beginning,
        since_ms=None if since is None else parse_instant_ms("--since", since, SystemClock().now_ms()),
        offset=offset,
        stop_at_end=stop_at_end,
        form=form or (TailFormat.JSON if chosen_output() is Output.JSON else TailFormat.TEXT),
        template=template,
    )
    run(lambda client: _Tail(client, wanted, count).run())


def _pattern(text: str | None) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        raise typer.BadParameter(f"--regex {text!r}: {error}") from error


class _Tail:
    """Followers of all queues chosen, and a look at the route for more of them."""

    def __init__(self, client: Client, wanted: TailSelection, count: int | None) -> None:
        self._client = client
        self._wanted = wanted
        self._left = count
        self._silent: set[str] = set()
        """Brokers that were said not to answer."""

    @property
    def _done(self) -> bool:
        return self._left is not None and self._left <= 0

    async def run(self) -> None:
        """Until all that is wanted is printed."""
        import asyncio

        from orbitmq.errors import RouteNotFoundError

        wanted = self._wanted
        queues = [
            queue for queue in (await self._client.routes.get(wanted.topic)).subscribe_queues if wanted.chosen(queue)
        ]
        if not queues:
            raise RouteNotFoundError(
                f"topic {wanted.topic!r} has no queue that can be read and was asked for",
                remedy=f"see its queues and permission: orbitmq topic route {wanted.topic}",
            )
        followers = {queue: asyncio.create_task(self._follow(queue, None)) for queue in queues}
        try:
            if wanted.stop_at_end:
                await asyncio.gather(*followers.values())
                return
            while not self._done:
                ended, _ = await asyncio.wait(
                    followers.values(), timeout=TAIL_ROUTE_PAUSE_S, return_when=asyncio.FIRST_COMPLETED
                )
                for follower in ended:
                    follower.result()  # it ends only when all that was wanted is printed, or with an error
                for queue in await self._new_queues(set(followers)):
                    followers[queue] = asyncio.create_task(self._follow(queue, 0))
        finally:
            for follower in followers.values():
                follower.cancel()
            await asyncio.gather(*followers.values(), return_exceptions=True)

    async def _new_queues(self, known: set[MessageQueue]) -> list[MessageQueue]:
        from orbitmq.errors import ClientError

        if self._done:
            return []
        try:
            route = await self._client.routes.refresh(self._wanted.topic)
        except ClientError as error:
            self._tell_silent("the name server", error)
            return []
        self._tell_back("the name server")
        return [
            queue
            for queue in (route.subscribe_queues if route else ())
            if queue not in known and self._wanted.chosen(queue)
        ]

    async def _follow(self, queue: MessageQueue, offset: int | None) -> None:
        """Print a queue from `offset`, or from where the command says. Ends when nothing more is wanted."""
        import asyncio

        from orbitmq.errors import ConnectionLostError, NotFoundError, RemoteError, RequestTimeoutError

        while not self._done:
            try:
                if offset is None:
                    offset = await self._start(queue)
                offset, at_end = await self._read(queue, offset)
            except (ConnectionLostError, RequestTimeoutError, RemoteError, NotFoundError) as error:
                if self._wanted.stop_at_end or (isinstance(error, RemoteError) and not _may_pass(error)):
                    raise
                self._tell_silent(f"broker {queue.broker_name}", error)
                await asyncio.sleep(TAIL_RETRY_PAUSE_S)
                continue
            self._tell_back(f"broker {queue.broker_name}")
            if at_end and self._wanted.stop_at_end:
                return

    async def _start(self, queue: MessageQueue) -> int:
        admin, wanted = self._client.admin, self._wanted
        if wanted.offset is not None:
            return wanted.offset
        if wanted.since_ms is not None:
            return await admin.offset_by_time(queue, wanted.since_ms)
        return await (admin.min_offset(queue) if wanted.from_beginning else admin.max_offset(queue))

    async def _read(self, queue: MessageQueue, offset: int) -> tuple[int, bool]:
        """Print what one request brings; where to go on, and whether that is the end."""
        import asyncio

        wanted, loop = self._wanted, asyncio.get_running_loop()
        asked_at = loop.time()
        hold_ms = 0 if wanted.stop_at_end else TAIL_HOLD_MS
        read = await self._client.admin.read_records(queue, offset, tags=wanted.tags, sql=wanted.sql, hold_ms=hold_ms)
        for record in read.records:
            self._print(record, queue.broker_name)
        at_end = read.next_offset >= read.max_offset
        if not wanted.stop_at_end and not read.records and loop.time() - asked_at < TAIL_EMPTY_ANSWER_PAUSE_S:
            await asyncio.sleep(TAIL_EMPTY_ANSWER_PAUSE_S)
        return read.next_offset, at_end

    def _print(self, record: Record, broker: str) -> None:
        if self._done or not self._wanted.condition.takes(record):
            return
        if self._left is not None:
            self._left -= 1
        print_message(record, broker, self._wanted.form, self._wanted.template)

    def _tell_silent(self, who: str, error: Exception) -> None:
        if who not in self._silent:
            self._silent.add(who)
            note(f"{who} does not answer and is asked again: {error}")

    def _tell_back(self, who: str) -> None:
        if who in self._silent:
            self._silent.discard(who)
            note(f"{who} answers again")


def _may_pass(error: Exception) -> bool:
    """Whether a refusal is one of the moment: busy, starting, stopping; or a topic that is not created again yet."""
    from orbitmq.protocol.remoting.codes import ResponseCode

    passing = {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.GO_AWAY,
    }
    return getattr(error, "code", None) in passing
