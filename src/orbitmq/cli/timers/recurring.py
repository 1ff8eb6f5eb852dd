"""`orbitmq recurring`: messages that a broker sends again and again: put, list, show, pause, resume, delete, merge; and what a rule
will do, without asking a server.

Rules of this file
1. What `preview` shows is worked out by the code that the broker uses, from the same rule.
2. An instant that is given without an offset is the local time of the rule's zone, as its cron expression is.
3. A command that changes something says what it did; doing it again is no error.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from orbitmq.cli.asking.cluster_access import TopicArgument, TopicOption, run
from orbitmq.cli.asking.shared_options import ClusterCommand, OutputCommand
from orbitmq.cli.shared.chosen import Output, chosen_output
from orbitmq.cli.shared.exit_codes import ExitCode
from orbitmq.cli.shared.instants import instant, parse_due_ms, parse_instant_ms, parse_span_ms
from orbitmq.cli.shared.output import note, show_done, show_record, show_rows
from orbitmq.cli.shared.pairs import parse_pairs
from orbitmq.clock import SystemClock
from orbitmq.limits import recurrence as limits

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import tzinfo

    from orbitmq.client import Client, RecurringChange, RecurringMessage, RecurringRun
    from orbitmq.timing.recurrence.schedule import Schedule

app = typer.Typer(
    help="Recurring messages: put, list, show, pause, resume, delete, merge, preview.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)


NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the recurring message.", show_default=False)]
LIST_COLUMNS: Final = ("name", "topic", "rule", "zone", "next", "state", "runs", "broker")


class OverlapChoice(Enum):
    """As the broker's policy of that name."""

    ALLOW = "allow"
    SKIP = "skip"


class CatchUpChoice(Enum):
    """As the broker's policy of that name."""

    NONE = "none"
    LATEST = "latest"
    ALL = "all"


@app.callback()
def recurring() -> None:
    """Recurring messages: put, list, show, pause, resume, delete, merge, preview."""


@app.command(cls=ClusterCommand)
def put(
    name: NameArgument,
    topic: TopicArgument,
    body: Annotated[str, typer.Argument(help="Text of the message.", show_default=False)],
    cron: Annotated[
        str | None,
        typer.Option(
            "--cron", help="Minute hour day-of-month month day-of-week: '0 9 * * MON-FRI'.", show_default=False
        ),
    ] = None,
    every: Annotated[
        str | None, typer.Option("--every", help="An interval instead: 90s, 10m, 36h.", show_default=False)
    ] = None,
    zone: Annotated[str, typer.Option("--zone", help="Time zone of --cron, such as Europe/Berlin.")] = "UTC",
    start: Annotated[
        str | None,
        typer.Option("--start", help="No run is earlier; an interval is counted from it.", show_default=False),
    ] = None,
    end: Annotated[str | None, typer.Option("--end", help="Runs are before this instant.", show_default=False)] = None,
    times: Annotated[
        int | None, typer.Option("--times", min=1, help="End after so many messages.", show_default=False)
    ] = None,
    jitter: Annotated[str, typer.Option("--jitter", help="Put each run off at random by up to this: 30s, 10m.")] = "0s",
    overlap: Annotated[
        OverlapChoice, typer.Option("--overlap", help="skip: leave a run out while the message before is not consumed.")
    ] = OverlapChoice.ALLOW,
    group: Annotated[
        str | None,
        typer.Option("--overlap-group", help="The consumer group that --overlap skip asks about.", show_default=False),
    ] = None,
    catch_up: Annotated[
        CatchUpChoice,
        typer.Option("--catch-up", help="Which runs happen late that fell due while the broker was down."),
    ] = CatchUpChoice.LATEST,
    catch_up_max: Annotated[
        int | None,
        typer.Option(
            "--catch-up-max",
            min=1,
            max=limits.RECURRENCE_CATCH_UP_MAX,
            help="Bound of --catch-up all.",
            show_default=False,
        ),
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="One tag.", show_default=False)] = None,
    key: Annotated[list[str] | None, typer.Option("--key", help="A key; may be repeated.", show_default=False)] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", "-p", metavar="NAME=VALUE", help="A user property.")
    ] = None,
) -> None:
    """Create a recurring message, or replace the one of that name.

    An instant is 2026-03-29T02:30 (local time of the zone), or with an offset or Z, or milliseconds, or 10m (from now).
    """
    from orbitmq.timing.recurrence.cron_times import Zone

    if (cron is None) is (every is None):
        raise typer.BadParameter("give one of --cron and --every")
    info, now_ms = Zone(zone).info, SystemClock().now_ms()
    start_ms = None if start is None else _ahead_ms("--start", start, now_ms, info)
    end_ms = None if end is None else _ahead_ms("--end", end, now_ms, info)
    every_s = None if every is None else parse_span_ms("--every", every) / 1_000
    jitter_s = parse_span_ms("--jitter", jitter) / 1_000
    pairs = parse_pairs("--property", properties)

    async def work(client: Client) -> RecurringChange:
        return await client.recurring.put(
            name,
            topic,
            body.encode(),
            cron=cron,
            every=every_s,
            zone=zone,
            start=start_ms,
            end=end_ms,
            count_max=times,
            jitter=jitter_s,
            overlap=overlap.value,
            overlap_group=group,
            catch_up=catch_up.value,
            catch_up_max=catch_up_max,
            tag=tag,
            key=key or None,
            properties=pairs,
        )

    _changed(name, run(work))


@app.command("list", cls=ClusterCommand)
def list_recurring(topic: TopicOption = None) -> None:
    """List the recurring messages of all brokers."""

    async def work(client: Client) -> tuple[list[dict[str, object]], Sequence[str]]:
        return [_row(each) async for each in client.recurring.list(topic=topic)], await client.recurring.brokers_away()

    rows, away = run(work)
    show_rows(rows, columns=LIST_COLUMNS, empty="nothing recurs")
    for broker in away:
        note(f"broker {broker}, which keeps recurring messages, is not registered: what it keeps is not shown")


@app.command(cls=ClusterCommand)
def show(
    name: NameArgument,
    count: Annotated[int, typer.Option("--count", min=1, max=limits.RECURRENCE_PREVIEW_MAX, help="Runs to show.")] = 10,
) -> None:
    """Show a recurring message in full, and its next runs."""

    async def work(client: Client) -> tuple[RecurringMessage | None, tuple[RecurringRun, ...]]:
        found = await client.recurring.get(name)
        return found, () if found is None else await client.recurring.next_runs(name, count)

    found, runs = run(work)
    if found is None:
        note(f"there is no recurring message {name!r}")
        raise typer.Exit(ExitCode.NOT_FOUND)
    from orbitmq.cli.shared.message_view import body_text

    text, encoding = body_text(found.body)
    record = _row(found) | {
        "body": text,
        "body_encoding": encoding,
        "next_runs": [instant(each.at_ms) for each in runs],
    }
    if chosen_output() is not Output.JSON:
        record = {name: value for name, value in record.items() if value not in (None, "", [], {})}
    show_record(record)


@app.command(cls=ClusterCommand)
def pause(name: NameArgument) -> None:
    """Let no run happen until it is resumed."""

    async def work(client: Client) -> RecurringChange:
        return await client.recurring.pause(name)

    _changed(name, run(work))


@app.command(cls=ClusterCommand)
def resume(name: NameArgument) -> None:
    """Let runs happen again; those of the pause are not made up for."""

    async def work(client: Client) -> RecurringChange:
        return await client.recurring.resume(name)

    _changed(name, run(work))


@app.command(cls=ClusterCommand)
def delete(name: NameArgument) -> None:
    """Forget a recurring message. What it has sent stays."""

    async def work(client: Client) -> RecurringChange:
        return await client.recurring.delete(name)

    _changed(name, run(work))


@app.command(cls=ClusterCommand)
def merge(
    name: NameArgument,
    keep: Annotated[
        str | None,
        typer.Option(
            "--keep", metavar="BROKER", help="Whose stays; the one defined last if not given.", show_default=False
        ),
    ] = None,
) -> None:
    """Leave one where several brokers keep a recurring message of this name (`twice` in the list)."""

    async def work(client: Client) -> RecurringMessage:
        return await client.recurring.merge(name, keep=keep)

    kept = run(work)
    show_done(f"recurring message {name!r} is kept by broker {kept.broker_name}", _row(kept))


def _ahead_ms(option: str, text: str, now_ms: int, info: tzinfo) -> int:
    """An instant that lies ahead; a span of time is from now on."""
    if text[-1:].isalpha() and text[-1:] != "Z" and text != "now":
        return parse_due_ms(option, text, now_ms)
    return parse_instant_ms(option, text, now_ms, info)


def _changed(name: str, change: RecurringChange) -> None:
    now = change.recurring
    then = "" if now is None or now.next_ms is None else f", next run at {instant(now.next_ms)}"
    record: dict[str, object] = {"outcome": change.outcome.value, "status": change.send_status.name, "name": name}
    if now is not None:
        record |= _row(now)
    if change.send_status.lack:
        note(f"the change holds, but {change.send_status.lack}")
    show_done(f"recurring message {name!r}: {change.outcome.value}{then}", record)


def _exactly(ms: int) -> str:
    """A span of time in the largest unit that has no rest: `90s`, `2h`."""
    for unit in ("d", "h", "m", "s"):
        if ms and not ms % parse_span_ms("--every", f"1{unit}"):
            return f"{ms // parse_span_ms('--every', f'1{unit}')}{unit}"
    return f"{ms}ms"


def _row(recurring: RecurringMessage) -> dict[str, object]:
    """A recurring message for a table or JSON."""
    ended = recurring.next_ms is None
    state = "paused" if recurring.paused else "ended" if ended else "active"
    state = "trouble" if recurring.trouble else "twice" if recurring.twins else state
    return {
        "name": recurring.name,
        "topic": recurring.topic,
        "rule": recurring.cron or f"every {_exactly(recurring.every_ms or 0)}",
        "zone": recurring.zone,
        "next": instant(recurring.next_ms or 0),
        "state": state,
        "runs": recurring.stored_count,
        "broker": recurring.broker_name,
        "trouble": recurring.trouble,
        "twins": list(recurring.twins),
        "cron": recurring.cron,
        "every_ms": recurring.every_ms,
        "next_ms": recurring.next_ms,
        "start_ms": recurring.start_ms,
        "end_ms": recurring.end_ms,
        "count_max": recurring.count_max,
        "jitter_ms": recurring.jitter_ms,
        "overlap": recurring.overlap.value,
        "overlap_group": recurring.overlap_group,
        "catch_up": recurring.catch_up.value,
        "catch_up_max": recurring.catch_up_max,
        "paused": recurring.paused,
        "made": instant(recurring.made_ms),
        "settled": instant(recurring.settled_ms),
        "tag": recurring.tag,
        "keys": list(recurring.keys),
        "properties": dict(recurring.properties),
        "body_bytes": recurring.body_bytes,
    }


@app.command(cls=OutputCommand)
def preview(
    expression: Annotated[
        str | None,
        typer.Argument(
            help="Cron expression: minute hour day-of-month month day-of-week, or six fields with the second in front.",
            show_default=False,
        ),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option("--every", help="An interval (90s, 10m, 36h) instead of an expression.", show_default=False),
    ] = None,
    zone: Annotated[str, typer.Option("--zone", help="Time zone, such as Europe/Berlin.")] = "UTC",
    count: Annotated[int, typer.Option("--count", min=1, max=limits.RECURRENCE_PREVIEW_MAX, help="Runs to show.")] = 10,
    after: Annotated[str, typer.Option("--after", help="Show runs later than this instant.")] = "now",
    start: Annotated[
        str | None,
        typer.Option("--start", help="No run is earlier; an interval is counted from it.", show_default=False),
    ] = None,
    end: Annotated[str | None, typer.Option("--end", help="Runs are before this instant.", show_default=False)] = None,
    jitter: Annotated[
        str, typer.Option("--jitter", help="Time by which each run may be put off at random: 30s, 10m.")
    ] = "0s",
) -> None:
    """Show the next runs of a cron expression or an interval, in UTC and in local time. Asks no server.

    An instant is 2026-03-29T02:30 (local time of the zone), or with an offset or Z, or milliseconds.
    """
    from orbitmq.timing.recurrence.cron_times import Zone
    from orbitmq.timing.recurrence.rule import Rule
    from orbitmq.timing.recurrence.schedule import Schedule

    info = Zone(zone).info
    now_ms = SystemClock().now_ms()
    after_ms = parse_instant_ms("--after", after, now_ms, info)
    rule = Rule(
        cron=expression,
        interval_ms=None if every is None else parse_span_ms("--every", every),
        zone=zone,
        start_ms=None if start is None else parse_instant_ms("--start", start, now_ms, info),
        end_ms=None if end is None else parse_instant_ms("--end", end, now_ms, info),
        jitter_ms=parse_span_ms("--jitter", jitter),
    )
    rows = _rows(Schedule("preview", after_ms, rule, after_ms), zone, after_ms, count)
    columns = ["utc", "local", "day", *(["latest_utc"] if rule.jitter_ms else [])]
    show_rows(rows, columns=columns, empty="no run")
    if 0 < len(rows) < count:
        note("no further runs")


def _rows(schedule: Schedule, zone: str, after_ms: int, count: int) -> list[dict[str, Any]]:
    from orbitmq.timing.recurrence.cron_times import Zone

    info = Zone(zone).info
    planned = [run.planned_ms for run in islice(schedule.upcoming(after_ms), count + 1)]
    rows = []
    for planned_ms, next_ms in zip(planned[:count], [*planned[1:], None], strict=False):
        local = datetime.fromtimestamp(planned_ms / 1000, tz=info)
        latest_ms = planned_ms + schedule.jitter_bound_ms(planned_ms, next_ms)
        rows.append(
            {
                "planned_ms": planned_ms,
                "utc": instant(planned_ms),
                "local": local.isoformat(),
                "day": local.strftime("%a"),
                "latest_ms": latest_ms,
                "latest_utc": instant(latest_ms),
            }
        )
    return rows
