"""`orbitmq recurring`: what a recurring message will do, without asking a server.

Rules of this file
1. What is shown is worked out by the code that the broker uses, from the same rule.
2. An instant that is given without an offset is the local time of the rule's zone, as its cron expression is.
"""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbitmq import limits
from orbitmq.cli.instants import instant, parse_instant_ms, parse_span_ms
from orbitmq.cli.output import note, show_rows
from orbitmq.cli.shared_options import OutputCommand
from orbitmq.clock import SystemClock

if TYPE_CHECKING:
    from orbitmq.timing.recurrence.schedule import Schedule

app = typer.Typer(
    help="Recurring messages: preview.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)


@app.callback()
def recurring() -> None:
    """Recurring messages: preview."""


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
    from orbitmq.timing.recurrence.rule import Rule
    from orbitmq.timing.recurrence.schedule import Schedule
    from orbitmq.timing.recurrence.zones import Zone

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
    from orbitmq.timing.recurrence.zones import Zone

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
