"""`orbitmq timer`: timer messages that wait for their time: list, show, recall, reschedule, count, export, import.

Rules of this file
1. A timer message is named by its recall handle, by topic and message id, or by topic and key.
2. A command that changes something says of each message what became of it, and ends with 0 only if all that was meant was done.
3. Instants here lie ahead: a span of time such as `10m` means from now on.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from orbitmq.cli.asking.cluster_access import TopicOption, run
from orbitmq.cli.asking.shared_options import ClusterCommand
from orbitmq.cli.shared.chosen import Output, chosen_output
from orbitmq.cli.shared.exit_codes import ExitCode
from orbitmq.cli.shared.instants import instant, parse_due_ms, parse_span_ms, span
from orbitmq.cli.shared.output import note, show_record, show_rows, write_text
from orbitmq.cli.timers import far_tier, timer_moves
from orbitmq.cli.timers.timer_moves import FromOption, KeyOption, KeyPrefixOption, UntilOption, timer_row
from orbitmq.clock import SystemClock
from orbitmq.limits import timers as limits
from orbitmq.limits.cli import CLI_STRIP_SPANS_MAX
from orbitmq.units import DAY_MS

if TYPE_CHECKING:
    from orbitmq.cli.timers.heat_strip import Strip
    from orbitmq.client import Client, TimerCounts, TimerMessage, TimerOutcome, TimerView

HandleArgument = Annotated[
    str | None,
    typer.Argument(metavar="[HANDLE]", help="Recall handle, as the send or `timer list` gave it.", show_default=False),
]
IdOption = Annotated[
    str | None, typer.Option("--id", help="With --topic: id given by the sending client.", show_default=False)
]
OneKeyOption = Annotated[str | None, typer.Option("--key", "-k", help="With --topic: its key.", show_default=False)]
AllOption = Annotated[bool, typer.Option("--all", help="All that have the key; without it several are an error.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what is meant, and change nothing.")]
BucketOption = Annotated[
    str | None,
    typer.Option("--bucket", help="Width of a span of the strip, such as 10m; fits by itself.", show_default=False),
]

LIST_COLUMNS: Final = ("due", "topic", "message_id", "keys", "size", "tier", "broker")
VERDICT_COLUMNS: Final = ("verdict", "due", "topic", "message_id", "keys", "broker")

app = typer.Typer(
    help="Timer messages: list, show, recall, reschedule, stats, export, import.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)
app.add_typer(far_tier.app, name="far")
app.command("export", cls=ClusterCommand)(timer_moves.export_timers)
app.command("import", cls=ClusterCommand)(timer_moves.import_timers)


class Named(NamedTuple):
    """What names timer messages on the command line."""

    handle: str | None
    topic: str | None
    message_id: str | None
    key: str | None

    def check(self) -> None:
        """`BadParameter` unless it is one of the three ways."""
        given = sum(value is not None for value in (self.handle, self.message_id, self.key))
        if given != 1 or (self.handle is None) is (self.topic is None):
            raise typer.BadParameter("give a HANDLE, --topic and --id, or --topic and --key")


@app.command("list", cls=ClusterCommand)
def list_timers(
    topic: TopicOption = None,
    due_from: FromOption = None,
    due_until: UntilOption = None,
    key: KeyOption = None,
    key_prefix: KeyPrefixOption = None,
    count: Annotated[int, typer.Option("--count", min=1, help="Most to show.")] = 50,
) -> None:
    """List what is pending on all brokers, earliest due first."""
    selection = timer_moves.TimerSelection.parsed(topic, due_from, due_until, key, key_prefix)
    rows: list[dict[str, object]] = []

    async def work(client: Client) -> None:
        async for timer in selection.list(client, page_count=min(count + 1, limits.TIMER_PAGE_MAX)):
            if len(rows) == count:
                note(f"and more; --count shows more than {count}")
                return
            rows.append(timer_row(timer))

    run(work)
    show_rows(rows, columns=LIST_COLUMNS, empty="nothing is pending")


@app.command(cls=ClusterCommand)
def show(
    handle: HandleArgument = None, topic: TopicOption = None, message_id: IdOption = None, key: OneKeyOption = None
) -> None:
    """Show one pending timer message in full; of one that is not pending, what became of it."""
    named = Named(handle, topic, message_id, key)
    named.check()

    async def work(client: Client) -> TimerMessage | TimerOutcome:
        timers = client.timers
        found = await timers.get(handle, topic=topic, message_id=message_id, key=key)
        return found if found is not None else await timers.status(handle, topic=topic, message_id=message_id, key=key)

    found = run(work)
    from orbitmq.client import TimerOutcome

    if isinstance(found, TimerOutcome):
        _show_outcome(found)
        raise typer.Exit(ExitCode.NOT_FOUND)
    from orbitmq.cli.shared.message_view import table_view, with_contents

    record = with_contents(timer_row(found.timer), found.tag, found.properties, found.body)
    show_record(record if chosen_output() is Output.JSON else table_view(record))


@app.command(cls=ClusterCommand)
def recall(
    handle: HandleArgument = None,
    topic: TopicOption = None,
    message_id: IdOption = None,
    key: OneKeyOption = None,
    every: AllOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Recall pending timer messages: they are not delivered any more."""
    named = Named(handle, topic, message_id, key)
    named.check()

    async def work(client: Client) -> TimerOutcome:
        timers = client.timers
        if dry_run:
            return await timers.status(handle, topic=topic, message_id=message_id, key=key)
        return await timers.recall(handle, topic=topic, message_id=message_id, key=key, all=every)

    _changed(run(work), dry_run=dry_run)


@app.command(cls=ClusterCommand)
def reschedule(
    handle: HandleArgument = None,
    topic: TopicOption = None,
    message_id: IdOption = None,
    key: OneKeyOption = None,
    at: Annotated[
        str | None,
        typer.Option("--at", help="New due time: 2030-05-01T12:00:00Z, or milliseconds.", show_default=False),
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", help="Due so long from now: 30s, 10m, 36h, 7d.", show_default=False)
    ] = None,
    every: AllOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Give pending timer messages another due time."""
    named = Named(handle, topic, message_id, key)
    named.check()
    if (at is None) is (after is None):
        raise typer.BadParameter("give one of --at and --after")
    at_ms = None if at is None else parse_due_ms("--at", at, SystemClock().now_ms())
    after_s = None if after is None else parse_span_ms("--after", after) / 1_000

    async def work(client: Client) -> TimerOutcome:
        timers = client.timers
        if dry_run:
            return await timers.status(handle, topic=topic, message_id=message_id, key=key)
        return await timers.reschedule(
            handle, topic=topic, message_id=message_id, key=key, all=every, at=at_ms, after=after_s
        )

    _changed(run(work), dry_run=dry_run)


@app.command(cls=ClusterCommand)
def stats(
    topic: TopicOption = None,
    due_from: FromOption = None,
    due_until: UntilOption = None,
    bucket: BucketOption = None,
) -> None:
    """Count what is pending, per topic and, as a strip, per span of due time (the next 24 hours if not said otherwise)."""
    from orbitmq.cli.timers.heat_strip import strip, width_for

    now_ms = SystemClock().now_ms()
    begin_ms = now_ms if due_from is None else parse_due_ms("--from", due_from, now_ms)
    end_ms = begin_ms + DAY_MS if due_until is None else parse_due_ms("--until", due_until, now_ms)
    if end_ms <= begin_ms:
        raise typer.BadParameter("--until is not after --from")
    length_ms = end_ms - begin_ms
    width_ms = width_for(length_ms, CLI_STRIP_SPANS_MAX) if bucket is None else parse_span_ms("--bucket", bucket)
    if not width_ms or length_ms // width_ms >= limits.TIMER_BUCKETS_MAX:
        raise typer.BadParameter(f"--bucket cuts the time into more than {limits.TIMER_BUCKETS_MAX} spans")
    begin_ms -= begin_ms % width_ms

    async def work(client: Client) -> tuple[TimerCounts, TimerView | None]:
        timers = client.timers
        counts = await timers.counts(topic=topic, due_from=begin_ms, due_until=end_ms, bucket=width_ms / 1_000)
        first = timers.list(topic=topic, page_count=1, on_left_out=timer_moves.note_left_out)
        return counts, await anext(first, None)

    counts, earliest = run(work)
    drawn = strip(begin_ms, end_ms, width_ms, [(each.begin_ms, each.count) for each in counts.buckets])
    _show_counts(counts, earliest, drawn)


# --- showing


def _show_counts(counts: TimerCounts, earliest: TimerView | None, drawn: Strip) -> None:
    next_due_ms = None if earliest is None else earliest.deliver_ms
    record: dict[str, object] = {
        "pending": counts.pending,
        "near": counts.near,
        "far": counts.far,
        "next_due_ms": next_due_ms,
        "next_due": instant(next_due_ms or 0),
    }
    if chosen_output() is Output.JSON:
        buckets = [
            {"begin_ms": drawn.begin_ms + number * drawn.width_ms, "count": count}
            for number, count in enumerate(drawn.counts)
            if count
        ]
        show_record(record | {"by_topic": dict(counts.by_topic), "bucket_ms": drawn.width_ms, "buckets": buckets})
        return
    del record["next_due_ms"]
    show_record(record)
    if counts.by_topic:
        show_rows(
            [{"topic": topic, "pending": count} for topic, count in counts.by_topic.items()],
            columns=("topic", "pending"),
        )
    write_text(f"{instant(drawn.begin_ms)} to {instant(drawn.end_ms)}, {span(drawn.width_ms)} each")
    write_text(_coloured(drawn) if sys.stdout.isatty() else drawn.drawn())
    write_text(f"{sum(drawn.counts)} in this time, at most {max(drawn.counts)} in one span")


def _coloured(drawn: Strip) -> str:
    """The strip from blue to red, as a terminal shows it."""
    from orbitmq.cli.timers.heat_strip import HEATS, NOTHING

    colours = (24, 31, 37, 71, 142, 178, 208, 196)
    text = "".join(
        character if character == NOTHING else f"\x1b[38;5;{colours[HEATS.index(character)]}m{character}"
        for character in drawn.drawn()
    )
    return text + "\x1b[0m"


def _changed(outcome: TimerOutcome, *, dry_run: bool) -> None:
    from orbitmq.client import TimerVerdict

    _show_outcome(outcome)
    verdict = outcome.verdict
    if dry_run:
        note("nothing was changed (--dry-run)")
        done = verdict is TimerVerdict.PENDING
    else:
        if outcome.send_status.lack:
            note(f"the change holds, but {outcome.send_status.lack}")
        if outcome.more:
            note("further ones are meant and were left as they are; run the command again")
        if verdict is TimerVerdict.AMBIGUOUS:
            note("several have this key; nothing was changed. --all changes them all")
        elif verdict is TimerVerdict.ASKED:
            note("RocketMQ's broker took the recall; it does not tell whether it came in time")
        left = (TimerVerdict.ALREADY_DELIVERED, TimerVerdict.TOO_LATE)
        if outcome.changed_count and verdict in left:
            note("the message was stored several times: the copies that waited were changed, and one has left")
        done = (outcome.changed_count > 0 and verdict not in left) or verdict is TimerVerdict.ASKED
    if not done:
        raise typer.Exit(ExitCode.NOT_FOUND if verdict is TimerVerdict.NOT_FOUND else ExitCode.FAILED)


def _show_outcome(outcome: TimerOutcome) -> None:
    rows: Sequence[dict[str, object]] = [
        {"verdict": match.verdict.value} | ({} if match.timer is None else timer_row(match.timer))
        for match in outcome.matches
    ]
    if chosen_output() is Output.JSON:
        show_record(
            {
                "verdict": outcome.verdict.value,
                "changed": outcome.changed_count,
                "status": outcome.send_status.name,
                "matches": list(rows),
            }
        )
    else:
        show_rows(rows, columns=VERDICT_COLUMNS, empty=outcome.verdict.value.replace("_", " "))
