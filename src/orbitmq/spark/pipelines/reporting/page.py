"""The report as one HTML page that needs nothing but itself: no script, no font, no picture from elsewhere.

Rules of this file
1. Figures in, text out. Names of topics and groups are other people's text: the template escapes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from orbitmq.spark.pipelines.reporting import plots
from orbitmq.spark.pipelines.reporting.figures import Figures

ROWS_SHOWN: Final = 50
"""Lines of a table on the page; the Parquet files hold all."""


class Tile(NamedTuple):
    """A figure that stands at the top."""

    label: str
    value: str
    note: str = ""
    alarm: bool = False


class Part(NamedTuple):
    """A heading with plots and a table below it; without anything to say it says so in words. `left_out`: lines that the table does not
    show."""

    title: str
    words: str
    drawn: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    lines: tuple[tuple[str, ...], ...] = ()
    left_out: int = 0


def page(title: str, source: str, made_ms: int, figures: Figures) -> str:
    """The page. source: what was read, in words; made_ms: when."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("orbitmq.spark.pipelines.reporting", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.jinja").render(
        title=title,
        source=source,
        made=_instant(made_ms),
        span=f"{_instant(figures.from_ms)} to {_instant(figures.until_ms)}" if figures.from_ms is not None else "",
        width=plots.duration(figures.width_ms),
        tiles=tiles(figures),
        parts=[_lateness(figures), _failures(figures)],
    )


def tiles(figures: Figures) -> list[Tile]:
    """What a reader wants to know first."""
    late = figures.overall
    found = [
        Tile("messages", f"{figures.messages:,}", f"{figures.undated:,} without a time" if figures.undated else "")
    ]
    if late.timed or late.early:
        found += [
            Tile(
                "timed", f"{late.timed:,}", f"{late.overdue:,} were due before they were sent" if late.overdue else ""
            ),
            Tile("late, half of them", _late(late.p50_ms)),
            Tile("late, 99 of 100", _late(late.p99_ms)),
            Tile("late, at most", _late(late.max_ms)),
            Tile(
                "too early",
                f"{late.early:,}",
                f"by up to {plots.duration(-late.earliest_ms)}" if late.early else "never",
                alarm=bool(late.early),
            ),
        ]
    found.append(Tile("retries", f"{sum(row.messages for row in figures.retries):,}"))
    dead = sum(row.messages for row in figures.dead_letters)
    found.append(Tile("dead letters", f"{dead:,}", alarm=bool(dead)))
    return found


def _lateness(figures: Figures) -> Part:
    lines = [
        (
            row.topic,
            f"{row.timed:,}",
            *(_late(value) for value in (row.p50_ms, row.p90_ms, row.p99_ms, row.p999_ms, row.max_ms)),
            f"{row.early:,}",
            f"{row.overdue:,}",
        )
        for row in sorted(figures.by_topic, key=lambda row: -row.timed)
    ]
    words = (
        "How long after its due time a message was stored for its consumers. What was due before it was sent is counted apart."
        if lines
        else "No message had a due time."
    )
    return Part(
        "Lateness",
        words,
        _drawn(plots.lateness_by_time(figures), plots.lateness_by_share(figures)),
        (
            "topic",
            "timed",
            "half",
            "90 of 100",
            "99 of 100",
            "999 of 1000",
            "largest",
            "too early",
            "overdue when sent",
        ),
        *_shown(lines),
    )


def _failures(figures: Figures) -> Part:
    if not figures.retries and not figures.dead_letters:
        return Part("Retries and dead letters", "None among the topics that were read.")
    groups: dict[str, list[int]] = {}
    for column, rows in enumerate((figures.retries, figures.dead_letters)):
        for row in rows:
            line = groups.setdefault(row.group, [0, 0, 0])
            line[column] += row.messages
            line[2] = max(line[2], row.attempts)
    lines = [
        (group, f"{retries:,}", f"{dead:,}", str(attempts))
        for group, (retries, dead, attempts) in sorted(groups.items(), key=lambda item: (-item[1][1], -item[1][0]))
    ]
    return Part(
        "Retries and dead letters",
        "Messages that a consumer group did not manage to process: put again for later, or given up.",
        _drawn(plots.failures(figures)),
        ("group", "retries", "dead letters", "most attempts"),
        *_shown(lines),
    )


def _drawn(*found: str | None) -> tuple[str, ...]:
    return tuple([plot for plot in found if plot is not None])


def _shown(lines: Iterable[tuple[str, ...]]) -> tuple[tuple[tuple[str, ...], ...], int]:
    found = tuple(lines)
    return found[:ROWS_SHOWN], max(0, len(found) - ROWS_SHOWN)


def _late(value_ms: int | None) -> str:
    return "-" if value_ms is None else plots.duration(value_ms)


def _instant(at_ms: int | None) -> str:
    if at_ms is None:
        return ""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
