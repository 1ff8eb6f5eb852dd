"""`orbitmq message redrive`: send dead letters again.

Rules of this file
1. Every run ends with its account, also one that failed or was interrupted: what was sent is sent.
2. Progress goes to standard error, and only when that is a terminal; the result goes to standard output.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.asking.cluster_access import GroupArgument, run
from orbitmq.cli.asking.completing import complete_topics
from orbitmq.cli.shared.chosen import Output, chosen_output
from orbitmq.cli.shared.exit_codes import ExitCode
from orbitmq.cli.shared.instants import parse_instant_ms
from orbitmq.cli.shared.output import note, show_record
from orbitmq.cli.shared.pairs import parse_pairs

if TYPE_CHECKING:
    from orbitmq.client import Client
    from orbitmq.client.admin import RedriveResult


def redrive(
    group: GroupArgument,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", help="Topic for all of them; each one's own if not given.", autocompletion=complete_topics
        ),
    ] = None,
    only_group: Annotated[
        bool, typer.Option("--only-group", help="To this group alone, through its retry topic; not to other groups.")
    ] = False,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Only those that came from this topic.", show_default=False)
    ] = None,
    key: Annotated[list[str] | None, typer.Option("--key", "-k", help="Only with this key; may be repeated.")] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="Only with this tag; may be repeated.")] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", "-p", metavar="NAME=VALUE", help="Only with this property.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Only dead since: 2024-05-01T12:00:00Z, ms, 10m (ago).")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", help="Only dead before this instant.")] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", help="Only with this text in the value of a property.", show_default=False)
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.001, help="At most so many a second.", show_default=False)
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="End after so many were sent.", show_default=False)
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="From the oldest on, also those that were redriven before.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would be sent, and send nothing.")] = False,
) -> None:
    """Send the dead letters of GROUP again, as new messages to the topics they came from.

    All groups of these topics get them, unless --only-group is given. A run goes on where the last one with the same filter and
    target ended, and covers what is there when it starts. Ends with 1 when some could not be sent; they stay in the
    dead-letter topic, as all do until retention takes them.
    """
    from orbitmq.client.admin import DeadLetters
    from orbitmq.clock import SystemClock

    now_ms = SystemClock().now_ms()
    selection = DeadLetters(
        keys=frozenset(key or ()),
        tags=frozenset(tag or ()),
        properties=parse_pairs("--property", properties),
        since_ms=None if since is None else parse_instant_ms("--since", since, now_ms),
        until_ms=None if until is None else parse_instant_ms("--until", until, now_ms),
        topic=topic,
        reason=reason,
    )
    last: list[RedriveResult] = []

    async def work(client: Client) -> RedriveResult:
        with _progress(group) as tell:

            def progressed(result: RedriveResult) -> None:
                last[:] = [result]
                tell(result)

            return await client.admin.redrive(
                group,
                selection,
                to_topic=to,
                only_group=only_group,
                rate=rate,
                max_count=count,
                again=again,
                dry_run=dry_run,
                on_progress=progressed,
            )

    try:
        result = run(work)
    except BaseException:
        if last:
            _show(last[0])
        raise
    _show(result)
    if result.refused:
        raise typer.Exit(ExitCode.FAILED)


def _show(result: RedriveResult) -> None:
    import msgspec

    record = msgspec.to_builtins(result)
    refusals = record["refusals"] = [
        {
            "broker": queue["brokerName"],
            "queue": queue["queueId"],
            "queue_offset": offset,
            "message_id": message_id,
            "why": why,
        }
        for queue, offset, message_id, why in record["refusals"]
    ]
    if chosen_output() is Output.JSON:
        show_record(record)
        return
    show_record({name: value for name, value in record.items() if name != "refusals"})
    for refusal in refusals:
        note(f"not sent: {refusal['broker']}/{refusal['queue']}@{refusal['queue_offset']}: {refusal['why']}")
    if result.refused > len(refusals):
        note(f"not sent: {result.refused - len(refusals)} more")
    if result.dry_run:
        note("nothing was sent (--dry-run)")


@contextlib.contextmanager
def _progress(group: str) -> Iterator[Callable[[RedriveResult], None]]:
    """A bar on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda result: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[sent]} sent"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(f"dead letters of {group}", total=None, sent=0)
        yield lambda result: bar.update(task, total=result.total, completed=result.looked_at, sent=result.redriven)
