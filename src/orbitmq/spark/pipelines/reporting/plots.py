"""The plots of a report, as SVG that stands inside a page.

Rules of this file
1. Figures in, SVG text out; no window. Matplotlib's settings are those of the whole program: one plot is drawn at a time.
2. The same figures give the same text. Letters stay letters, so that a page can be searched.
3. Matplotlib measures letters in the font that it brings; the page shows them in its own, which is narrower.
4. Colours differ for those who do not see all of them; what matters has a label too.
"""

from __future__ import annotations

import io
import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from orbitmq.spark.pipelines.reporting.buckets import high_of
from orbitmq.spark.pipelines.reporting.figures import Failures, Figures

_drawing: Final = threading.Lock()

Axes: TypeAlias = Any
"""Axes of matplotlib; its own types want numbers where it takes dates as well."""

COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6d31", "#5a3d8a")
"""Okabe and Ito's, without black and yellow, and two more."""
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "orbitmq",
    "text.parse_math": False,
    "font.family": ["DejaVu Sans"],
    "font.size": 10,
    "axes.edgecolor": "#c5c9d0",
    "axes.labelcolor": "#4a4f58",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#e6e8ec",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": "#4a4f58",
    "ytick.color": "#4a4f58",
    "legend.frameon": False,
}
_SHARES: Final = (0.0, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 0.99999, 0.999999)


def lateness_by_time(figures: Figures) -> str | None:
    """Percentiles of lateness by span; None where nothing was timed."""
    found = [row for row in figures.by_slot if row.p50_ms is not None]
    if not found:
        return None

    def draw(axes: Axes) -> None:
        times = [_time(row.slot_ms or 0, figures.width_ms) for row in found]
        marker = "o" if len(found) < 60 else None
        for label, colour, values in (
            ("largest", COLOURS[5], [row.max_ms for row in found]),
            ("99 of 100", COLOURS[1], [row.p99_ms for row in found]),
            ("half", COLOURS[0], [row.p50_ms for row in found]),
        ):
            axes.plot(times, values, label=label, color=colour, marker=marker, markersize=3, linewidth=1.6)
        _lateness_axis(axes)
        _time_axis(axes)
        _legend(axes)

    return _svg(draw)


def lateness_by_share(figures: Figures) -> str | None:
    """How late at most a given share of the messages was: the whole distribution, its tail stretched; None where nothing was timed."""
    total = figures.overall.timed
    if not total:
        return None

    def draw(axes: Axes) -> None:
        seen, shares, values = 0, [1.0], [figures.distribution[0][0]]
        for low_ms, count in figures.distribution:
            seen += count
            shares.append(total / max(total - seen, 0.5))
            values.append(min(high_of(low_ms), figures.overall.max_ms or 0))
        axes.step(shares, values, where="pre", color=COLOURS[0], linewidth=1.8)
        axes.set_xscale("log")
        ticks = [share for share in _SHARES if (1 - share) * total >= 0.5]
        axes.set_xticks([1 / (1 - share) for share in ticks], [f"{share * 100:g} %" for share in ticks])
        axes.minorticks_off()
        axes.set_xlabel("share of messages that were at most so late")
        axes.margins(x=0)
        _lateness_axis(axes)

    return _svg(draw)


def failures(figures: Figures) -> str | None:
    """Retries and dead letters by span, as bars one upon the other; a span in which nothing was is a gap. None without any."""

    def counts(rows: Sequence[Failures]) -> Counter[int]:
        found: Counter[int] = Counter()
        for row in rows:
            found[row.slot_ms] += row.messages
        return found

    if not figures.retries and not figures.dead_letters:
        return None
    series = {
        "retries": (COLOURS[1], counts(figures.retries)),
        "dead letters": (COLOURS[5], counts(figures.dead_letters)),
    }
    slots = sorted({slot for _, found in series.values() for slot in found})

    def draw(axes: Axes) -> None:
        days = figures.width_ms / 86_400_000
        times = [_time(slot, figures.width_ms) for slot in slots]
        bottom = [0.0] * len(slots)
        for name, (colour, found) in series.items():
            values = [found[slot] for slot in slots]
            axes.bar(times, values, width=days, bottom=bottom, label=name, color=colour, linewidth=0)
            bottom = [below + value for below, value in zip(bottom, values, strict=True)]
        axes.set_ylabel("messages in a span")
        axes.set_ylim(0, max(bottom) * 1.05 or 1)
        _count_axis(axes)
        _time_axis(axes)
        _legend(axes)

    return _svg(draw)


def _time(begin_ms: int, width_ms: int) -> datetime:
    """The middle of a span."""
    return datetime.fromtimestamp((begin_ms + width_ms / 2) / 1000, UTC)


def _time_axis(axes: Axes) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    # With five ticks at least there are lengths of time, four hours and a half among them, that no interval suits.
    locator = AutoDateLocator(tz=UTC, minticks=4, maxticks=9)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
    axes.margins(x=0.01)


def _legend(axes: Axes) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=4, borderaxespad=0.2)


def _lateness_axis(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter

    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("late by")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))


def _count_axis(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, min_n_ticks=2))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))


def duration(value_ms: float) -> str:
    """In the unit that reads well: 12 ms, 1.5 s, 3 min, 2 h, 4 d."""
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if value_ms >= size:
            return f"{value_ms / size:.3g} {unit}"
    return f"{value_ms:.3g} ms"


def _svg(draw: Callable[[Axes], None]) -> str:
    with _drawing:
        from matplotlib import rc_context
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

        with rc_context(_STYLE):
            figure = Figure(figsize=(9.6, 3.2), layout="constrained")
            FigureCanvasSVG(figure)
            draw(figure.add_subplot())
            out = io.StringIO()
            figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    return re.sub(r'width="[0-9.]+pt" height="[0-9.]+pt"', "", text, count=1)
