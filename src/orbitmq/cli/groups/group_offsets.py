"""`orbitmq group reset`: move a group's offsets, with a look at what would happen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.asking.cluster_access import BrokerOption, GroupArgument, YesOption, run
from orbitmq.cli.asking.completing import complete_topics
from orbitmq.cli.shared.instants import parse_instant_ms
from orbitmq.cli.shared.output import note, show_rows

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from orbitmq.client import Client
    from orbitmq.client.admin import OffsetMove


def reset(
    group: GroupArgument,
    topic: Annotated[
        str, typer.Option("--topic", "-t", help="Topic whose offsets move.", autocompletion=complete_topics)
    ],
    earliest: Annotated[bool, typer.Option("--earliest", help="To the oldest message there is.")] = False,
    latest: Annotated[bool, typer.Option("--latest", help="To the end: skip all that is stored.")] = False,
    to_time: Annotated[
        str | None,
        typer.Option("--to-time", help="To the first message since 2024-05-01T12:00:00Z, ms, or 10m (ago)."),
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", min=0, help="To this offset of each queue.", show_default=False)
    ] = None,
    queue: Annotated[
        int | None, typer.Option("--queue", "-q", min=0, help="Only queues with this id.", show_default=False)
    ] = None,
    broker: BrokerOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")] = False,
    yes: YesOption = False,
) -> None:
    """Move a group's offsets of a topic, whether its members are online or not.

    Messages between the old place and an earlier new one are consumed again; between it and a later new one they are skipped.
    """
    from orbitmq.client.admin import ResetTo
    from orbitmq.clock import SystemClock

    if sum((earliest, latest, to_time is not None, to_offset is not None)) != 1:
        raise typer.BadParameter("give one of --earliest, --latest, --to-time and --to-offset")
    at_ms = None if to_time is None else parse_instant_ms("--to-time", to_time, SystemClock().now_ms())
    to = (
        ResetTo.EARLIEST
        if earliest
        else ResetTo.LATEST
        if latest
        else ResetTo.OFFSET
        if to_offset is not None
        else ResetTo.TIME
    )

    def moving(client: Client) -> Awaitable[list[OffsetMove]]:
        move = client.admin.plan_reset if dry_run else client.admin.reset_offsets
        return move(group, topic, to, at_ms=at_ms, offset=to_offset, broker=broker, queue_id=queue)

    if not dry_run and not yes:
        typer.confirm(f"Move the offsets of group {group} on topic {topic}?", abort=True, err=True)
    rows = [_row(moved, done=not dry_run) for moved in run(moving)]
    show_rows(rows, columns=("broker", "queue", "before", "after", "again", "skipped", "done"))
    if dry_run:
        note("nothing was changed (--dry-run)")


def _row(moved: OffsetMove, *, done: bool) -> dict[str, object]:
    before, after = moved.before, moved.after
    return {
        "broker": moved.queue.broker_name,
        "queue": moved.queue.queue_id,
        "before": before,
        "after": after,
        "again": None if before is None else max(0, before - after),
        "skipped": None if before is None else max(0, after - before),
        "done": done,
    }
