"""`orbitmq group lag`: how far groups are behind, queue by queue.

Rules of this file
1. The lag of a queue is what the broker has minus what the group has committed; messages in work count as lag.
2. The time behind is the age of the next message to consume, by the store time of its broker and the clock of this machine: a
   group that keeps up with a slow topic is not behind, whatever the age of the last message.
3. What cannot be known (a member that does not answer, a message that retention took) is empty, not zero.
4. Where a broker is missing that is expected, the queues of the others are shown, and no totals: they would be too small.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from orbitmq.cli.asking.cluster_access import ExpectOption, TopicOption, end_if_missing, expected, note_missing, run
from orbitmq.cli.asking.completing import complete_groups
from orbitmq.cli.shared.chosen import Output, chosen_output
from orbitmq.cli.shared.exit_codes import ExitCode
from orbitmq.cli.shared.instants import parse_span_ms, span
from orbitmq.cli.shared.output import note, print_line, show_record, show_rows

if TYPE_CHECKING:
    from orbitmq.cli.asking.expected_brokers import MissingBroker
    from orbitmq.client import Client
    from orbitmq.client.admin import Broker
    from orbitmq.protocol.remoting.bodies import ConsumerRunningInfo, MessageQueue, OffsetProgress

QUEUE_COLUMNS: Final = ("topic", "broker", "queue", "broker_offset", "consumer_offset", "lag", "behind", "owner")
GROUP_COLUMNS: Final = ("group", "members", "topics", "queues", "lag", "behind")


class QueueLag(msgspec.Struct, frozen=True):
    """One queue of a group. behind_ms: age of the next message, 0 without lag, None when unknown."""

    topic: str
    broker: str
    queue: int
    broker_offset: int
    consumer_offset: int
    lag: int
    behind_ms: int | None
    owner: str | None


class GroupLag(msgspec.Struct, frozen=True, omit_defaults=True):
    """A group with its queues and their totals. lag: None where a broker is missing, and members where one cannot be asked.
    missing_brokers: those that are expected and whose queues are not here."""

    group: str
    at_ms: int
    members: int | None
    queues: list[QueueLag]
    lag: int | None
    behind_ms: int | None
    missing_brokers: list[str] = []

    @property
    def topics(self) -> int:
        return len({queue.topic for queue in self.queues})


def group_lag(
    group: str,
    now_ms: int,
    progress: Mapping[MessageQueue, OffsetProgress],
    next_stored_ms: Mapping[MessageQueue, int],
    members: Mapping[str, ConsumerRunningInfo | None] | None,
    missing: Sequence[str] = (),
) -> GroupLag:
    """Put together what brokers and members told. next_stored_ms: store time of the next message of queues with lag. members: None when
    nobody could be asked. missing: brokers whose queues are not known."""
    told = (members or {}).items()
    owners = {queue: client_id for client_id, info in told if info is not None for queue in info.mq_table}
    queues: list[QueueLag] = []
    for queue, at in progress.items():
        lag = max(0, at.broker_offset - at.consumer_offset)
        stored_ms = next_stored_ms.get(queue)
        behind_ms = 0 if lag == 0 else None if stored_ms is None else max(0, now_ms - stored_ms)
        queues.append(
            QueueLag(
                queue.topic,
                queue.broker_name,
                queue.queue_id,
                at.broker_offset,
                at.consumer_offset,
                lag,
                behind_ms,
                owners.get(queue),
            )
        )
    known = [queue.behind_ms for queue in queues if queue.behind_ms is not None]
    oldest = max(known) if known else None if queues else 0
    count = None if members is None else len(members)
    if missing:
        return GroupLag(group, now_ms, count, queues, None, None, list(missing))
    return GroupLag(group, now_ms, count, queues, sum(queue.lag for queue in queues), oldest)


def lag(
    group: Annotated[
        str | None,
        typer.Argument(metavar="[GROUP]", help="A group; all if not given.", autocompletion=complete_groups),
    ] = None,
    topic: TopicOption = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on until Ctrl-C.")] = False,
    every: Annotated[str, typer.Option("--every", help="Pause between two looks with --watch.")] = "2s",
    fail_above: Annotated[
        int | None, typer.Option("--fail-above", min=0, help="End with 1 when a group's lag is larger.")
    ] = None,
    fail_older: Annotated[
        str | None, typer.Option("--fail-older", help="End with 1 when a next message is older: 30s, 5m.")
    ] = None,
    expect: ExpectOption = None,
) -> None:
    """Show how far a group is behind on every queue, or all groups; with whom each queue is, and totals.

    Where a broker is expected and missing, there are no totals, and the command ends with 1.
    """
    pause_ms = max(100, parse_span_ms("--every", every))
    older_ms = None if fail_older is None else parse_span_ms("--fail-older", fail_older)
    names = expected(expect)

    async def work(client: Client) -> tuple[list[GroupLag], list[MissingBroker]]:
        import asyncio

        from orbitmq.cli.asking.expected_brokers import missing_brokers
        from orbitmq.errors import ConnectionLostError, RequestTimeoutError

        while True:
            try:
                missing = await missing_brokers(client, names)
                found = await _read(client, group, topic, missing)
            except (ConnectionLostError, RequestTimeoutError) as error:
                if not watch:
                    raise
                note(f"asked again soon: {error}")  # who watches a restart wants to see its end
                await asyncio.sleep(pause_ms / 1000)
                continue
            if watch and chosen_output() is Output.TABLE and sys.stdout.isatty():
                sys.stdout.write("\x1b[H\x1b[2J")
            _show(found, group is not None, watch)
            if not watch:
                return found, missing
            note_missing(missing)
            await asyncio.sleep(pause_ms / 1000)

    groups, missing = run(work)
    end_if_missing(missing)
    _end_if_late(groups, fail_above, older_ms)


def _end_if_late(groups: Sequence[GroupLag], fail_above: int | None, older_ms: int | None) -> None:
    late = [
        found
        for found in groups
        if (fail_above is not None and found.lag is not None and found.lag > fail_above)
        or (older_ms is not None and found.behind_ms is not None and found.behind_ms > older_ms)
    ]
    for found in late:
        behind = "" if found.behind_ms is None else f", {span(found.behind_ms)}"
        note(f"group {found.group} is behind: {found.lag} messages{behind}")
    if late:
        raise typer.Exit(ExitCode.FAILED)


async def _read(
    client: Client, group: str | None, topic: str | None, missing: Sequence[MissingBroker]
) -> list[GroupLag]:
    from orbitmq.errors import NotFoundError
    from orbitmq.protocol.names import is_users_group

    brokers = await _that_answer(client, missing) if missing else []
    known: set[str] = set() if missing else set(await client.admin.groups())
    for broker in brokers:
        known.update(await client.admin.group_configs(broker.address))
    names: list[str | None] = [broker.name for broker in brokers] if missing else [None]
    if group is None:
        return [
            await _read_group(client, name, topic, names, missing) for name in sorted(known) if is_users_group(name)
        ]
    found = await _read_group(client, group, topic, names, missing)
    if not found.queues and group not in known and not missing:
        raise NotFoundError(f"no broker has group {group!r}", remedy="see: orbitmq group list")
    return [found]


async def _that_answer(client: Client, missing: Sequence[MissingBroker]) -> list[Broker]:
    names = {each.broker for each in missing}
    return [broker for broker in await client.admin.brokers() if broker.is_master and broker.name not in names]


async def _read_group(
    client: Client,
    group: str,
    topic: str | None,
    brokers: Sequence[str | None],
    missing: Sequence[MissingBroker],
) -> GroupLag:
    """brokers: whom to ask; None stands for all."""
    from orbitmq.cli.asking.expected_brokers import Absence
    from orbitmq.clock import SystemClock

    progress: dict[MessageQueue, OffsetProgress] = {}
    for broker in brokers:
        progress |= await client.admin.group_progress(group, topic, broker=broker)
    # All masters are asked about members: one that is silent would end that with an error.
    cut_off = not brokers or any(each.absence is Absence.SILENT for each in missing)
    members = None if cut_off else await client.admin.members(group)
    next_stored_ms: dict[MessageQueue, int] = {}
    for queue, at in progress.items():
        if at.broker_offset > at.consumer_offset:
            read = await client.admin.read_records(queue, at.consumer_offset, count=1)
            if read.records:
                next_stored_ms[queue] = read.records[0].store_timestamp
    names = [each.broker for each in missing]
    return group_lag(group, SystemClock().now_ms(), dict(sorted(progress.items())), next_stored_ms, members, names)


def _show(found: list[GroupLag], one: bool, watch: bool) -> None:
    if chosen_output() is Output.JSON:
        value = msgspec.to_builtins(found[0] if one else found)
        if watch:
            print_line(value)
        elif one:
            show_record(value)
        else:
            show_rows(value, columns=GROUP_COLUMNS)
        return
    if not one:
        rows = [
            {**msgspec.structs.asdict(group), "topics": group.topics, "queues": len(group.queues)} for group in found
        ]
        show_rows([_with_span(row) for row in rows], columns=GROUP_COLUMNS, empty="no consumer groups")
        return
    (group,) = found
    queues = [_with_span(msgspec.structs.asdict(queue)) for queue in group.queues]
    members = "" if group.members is None else f"{group.members} members"
    total = {"topic": "total", "lag": group.lag, "behind": _span(group.behind_ms), "owner": members}
    if group.missing_brokers:
        total |= {"topic": "total unknown", "broker": f"without {', '.join(group.missing_brokers)}"}
    show_rows([*queues, total] if queues else [], columns=QUEUE_COLUMNS, empty=f"group {group.group} has no offsets")


def _with_span(row: dict[str, object]) -> dict[str, object]:
    behind_ms = row["behind_ms"]
    assert behind_ms is None or isinstance(behind_ms, int)
    return {**row, "behind": _span(behind_ms)}


def _span(ms: int | None) -> str:
    return "" if ms is None else span(ms)
