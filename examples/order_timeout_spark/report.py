"""The report on the terminal: tables, drawings made of characters, and the verdict.

Rules of this file
1. Nothing is counted or compared here.
2. A terminal that cannot show blocks gets plain characters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from examples.order_timeout.orders import State
from examples.order_timeout_spark.books import Difference, Total
from examples.order_timeout_spark.figures import LATENESS_EDGES_MS, Figures, Lateness

BAR_CELLS: Final = 40
HEIGHTS: Final = " ▁▂▃▄▅▆▇█"
PLAIN_HEIGHTS: Final = " .:-=+*#@"


def print_report(
    console: Console,
    figures: Figures,
    states: Mapping[State | None, int],
    computed: Mapping[State, int],
    totals: Mapping[str, Total],
    rates: Sequence[tuple[str, str]],
) -> None:
    """states: how many orders ended in each, None for those that ended in none; rates: what and how fast, as texts."""
    blocks = console.encoding.lower().startswith("utf")
    console.print(_lateness("Lateness of the broker in ms (there to be read, minus due)", "topic", figures.by_topic))
    console.print(_bars(figures.late_messages, "█" if blocks else "#"))
    console.print(
        _lateness(
            "From the due time (of a refund: the payment) to the decision, in ms", "decision", figures.decided_after
        )
    )
    console.print(_seconds(figures.by_second, HEIGHTS if blocks else PLAIN_HEIGHTS))
    console.print(_states(states, computed, "█" if blocks else "#"))
    console.print(_totals(totals))
    throughput = Table(title="Throughput", show_header=False)
    throughput.add_column()
    throughput.add_column(justify="right")
    for what, rate in rates:
        throughput.add_row(what, rate)
    console.print(throughput)


def print_verdict(console: Console, found: Sequence[Difference], orders: int, seconds: float) -> None:
    if not found:
        verdict = "every order, amount and instant as computed by hand; nothing early, lost or doubled"
        console.print(f"{orders:,} orders in {seconds:.0f} s: {verdict}", style="green")
        return
    console.print(f"{orders:,} orders in {seconds:.0f} s: DIFFERENT from the computation by hand", style="bold red")
    for difference in found:
        console.print(Text(f"  {difference}"))


def _lateness(title: str, heading: str, rows: Mapping[str, Lateness]) -> RenderableType:
    table = Table(title=title)
    table.add_column(heading)
    for column in ("messages", "earliest", "p50", "p99", "max"):
        table.add_column(column, justify="right")
    for name, spread in rows.items():
        times = (spread.earliest, spread.p50, spread.p99, spread.latest)
        table.add_row(name, f"{spread.count:,}", *(f"{value:,.1f}" for value in times))
    return table


def _bars(late: Mapping[int, int], block: str) -> RenderableType:
    """One bar for each span of lateness that somebody fell into, and those between."""
    table = Table(title="Time-outs by lateness", show_header=False, box=None)
    table.add_column(justify="right")
    table.add_column(justify="right")
    table.add_column()
    most = max(late.values(), default=1)
    spans = [(-1, "early"), *((edge, f"{edge:,} ms and more") for edge in LATENESS_EDGES_MS)]
    shown = [number for number, (edge, _label) in enumerate(spans) if late.get(edge)]
    for edge, label in spans[shown[0] : shown[-1] + 1] if shown else []:
        count = late.get(edge, 0)
        table.add_row(label, f"{count:,}", bar(count, most, block))
    return table


def bar(count: int, most: int, block: str) -> str:
    """As long as its share of the longest, and visible where there is anything at all."""
    cells = round(BAR_CELLS * count / most) if most else 0
    return block * max(cells, 1 if count else 0)


def line(counts: Mapping[int, int], first: int, last: int, heights: str) -> str:
    """A character for each second from first to last, the higher the more."""
    most = max(counts.values(), default=1)
    steps = len(heights) - 1
    return "".join(heights[-(-counts.get(second, 0) * steps // most)] for second in range(first, last + 1))


def _seconds(by_second: Mapping[str, Mapping[int, int]], heights: str) -> RenderableType:
    table = Table(title="Decisions by the second that they are about", show_header=False, box=None)
    table.add_column()
    table.add_column(no_wrap=True, overflow="crop")
    table.add_column(justify="right")
    seconds = [second for counts in by_second.values() for second in counts]
    for decision, counts in sorted(by_second.items()):
        drawn = line(counts, min(seconds), max(seconds), heights)
        table.add_row(decision, drawn, f"at most {max(counts.values()):,}/s")
    return Group(table)


def _states(states: Mapping[State | None, int], computed: Mapping[State, int], block: str) -> RenderableType:
    table = Table(title="Orders by state")
    table.add_column("state")
    for column in ("happened", "computed by hand"):
        table.add_column(column, justify="right")
    table.add_column("")
    table.add_column("")
    most = max([*states.values(), 1])
    for state in State:
        count, wanted = states.get(state, 0), computed.get(state, 0)
        table.add_row(
            state.value, f"{count:,}", f"{wanted:,}", "ok" if count == wanted else "DIFFERENT", bar(count, most, block)
        )
    if states.get(None):
        table.add_row("none of these", f"{states[None]:,}", "0", "DIFFERENT", bar(states[None], most, block))
    return table


def _totals(totals: Mapping[str, Total]) -> RenderableType:
    table = Table(title="Running totals of the stream, at its end")
    table.add_column("decision")
    for column in ("orders", "dollars"):
        table.add_column(column, justify="right")
    for decision, total in sorted(totals.items()):
        table.add_row(decision, f"{total.orders:,}", f"{total.cents / 100:,.2f}")
    return table
